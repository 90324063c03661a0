#include <hyperframes/apps/tools/process.hpp>
//
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <sstream>

namespace hyperframes::tools {
namespace {

namespace fs = std::filesystem;

class Descriptor {
 public:
  explicit Descriptor(int value = -1) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int get() const noexcept { return value_; }
  void close() { *this = Descriptor(); }

 private:
  int value_;
};

Descriptor open_for_append(const fs::path& path) {
  const std::string name = path.empty() ? "/dev/null" : path.string();
  Descriptor file(::open(name.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (file.get() < 0)
    throw Error::system(errno, "open the log " + name, {}, "check the folder and its permissions");
  return file;
}

void append_line(int file, const std::string& text) {
  const std::string line = text + "\n";
  // A log that can't take this line will not take the process's own either.
  [[maybe_unused]] const ssize_t written = ::write(file, line.data(), line.size());
}

std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& added) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    const bool replaced = std::any_of(added.begin(), added.end(),
                                      [&](const auto& pair) { return pair.first == name; });
    if (!replaced) all.emplace_back(text);
  }
  for (const auto& [name, value] : added) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// All that the child needs, made before the fork: between fork and exec a child of a process with
// threads may not allocate.
struct Launch {
  std::vector<std::string> command, environment;
  std::vector<char*> command_pointers, environment_pointers;
  std::string directory;
  Descriptor input, output, log;
  int failure_pipe = -1;
  pid_t parent = 0;
};

[[noreturn]] void become(const Launch& launch) {
  const auto fail = [&] {
    const int error = errno;
    [[maybe_unused]] const ssize_t n = ::write(launch.failure_pipe, &error, sizeof error);
    ::_exit(127);
  };
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launch.parent) ::_exit(127);  // it died before the line above

  // A handler is reset by exec; what is ignored or blocked is inherited, and would be a surprise.
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);

  if (::dup2(launch.input.get(), 0) < 0 || ::dup2(launch.output.get(), 1) < 0 ||
      ::dup2(launch.log.get(), 2) < 0)
    fail();
  // Descriptors of libraries that forgot O_CLOEXEC. Before Linux 5.11 they stay open, harmlessly.
  ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  if (!launch.directory.empty() && ::chdir(launch.directory.c_str()) != 0) fail();
  ::execvpe(launch.command_pointers[0], launch.command_pointers.data(),
            launch.environment_pointers.data());
  fail();
  ::_exit(127);
}

Launch prepare(const ProcessSpec& spec) {
  Launch launch;
  launch.command = spec.command;
  launch.environment = environment_with(spec.environment);
  launch.command_pointers = pointers_to(launch.command);
  launch.environment_pointers = pointers_to(launch.environment);
  launch.directory = spec.directory.string();
  launch.input = Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  launch.log = open_for_append(spec.log);
  launch.output = open_for_append(spec.output.empty() ? spec.log : spec.output);
  launch.parent = ::getpid();
  return launch;
}

std::string read_text(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

}  // namespace

// ---- Process
// -------------------------------------------------------------------------------------

std::string ProcessEnd::text() const {
  if (signal != 0) return fmt::format("was killed by signal {} ({})", signal, ::strsignal(signal));
  return fmt::format("ended with status {}", status);
}

std::string Process::log_tail(std::size_t lines) const {
  const std::string text = spec_.log.empty() ? std::string() : read_text(spec_.log);
  if (text.empty()) return "(nothing was logged)\n";
  std::size_t from = text.size();
  for (std::size_t line = 0; from != 0 && line <= lines; ++line) {
    const std::size_t newline = text.rfind('\n', from - 1);
    if (newline == std::string::npos) return text;
    from = newline;
  }
  return from == 0 ? text : text.substr(from + 1);
}

std::string Process::output() const {
  return spec_.output.empty() ? std::string() : read_text(spec_.output);
}

// ---- ProcessKeeper
// -------------------------------------------------------------------------------

ProcessKeeper::~ProcessKeeper() {
  on_end = nullptr;
  on_start = nullptr;
  stop_all();
}

