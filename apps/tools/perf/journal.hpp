// What one thread measures and another one shows.
//
//   Journal journal(Duration(70s));                  // all that is planned
//   journal.begin("tcp, 4 KiB round trips", 3s);     // on the shard
//   journal.note(row);                               // takes the place of the row of that size
//   Journal::State state = journal.look();           // on any thread
#pragma once

#include <hyperframes/apps/tools/perf/result.hpp>
#include <hyperframes/runtime/time.hpp>
#include <mutex>
#include <string>
#include <vector>

namespace hyperframes::tools::perf {

class Journal {
 public:
  explicit Journal(Duration planned) : planned_(planned), began_(Clock::read_system()) {}

  /// The one before has ended.
  void begin(std::string what, Duration planned);
  void end();
  void note(const Row& row);
  /// Only the first is kept.
  void note_problem(const std::string& problem);

  struct State {
    std::string what;     ///< Is being measured.
    double fraction = 0;  ///< Of all that is planned.
    Duration elapsed{0}, planned{0};
    std::vector<Row> rows;
    std::string problem;
  };
  State look() const;

 private:
  const Duration planned_;
  const Time began_;
  mutable std::mutex mutex_;
  std::string what_, problem_;
  Duration done_{0}, current_{0};
  Time current_began_{};
  std::vector<Row> rows_;
};

}  // namespace hyperframes::tools::perf
