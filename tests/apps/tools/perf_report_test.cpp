#include <hyperframes/apps/tools/perf/report.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace hf = hyperframes;
namespace tools = hf::tools;
namespace perf = hf::tools::perf;
using Catch::Matchers::ContainsSubstring;

namespace {

const tools::Screen& plain() {
  static const tools::Screen screen(
      {.terminal = false, .colours = false, .unicode = false, .width = 120});
  return screen;
}

perf::Row row_of(bool self_loop, std::uint64_t size, double trip_us, double gb_per_s) {
  perf::Row row;
  row.transport = self_loop ? "shm" : "tcp";
  row.self_loop = self_loop;
  row.size = size;
  row.round_trips = perf::RoundTrips{trip_us, 2 * trip_us, 3 * trip_us, 4 * trip_us, 100'000};
  row.stream = perf::Stream{1e6, gb_per_s, 1 / gb_per_s, 2, 0, 1000};
  row.verified = 1'234'567;
  return row;
}

perf::Run run_of(double loop_us, double network_us) {
  perf::Run run;
  run.rows = {row_of(true, 64, loop_us, 8), row_of(true, 4u << 20, 1000, 8),
              row_of(false, 64, network_us, 2), row_of(false, 4u << 20, 4000, 2)};
  return run;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("the table of a measurement lines up") {
  const perf::Run run = run_of(1.25, 31);
  const auto lines = lines_of(perf::table_text(run.rows, false, plain()));
  REQUIRE(lines.size() == 4);
  for (const auto& line : lines) CHECK(line.size() == lines[0].size());
  CHECK_THAT(lines[0], ContainsSubstring("p99.9 us") && ContainsSubstring("CPU s/GB"));
  CHECK_THAT(lines[2], ContainsSubstring(" 64 B") && ContainsSubstring("31.0") &&
                           ContainsSubstring("1,000,000") && ContainsSubstring("1,234,567"));
}

TEST_CASE("what was not measured, or of too few, is left out of the table") {
  perf::Row row = row_of(false, 64, 10, 1);
  row.round_trips->count = 500;
  row.stream.reset();
  const auto lines = lines_of(perf::table_text({row}, false, plain()));
  REQUIRE(lines.size() == 3);
  std::istringstream cells(lines[2]);
  std::vector<std::string> values;
  for (std::string cell; cells >> cell;) values.push_back(cell);
  const std::vector<std::string> wanted = {"64", "B", "10.0", "20.0", "-",         "40.0",
                                           "-",  "-", "-",    "-",    "1,234,567", "0"};
  CHECK(values == wanted);
}

TEST_CASE("a half without rows has no table") {
  CHECK(perf::table_text({row_of(false, 64, 10, 1)}, true, plain()).empty());
}

TEST_CASE("the verdict names the slow half") {
  const auto slow_network = perf::verdict(run_of(1, 30));
  REQUIRE(slow_network.size() == 2);
  CHECK_THAT(slow_network[0], ContainsSubstring("tcp adds 97 % of it, and is the slow half"));
  CHECK_THAT(slow_network[1], ContainsSubstring("4 MiB") && ContainsSubstring("8.00 GB/s") &&
                                  ContainsSubstring("is the slow half"));
  CHECK_THAT(perf::verdict(run_of(25, 30))[0],
             ContainsSubstring("this host's own half is the slow one"));
  CHECK_THAT(perf::verdict(run_of(30, 25))[0], ContainsSubstring("adds nothing"));
}

TEST_CASE("where no large messages were measured, nothing is said of them") {
  perf::Run run = run_of(1, 30);
  std::erase_if(run.rows, [](const perf::Row& row) { return row.size > 64; });
  REQUIRE(perf::verdict(run).size() == 1);
  CHECK_THAT(perf::verdict(run)[0], ContainsSubstring("64 B there and back"));
}

TEST_CASE("what a device of Linux's own moved is labelled as emulation") {
  perf::Run run = run_of(1, 30);
  for (perf::Row& row : run.rows)
    if (!row.self_loop) row.transport = "soft-rdma";
  CHECK_THAT(perf::verdict(run).back(), ContainsSubstring("soft-rdma is emulated by Linux"));
}

TEST_CASE("without a self-loop there is no verdict") {
  perf::Run run = run_of(1, 30);
  std::erase_if(run.rows, [](const perf::Row& row) { return row.self_loop; });
  CHECK(perf::verdict(run).empty());
}

TEST_CASE("a run is compared with the median of earlier ones of the same transport and size") {
  const std::vector<perf::Run> earlier = {run_of(1, 20), run_of(1, 40), run_of(1, 30)};
  const std::string text = perf::history_text(earlier, run_of(1, 60), plain());
  bool found = false;
  for (const auto& line : lines_of(text))
    if (line.find("tcp") == 0 && line.find("64 B, round trip p50") != line.npos) {
      found = true;
      CHECK_THAT(line, ContainsSubstring("60.0") && ContainsSubstring("30.0") &&
                           ContainsSubstring("2.00 x") && ContainsSubstring("_"));
    }
  CHECK(found);
}

TEST_CASE("a run of a transport that no earlier run had is compared with none") {
  perf::Run other = run_of(1, 20);
  for (perf::Row& row : other.rows) row.transport = "rdma";
  CHECK(perf::history_text({other}, run_of(1, 20), plain()).empty());
  CHECK(perf::history_text({}, run_of(1, 20), plain()).empty());
}

TEST_CASE("a run that polled is not compared with one that slept") {
  perf::Run polled = run_of(1, 20);
  polled.polling = true;
  CHECK(perf::history_text({polled}, run_of(1, 20), plain()).empty());
  CHECK(!perf::history_text({polled}, polled, plain()).empty());
}

TEST_CASE("numbers are shown with three or four digits") {
  CHECK(perf::number_text(0) == "0.00");
  CHECK(perf::number_text(.00123) == "0.0012");
  CHECK(perf::number_text(1.234) == "1.23");
  CHECK(perf::number_text(12.34) == "12.3");
  CHECK(perf::number_text(123.4) == "123");
  CHECK(perf::number_text(1'234'567) == "1,234,567");
}
