#include <hyperframes/apps/sim/shrink.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

using hyperframes::sim::shrink;
using Places = std::vector<std::size_t>;

TEST_CASE("what is left of a failing list fails, and none of it can be left out") {
  for (const Places& culprits :
       {Places{0}, Places{39}, Places{3, 17}, Places{5, 6, 7, 30}, Places{0, 13, 26, 39}}) {
    std::size_t runs = 0;
    const Places left = shrink(40, [&](const Places& places) {
      ++runs;
      return std::ranges::includes(places, culprits);
    });
    CHECK(left == culprits);
    CHECK(runs < 120);
  }
}

TEST_CASE("what fails without any fault is left with none") {
  CHECK(shrink(30, [](const Places&) { return true; }).empty());
}

TEST_CASE("any of two is enough, and one is kept") {
  const Places left = shrink(40, [&](const Places& places) {
    return std::ranges::find(places, 4u) != places.end() ||
           std::ranges::find(places, 31u) != places.end();
  });
  CHECK(left.size() == 1);
}

TEST_CASE("a shrinking ends when its runs are used up, with a list that fails") {
  std::size_t runs = 0;
  const Places left = shrink(
      100,
      [&](const Places& places) {
        ++runs;
        return places.size() >= 37;
      },
      20);
  CHECK(runs <= 20);
  CHECK(left.size() >= 37);
}
