// Savina's benchmarks of work that is divided among actors, on CAF.
#include <algorithm>
#include <memory>
#include <vector>

#include "savina_root.hpp"

namespace hyperframes::bench::savina::caf_peer {
namespace {

using Finish = caf::atom_constant<caf::atom("finish")>;
using Offer = caf::atom_constant<caf::atom("offer")>;
using Sort = caf::atom_constant<caf::atom("sort")>;
using Work = caf::atom_constant<caf::atom("work")>;

// ---- a master and its workers -----------------------------------------------------------------

struct MasterState {
  std::vector<caf::actor> children;  // the workers
  std::size_t turn = 0;
  std::int64_t unfinished = 0, sum = 0;
};
using MasterActor = caf::stateful_actor<MasterState>;

/// Gives what it is offered, a message of `Fields`, to its workers in turn, and reports the sum of
/// their results once all that was offered is finished. `hire(self)` starts a worker.
template <class Hire, class... Fields>
caf::behavior master(MasterActor* self, unsigned workers, caf::actor root, Hire hire) {
  for (unsigned i = 0; i < workers; ++i) hire(self);
  return {[=](Offer, Fields... work) {
            MasterState& state = self->state;
            ++state.unfinished;
            self->send(state.children[state.turn++ % state.children.size()], Work::value, work...);
          },
          [=](Finish, std::int64_t result) {
            MasterState& state = self->state;
            state.sum += result;
            if (--state.unfinished == 0) self->send(root, Report::value, state.sum);
          }};
}

// ---- recursive matrix product -----------------------------------------------------------------

/// Divides a block of the product in four until it is small enough.
caf::behavior block_worker(caf::event_based_actor* self, MatrixProduct program,
                           std::shared_ptr<Matrices> matrices, caf::actor master) {
  return {[=](Work, std::uint32_t row, std::uint32_t column, std::uint32_t size) {
    const std::uint32_t half = size / 2;
    std::int64_t result = 0;
    if (size <= program.block) {
      result = matrices->multiply_block(row, column, size);
    } else {
      for (const std::uint32_t down : {0u, half})
        for (const std::uint32_t right : {0u, half})
          self->send(master, Offer::value, row + down, column + right, half);
    }
    self->send(master, Finish::value, result);
  }};
}

// ---- n queens ---------------------------------------------------------------------------------

/// Offers each way to fill the next row, or counts the solutions when few rows are left.
caf::behavior board_worker(caf::event_based_actor* self, NQueens program, caf::actor master) {
  return {
      [=](Work, std::uint32_t row, std::uint32_t columns, std::uint32_t left, std::uint32_t right) {
        const QueenPosition position{row, columns, left, right};
        std::int64_t solutions = 0;
        if (row + program.sequential_rows >= program.queens) {
          solutions = count_solutions(position, program.queens);
        } else {
          for (const QueenPosition& next : next_positions(position, program.queens))
            self->send(master, Offer::value, next.row, next.columns, next.left, next.right);
        }
        self->send(master, Finish::value, solutions);
      }};
}

// ---- trapezoid --------------------------------------------------------------------------------

caf::behavior area_worker(caf::event_based_actor* self, Trapezoid program, std::int64_t index,
                          caf::actor root) {
  return {
      [=](Begin) { self->send(root, Report::value, billionths(trapezoid_share(program, index))); }};
}

// ---- quicksort --------------------------------------------------------------------------------

using List = std::vector<std::int64_t>;

struct QuicksortState {
  std::vector<caf::actor> children;
  caf::typed_response_promise<List> answer;
  List values, below, above;
  Pivot pivot{0};
  int missing = 2;
};
/// Has its two parts sorted by an actor each, unless there are few values.
caf::behavior quicksort(caf::stateful_actor<QuicksortState>* self, Quicksort program) {
  auto complete = [=] {
    QuicksortState& state = self->state;
    if (--state.missing > 0) return;
    auto into = std::copy(state.below.begin(), state.below.end(), state.values.begin());
    into = std::fill_n(into, state.pivot.equal, state.pivot.value);
    std::copy(state.above.begin(), state.above.end(), into);
    state.answer.deliver(std::move(state.values));
  };
  auto sort_elsewhere = [=](List* part) {
    self->request(start(self, quicksort, program), caf::infinite, Sort::value, std::move(*part))
        .then([=](List& sorted) {
          *part = std::move(sorted);
          complete();
        });
  };
  auto divide = [=] {
    QuicksortState& state = self->state;
    const List& values = state.values;
    state.pivot = choose_pivot(values.data(), values.size());
    state.below.resize(state.pivot.below);
    state.above.resize(values.size() - state.pivot.below - state.pivot.equal);
    part(values.data(), values.size(), state.pivot, state.below.data(), state.above.data());
    sort_elsewhere(&state.below);
    sort_elsewhere(&state.above);
  };
  return {[=](Sort, List& values) {
    self->state.answer = self->make_response_promise<List>();
    self->state.values = std::move(values);
    if (static_cast<std::int64_t>(self->state.values.size()) >= program.sequential_below)
      return divide();
    std::sort(self->state.values.begin(), self->state.values.end());
    self->state.answer.deliver(std::move(self->state.values));
  }};
}

}  // namespace

Outcome run(const MatrixProduct& program) {
  return timed([=](RootActor* self) {
    auto matrices = std::make_shared<Matrices>(program.size);
    auto hire = [=](MasterActor* master) {
      start(master, block_worker, program, matrices, handle_of(master));
    };
    using Field = std::uint32_t;
    const auto first = start(self, master<decltype(hire), Field, Field, Field>, program.workers,
                             handle_of(self), hire);
    self->send(first, Offer::value, Field{0}, Field{0}, Field{program.size});
    return 1;
  });
}

Outcome run(const NQueens& program) {
  return timed([=](RootActor* self) {
    auto hire = [=](MasterActor* master) {
      start(master, board_worker, program, handle_of(master));
    };
    using Field = std::uint32_t;
    const auto first = start(self, master<decltype(hire), Field, Field, Field, Field>,
                             program.workers, handle_of(self), hire);
    self->send(first, Offer::value, Field{0}, Field{0}, Field{0}, Field{0});
    return 1;
  });
}

Outcome run(const Trapezoid& program) {
  return timed([=](RootActor* self) {
    for (std::int64_t i = 0; i < program.workers; ++i)
      self->send(start(self, area_worker, program, i, handle_of(self)), Begin::value);
    return program.workers;
  });
}

Outcome run(const Quicksort& program) {
  return timed([=](RootActor* self) {
    self->request(start(self, quicksort, program), caf::infinite, Sort::value,
                  random_values(program.values, 30))
        .then([=](const List& sorted) {
          self->send(self, Report::value, checksum(sorted.data(), sorted.size()));
        });
    return 1;
  });
}

}  // namespace hyperframes::bench::savina::caf_peer
