// One demo from its first process to its last: data, cluster, training, kills, scores, audit.
//
//   tools::Screen screen({});
//   tools::DemoRun demo(options, screen, [] { return interrupted; });
//   tools::DemoOutcome outcome = demo.run();             // failures_of(outcome) judges it
//
// Everything that does work is a process of its own; this one starts them, shows them and kills
// one. None is left when it is destroyed.
#pragma once

#include <filesystem>
#include <functional>
#include <hyperframes/apps/tools/demo_cluster.hpp>
#include <hyperframes/apps/tools/demo_monitor.hpp>
#include <hyperframes/apps/tools/demo_options.hpp>
#include <hyperframes/apps/tools/demo_report.hpp>
#include <hyperframes/apps/tools/process.hpp>
#include <hyperframes/apps/tools/progress.hpp>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace hyperframes::tools {

/// The demo can't go on; the text names the process, its log and the log's end.
class DemoFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
/// Somebody asked it to stop.
class DemoInterrupted : public std::runtime_error {
 public:
  DemoInterrupted() : std::runtime_error("interrupted") {}
};

class DemoRun {
 public:
  /// `interrupted` is asked again and again; true ends the run with DemoInterrupted. `screen`
  /// outlives it. Makes the work folder.
  DemoRun(DemoOptions options, Screen& screen, std::function<bool()> interrupted);
  ~DemoRun();

  DemoOutcome run();

  const std::filesystem::path& folder() const noexcept { return folder_; }
  std::filesystem::path logs() const { return cluster_->logs(); }
  /// Ends all processes, and removes the work folder if it is this demo's own and not to be kept.
  void clean_up(bool passed);

 private:
  struct Trained {
    std::uint64_t samples = 0;
    double seconds = 0;
  };
  struct Kill {
    std::string server;
    Time time;
    bool back = false;
    Duration recovery{};
    Time back_time{};
  };

  void write_models();
  void make_data();
  void wait_for_cluster();
  void measure_baseline();
  void choose(const DemoSplit& split, SplitOutcome& outcome);
  void fit_finally(const DemoSplit& split, SplitOutcome& outcome);
  void audit();

  TrainingRun run_of(const std::string& split, const std::string& part, const std::string& model,
                     std::uint64_t seed) const;
  Trained train(const TrainingRun& run, const std::string& title, std::vector<double> kill_at);
  void kill_a_server();
  void follow_kills();
  bool all_back() const;
  Score evaluate(const TrainingRun& run, const std::filesystem::path& data);
  std::string finish(Process& step, const std::string& title);

  void pump();
  [[noreturn]] void fail(const Process& process, const std::string& what) const;
  void check_progress(const ClusterReading& reading);
  void show(const std::string& title, const ClusterReading& reading);
  std::string job_line(const JobReading& job) const;
  std::string server_state(const ServerReading& server) const;
  std::vector<std::string> server_lines(const ClusterReading& reading) const;

  DemoOptions options_;
  Screen& screen_;
  std::function<bool()> interrupted_;
  Time begin_;
  std::filesystem::path folder_;
  bool own_folder_ = false;
  ProcessKeeper keeper_;
  std::unique_ptr<ClusterProcesses> cluster_;
  std::unique_ptr<ClusterMonitor> monitor_;
  DemoOutcome outcome_;
  std::vector<Kill> kills_;
  unsigned runs_ = 0;        // training runs in all
  unsigned run_number_ = 0;  // of the one that goes on
  unsigned final_number_ = 0;
  Time shown_{};
  Time run_begin_{};
  std::uint64_t last_samples_ = 0;
  Time last_progress_{};
};

}  // namespace hyperframes::tools
