#include <hyperframes/apps/tools/perf/page.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <hyperframes/apps/tools/perf/plot.hpp>
#include <string>

namespace hf = hyperframes;
namespace perf = hf::tools::perf;
using Catch::Matchers::ContainsSubstring;

namespace {

perf::Run example() {
  perf::Run run;
  run.uri = "tcp://127.0.0.1:6000";
  run.time = "2026-05-01T12:00:00Z";
  run.host = "here";
  run.peer_host = "there";
  for (const bool self_loop : {true, false})
    for (const std::uint64_t size : {8u, 4096u, 4u << 20}) {
      const double scale = (self_loop ? 1 : 4) * (1 + static_cast<double>(size) / 1e6);
      perf::Row row;
      row.transport = self_loop ? "shm" : "tcp";
      row.self_loop = self_loop;
      row.size = size;
      row.round_trips = perf::RoundTrips{scale, 2 * scale, 3 * scale, 9 * scale, 5000};
      row.stream = perf::Stream{1e6 / scale, 2 / scale, scale, scale, .1, 5000};
      row.verified = 10'000;
      run.rows.push_back(row);
    }
  return run;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("the page of a measurement needs nothing but itself") {
  const std::string page = perf::page_of(example(), {example(), example()});
  for (const char* reference : {"http:", "https:", "//cdn", "src=", "href", "url(", "@import",
                                "<script", "<link", "<img", "<iframe", "<object"}) {
    INFO(reference);
    CHECK(page.find(reference) == page.npos);
  }
  CHECK(count(page, "<figure>") == 4 + 5);
  CHECK(count(page, "<figure>") == count(page, "</figure>"));
  CHECK(count(page, "<g") == count(page, "</g>"));
}

TEST_CASE("the page has a table for each half, and says which is slow") {
  const std::string page = perf::page_of(example(), {});
  CHECK(count(page, "<table>") == 2);
  CHECK(count(page, "<figure>") == 4);
  CHECK_THAT(page, ContainsSubstring("is the slow half"));
}

TEST_CASE("a page of a run that ended early, or went wrong, says so") {
  perf::Run run = example();
  CHECK(perf::page_of(run, {}).find("class=\"banner\"") == std::string::npos);
  run.error = "the other end was killed by signal 9";
  run.rows.back().wrong = 3;
  run.rows.back().stream.reset();
  run.problem = "message 7 has another checksum";
  const std::string page = perf::page_of(run, {});
  CHECK_THAT(page, ContainsSubstring("Partial") && ContainsSubstring("signal 9"));
  CHECK_THAT(page, ContainsSubstring("3 messages arrived wrong") && ContainsSubstring("message 7"));
}

TEST_CASE("what the other end says of itself is no markup on the page") {
  perf::Run run = example();
  run.peer_host = "<script>alert('x')</script>";
  run.uri = "tcp://\"><b>";
  const std::string page = perf::page_of(run, {});
  CHECK(page.find("<script") == page.npos);
  CHECK(page.find("\"><b>") == page.npos);
}

TEST_CASE("a plot shows each point that its axes can, and none where there is none") {
  perf::Plot plot{.title = "a", .unit = "b", .log_x = true, .log_y = true};
  CHECK(plot.render().empty());
  plot.series.push_back({"one", 0, false, {{0, 1, "zero"}, {1, 0, "zero"}}});
  CHECK(plot.render().empty());
  plot.series.push_back({"two", 1, false, {{1, 5, "first"}, {10, 50, "second"}}});
  const std::string svg = plot.render();
  CHECK(count(svg, "<title>") == 2);
  CHECK_THAT(svg, ContainsSubstring("<title>second</title>"));
}

TEST_CASE("a plot of one point has it within its frame") {
  for (const bool logarithmic : {false, true}) {
    perf::Plot plot{.title = "a", .log_x = logarithmic, .log_y = logarithmic};
    plot.series.push_back({"one", 0, false, {{64, 7, "it"}}});
    const std::string svg = plot.render();
    CHECK(count(svg, "<title>") == 1);
    CHECK(svg.find("nan") == svg.npos);
    CHECK(svg.find("inf") == svg.npos);
  }
}
