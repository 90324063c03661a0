#include <signal.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <hyperframes/apps/tools/demo_cluster.hpp>
#include <hyperframes/apps/tools/process.hpp>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "synthetic_ratings.hpp"

namespace hyperframes::tools {
namespace {

namespace fs = std::filesystem;

// Of whatever should end, or be there, before long; only a broken demo needs it.
Time patience() { return Clock::read_system() + timing().scaled(100s); }

std::string text_of(const fs::path& path) {
  std::ifstream stream(path);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

/// A demo on synthetic ratings, in a folder of its own.
class Demo {
 public:
  explicit Demo(std::vector<std::string> more = {}) {
    std::string name = (fs::temp_directory_path() / "hyperframes-demo-test-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    folder_ = name;
    write_synthetic_ratings(folder_ / "ratings.csv", 12'000, 1);
    std::vector<std::string> command = {std::string(HYPERFRAMES_PROGRAMS) + "/hyperframes",
                                        "demo",
                                        "--quick",
                                        "--batch_size",
                                        "256",
                                        "--ratings",
                                        (folder_ / "ratings.csv").string(),
                                        "--workdir",
                                        (folder_ / "work").string(),
                                        "--json",
                                        (folder_ / "result.json").string()};
    command.insert(command.end(), more.begin(), more.end());
    process_ = &keeper_.start(
        {.name = "demo", .command = command, .log = folder_ / "log", .output = folder_ / "output"});
  }
  ~Demo() {
    keeper_.stop_all(1s);
    fs::remove_all(folder_);
  }

  ProcessKeeper& keeper() { return keeper_; }
  Process& process() { return *process_; }
  fs::path work() const { return folder_ / "work"; }
  std::string json_text() const { return text_of(folder_ / "result.json"); }
  std::string all_output() const { return process_->output() + process_->log_tail(); }

  ProcessEnd end() {
    INFO(all_output());
    REQUIRE(keeper_.wait(*process_, patience()));
    return process_->ends().back();
  }
  /// Steps until its cluster trains.
  bool trains() {
    const Time limit = patience();
    while (Clock::read_system() < limit && process_->running()) {
      keeper_.step(20ms);
      if (fs::exists(work() / "ledgers" / "random-final-seed1-worker-0.ledger")) return true;
    }
    return false;
  }

 private:
  fs::path folder_;
  ProcessKeeper keeper_;
  Process* process_ = nullptr;
};

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (std::isdigit(static_cast<unsigned char>(name[0])) == 0) continue;
    const std::string stat = text_of(entry.path() / "stat");
    const std::size_t end = stat.rfind(')');
    if (end == std::string::npos) continue;
    std::istringstream rest(stat.substr(end + 2));
    char state = 0;
    pid_t its_parent = 0;
    rest >> state >> its_parent;
    if (its_parent == parent && state != 'Z') found.push_back(std::stoi(name));
  }
  return found;
}

bool ends_soon(pid_t pid) {
  const Time limit = patience();
  while (Clock::read_system() < limit) {
    const std::string stat = text_of("/proc/" + std::to_string(pid) + "/stat");
    const std::size_t end = stat.rfind(')');
    if (end == std::string::npos || stat[end + 2] == 'Z') return true;
    ::usleep(5000);
  }
  return false;
}

TEST_CASE("a port for a server that may go down is none that the kernel gives to others") {
  unsigned first = 0, last = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  if (first <= 10'000)
    SKIP("the kernel's range begins at " << first << ": it leaves no room below");
  for (int i = 0; i < 100; ++i) {
    const unsigned port = free_port();
    CHECK((port >= 10'000 && port < first));
  }
}

TEST_CASE("the demo learns, loses a server in mid-run, gets it back and passes its audit",
          "[plain]") {
  Demo demo;
  const ProcessEnd end = demo.end();
  INFO(demo.all_output());
  REQUIRE(end.succeeded());
  const auto json = nlohmann::json::parse(demo.json_text());
  for (const char* split : {"random", "time"}) {
    INFO(split);
    const auto& scores = json["splits"][split];
    CHECK(scores["model_auc"].get<double>() > scores["baseline_auc"].get<double>() + .05);
    CHECK(scores["model_logloss"].get<double>() < scores["baseline_logloss"].get<double>());
  }
  CHECK(json["kills"] == 1);
  CHECK(json["recovery_ms"].get<double>() > 0);
  CHECK(json["samples_per_s"].get<double>() > 0);
  CHECK(json["audit"]["acknowledged"].get<std::uint64_t>() > 1000);
  CHECK(json["audit"]["applied"] == json["audit"]["acknowledged"]);
  CHECK(json["audit"]["lost"] == 0);
  CHECK(json["audit"]["duplicated"] == 0);
  const std::string output = demo.process().output();
  CHECK(output.find("gets SIGKILL") != std::string::npos);
  CHECK(output.find("is back: its first acknowledged push came") != std::string::npos);
  CHECK(output.find("PASSED") != std::string::npos);
}

TEST_CASE("an interrupted demo leaves no process behind", "[plain]") {
  Demo demo;
  REQUIRE(demo.trains());
  const std::vector<pid_t> children = children_of(demo.process().pid());
  CHECK(children.size() >= 3);  // coordinator and servers, at least
  demo.keeper().kill(demo.process(), SIGINT);
  const ProcessEnd end = demo.end();
  CHECK(end.status == 130);
  CHECK(demo.process().output().find("Interrupted") != std::string::npos);
  for (const pid_t child : children) CHECK(ends_soon(child));
}

TEST_CASE("a demo that is killed itself takes its processes with it", "[plain]") {
  Demo demo;
  REQUIRE(demo.trains());
  const std::vector<pid_t> children = children_of(demo.process().pid());
  CHECK(children.size() >= 3);
  demo.keeper().kill(demo.process(), SIGKILL);
  demo.end();
  for (const pid_t child : children) CHECK(ends_soon(child));
}

TEST_CASE("a demo whose worker dies says which, and shows the end of its log", "[plain]") {
  Demo demo;
  REQUIRE(demo.trains());
  pid_t worker = 0;
  for (const pid_t child : children_of(demo.process().pid()))
    if (text_of("/proc/" + std::to_string(child) + "/cmdline").find("hyperframes_worker") !=
        std::string::npos)
      worker = child;
  REQUIRE(worker != 0);
  ::kill(worker, SIGKILL);
  CHECK(demo.end().status == 2);
  const std::string output = demo.process().output();
  CHECK(output.find("was killed by signal 9") != std::string::npos);
  CHECK(output.find("All logs are in " + (demo.work() / "logs").string()) != std::string::npos);
  CHECK(fs::exists(demo.work() / "logs" / "server-0.log"));
}

TEST_CASE("a demo refuses a work folder that holds something, and leaves it alone") {
  std::string folder = (fs::temp_directory_path() / "hyperframes-demo-test-XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  std::ofstream(fs::path(folder) / "precious") << "data";
  ProcessKeeper keeper;
  Process& demo = keeper.start(
      {.name = "demo",
       .command = {std::string(HYPERFRAMES_PROGRAMS) + "/hyperframes", "demo", "--workdir", folder},
       .output = folder + ".output"});
  REQUIRE(keeper.wait(demo, patience()));
  CHECK(demo.ends().back().status == 2);
  CHECK(demo.output().find("it is not empty") != std::string::npos);
  CHECK(text_of(fs::path(folder) / "precious") == "data");
  fs::remove_all(folder);
  fs::remove(folder + ".output");
}

}  // namespace
}  // namespace hyperframes::tools
