// `hyperframes perf` as its users run it: two processes each time.
#include <hyperframes/apps/tools/commands.hpp>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "tool.hpp"

using tools_test::contains;
using tools_test::Outcome;
using tools_test::run;
using tools_test::succeed;
using tools_test::WorkFolder;

namespace {

/// A name that no other test has at the same time.
std::string shm_uri(const char* what) {
  return "shm://perf-test-" + std::to_string(::getpid()) + "-" + what;
}

nlohmann::json rows_of(const WorkFolder& folder) {
  return nlohmann::json::parse(folder.read("perf.json")).at("rows");
}

std::uint64_t sum(const nlohmann::json& rows, const char* name) {
  std::uint64_t all = 0;
  for (const auto& row : rows) all += row.at(name).get<std::uint64_t>();
  return all;
}

void check_rows(const nlohmann::json& rows, std::size_t count) {
  CHECK(rows.size() == count);
  for (const auto& row : rows) {
    INFO(row.dump());
    CHECK(row.at("verified") > 0);
    CHECK(row.at("wrong") == 0);
    CHECK(row.at("rtt_p50_us") > 0);
    CHECK(row.at("rtt_p99_us") >= row.at("rtt_p50_us"));
    CHECK(row.at("msgs_per_s") > 0);
    CHECK(row.at("gb_per_s") > 0);
    CHECK(row.at("cpu_s_per_gb") > 0);
    CHECK(row.at("cpu_s_per_mmsg") > 0);
  }
}

/// Shell: waits until `file` holds `text`.
std::string await_text(const std::string& text, const std::string& file) {
  return "for i in $(seq 1200); do grep -q '" + text + "' " + file +
         " 2> /dev/null && break; sleep 0.05; done\n";
}

}  // namespace

TEST_CASE(
    "perf measures tcp, after a self-loop over shared memory, and finds every message right") {
  const WorkFolder folder;
  const std::string text = succeed(folder,
                                   "hyperframes perf tcp://127.0.0.1:0 --seconds 0.2 "
                                   "--sizes 8,4KiB,1MiB --json perf.json --html perf.html")
                               .text;
  INFO(text);
  const auto rows = rows_of(folder);
  check_rows(rows, 6);
  const auto details = nlohmann::json::parse(folder.read("perf.json")).at("details");
  REQUIRE(details.size() == rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CHECK(rows[i].at("transport") == (i < 3 ? "shm" : "tcp"));
    CHECK(details[i].at("self_loop") == (i < 3));
    CHECK(details[i].at("rtt_max_us") >= details[i].at("rtt_p999_us"));
  }
  CHECK(text.find("self-loop over shared memory") < text.find("(tcp)"));
  CHECK(contains(text, "over tcp: tcp adds"));
  CHECK(contains(folder.read("perf.html"), "<svg"));
}

TEST_CASE("perf measures shared memory, without a self-loop before it") {
  const WorkFolder folder;
  const std::string text = succeed(folder, "hyperframes perf " + shm_uri("plain") +
                                               " --seconds 0.1 --sizes 8,256KiB --json perf.json")
                               .text;
  INFO(text);
  const auto rows = rows_of(folder);
  check_rows(rows, 2);
  for (const auto& row : rows) CHECK(row.at("transport") == "shm");
  CHECK(!contains(text, "self-loop"));
}

TEST_CASE("perf measures what auto:// chooses, and names it") {
  const WorkFolder folder;
  succeed(folder,
          "hyperframes perf auto://127.0.0.1:0 --seconds 0.1 --sizes 8,256KiB --no_self_loop "
          "--json perf.json");
  const auto rows = rows_of(folder);
  check_rows(rows, 2);
  for (const auto& row : rows) CHECK(row.at("transport") == "shm");
}

TEST_CASE("perf moves the largest messages over one transport after another", "[long]") {
  const WorkFolder folder;
  succeed(folder,
          "hyperframes perf tcp://127.0.0.1:0 --seconds 0.01 --sizes 64MiB --json perf.json");
  check_rows(rows_of(folder), 2);
}

TEST_CASE("perf counts a byte that was changed on the way, and fails") {
  for (const char* point : {"perf-data", "perf-ping"}) {
    const WorkFolder folder;
    const Outcome outcome =
        run(folder, std::string("HYPERFRAMES_FAILPOINT=") + point + "=error:3 hyperframes perf " +
                        shm_uri("wrong") + " --seconds 0.1 --sizes 64 --json perf.json");
    INFO(outcome.text);
    CHECK(outcome.status == 1);
    CHECK(sum(rows_of(folder), "wrong") == 1);
    CHECK(contains(outcome.text, "1 of "));
    CHECK(contains(outcome.text, "arrived wrong"));
  }
}

