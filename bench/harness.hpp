// How the project's figures are taken: a subject, its peer and its floor run in interleaved rounds
// of one process, so that a noisy machine disturbs all three alike; medians are compared.
//
//   hf::bench::Row row{.name = "round trip", .unit = "ns", .better = hf::bench::Better::lower,
//                      .subject = [] { return measure(); },
//                      .floor = {{"bare inbox", [] { return measure_bare(); }, 4.0}}};
//   runner.add(row);
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace hyperframes::bench {

enum class Better { lower, higher };

/// What the subject is compared with. `goal` is a ratio subject / rival: at most that where lower
/// is better, at least that where higher is better; 0: shown without a goal.
struct Rival {
  std::string name;
  std::function<double()> measure;
  double goal = 0;
};

/// One line of the result. Each function runs one round and returns its value in `unit`.
struct Row {
  std::string group, name, unit;
  Better better = Better::lower;
  std::function<double()> subject;
  std::optional<Rival> peer = std::nullopt;
  std::optional<Rival> floor = std::nullopt;
  int rounds = 0;        ///< 0: the runner's.
  std::string note{};    ///< What counts, working set, durability.
  std::string family{};  ///< Of the rows that a Mean goes over.
  /// Called when its rounds are over, so that nothing of it runs beside the next row.
  std::function<void()> finish{};
};

/// A line after a family's rows: the geometric mean of their values, and of their peers'.
struct Mean {
  std::string group, name, family, unit;
  double goal = 0;  ///< As a Rival's.
};

class Runner {
 public:
  int rounds = 7;
  std::string only;  ///< Substring of "group/name".
  bool list = false;
  bool tiny = false;  ///< Sizes that prove only that a row runs, for the groups that have such.

  void add(Row row);
  void add_mean(Mean mean);
  /// A line that says why a row or a peer is missing.
  void leave_out(std::string what, std::string why);
  /// Runs everything, prints the table, and writes JSON to `json_path` unless empty. False if that
  /// file can't be written, which is tried first, if there is no figure, or if a row threw, which
  /// is left out.
  bool run(const std::string& json_path);

 private:
  struct Result {
    const Row* row;
    double value = 0, peer_value = 0, floor_value = 0;
  };
  Result measure(const Row& row) const;
  void measure_all(std::vector<Result>& results);
  void insert_mean(const Mean& mean, std::vector<Result>& results);
  void print(const std::vector<Result>& results) const;
  bool write_json(const std::vector<Result>& results, const std::string& path) const;

  std::vector<Row> rows_;
  std::vector<Mean> means_;
  std::deque<Row> mean_rows_;  // as if they had been measured; never moved
  std::vector<std::pair<std::string, std::string>> left_out_, failed_;
};

/// Nanoseconds of the monotonic clock.
double now_ns();
/// CPU seconds of this process, user and system.
double cpu_seconds();

// One function a file: adds its rows.
void add_runtime_rows(Runner& runner);
void add_actor_rows(Runner& runner);
void add_savina_rows(Runner& runner);
void add_messaging_rows(Runner& runner);
void add_network_rows(Runner& runner);
void add_channel_rows(Runner& runner);
void add_table_rows(Runner& runner);
void add_parameter_server_rows(Runner& runner);

}  // namespace hyperframes::bench
