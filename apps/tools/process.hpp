// Child processes, kept as an init system keeps its services.
//
//   tools::ProcessKeeper keeper;
//   tools::Process& server = keeper.start({.name = "server-0", .command = {path, "--listen", at}});
//   while (server.running()) keeper.step(100ms);      // reaps, restarts, calls on_end and on_start
//
// A child leads its own process group, reads nothing, and writes to its log file. It dies with this
// process, however this process dies: orderly ends stop every group, and the kernel kills the
// children of one that was killed. What ended is started again by its restart policy.
// One thread owns a keeper, and the children die with *that thread*: start them from one that lives
// as long as they should.
#pragma once

#include <sys/types.h>

#include <deque>
#include <filesystem>
#include <functional>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/time.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hyperframes::tools {

struct RestartPolicy {
  enum class When : std::uint8_t { never, on_failure, always };
  When when = When::never;
  Duration delay = 100ms;  ///< From its end to its next start.
  unsigned limit = 5;      ///< With more ends than this within `period`, it is given up.
  Duration period = 10s;
};

struct ProcessSpec {
  std::string name;                  ///< In messages; unique in its keeper.
  std::vector<std::string> command;  ///< [0] is a path, or a name to look up in PATH.
  std::vector<std::pair<std::string, std::string>> environment = {};  ///< Added to ours.
  std::filesystem::path directory = {};                               ///< Empty: ours.
  std::filesystem::path log = {};     ///< Standard error, appended. Empty: nowhere.
  std::filesystem::path output = {};  ///< Standard output, appended. Empty: to the log.
  RestartPolicy restart = {};
};

/// How a process ended.
struct ProcessEnd {
  int status = 0;         ///< Its exit status; 0 when a signal ended it.
  int signal = 0;         ///< The signal that ended it, or 0.
  bool expected = false;  ///< It ended as told, was killed by `kill`, or succeeded.
  Time time = {};

  bool succeeded() const noexcept { return status == 0 && signal == 0; }
  /// Such as "ended with status 3" or "was killed by signal 9 (Killed)".
  std::string text() const;
};

class Process {
 public:
  const std::string& name() const noexcept { return spec_.name; }
  const ProcessSpec& spec() const noexcept { return spec_; }
  /// 0 when it does not run.
  pid_t pid() const noexcept { return pid_; }
  bool running() const noexcept { return pid_ != 0; }
  /// Ended, and won't be started again.
  bool done() const noexcept { return pid_ == 0 && !next_start_; }
  /// Ended too often: its restart policy gave it up.
  bool given_up() const noexcept { return given_up_; }
  unsigned starts() const noexcept { return starts_; }
  unsigned restarts() const noexcept { return starts_ == 0 ? 0 : starts_ - 1; }
  /// Every end so far, oldest first.
  const std::vector<ProcessEnd>& ends() const noexcept { return ends_; }
  /// The last lines of its log; one line says when there is nothing.
  std::string log_tail(std::size_t lines = 20) const;
  /// All that it wrote to its output file; empty without one.
  std::string output() const;

 private:
  friend class ProcessKeeper;
  explicit Process(ProcessSpec spec) : spec_(std::move(spec)) {}

  ProcessSpec spec_;
  pid_t pid_ = 0;
  int pidfd_ = -1;
  unsigned starts_ = 0;
  bool told_to_end_ = false;   // by stop(): no restart follows
  bool end_expected_ = false;  // by kill(): the restart policy decides
  bool given_up_ = false;
  std::optional<Time> next_start_;
  std::vector<ProcessEnd> ends_;
};

class ProcessKeeper {
 public:
  ProcessKeeper() = default;
  ~ProcessKeeper();  ///< Stops all that runs.
  ProcessKeeper(const ProcessKeeper&) = delete;
  ProcessKeeper& operator=(const ProcessKeeper&) = delete;

  /// Starts it now. The reference stays good as long as the keeper. Throws when the name is taken
  /// or the program can't be started.
  Process& start(ProcessSpec spec);
  /// Waits up to `at_most` for a process to end, and does what is due: reaps, restarts, calls back.
  /// Returns early when something ended and when a signal handler ran.
  void step(Duration at_most);
  /// Steps until `process` is done or `deadline` has passed; says whether it is done.
  bool wait(Process& process, Time deadline);

  /// Sends `signal` to its whole group: an accident, after which its restart policy decides.
  void kill(Process& process, int signal);
  /// From its next start on it has this variable; an empty value takes it away again.
  void set_environment(Process& process, const std::string& name, const std::string& value);
  /// Asks it to end with SIGTERM, kills its group after `grace`, and does not start it again.
  void stop(Process& process, Duration grace = 5s);
  /// The same to all within one `grace` together. The youngest is asked first, and the next when it
  /// has ended or a quarter of the grace has passed: so clients end before what they depend on.
  void stop_all(Duration grace = 5s);

  const std::deque<std::unique_ptr<Process>>& processes() const noexcept { return processes_; }
  /// One text for each end that nobody asked for, such as "worker-1 ended with status 3".
  std::vector<std::string> unexpected_ends() const;

  std::function<void(Process&, const ProcessEnd&)> on_end;  ///< After it was reaped.
  std::function<void(Process&)> on_start;                   ///< After each start.

 private:
  void launch(Process& process);
  void ask_to_end(Process& process);
  void reap(Process& process);
  void restart_due();
  void plan_restart(Process& process);

  std::deque<std::unique_ptr<Process>> processes_;
};

/// The folder of the running program: its sibling programs lie there.
std::filesystem::path program_folder();

/// CPU time that a process, and those of its children that have ended, have used so far; 0 if there
/// is no such process.
Duration cpu_time_of(pid_t process);

}  // namespace hyperframes::tools
