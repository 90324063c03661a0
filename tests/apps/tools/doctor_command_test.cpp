// `hyperframes doctor` on the host that runs the tests.
#include <hyperframes/apps/tools/commands.hpp>

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tool.hpp"

using nlohmann::json;
using tools_test::contains;
using tools_test::Outcome;
using tools_test::run;
using tools_test::WorkFolder;

TEST_CASE("the doctor examines this host, and its JSON, its table and its status agree") {
  const WorkFolder folder;
  const Outcome outcome = run(folder, "hyperframes doctor --json 2> errors");
  INFO(outcome.text);
  const json report = json::parse(outcome.text);
  CHECK(outcome.status == (report.at("fail") == 0 ? 0 : 1));
  std::set<std::string> seen, groups;
  std::map<std::string, int> counted;
  for (const json& check : report.at("checks")) {
    INFO(check.dump());
    const std::string status = check.at("status");
    ++counted[status];
    groups.insert(check.at("group"));
    CHECK(!check.at("measured").get<std::string>().empty());
    std::string line;
    for (const char* part : {"group", "name", "subject"})
      line += "/" + check.at(part).get<std::string>();
    CHECK(seen.insert(line).second);
    if (status != "warn" && status != "fail") continue;
    CHECK(!check.at("needed").get<std::string>().empty());
    CHECK(!check.at("remedy").get<std::string>().empty());
  }
  for (const char* status : {"pass", "warn", "fail", "none"})
    CHECK(report.at(status) == counted[status]);
  CHECK(groups == std::set<std::string>{"system", "cores", "network", "rdma", "gpu"});
  CHECK(seen.contains("/system/io_uring/"));

  const Outcome table = run(folder, "hyperframes doctor");
  CHECK(table.status == outcome.status);
  CHECK(contains(table.text, "\n  PASS  cores"));
  CHECK(!contains(table.text, "\x1b"));
}

TEST_CASE("a peer that does not answer, or a limit that is too low, is a FAIL with status 1") {
  const WorkFolder folder;
  const Outcome nobody = run(folder, "hyperframes doctor --peer 127.0.0.1:1");
  INFO(nobody.text);
  CHECK(nobody.status == 1);
  CHECK(contains(nobody.text, "FAIL  connection, 127.0.0.1:1"));
  CHECK(contains(nobody.text, "127.0.0.1: Connection refused"));
  CHECK(contains(nobody.text, "mend:   start the program there"));
  const Outcome few = run(folder, "ulimit -n 32; hyperframes doctor");
  CHECK(few.status == 1);
  CHECK(contains(few.text, "FAIL  open files"));
  CHECK(contains(few.text, "  32\n"));
}

TEST_CASE("what can be no peer is refused with the command line, and the help says the rest") {
  const WorkFolder folder;
  for (const char* peer : {"a:b", "a:0", "shm://x"}) {
    const Outcome outcome = run(folder, std::string("hyperframes doctor --peer ") + peer);
    INFO(outcome.text);
    CHECK(outcome.status == 2);
    CHECK(contains(outcome.text, "examine the peer"));
    CHECK(contains(outcome.text, "`hyperframes doctor --help` explains"));
  }
  const Outcome full = run(folder, "hyperframes doctor > /dev/full");
  CHECK(full.status == 1);
  CHECK(contains(full.text, "write to standard output"));
  const std::string help = run(folder, "hyperframes doctor --help").text;
  for (const char* part : {"--peer", "--json", "docs/reference/doctor.md", "Exit status"})
    CHECK(contains(help, part));
}
