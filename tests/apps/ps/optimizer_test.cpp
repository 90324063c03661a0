#include <hyperframes/apps/ps/optimizer.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

using namespace hyperframes::ps;

namespace {

TableSpec spec_of(OptimizerKind kind, std::uint32_t width, float l2 = 0) {
  TableSpec spec;
  spec.name = "t";
  spec.width = width;
  spec.optimizer = kind;
  spec.learning_rate = 0.25f;
  spec.initial_accumulator = 0.5f;
  spec.l2 = l2;
  return spec;
}

}  // namespace

TEST_CASE("sgd steps against the gradient") {
  const Optimizer optimizer(spec_of(OptimizerKind::sgd, 2));
  std::vector<float> record{1, 2}, gradient{4, -8};
  optimizer.begin(record.data());
  optimizer.apply(record.data(), gradient.data());
  CHECK(record == std::vector<float>{0, 4});
}

TEST_CASE("adagrad keeps its sum of squares behind the weights and begins it as told") {
  const Optimizer optimizer(spec_of(OptimizerKind::adagrad, 1));
  std::vector<float> record{1, -7}, gradient{2};
  optimizer.begin(record.data());
  CHECK(record[1] == 0.5f);
  optimizer.apply(record.data(), gradient.data());
  CHECK(record[1] == 4.5f);
  CHECK(record[0] == 1 - 0.25f * 2 / (std::sqrt(4.5f) + 1e-10f));
}

TEST_CASE("l2 pulls a pushed row towards zero") {
  const Optimizer optimizer(spec_of(OptimizerKind::sgd, 1, 0.5f));
  std::vector<float> record{8}, gradient{0};
  optimizer.apply(record.data(), gradient.data());
  CHECK(record[0] == 7);
}

TEST_CASE("wide vectors give the same bits as plain code at every width") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (std::uint32_t width = 1; width < 70; ++width)
    for (const float l2 : {0.0f, 0.01f})
      for (const auto kind : {OptimizerKind::sgd, OptimizerKind::adagrad}) {
        const auto spec = spec_of(kind, width, l2);
        const Optimizer optimizer(spec);
        std::vector<float> wide(2 * width), gradient(width);
        for (auto& w : wide) w = std::abs(normal(random));
        auto plain = wide;
        for (int step = 0; step < 5; ++step) {
          for (auto& g : gradient) g = normal(random) * std::exp(4 * normal(random));
          optimizer.apply(wide.data(), gradient.data());
          (kind == OptimizerKind::sgd ? detail::sgd_portable : detail::adagrad_portable)(
              plain.data(), gradient.data(), width, spec.learning_rate, l2);
        }
        REQUIRE(std::memcmp(wide.data(), plain.data(), wide.size() * sizeof(float)) == 0);
      }
}

TEST_CASE("a counter row adds what is pushed and keeps no state") {
  const Optimizer optimizer(spec_of(OptimizerKind::adagrad, 2));
  std::vector<float> record{1, 2, 0, 0}, values{1, 0.5f};
  optimizer.add(record.data(), values.data());
  CHECK(record == std::vector<float>{2, 2.5f, 0, 0});
}
