#include <hyperframes/apps/ps/initializer.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

using namespace hyperframes::ps;

namespace {

TableSpec spec_of(InitializerKind kind, float scale, std::uint32_t width = 8) {
  TableSpec spec;
  spec.id = 3;
  spec.name = "t";
  spec.width = width;
  spec.initializer = kind;
  spec.initializer_scale = scale;
  spec.seed = 42;
  return spec;
}

std::vector<float> row(const TableSpec& spec, std::uint64_t id) {
  std::vector<float> weights(spec.width, 99.0f);
  Initializer(spec).fill(id, weights);
  return weights;
}

}  // namespace

TEST_CASE("first values depend on seed, table, id and column alone") {
  const auto spec = spec_of(InitializerKind::normal, 1);
  CHECK(row(spec, 5) == row(spec, 5));
  CHECK(row(spec, 5) != row(spec, 6));
  auto other = spec;
  other.seed = 43;
  CHECK(row(spec, 5) != row(other, 5));
  other = spec;
  other.id = 4;
  CHECK(row(spec, 5) != row(other, 5));
  const auto wide = row(spec_of(InitializerKind::normal, 1, 16), 5), narrow = row(spec, 5);
  CHECK(std::ranges::equal(narrow, std::span(wide).first(8)));
}

TEST_CASE("first values never change from release to release") {
  // Replays and running jobs depend on them.
  CHECK(row(spec_of(InitializerKind::uniform, 1), 1)[0] == 0.948868632f);
  CHECK(row(spec_of(InitializerKind::normal, 1), 1)[0] == 3.159133911f);
}

TEST_CASE("uniform and normal values have the moments that they should have") {
  for (const auto kind : {InitializerKind::uniform, InitializerKind::normal}) {
    const float scale = 0.5f;
    const auto spec = spec_of(kind, scale, 16);
    double sum = 0, squares = 0, most = 0;
    const int rows = 20'000;
    for (int id = 0; id < rows; ++id)
      for (const float w : row(spec, std::uint64_t(id))) {
        sum += w, squares += double(w) * w, most = std::max(most, std::abs(double(w)));
      }
    const double n = 16.0 * rows, variance = squares / n;
    const double expected = kind == InitializerKind::uniform ? scale * scale / 3 : scale * scale;
    CHECK(std::abs(sum / n) < 5 * std::sqrt(expected / n));
    CHECK(std::abs(variance / expected - 1) < 0.02);
    CHECK(most <= (kind == InitializerKind::uniform ? 1 : 6) * scale);
  }
}

TEST_CASE("the first columns can be left at zero, and counters always are") {
  auto spec = spec_of(InitializerKind::constant, 2);
  spec.initializer_from = 3;
  CHECK(row(spec, 5) == std::vector<float>{0, 0, 0, 2, 2, 2, 2, 2});
  CHECK(row(spec, 5 | counter_bit) == std::vector<float>(8));
  CHECK(row(spec_of(InitializerKind::zero, 2), 5) == std::vector<float>(8));
}
