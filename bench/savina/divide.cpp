// Savina's benchmarks of work that is divided among actors.
#include <algorithm>
#include <hyperframes/runtime/combinators.hpp>
#include <memory>
#include <vector>

#include "actors.hpp"
#include "kernels.hpp"
#include "root.hpp"

namespace hyperframes::bench::savina {
namespace {

// ---- a master and its workers -----------------------------------------------------------------

/// Gives what it is offered to its workers in turn, and reports the sum of their results once all
/// that was offered is finished.
template <class Service, class Work, class Worker, class Plan>
class Master final : public Service::Actor {
 public:
  Master(Plan plan, protocol::Root::Ref root) : plan_(plan), root_(root) {}

 private:
  Task<void> started() override {
    for (unsigned i = 0; i < plan_.program.workers; ++i)
      workers_.push_back(co_await this->template spawn<Worker>(with_room(), plan_, this->self()));
  }
  Task<void> offer(Work work) override {
    ++unfinished_;
    co_await workers_[turn_++ % workers_.size()].work(work);
  }
  Task<void> finish(protocol::Number result) override {
    sum_ += result.value();
    if (--unfinished_ > 0) return {};
    return root_.report({.value = sum_});
  }
  Plan plan_;
  std::vector<typename Worker::Service::Ref> workers_;
  std::size_t turn_ = 0;
  std::int64_t unfinished_ = 0, sum_ = 0;
  protocol::Root::Ref root_;
};

// ---- recursive matrix product -----------------------------------------------------------------

struct MatrixPlan {
  MatrixProduct program;
  std::shared_ptr<Matrices> matrices;
};

/// Divides a block of the product in four until it is small enough.
class BlockWorker final : public protocol::BlockWorker::Actor {
 public:
  BlockWorker(MatrixPlan plan, protocol::BlockMaster::Ref master)
      : plan_(std::move(plan)), master_(master) {}

 private:
  Task<void> work(protocol::Block block) override {
    const std::uint32_t row = block.row(), column = block.column(), half = block.size() / 2;
    std::int64_t result = 0;
    if (block.size() <= plan_.program.block) {
      result = plan_.matrices->multiply_block(row, column, block.size());
    } else {
      for (const std::uint32_t down : {0u, half})
        for (const std::uint32_t right : {0u, half})
          co_await master_.offer({.row = row + down, .column = column + right, .size = half});
    }
    co_await master_.finish({.value = result});
  }
  MatrixPlan plan_;
  protocol::BlockMaster::Ref master_;
};

class MatrixRoot final : public Root {
 public:
  explicit MatrixRoot(MatrixProduct program) : program_(program) {}

 private:
  using BlockMaster = Master<protocol::BlockMaster, protocol::Block, BlockWorker, MatrixPlan>;
  Task<std::int64_t> fork() override {
    const MatrixPlan plan{program_, std::make_shared<Matrices>(program_.size)};
    auto master = co_await spawn<BlockMaster>(with_room(), plan, self());
    co_await master.offer({.row = 0, .column = 0, .size = program_.size});
    co_return 1;
  }
  MatrixProduct program_;
};

// ---- n queens ---------------------------------------------------------------------------------

struct QueensPlan {
  NQueens program;
};

/// Offers each way to fill the next row, or counts the solutions when few rows are left.
class BoardWorker final : public protocol::BoardWorker::Actor {
 public:
  BoardWorker(QueensPlan plan, protocol::BoardMaster::Ref master)
      : queens_(plan.program.queens),
        sequential_rows_(plan.program.sequential_rows),
        master_(master) {}

 private:
  Task<void> work(protocol::Board board) override {
    const QueenPosition position{board.row(), board.columns(), board.left(), board.right()};
    std::int64_t solutions = 0;
    if (position.row + sequential_rows_ >= queens_) {
      solutions = count_solutions(position, queens_);
    } else {
      for (const QueenPosition& next : next_positions(position, queens_))
        co_await master_.offer({next.row, next.columns, next.left, next.right});
    }
    co_await master_.finish({.value = solutions});
  }
  unsigned queens_, sequential_rows_;
  protocol::BoardMaster::Ref master_;
};

class QueensRoot final : public Root {
 public:
  explicit QueensRoot(NQueens program) : program_(program) {}

