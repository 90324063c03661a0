#include <hyperframes/apps/tools/perf/result.hpp>

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <hyperframes/runtime/error.hpp>
#include <nlohmann/json.hpp>
#include <string>

namespace hf = hyperframes;
namespace perf = hf::tools::perf;
namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

namespace {

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "hyperframes-perf-test-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  std::string file(const char* name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

perf::Run example() {
  perf::Run run = perf::describe_this_host();
  run.uri = "tcp://127.0.0.1:6000";
  run.seconds = 60;
  perf::Row row;
  row.transport = "tcp";
  row.size = 64;
  row.round_trips = perf::RoundTrips{30.5, 80, 200, 900, 12'345};
  row.stream = perf::Stream{4e6, .256, .5, .03, .01, 1'000'000};
  row.verified = 1'012'345;
  run.rows.push_back(row);
  perf::Row cut;
  cut.transport = "tcp";
  cut.size = 4096;
  cut.wrong = 2;
  run.rows.push_back(cut);
  return run;
}

}  // namespace

TEST_CASE("a run is written with the names that its readers know, and read back") {
  const perf::Run run = example();
  const auto json = nlohmann::json::parse(perf::to_json(run, true));
  const auto& row = json.at("rows").at(0);
  CHECK(row.size() == 10);
  CHECK(row.at("transport") == "tcp");
  CHECK(row.at("size") == 64);
  CHECK(row.at("rtt_p50_us") == 30.5);
  CHECK(row.at("rtt_p99_us") == 80);
  CHECK(row.at("msgs_per_s") == 4e6);
  CHECK(row.at("gb_per_s") == .256);
  CHECK(row.at("cpu_s_per_gb") == .5);
  CHECK(row.at("cpu_s_per_mmsg") == .03);
  CHECK(row.at("verified") == 1'012'345);
  CHECK(row.at("wrong") == 0);
  const auto& detail = json.at("details").at(0);
  CHECK(detail.at("self_loop") == false);
  CHECK(detail.at("rtt_p999_us") == 200);
  CHECK(detail.at("rtt_max_us") == 900);
  CHECK(detail.at("round_trips") == 12'345);
  CHECK(detail.at("messages") == 1'000'000);
  CHECK(detail.at("check_s_per_gb") == .01);
  CHECK(json.at("details").size() == json.at("rows").size());
  CHECK(json.at("rows").at(1).at("gb_per_s").is_null());
  CHECK(json.at("partial") == false);
  CHECK(run.wrong() == 2);
  CHECK(perf::to_json(perf::read_run(perf::to_json(run), "a test")) == perf::to_json(run));
}

TEST_CASE("a run that ended early says so in its JSON") {
  perf::Run run = example();
  run.error = "the other end was killed";
  const auto json = nlohmann::json::parse(perf::to_json(run));
  CHECK(json.at("partial") == true);
  CHECK(json.at("error") == "the other end was killed");
}

TEST_CASE("a history that is not there is empty, and grows by a line a run") {
  const Folder folder;
  const std::string path = folder.file("perf.jsonl");
  CHECK(perf::read_history(path).empty());
  const auto run = example();  // with the time at which it was made
  for (std::size_t runs = 1; runs <= 3; ++runs) {
    perf::append_history(path, run);
    CHECK(perf::read_history(path).size() == runs);
  }
  CHECK(perf::to_json(perf::read_history(path).back()) == perf::to_json(run));
}

TEST_CASE("a history whose last line has no end gets one before the next run") {
  const Folder folder;
  const std::string path = folder.file("perf.jsonl");
  std::ofstream(path) << perf::to_json(example());
  perf::append_history(path, example());
  CHECK(perf::read_history(path).size() == 2);
}

TEST_CASE("a broken history is refused with the number of the line") {
  const Folder folder;
  const std::string path = folder.file("perf.jsonl");
  const std::string good = perf::to_json(example());
  const auto drop_details = nlohmann::json::parse(R"([{"op":"remove","path":"/details/1"}])");
  const std::string bad[] = {"{",
                             good.substr(0, good.size() / 2),
                             "[]",
                             "7",
                             R"({"format":1})",
                             R"({"format":1,"rows":[{"transport":5}]})",
                             nlohmann::json::parse(good).patch(drop_details).dump()};
  for (const std::string& line : bad) {
    std::ofstream(path) << good << '\n' << line << '\n' << good << '\n';
    INFO(line);
    CHECK_THROWS_WITH(perf::read_history(path), ContainsSubstring("line 2 of the history " + path));
  }
}

TEST_CASE("what is no regular file is no history, however much can be read from it") {
  CHECK_THROWS_WITH(perf::read_history("/dev/zero"),
                    ContainsSubstring("/dev/zero: it is no regular file"));
}

TEST_CASE("a history of another format names both formats") {
  const Folder folder;
  const std::string path = folder.file("perf.jsonl");
  std::ofstream(path) << R"({"format":2})" << '\n';
  CHECK_THROWS_WITH(perf::read_history(path),
                    ContainsSubstring("its format is 2") && ContainsSubstring("for 1"));
}

TEST_CASE("results that can't be written are an error with the file's name") {
  const Folder folder;
  const std::string path = folder.file("missing/perf.json");
  CHECK_THROWS_WITH(perf::write_json(path, example()), ContainsSubstring(path));
  CHECK_THROWS_WITH(perf::append_history(path, example()), ContainsSubstring(path));
}
