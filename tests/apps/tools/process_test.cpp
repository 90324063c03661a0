#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <fstream>
#include <hyperframes/apps/tools/process.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace hyperframes::tools {
namespace {

namespace fs = std::filesystem;

// Nothing here depends on how quick a child is; this only keeps a broken test from hanging.
Time patience() { return Clock::read_system() + timing().scaled(30s); }

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "hyperframes-process-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

std::string text_of(const fs::path& path) {
  std::ifstream stream(path);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

// Whether a process of that number still does anything: a zombie that nobody reaped does not.
bool is_alive(pid_t pid) {
  const std::string stat = text_of("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t state = stat.rfind(") ");
  return state != std::string::npos && stat[state + 2] != 'Z' && stat[state + 2] != 'X';
}

bool ends_soon(pid_t pid) {
  const Time limit = patience();
  while (is_alive(pid) && Clock::read_system() < limit) ::usleep(2000);
  return !is_alive(pid);
}

template <class Condition>
bool step_until(ProcessKeeper& keeper, Condition condition) {
  const Time limit = patience();
  while (!condition() && Clock::read_system() < limit) keeper.step(10ms);
  return condition();
}

std::vector<std::string> shell(const std::string& script) { return {"sh", "-c", script}; }

TEST_CASE("a process writes its output and its log to their files") {
  Folder folder;
  ProcessKeeper keeper;
  Process& process =
      keeper.start({.name = "speaker",
                    .command = shell("echo result; echo \"note: $MOOD\" >&2; pwd >&2"),
                    .environment = {{"MOOD", "good"}},
                    .directory = "/",
                    .log = folder / "log",
                    .output = folder / "output"});
  REQUIRE(keeper.wait(process, patience()));
  CHECK(process.output() == "result\n");
  CHECK(process.log_tail(2) == "note: good\n/\n");
  CHECK(process.log_tail().starts_with("---- start 1 of speaker: sh -c"));
  REQUIRE(process.ends().size() == 1);
  CHECK(process.ends()[0].succeeded());
  CHECK(keeper.unexpected_ends().empty());
}

TEST_CASE("a process that works uses CPU time, and one that is not there none") {
  const Duration before = cpu_time_of(::getpid());
  const Time limit = patience();
  while (cpu_time_of(::getpid()) <= before && Clock::read_system() < limit) continue;
  CHECK(cpu_time_of(::getpid()) > before);
  CHECK(cpu_time_of(0) == Duration::zero());
}

TEST_CASE("a program that can't be run is an error that names it") {
  ProcessKeeper keeper;
  try {
    keeper.start({.name = "ghost", .command = {"/nowhere/ghost-program"}});
    FAIL("it started");
  } catch (const Error& error) {
    CHECK(error.code() == std::errc::no_such_file_or_directory);
    CHECK(std::string(error.what()).find("/nowhere/ghost-program") != std::string::npos);
    CHECK(std::string(error.what()).find("'ghost'") != std::string::npos);
  }
  CHECK(keeper.processes().empty());
}

TEST_CASE("a name is given to one process only") {
  ProcessKeeper keeper;
  keeper.start({.name = "one", .command = shell("sleep 1000")});
  CHECK_THROWS_AS(keeper.start({.name = "one", .command = shell("sleep 1000")}), Error);
}

TEST_CASE("a killed process is started again, and its log keeps both lives") {
  Folder folder;
  ProcessKeeper keeper;
  std::vector<std::string> seen;
  keeper.on_start = [&](Process& process) { seen.push_back("start " + process.name()); };
  keeper.on_end = [&](Process&, const ProcessEnd& end) { seen.push_back(end.text()); };
  Process& process = keeper.start({.name = "server",
                                   .command = shell("echo life >&2; exec sleep 1000"),
                                   .log = folder / "log",
                                   .restart = {.when = RestartPolicy::When::always, .delay = 1ms}});
  REQUIRE(step_until(keeper, [&] { return process.log_tail(1) == "life\n"; }));
  const pid_t first = process.pid();
  keeper.kill(process, SIGKILL);
  REQUIRE(step_until(keeper, [&] { return process.starts() == 2; }));
  CHECK(process.pid() != first);
  CHECK(process.restarts() == 1);
  CHECK(seen == std::vector<std::string>{"start server", "was killed by signal 9 (Killed)",
                                         "start server"});
  CHECK(keeper.unexpected_ends().empty());
  REQUIRE(step_until(keeper, [&] {
    const std::string log = text_of(folder / "log");
    return log.rfind("life\n") != log.find("life\n");
  }));
  keeper.stop(process);
  CHECK(process.done());
  CHECK(keeper.unexpected_ends().empty());
}

TEST_CASE("a variable that is set holds from the next start on, and goes again") {
  Folder folder;
  ProcessKeeper keeper;
  Process& process =
      keeper.start({.name = "server",
                    .command = shell("echo \"mood: $MOOD\"; exec sleep 1000"),
                    .log = folder / "log",
                    .output = folder / "output",
                    .restart = {.when = RestartPolicy::When::always, .delay = 0ms, .limit = 10}});
  const auto spoken = [&](const std::string& text) {
    return step_until(keeper, [&] { return process.output() == text; });
  };
  REQUIRE(spoken("mood: \n"));
  keeper.set_environment(process, "MOOD", "bad");
  keeper.kill(process, SIGKILL);
  REQUIRE(spoken("mood: \nmood: bad\n"));
  keeper.set_environment(process, "MOOD", "");
  keeper.kill(process, SIGKILL);
  REQUIRE(spoken("mood: \nmood: bad\nmood: \n"));
}

TEST_CASE("an end that nobody asked for is reported") {
  ProcessKeeper keeper;
  Process& failed = keeper.start({.name = "worker-1", .command = shell("exit 3")});
  Process& crashed = keeper.start({.name = "worker-2", .command = shell("kill -SEGV $$")});
  REQUIRE(keeper.wait(failed, patience()));
  REQUIRE(keeper.wait(crashed, patience()));
  CHECK(keeper.unexpected_ends() ==
        std::vector<std::string>{"worker-1 ended with status 3",
                                 "worker-2 was killed by signal 11 (Segmentation fault)"});
}

TEST_CASE("a service that must always run is missed even when it ends well") {
  ProcessKeeper keeper;
  Process& process = keeper.start(
      {.name = "server",
       .command = shell("exit 0"),
       .restart = {
           .when = RestartPolicy::When::always, .delay = 0ms, .limit = 1000, .period = 1h}});
  REQUIRE(step_until(keeper, [&] { return process.starts() >= 3; }));
  CHECK(keeper.unexpected_ends().size() >= 2);
}

TEST_CASE("a process that ends too often is given up") {
  ProcessKeeper keeper;
  Process& process = keeper.start(
      {.name = "flapping",
       .command = shell("exit 1"),
       .restart = {
           .when = RestartPolicy::When::on_failure, .delay = 0ms, .limit = 3, .period = 1h}});
  REQUIRE(keeper.wait(process, patience()));
  CHECK(process.given_up());
  CHECK(process.starts() == 4);
  CHECK(keeper.unexpected_ends().back() == "flapping ended 4 times and was given up");
}

TEST_CASE("on_failure starts nothing again that succeeded") {
  ProcessKeeper keeper;
  Process& process = keeper.start({.name = "job",
                                   .command = shell("exit 0"),
                                   .restart = {.when = RestartPolicy::When::on_failure}});
  REQUIRE(keeper.wait(process, patience()));
  CHECK(process.starts() == 1);
  CHECK_FALSE(process.given_up());
}

TEST_CASE("a restart that can't run its program is an end, not an exception") {
  Folder folder;
  const fs::path program = folder / "program";
  std::ofstream(program) << "#!/bin/sh\nrm -f \"$0\"\nexit 1\n";
  fs::permissions(program, fs::perms::owner_all);
  ProcessKeeper keeper;
  Process& process =
      keeper.start({.name = "vanishing",
                    .command = {program.string()},
                    .log = folder / "log",
                    .restart = {.when = RestartPolicy::When::always, .delay = 0ms, .limit = 2}});
  REQUIRE(keeper.wait(process, patience()));
  CHECK(process.given_up());
  CHECK(process.ends().back().status == 127);
  CHECK(process.log_tail().find("can't run " + program.string()) != std::string::npos);
}

TEST_CASE("what a process started itself ends with it") {
  Folder folder;
  ProcessKeeper keeper;
  Process& process = keeper.start({.name = "parent",
                                   .command = shell("sleep 1000 & echo $!"),
                                   .log = folder / "log",
                                   .output = folder / "output"});
  REQUIRE(keeper.wait(process, patience()));
  CHECK(ends_soon(std::stoi(process.output())));
}

TEST_CASE("stop kills what ignores SIGTERM, and says so") {
  Folder folder;
  ProcessKeeper keeper;
  Process& process =
      keeper.start({.name = "stubborn",
                    .command = shell("trap '' TERM; echo deaf; sleep 1000; sleep 1000"),
                    .log = folder / "log",
                    .output = folder / "output"});
  REQUIRE(step_until(keeper, [&] { return process.output() == "deaf\n"; }));
  keeper.stop(process, 50ms);
  CHECK(process.done());
  CHECK(keeper.unexpected_ends() ==
        std::vector<std::string>{"stubborn was killed by signal 9 (Killed)"});
}

TEST_CASE("stop_all ends stopped processes too") {
  ProcessKeeper keeper;
  Process& frozen = keeper.start({.name = "frozen", .command = shell("sleep 1000")});
  keeper.start({.name = "other", .command = shell("sleep 1000")});
  keeper.kill(frozen, SIGSTOP);
  keeper.stop_all();
  for (const auto& process : keeper.processes()) CHECK(process->done());
  CHECK(keeper.unexpected_ends().empty());
}

TEST_CASE("stop_all ends the youngest first") {
  ProcessKeeper keeper;
  std::vector<std::string> ended;
  keeper.on_end = [&](Process& process, const ProcessEnd&) { ended.push_back(process.name()); };
  for (const char* name : {"first", "second", "third"})
    keeper.start({.name = name, .command = {"sleep", "1000"}});
  keeper.stop_all(patience() - Clock::read_system());
  CHECK(ended == std::vector<std::string>{"third", "second", "first"});
  CHECK(keeper.unexpected_ends().empty());
}

TEST_CASE("a keeper's end is the end of all its processes") {
  pid_t pid = 0;
  {
    ProcessKeeper keeper;
    pid = keeper
              .start({.name = "server",
                      .command = shell("sleep 1000"),
                      .restart = {.when = RestartPolicy::When::always, .delay = 0ms}})
              .pid();
    CHECK(is_alive(pid));
  }
  CHECK_FALSE(is_alive(pid));
}

TEST_CASE("children die with a keeper that was killed itself") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t keeper_pid = ::fork();
  if (keeper_pid == 0) {
    ProcessKeeper keeper;
    const pid_t child = keeper.start({.name = "server", .command = shell("sleep 1000")}).pid();
    if (::write(ends[1], &child, sizeof child) != sizeof child) ::_exit(1);
    for (;;) ::pause();
  }
  REQUIRE(keeper_pid > 0);
  pid_t child = 0;
  REQUIRE(::read(ends[0], &child, sizeof child) == sizeof child);
  CHECK(is_alive(child));
  ::kill(keeper_pid, SIGKILL);
  ::waitpid(keeper_pid, nullptr, 0);
  CHECK(ends_soon(child));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_CASE("a child inherits neither blocked signals nor descriptors") {
  Folder folder;
  sigset_t blocked;
  sigset_t before;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &blocked, &before);
  auto* const pipe_handler = ::signal(SIGPIPE, SIG_IGN);
  const int leaky = ::open("/dev/null", O_RDONLY);  // without O_CLOEXEC
  ProcessKeeper keeper;
  Process& signals = keeper.start({.name = "signals",
                                   .command = {"grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"},
                                   .output = folder / "signals"});
  Process& files = keeper.start(
      {.name = "files", .command = {"ls", "/proc/self/fd"}, .output = folder / "files"});
  const bool done = keeper.wait(signals, patience()) && keeper.wait(files, patience());
  ::close(leaky);
  ::signal(SIGPIPE, pipe_handler);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  REQUIRE(done);
  CHECK(signals.output() == "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
  CHECK(files.output() == "0\n1\n2\n3\n");  // the fourth is the folder that ls reads
}

}  // namespace
}  // namespace hyperframes::tools
