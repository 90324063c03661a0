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

/// Values in a buffer, which is what travels.
class List {
 public:
  explicit List(std::size_t count) : buffer_(Buffer::heap(count * sizeof(std::int64_t))) {}
  explicit List(Segments segments) : buffer_(std::move(segments[0])) {}
  std::int64_t* begin() const { return reinterpret_cast<std::int64_t*>(buffer_.data()); }
  std::int64_t* end() const { return begin() + size(); }
  std::size_t size() const { return buffer_.size() / sizeof(std::int64_t); }
  Segments segments() && { return Segments(std::move(buffer_)); }

 private:
  Buffer buffer_;
};

/// Has its two parts sorted by an actor each, unless there are few values.
class QuicksortActor final : public protocol::Quicksort::Actor {
 public:
  explicit QuicksortActor(Quicksort program) : program_(program) {}

 private:
  Task<void> sort(protocol::Nothing, Segments request,
                  Reply<WithSegments<protocol::Nothing>> reply) override {
    List values(std::move(request));
    if (static_cast<std::int64_t>(values.size()) < program_.sequential_below) {
      std::sort(values.begin(), values.end());
    } else {
      values = co_await divide(std::move(values));
    }
    reply.send({}, std::move(values).segments());
  }
  Task<List> divide(List values) {
    const Pivot pivot = choose_pivot(values.begin(), values.size());
    List below(pivot.below), above(values.size() - pivot.below - pivot.equal);
    part(values.begin(), values.size(), pivot, below.begin(), above.begin());
    const auto sorted =
        co_await when_all(sort_elsewhere(std::move(below)), sort_elsewhere(std::move(above)));
    std::int64_t* into = std::ranges::copy(std::get<0>(sorted), values.begin()).out;
    into = std::fill_n(into, pivot.equal, pivot.value);
    std::ranges::copy(std::get<1>(sorted), into);
    co_return values;
  }
  Task<List> sort_elsewhere(List values) {
    auto other = co_await spawn<QuicksortActor>(SpawnOptions{}, program_);
    auto sorted = co_await other.sort({}, std::move(values).segments());
    co_return List(std::move(sorted.segments));
  }
  Quicksort program_;
};

class QuicksortRoot final : public Root {
 public:
  explicit QuicksortRoot(Quicksort program) : program_(program) {}

 private:
  Task<std::int64_t> fork() override {
    const auto random = random_values(program_.values, 30);
    List values(random.size());
    std::ranges::copy(random, values.begin());
    auto first = co_await spawn<QuicksortActor>(SpawnOptions{}, program_);
    auto answer = co_await first.sort({}, std::move(values).segments());
    const List sorted(std::move(answer.segments));
    co_await self().report({.value = checksum(sorted.begin(), sorted.size())});
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