Process& ProcessKeeper::start(ProcessSpec spec) {
  if (spec.command.empty())
    throw Error(Errc::invalid_argument, "start process '" + spec.name + "'", "it has no command");
  for (const auto& process : processes_)
    if (process->name() == spec.name)
      throw Error(Errc::already_exists, "start process '" + spec.name + "'",
                  "another one has this name", "choose another name");
  std::unique_ptr<Process> process(new Process(std::move(spec)));
  launch(*process);
  processes_.push_back(std::move(process));
  return *processes_.back();
}

void ProcessKeeper::launch(Process& process) {
  const ProcessSpec& spec = process.spec_;
  Launch prepared = prepare(spec);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw Error::system(errno, "start process '" + spec.name + "'", "no pipe could be made");
  Descriptor result(ends[0]);
  Descriptor failure(ends[1]);
  prepared.failure_pipe = failure.get();
  append_line(prepared.log.get(), fmt::format("---- start {} of {}: {}", process.starts_ + 1,
                                              spec.name, fmt::join(spec.command, " ")));

  const pid_t pid = ::fork();
  if (pid == 0) become(prepared);
  if (pid < 0) throw Error::system(errno, "start process '" + spec.name + "'", "fork failed");
  failure.close();
  int error = 0;
  ssize_t count = 0;
  do count = ::read(result.get(), &error, sizeof error);
  while (count < 0 && errno == EINTR);
  if (count == sizeof error) {
    ::waitpid(pid, nullptr, 0);
    throw Error::system(error, "start process '" + spec.name + "'", "can't run " + spec.command[0],
                        "check that it exists and may be executed");
  }
  process.pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (process.pidfd_ < 0) {
    const int failed = errno;
    ::kill(-pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    throw Error::system(failed, "watch process '" + spec.name + "'", "pidfd_open failed",
                        "Linux 5.3 or newer is needed");
  }
  process.pid_ = pid;
  process.next_start_.reset();
  ++process.starts_;
  if (on_start) on_start(process);
}

void ProcessKeeper::step(Duration at_most) {
  Time until = Clock::read_system() + at_most;
  std::vector<pollfd> watched;
  for (const auto& process : processes_) {
    if (process->running()) watched.push_back({process->pidfd_, POLLIN, 0});
    if (process->next_start_) until = std::min(until, *process->next_start_);
  }
  const Duration span = std::max(Duration::zero(), until - Clock::read_system());
  const timespec timeout = {static_cast<time_t>(span / 1s), static_cast<long>((span % 1s).count())};
  ::ppoll(watched.data(), watched.size(), &timeout, nullptr);
  // Callbacks may start more processes.
  for (std::size_t i = 0; i < processes_.size(); ++i)
    if (processes_[i]->running()) reap(*processes_[i]);
  restart_due();
}

void ProcessKeeper::reap(Process& process) {
  siginfo_t info = {};
  const auto id = static_cast<id_t>(process.pid_);
  if (::waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
  // What it has started itself goes with it. Its own number can't have been given away yet.
  ::kill(-process.pid_, SIGKILL);
  ::waitid(P_PID, id, &info, WEXITED);
  ::close(std::exchange(process.pidfd_, -1));
  process.pid_ = 0;

  ProcessEnd end;
  if (info.si_code == CLD_EXITED)
    end.status = info.si_status;
  else
    end.signal = info.si_status;
  end.time = Clock::read_system();
  const bool success = process.spec_.restart.when != RestartPolicy::When::always && end.succeeded();
  // One that had to be killed because it ignored SIGTERM, or crashed while it stopped, is a fault.
  const bool obeyed = process.told_to_end_ && (end.succeeded() || end.signal == SIGTERM);
  end.expected = std::exchange(process.end_expected_, false) || obeyed || success;
  process.ends_.push_back(end);
  plan_restart(process);
  if (on_end) on_end(process, end);
}

void ProcessKeeper::plan_restart(Process& process) {
  const RestartPolicy& policy = process.spec_.restart;
  const ProcessEnd& end = process.ends_.back();
  if (process.told_to_end_ || policy.when == RestartPolicy::When::never) return;
  if (policy.when == RestartPolicy::When::on_failure && end.succeeded()) return;
  const auto recent =
      std::count_if(process.ends_.begin(), process.ends_.end(),
                    [&](const ProcessEnd& other) { return other.time > end.time - policy.period; });
  if (static_cast<unsigned>(recent) > policy.limit)
    process.given_up_ = true;
  else
    process.next_start_ = end.time + policy.delay;
}

void ProcessKeeper::restart_due() {
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    Process& process = *processes_[i];
    if (!process.next_start_ || *process.next_start_ > Clock::read_system()) continue;
    try {
      launch(process);
    } catch (const Error& error) {
      append_line(open_for_append(process.spec_.log).get(), error.what());
      process.next_start_.reset();
      process.ends_.push_back({.status = 127, .time = Clock::read_system()});
      plan_restart(process);
      if (on_end) on_end(process, process.ends_.back());
    }
  }
}

bool ProcessKeeper::wait(Process& process, Time deadline) {
  while (!process.done()) {
    const Time now = Clock::read_system();
    if (now >= deadline) return false;
    step(std::min<Duration>(deadline - now, 100ms));
  }
  return true;
}

void ProcessKeeper::kill(Process& process, int signal) {
  if (!process.running()) return;
  // One that already ended by itself was not killed by us.
  siginfo_t info = {};
  const auto id = static_cast<id_t>(process.pid_);
  ::waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT);
  if (info.si_pid != 0) return;
  if (signal != SIGCONT && signal != SIGSTOP) process.end_expected_ = true;
  ::kill(-process.pid_, signal);
}