TEST_CASE("perf says what became of an address where nobody listens") {
  const WorkFolder folder;
  const auto fails = [&](const std::string& arguments, const std::string& part) {
    const Outcome outcome = run(folder, "hyperframes perf " + arguments + " --seconds 0.1");
    INFO(outcome.text);
    CHECK(outcome.status == 1);
    CHECK(contains(outcome.text, part));
  };
  fails("tcp://127.0.0.1:1 --connect", "connect to tcp://127.0.0.1:1");
  fails(shm_uri("nobody") + " --connect", "connect to " + shm_uri("nobody"));
  fails("tcp://192.0.2.1:6000 --insecure", "give --connect here");
  fails("tcp://0.0.0.0:0", "there is neither a key nor a certificate");
}

TEST_CASE("perf names the address where something else than perf answers") {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::listen(listener, 1) == 0);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  std::jthread other([listener] {
    const int socket = ::accept(listener, nullptr, nullptr);
    const std::string answer = "HTTP/1.0 400 Bad Request\r\n\r\n" + std::string(1000, '.');
    CHECK(::send(socket, answer.data(), answer.size(), MSG_NOSIGNAL) > 0);
    char rest[1024];
    while (::recv(socket, rest, sizeof rest, 0) > 0) {
    }
    ::close(socket);
    ::close(listener);
  });
  const WorkFolder folder;
  const std::string uri = "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  const Outcome outcome = run(folder, "hyperframes perf " + uri + " --connect");
  INFO(outcome.text);
  CHECK(outcome.status == 1);
  CHECK(contains(outcome.text, "connect to " + uri));
  CHECK(contains(outcome.text, "is a Hyperframes port"));
}

TEST_CASE("perf ends at once when the other end goes while the self-loop is measured") {
  const WorkFolder folder;
  const Outcome outcome = run(
      folder, "hyperframes perf tcp://127.0.0.1:0 --listen > server 2>&1 &\nserver=$!\n" +
                  await_text("listening at", "server") +
                  "hyperframes perf $(sed -n 's/listening at //p' server) --connect --seconds 3600 "
                  "--sizes 64 > out 2> err &\nperf=$!\n" +
                  await_text("shm of 64 B", "err") +
                  "kill -KILL $server; wait $perf; echo status $?; cat out err");
  INFO(outcome.text);
  CHECK(contains(outcome.text, "status 1"));
  CHECK(contains(outcome.text, "PARTIAL"));
  CHECK(contains(outcome.text, "hyperframes: measure tcp://127.0.0.1:"));
}

TEST_CASE("perf appends each run to a history, and compares with it") {
  const WorkFolder folder;
  const std::string command =
      "hyperframes perf " + shm_uri("history") + " --seconds 0.05 --sizes 64 --history perf.jsonl";
  CHECK(!contains(succeed(folder, command).text, "earlier run"));
  CHECK(contains(succeed(folder, command).text, "1 earlier run in perf.jsonl"));
  CHECK(contains(succeed(folder, command + " --html perf.html").text, "2 earlier runs"));
  CHECK(contains(folder.read("perf.html"), "This run behind 2 earlier ones"));
  const std::string history = folder.read("perf.jsonl");
  CHECK(std::count(history.begin(), history.end(), '\n') == 3);
}

TEST_CASE("perf refuses a broken history with its line, before it measures") {
  const WorkFolder folder;
  folder.write("perf.jsonl", "\n{\"format\":\n");
  const Outcome outcome = run(folder, "hyperframes perf tcp://127.0.0.1:0 --history perf.jsonl");
  INFO(outcome.text);
  CHECK(outcome.status == 1);
  CHECK(contains(outcome.text, "line 2 of the history perf.jsonl"));
  CHECK(!contains(outcome.text, "both ends"));
  CHECK(folder.read("perf.jsonl") == "\n{\"format\":\n");
}

TEST_CASE("perf names the file that it can't write, before it measures") {
  const WorkFolder folder;
  for (const char* option : {"--json missing/perf.json", "--html /", "--history /dev/null"}) {
    const Outcome outcome =
        run(folder, std::string("hyperframes perf tcp://127.0.0.1:0 ") + option);
    INFO(outcome.text);
    CHECK(outcome.status == 1);
    CHECK(contains(outcome.text, std::string(option).substr(std::string(option).find(' ') + 1)));
    CHECK(!contains(outcome.text, "both ends"));
  }
}

TEST_CASE("perf fails when there is no room for what it writes") {
  const WorkFolder folder;
  for (const char* where : {"--json /dev/full", "--html /dev/full", "> /dev/full"}) {
    const Outcome outcome =
        run(folder, "hyperframes perf " + shm_uri("full") + " --seconds 0.05 --sizes 64 " + where);
    INFO(outcome.text);
    CHECK(outcome.status == 1);
    CHECK(contains(outcome.text, "No space left on device"));
  }
}

