// The doctor's table and its JSON.
#include <hyperframes/apps/tools/doctor/report.hpp>

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

using namespace hyperframes::tools::doctor;
using hyperframes::tools::display_width;
using hyperframes::tools::Screen;

namespace {

Report example() {
  return {
      .host = "node3",
      .kernel = "6.1.0",
      .version = "1.2.3",
      .checks = {{.group = "system", .name = "kernel", .measured = "6.1.0"},
                 {.group = "network",
                  .name = "ring depth",
                  .subject = "eth2",
                  .status = Status::warn,
                  .measured = "receive 256 of 8192, send 256 of 8192",
                  .needed = "receive 1024, send 1024 or more",
                  .remedy = "ethtool -G eth2 rx 1024 tx 1024"},
                 {.group = "gpu", .name = "devices", .status = Status::none, .measured = "none"},
                 {.group = "peer",
                  .name = "address",
                  .subject = "node7",
                  .status = Status::fail,
                  .measured = "unknown",
                  .needed = "a name",
                  .remedy = "mend it"}}};
}

const Screen plain({.file = -1, .terminal = false, .colours = false, .unicode = false});

}  // namespace

TEST_CASE("checks stand in groups and in columns, what mends them below") {
  CHECK(report_text(example(), plain, 80) ==
        "hyperframes doctor 1.2.3: node3, Linux 6.1.0\n"
        "\n"
        "system\n"
        "  PASS  kernel            6.1.0\n"
        "\n"
        "network\n"
        "  WARN  ring depth, eth2  receive 256 of 8192, send 256 of 8192\n"
        "        needed: receive 1024, send 1024 or more\n"
        "        mend:   ethtool -G eth2 rx 1024 tx 1024\n"
        "\n"
        "gpu\n"
        "  none  devices           none\n"
        "\n"
        "peer\n"
        "  FAIL  address, node7    unknown\n"
        "        needed: a name\n"
        "        mend:   mend it\n"
        "\n"
        "1 PASS, 1 WARN, 1 FAIL, 1 not there or not seen\n");
}

TEST_CASE("a narrow terminal's lines are broken at words and go on below where they began") {
  Report report = example();
  report.checks[1].measured = "one two three four five six seven eight nine ten eleven twelve";
  report.checks[1].remedy = "a remedy that is longer than a line of such a narrow terminal can be";
  const std::string text = report_text(report, plain, 60);
  CHECK(text.find("  WARN  ring depth, eth2  one two three four five six seven\n"
                  "                          eight nine ten eleven twelve\n") != text.npos);
  CHECK(text.find("        mend:   a remedy that is longer than a line of such\n"
                  "                a narrow terminal can be\n") != text.npos);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) CHECK(display_width(line) <= 60);
}

TEST_CASE("colours are for screens that have them, and take no cells") {
  const Screen coloured({.file = -1, .terminal = true, .colours = true, .unicode = false});
  const std::string text = report_text(example(), coloured, 80);
  CHECK(text.find("\x1b[32mPASS\x1b[0m") != text.npos);
  CHECK(text.find("\x1b[31mFAIL\x1b[0m") != text.npos);
  std::istringstream with(text), without(report_text(example(), plain, 80));
  for (std::string one, other; std::getline(with, one) && std::getline(without, other);)
    CHECK(display_width(one) == display_width(other));
}

TEST_CASE("JSON has every check with all its members, and their counts") {
  Report report = example();
  report.checks[0].measured = "\xff no UTF-8";
  const auto json = nlohmann::json::parse(report_json(report));
  CHECK(json.at("host") == "node3");
  CHECK(json.at("version") == "1.2.3");
  for (const char* status : {"pass", "warn", "fail", "none"}) CHECK(json.at(status) == 1);
  REQUIRE(json.at("checks").size() == 4);
  const auto& ring = json.at("checks").at(1);
  CHECK(ring.at("group") == "network");
  CHECK(ring.at("name") == "ring depth");
  CHECK(ring.at("subject") == "eth2");
  CHECK(ring.at("status") == "warn");
  CHECK(ring.at("needed") == "receive 1024, send 1024 or more");
  CHECK(ring.at("remedy") == "ethtool -G eth2 rx 1024 tx 1024");
}