void ProcessKeeper::set_environment(Process& process, const std::string& name,
                                    const std::string& value) {
  auto& variables = process.spec_.environment;
  std::erase_if(variables, [&](const auto& variable) { return variable.first == name; });
  if (!value.empty()) variables.emplace_back(name, value);
}

void ProcessKeeper::ask_to_end(Process& process) {
  process.told_to_end_ = true;
  process.next_start_.reset();
  if (!process.running()) return;
  ::kill(-process.pid_, SIGTERM);
  ::kill(-process.pid_, SIGCONT);  // a stopped one hears nothing
}

void ProcessKeeper::stop(Process& process, Duration grace) {
  ask_to_end(process);
  if (wait(process, Clock::read_system() + grace)) return;
  ::kill(-process.pid_, SIGKILL);
  wait(process, no_deadline);
}

void ProcessKeeper::stop_all(Duration grace) {
  const Time deadline = Clock::read_system() + grace;
  // None may be started again while others are still being stopped.
  for (const auto& process : processes_) {
    process->told_to_end_ = true;
    process->next_start_.reset();
  }
  for (auto process = processes_.rbegin(); process != processes_.rend(); ++process) {
    ask_to_end(**process);
    wait(**process, std::min(deadline, Clock::read_system() + grace / 4));
  }
  for (auto process = processes_.rbegin(); process != processes_.rend(); ++process)
    stop(**process, std::max(Duration::zero(), deadline - Clock::read_system()));
}

std::vector<std::string> ProcessKeeper::unexpected_ends() const {
  std::vector<std::string> texts;
  for (const auto& process : processes_) {
    for (const ProcessEnd& end : process->ends())
      if (!end.expected) texts.push_back(process->name() + " " + end.text());
    if (process->given_up())
      texts.push_back(fmt::format("{} ended {} times and was given up", process->name(),
                                  process->ends().size()));
  }
  return texts;
}

fs::path program_folder() { return fs::read_symlink("/proc/self/exe").parent_path(); }

Duration cpu_time_of(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text(std::istreambuf_iterator<char>(file), {});
  // The second field is the program's name in parentheses, which may hold anything.
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  std::int64_t ticks = 0;
  for (int field = 0; field < 4; ++field) {  // user and system, of its own and of its children
    std::int64_t value = 0;
    fields >> value;
    ticks += value;
  }
  return std::chrono::nanoseconds(ticks * (1'000'000'000 / ::sysconf(_SC_CLK_TCK)));
}

}  // namespace hyperframes::tools
