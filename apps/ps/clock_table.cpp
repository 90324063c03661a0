#include <algorithm>
#include <hyperframes/apps/ps/clock_table.hpp>
#include <hyperframes/runtime/failpoint.hpp>
#include <limits>

namespace hyperframes::ps {
namespace {
constexpr std::uint64_t nobody = std::numeric_limits<std::uint64_t>::max();
}

std::uint64_t ClockTable::slowest_of(const Job& job) noexcept {
  std::uint64_t slowest = nobody;
  for (const auto& [worker, clock] : job.live) slowest = std::min(slowest, clock);
  return slowest;
}

std::uint64_t ClockTable::slowest(std::uint32_t job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nobody : slowest_of(found->second);
}

bool ClockTable::ready(std::uint32_t job, std::uint64_t step) const {
  const std::uint64_t clock = slowest(job);
  return clock == nobody || step <= bound_ || clock >= step - bound_;
}

void ClockTable::release(Job& job) {
  const std::uint64_t clock = slowest_of(job);
  const std::uint64_t limit = clock > nobody - bound_ ? nobody : clock + bound_;
  // What runs may tick and wait in turn: take each out before it runs.
  while (!job.waiting.empty() && job.waiting.begin()->first <= limit) {
    const Waiter waiter = std::move(job.waiting.begin()->second);
    job.waiting.erase(job.waiting.begin());
    --waiting_count_;
    waiting_bytes_ -= waiter.bytes;
    waiter.then();
  }
}

void ClockTable::set_bound(std::uint64_t staleness_bound) {
  bound_ = staleness_bound + (hyperframes::detail::planted("staleness-over-bound") ? 1 : 0);
  for (auto& [number, job] : jobs_) release(job);
}

void ClockTable::set_live(std::uint32_t number, std::span<const LiveWorker> workers) {
  Job& job = jobs_[number];
  job.listed = true;
  std::map<std::uint32_t, std::uint64_t> live;
  for (const LiveWorker& worker : workers) {
    std::uint64_t clock = worker.joined_at_clock;
    for (const auto* known : {&job.live, &job.heard})
      if (const auto found = known->find(worker.worker); found != known->end())
        clock = std::max(clock, found->second);
    live.emplace(worker.worker, clock);
    job.heard.erase(worker.worker);
  }
  job.live = std::move(live);
  release(job);
}

void ClockTable::forget_other_jobs(std::span<const std::uint32_t> jobs) {
  for (auto at = jobs_.begin(); at != jobs_.end();) {
    if (std::ranges::find(jobs, at->first) != jobs.end()) {
      ++at;
      continue;
    }
    at->second.live.clear();
    release(at->second);
    at = jobs_.erase(at);
  }
}

void ClockTable::tick(std::uint32_t number, std::uint32_t worker, std::uint64_t clock) {
  // Any number may come from a peer: strangers must not fill memory.
  if (!jobs_.contains(number) && std::ranges::count_if(jobs_, [](const auto& each) {
                                   return !each.second.listed;
                                 }) >= static_cast<std::ptrdiff_t>(max_unlisted_jobs))
    return;
  Job& job = jobs_[number];
  if (const auto found = job.live.find(worker); found != job.live.end()) {
    if (clock <= found->second) return;
    found->second = clock;
    release(job);
    return;
  }
  if (job.heard.size() < max_unlisted_workers || job.heard.contains(worker)) {
    auto& heard = job.heard[worker];
    heard = std::max(heard, clock);
  }
}

void ClockTable::wait(std::uint32_t number, std::uint64_t step, Waiter waiter) {
  if (ready(number, step)) return waiter.then();
  waiting_bytes_ += waiter.bytes;
  ++waiting_count_;
  jobs_[number].waiting.emplace(step, std::move(waiter));
}

template <class Predicate>
void ClockTable::drop_if(Predicate predicate) {
  std::vector<Waiter> dropped;  // dies last: what goes with a waiter may call back
  for (auto& [number, job] : jobs_)
    for (auto at = job.waiting.begin(); at != job.waiting.end();) {
      const auto next = std::next(at);
      if (predicate(at->second)) {
        --waiting_count_;
        waiting_bytes_ -= at->second.bytes;
        dropped.push_back(std::move(at->second));
        job.waiting.erase(at);
      }
      at = next;
    }
}

void ClockTable::drop_unwanted() {
  drop_if([](const Waiter& waiter) { return waiter.wanted && !waiter.wanted(); });
}

void ClockTable::drop_owned(const void* owner) {
  drop_if([owner](const Waiter& waiter) { return waiter.owner == owner; });
}

void ClockTable::clear_waiting() noexcept {
  for (auto& [number, job] : jobs_) job.waiting.clear();
  waiting_count_ = waiting_bytes_ = 0;
}

void ClockTable::record_staleness(std::uint32_t job, std::uint64_t step) {
  const std::uint64_t clock = slowest(job);
  const std::uint64_t behind = clock >= step ? 0 : step - clock;
  ++staleness_[std::min<std::size_t>(behind, histogram_size - 1)];
}

}  // namespace hyperframes::ps
