#include <hyperframes/apps/tools/perf/journal.hpp>

#include <algorithm>
#include <utility>

namespace hyperframes::tools::perf {

void Journal::begin(std::string what, Duration planned) {
  std::scoped_lock lock(mutex_);
  done_ += std::exchange(current_, planned);
  what_ = std::move(what);
  current_began_ = Clock::read_system();
}

void Journal::end() { begin({}, Duration::zero()); }

void Journal::note(const Row& row) {
  std::scoped_lock lock(mutex_);
  const auto same = [&](const Row& other) {
    return other.self_loop == row.self_loop && other.size == row.size;
  };
  const auto known = std::ranges::find_if(rows_, same);
  if (known == rows_.end())
    rows_.push_back(row);
  else
    *known = row;
}

void Journal::note_problem(const std::string& problem) {
  std::scoped_lock lock(mutex_);
  if (problem_.empty()) problem_ = problem;
}

Journal::State Journal::look() const {
  const Time now = Clock::read_system();
  std::scoped_lock lock(mutex_);
  const Duration done = done_ + std::min(current_, now - current_began_);
  State state{what_, 0, now - began_, planned_, rows_, problem_};
  if (planned_ > Duration::zero())
    state.fraction = std::min(1.0, std::chrono::duration<double>(done).count() /
                                       std::chrono::duration<double>(planned_).count());
  return state;
}

}  // namespace hyperframes::tools::perf
