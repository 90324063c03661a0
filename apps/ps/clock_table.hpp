// The staleness bound: how far ahead of the slowest worker a pull may be answered.
//
//   clocks.set_live(job, workers_of_the_view);
//   clocks.tick({.worker = 3, .job = 1, .clock = 17});        // steps 0..16 are complete
//   if (!clocks.ready(1, step)) clocks.wait(1, step, {then});   // runs `then` once it is
//
// Steps count from 0. A pull for step c may be answered once every live worker has completed at
// least c - bound steps; with bound 0 all move in lock step. Who is live is the coordinator's word;
// how far each is comes from the worker itself, with every request. A live worker that has not
// spoken to this process counts as where it joined: so a shard that lost its memory lets nobody run
// ahead until everybody has spoken. Belongs to one core shard; nothing here suspends.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

namespace hyperframes::ps {

struct LiveWorker {
  std::uint32_t worker = 0;
  std::uint64_t joined_at_clock = 0;
};

class ClockTable {
 public:
  static constexpr std::size_t histogram_size = 65;
  /// Jobs and workers that have spoken and stand in no view (yet): more are not remembered.
  static constexpr std::size_t max_unlisted_jobs = 64;
  static constexpr std::size_t max_unlisted_workers = 4096;  ///< A job.

  /// What waits for a step. It is run or dropped, whichever comes first.
  struct Waiter {
    std::function<void()> then;
    std::function<bool()> wanted{};  ///< Whether somebody still waits for it; empty: always.
    const void* owner = nullptr;     ///< For drop_owned().
    std::size_t bytes = 0;           ///< What it holds on to.
  };

  explicit ClockTable(std::uint64_t staleness_bound) noexcept : bound_(staleness_bound) {}
  void set_bound(std::uint64_t staleness_bound);
  std::uint64_t bound() const noexcept { return bound_; }

  /// Replaces who is live in `job`, and answers what waited for those that left.
  void set_live(std::uint32_t job, std::span<const LiveWorker> workers);
  /// Jobs that are no longer listed: everything that waits in them is answered.
  void forget_other_jobs(std::span<const std::uint32_t> jobs);
  /// A clock never goes back: an older one is ignored.
  void tick(std::uint32_t job, std::uint32_t worker, std::uint64_t clock);

  bool ready(std::uint32_t job, std::uint64_t step) const;
  /// Runs `then` from inside the call that makes the step ready. At once if it is.
  void wait(std::uint32_t job, std::uint64_t step, Waiter waiter);
  /// These drop what waits without running it: what nobody wants any more, what an owner that ends
  /// has left, all.
  void drop_unwanted();
  void drop_owned(const void* owner);
  void clear_waiting() noexcept;

  /// Counts a pull that is answered now, by how many steps its slowest worker is behind it.
  void record_staleness(std::uint32_t job, std::uint64_t step);
  /// [i]: pulls answered with the slowest worker i steps behind; the last entry holds the rest.
  const std::vector<std::uint64_t>& staleness() const noexcept { return staleness_; }
  std::size_t waiting() const noexcept { return waiting_count_; }
  std::size_t waiting_bytes() const noexcept { return waiting_bytes_; }
  /// Jobs of which anything is known.
  std::size_t jobs() const noexcept { return jobs_.size(); }
  /// The slowest live worker's completed steps; UINT64_MAX without live workers.
  std::uint64_t slowest(std::uint32_t job) const;

 private:
  struct Job {
    std::map<std::uint32_t, std::uint64_t> live;   // worker → steps completed, for who counts
    std::map<std::uint32_t, std::uint64_t> heard;  // from those whom no view has listed yet
    std::multimap<std::uint64_t, Waiter> waiting;  // by step
    bool listed = false;                           // by a view
  };
  template <class Predicate>
  void drop_if(Predicate predicate);
  static std::uint64_t slowest_of(const Job& job) noexcept;
  void release(Job& job);

  std::uint64_t bound_;
  std::map<std::uint32_t, Job> jobs_;
  std::size_t waiting_count_ = 0, waiting_bytes_ = 0;
  std::vector<std::uint64_t> staleness_ = std::vector<std::uint64_t>(histogram_size, 0);
};

}  // namespace hyperframes::ps