TEST_CASE("perf shows what it has when the other end is killed, and calls it partial") {
  const WorkFolder folder;
  const Outcome outcome = run(
      folder, "HYPERFRAMES_FAILPOINT=perf-count=kill:100 hyperframes perf " + shm_uri("killed") +
                  " --seconds 0.2 --sizes 64,4KiB --json perf.json --history perf.jsonl");
  INFO(outcome.text);
  CHECK(outcome.status == 1);
  CHECK(contains(outcome.text, "PARTIAL"));
  CHECK(contains(outcome.text, "was killed by signal 9"));
  CHECK(contains(outcome.text, "not added to perf.jsonl"));
  const auto json = nlohmann::json::parse(folder.read("perf.json"));
  CHECK(json.at("partial") == true);
  REQUIRE(json.at("rows").size() == 1);
  CHECK(json.at("rows")[0].at("rtt_p50_us") > 0);
  CHECK(json.at("rows")[0].at("gb_per_s").is_null());
  CHECK(folder.read("perf.jsonl").empty());
}

TEST_CASE("perf that is interrupted shows what it has") {
  const WorkFolder folder;
  const Outcome outcome =
      run(folder, "hyperframes perf " + shm_uri("interrupted") +
                      " --seconds 600 --sizes 64 --json perf.json > out 2> err &\n"
                      "perf=$!\n" +
                      await_text("round trips", "err") +
                      "kill -TERM $perf; wait $perf; echo status $?; cat out");
  INFO(outcome.text);
  CHECK(contains(outcome.text, "status 143"));
  CHECK(contains(outcome.text, "PARTIAL"));
  CHECK(nlohmann::json::parse(folder.read("perf.json")).at("error") == "it was interrupted");
}

TEST_CASE("perf's two ends may be started apart, by hand") {
  const WorkFolder folder;
  const std::string uri = shm_uri("apart");
  const std::string client =
      "hyperframes perf " + uri + " --connect --seconds 0.1 --sizes 64 --json ";
  const Outcome outcome =
      run(folder, "hyperframes perf " + uri + " --listen > server 2>&1 &\nserver=$!\n" +
                      await_text("listening at", "server") + client + "perf.json\n" + client +
                      "again.json\nkill -TERM $server\nwait $server; echo status "
                      "$?; cat server");
  INFO(outcome.text);
  CHECK(contains(outcome.text, "status 0"));
  CHECK(contains(outcome.text, "listening at " + uri));
  CHECK(contains(outcome.text, "messages checked, 0 wrong"));
  check_rows(rows_of(folder), 1);
  CHECK(contains(folder.read("again.json"), "\"wrong\": 0"));
}

TEST_CASE("perf's ends prove to each other that they have the key") {
  const WorkFolder folder;
  const std::string uri = shm_uri("key");
  folder.write("key", "0123456789abcdef0123456789abcdef\n");
  folder.write("other", "fedcba9876543210fedcba9876543210\n");
  const std::string client =
      "hyperframes perf " + uri + " --connect --seconds 0.05 --sizes 64 --key_file ";
  const Outcome outcome = run(
      folder, "hyperframes perf " + uri + " --listen --key_file key > server 2>&1 &\nserver=$!\n" +
                  await_text("listening at", "server") + client + "other; echo other $?\n" +
                  client + "key; echo same $?\nkill -TERM $server; wait $server");
  INFO(outcome.text);
  CHECK(contains(outcome.text, "other 1"));
  CHECK(contains(outcome.text, "unauthenticated"));
  CHECK(contains(outcome.text, "same 0"));
  // Both processes that it starts itself are given the key.
  succeed(folder,
          "hyperframes perf tcp://127.0.0.1:0 --seconds 0.05 --sizes 64 --key_file key --json "
          "perf.json");
  check_rows(rows_of(folder), 2);
}

TEST_CASE("perf's server tells a second client that it serves another one") {
  const WorkFolder folder;
  const std::string uri = shm_uri("busy");
  const Outcome outcome =
      run(folder, "hyperframes perf " + uri + " --listen > server 2>&1 &\nserver=$!\n" +
                      await_text("listening at", "server") + "hyperframes perf " + uri +
                      " --connect --seconds 600 --sizes 64 > first 2>&1 &\nfirst=$!\n" +
                      await_text("measures, from", "server") + "hyperframes perf " + uri +
                      " --connect --seconds 1; echo status $?\n"
                      "kill -TERM $first; wait $first; kill -TERM $server; wait $server");
  INFO(outcome.text);
  CHECK(contains(outcome.text, "status 1"));
  CHECK(contains(outcome.text, "it serves another client"));
}

TEST_CASE("the help of perf teaches with examples that run", "[plain]") {
  const WorkFolder folder;
  const std::string help = succeed(folder, "hyperframes perf --help").text;
  for (const char* word : {"p50", "wrong", "--connect", "--listen", "--key_file", "self-loop"})
    CHECK(contains(help, word));
  const auto examples = tools_test::example_commands(help);
  REQUIRE(examples.size() == 2);
  succeed(folder, examples[0] + " --sizes 8,4KiB");  // fewer, since all take their time
  succeed(folder, examples[1]);
  for (const char* file : {"perf.json", "perf.html", "perf.jsonl"}) {
    INFO(file);
    CHECK(!folder.read(file).empty());
  }
}