 private:
  using BoardMaster = Master<protocol::BoardMaster, protocol::Board, BoardWorker, QueensPlan>;
  Task<std::int64_t> fork() override {
    auto master = co_await spawn<BoardMaster>(with_room(), QueensPlan{program_}, self());
    co_await master.offer({});
    co_return 1;
  }
  NQueens program_;
};

// ---- trapezoid --------------------------------------------------------------------------------

class AreaWorker final : public protocol::Starter::Actor {
 public:
  AreaWorker(Trapezoid program, std::int64_t index, protocol::Root::Ref root)
      : program_(program), index_(index), root_(root) {}

 private:
  Task<void> begin(protocol::Nothing) override {
    return root_.report({.value = billionths(trapezoid_share(program_, index_))});
  }
  Trapezoid program_;
  std::int64_t index_;
  protocol::Root::Ref root_;
};

class TrapezoidRoot final : public Root {
 public:
  explicit TrapezoidRoot(Trapezoid program) : program_(program) {}

 private:
  Task<std::int64_t> fork() override {
    for (std::int64_t i = 0; i < program_.workers; ++i) {
      auto worker = co_await spawn<AreaWorker>(SpawnOptions{}, program_, i, self());
      co_await worker.begin({});
    }
    co_return program_.workers;
  }
  Trapezoid program_;
};

// ---- quicksort --------------------------------------------------------------------------------

using List = std::vector<std::int64_t>;

/// Has its two parts sorted by an actor each, unless there are few values.
class QuicksortActor final : public protocol::Quicksort::Actor {
 public:
  explicit QuicksortActor(Quicksort program) : program_(program) {}

 private:
  Task<void> sort(protocol::Values request, Reply<protocol::Values> reply) override {
    const auto values = request.values();
    if (static_cast<std::int64_t>(values.size()) < program_.sequential_below) {
      List sorted(values.begin(), values.end());
      std::ranges::sort(sorted);
      reply.send({.values = std::move(sorted)});
      co_return;
    }
    Parts parts = partition(values.data(), values.size());
    const auto sorted = co_await when_all(sort_elsewhere(std::move(parts.below)),
                                          sort_elsewhere(std::move(parts.above)));
    List all = std::move(parts.equal);
    const auto below = std::get<0>(sorted).values(), above = std::get<1>(sorted).values();
    all.insert(all.begin(), below.begin(), below.end());
    all.insert(all.end(), above.begin(), above.end());
    reply.send({.values = std::move(all)});
  }
  Task<protocol::Values> sort_elsewhere(List values) {
    auto other = co_await spawn<QuicksortActor>(SpawnOptions{}, program_);
    co_return co_await other.sort({.values = std::move(values)});
  }
  Quicksort program_;
};

class QuicksortRoot final : public Root {
 public:
  explicit QuicksortRoot(Quicksort program) : program_(program) {}

 private:
  Task<std::int64_t> fork() override {
    auto first = co_await spawn<QuicksortActor>(SpawnOptions{}, program_);
    const auto sorted = co_await first.sort({.values = random_values(program_.values, 30)});
    const auto values = sorted.values();
    co_await self().report({.value = checksum(List(values.begin(), values.end()))});
    co_return 1;
  }
  Quicksort program_;
};

}  // namespace

Outcome run(const MatrixProduct& program) { return timed<MatrixRoot>(program); }
Outcome run(const NQueens& program) { return timed<QueensRoot>(program); }
Outcome run(const Trapezoid& program) { return timed<TrapezoidRoot>(program); }
Outcome run(const Quicksort& program) { return timed<QuicksortRoot>(program); }

}  // namespace hyperframes::bench::savina
