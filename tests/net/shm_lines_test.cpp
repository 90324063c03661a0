// Which parts of a piece of memory are free.
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/net/shm/lines.hpp>
#include <random>
#include <vector>

using hyperframes::net::detail::ShmLines;

TEST_CASE("memory that was given back in any order is one run again") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  constexpr std::size_t total = 1 << 20;
  ShmLines lines(total);
  struct Taken {
    std::size_t offset, size;
  };
  std::vector<Taken> taken;
  std::vector<bool> used(total / ShmLines::line);
  std::size_t bytes = 0;
  bool apart = true;
  for (int step = 0; step < 20'000; ++step) {
    // Now more is taken, now more is given back: so it gets full, and empty.
    if (random() % 100 < (step / 2000 % 2 ? 30u : 70u)) {
      const std::size_t size = 1 + random() % (std::size_t{1} << random() % 17);
      const bool fits = lines.longest_run() >= ShmLines::rounded(size);
      const auto offset = lines.take(size);
      REQUIRE(offset.has_value() == fits);
      if (!offset) continue;
      REQUIRE(*offset % ShmLines::line == 0);
      REQUIRE(*offset + ShmLines::rounded(size) <= total);
      for (std::size_t i = 0; i < ShmLines::rounded(size) / ShmLines::line; ++i) {
        apart &= !used[*offset / ShmLines::line + i];
        used[*offset / ShmLines::line + i] = true;
      }
      bytes += ShmLines::rounded(size);
      taken.push_back({*offset, size});
    } else if (!taken.empty()) {
      std::swap(taken[random() % taken.size()], taken.back());
      const Taken last = taken.back();
      taken.pop_back();
      for (std::size_t i = 0; i < ShmLines::rounded(last.size) / ShmLines::line; ++i)
        used[last.offset / ShmLines::line + i] = false;
      bytes -= ShmLines::rounded(last.size);
      lines.give(last.offset, last.size);
    }
    REQUIRE(lines.free_bytes() == total - bytes);
    REQUIRE(lines.longest_run() <= lines.free_bytes());
  }
  CHECK(apart);
  for (const Taken& one : taken) lines.give(one.offset, one.size);
  CHECK(lines.runs() == 1);
  CHECK(lines.longest_run() == total);
  CHECK(lines.take(total) == 0);
  CHECK(!lines.take(1));
}

TEST_CASE("the smallest run that is long enough is cut") {
  ShmLines lines(64 * 100);
  const auto a = lines.take(64 * 10), b = lines.take(64), c = lines.take(64 * 4),
             d = lines.take(64);
  REQUIRE((a && b && c && d));
  lines.give(*a, 64 * 10);
  lines.give(*c, 64 * 4);
  CHECK(lines.runs() == 3);
  CHECK(lines.take(64 * 3) == *c);
  CHECK(lines.take(64 * 5) == *a);
  CHECK(!lines.take(64 * 95));
}
