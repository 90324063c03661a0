#include <hyperframes/runtime/exposition.hpp>

#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <random>
#include <string>

using namespace hyperframes;

namespace {

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

}  // namespace

TEST_CASE("samples of one name stand together under one help and one type") {
  Exposition page;
  page.gauge("a", "First", {{"shard", "0"}}, 1);
  page.counter("b_total", "Second", {}, 2);
  page.gauge("a", "First", {{"shard", "1"}}, 3);
  CHECK(page.text() ==
        "# HELP a First\n# TYPE a gauge\na{shard=\"0\"} 1\na{shard=\"1\"} 3\n"
        "# HELP b_total Second\n# TYPE b_total counter\nb_total 2\n");
}

TEST_CASE("a shard's counters are counters or gauges by their names, and times are in seconds") {
  Metrics metrics;
  metrics.counter("done_total", "Done").add(7);
  metrics.counter("waiting", "Waiting").set(3);
  metrics.counter("busy_ns_total", "Busy").set(1'500'000'000);
  metrics.counter("nameless").set(1);
  Exposition page;
  page.add(metrics, {{"shard", "0"}});
  const std::string text = page.text();
  CHECK(has_line(text, "# TYPE done_total counter"));
  CHECK(has_line(text, "done_total{shard=\"0\"} 7"));
  CHECK(has_line(text, "# TYPE waiting gauge"));
  CHECK(has_line(text, "# TYPE busy_seconds_total counter"));
  CHECK(has_line(text, "busy_seconds_total{shard=\"0\"} 1.5"));
  CHECK(has_line(text, "# HELP nameless nameless"));
}

TEST_CASE("a histogram has buckets that add up, with bounds in the base unit") {
  Metrics metrics;
  for (const std::uint64_t value : {0u, 1u, 3u, 3u})
    metrics.histogram("took_us", "Took").record(value);
  Exposition page;
  page.add(metrics, {});
  CHECK(page.text() ==
        "# HELP took_seconds Took\n# TYPE took_seconds histogram\n"
        "took_seconds_bucket{le=\"0\"} 1\n"
        "took_seconds_bucket{le=\"1e-06\"} 2\n"
        "took_seconds_bucket{le=\"3e-06\"} 4\n"
        "took_seconds_bucket{le=\"+Inf\"} 4\n"
        "took_seconds_sum 7e-06\n"
        "took_seconds_count 4\n");
}

TEST_CASE("an empty histogram and one with the largest value are printed whole") {
  Histogram empty, large;
  large.record(std::numeric_limits<std::uint64_t>::max());
  Exposition page;
  page.histogram("empty", "Nothing", {}, empty);
  page.histogram("large", "Much", {}, large);
  const std::string text = page.text();
  CHECK(has_line(text, "empty_bucket{le=\"0\"} 0"));
  CHECK(has_line(text, "empty_bucket{le=\"+Inf\"} 0"));
  CHECK(has_line(text, "large_bucket{le=\"+Inf\"} 1"));
  CHECK(has_line(text, "large_count 1"));
}

TEST_CASE("names and labels of any bytes come out in the format's characters") {
  Exposition page;
  page.gauge("9 lives-left", "A \\ and\na line", {{"a b", "say \"hi\"\\\n\xff\xc3\xa4"}}, 1);
  CHECK(page.text() ==
        "# HELP _9_lives_left A \\\\ and\\na line\n# TYPE _9_lives_left gauge\n"
        "_9_lives_left{a_b=\"say \\\"hi\\\"\\\\\\n\xef\xbf\xbd\xc3\xa4\"} 1\n");
}

TEST_CASE("a colon may stand in a metric's name, and in no label's") {
  Exposition page;
  page.gauge("rule:sum", "A sum", {{"of:what", "all"}}, 1);
  CHECK(has_line(page.text(), "rule:sum{of_what=\"all\"} 1"));
}

TEST_CASE("numbers that are no ordinary ones are spelt as the format wants") {
  Exposition page;
  page.gauge("a", "A", {}, std::numeric_limits<double>::infinity());
  page.gauge("a", "A", {}, -std::numeric_limits<double>::infinity());
  page.gauge("a", "A", {}, std::numeric_limits<double>::quiet_NaN());
  page.gauge("a", "A", {}, -0.25);
  const std::string text = page.text();
  for (const char* line : {"a +Inf", "a -Inf", "a NaN", "a -0.25"}) CHECK(has_line(text, line));
}

TEST_CASE("bytes that are no UTF-8 are replaced, and only those") {
  CHECK(valid_utf8("plain") == "plain");
  CHECK(valid_utf8("\xe2\x82\xac\xf0\x9f\x98\x80") == "\xe2\x82\xac\xf0\x9f\x98\x80");
  const std::string bad = "\xef\xbf\xbd";
  CHECK(valid_utf8("\x80") == bad);
  CHECK(valid_utf8("\xc0\x80") == bad + bad);            // longer than it need be
  CHECK(valid_utf8("\xed\xa0\x80") == bad + bad + bad);  // a surrogate
  CHECK(valid_utf8("\xf4\x90\x80\x80") == bad + bad + bad + bad);
  CHECK(valid_utf8("a\xe2\x82") == "a" + bad + bad);  // cut short
  std::mt19937 random(1);
  for (int round = 0; round < 1000; ++round) {
    std::string text(random() % 20, '\0');
    for (char& c : text) c = static_cast<char>(random());
    const std::string once = valid_utf8(text);
    CHECK(valid_utf8(once) == once);
  }
}
