#include <hyperframes/apps/ps/table_spec.hpp>

#include <catch2/catch_test_macros.hpp>

#include <functional>
#include <limits>

using namespace hyperframes::ps;

TEST_CASE("a table's description survives encoding") {
  TableSpec spec;
  spec.id = 9;
  spec.name = "movies/features";
  spec.width = 17;
  spec.optimizer = OptimizerKind::sgd;
  spec.learning_rate = 0.09f;
  spec.l2 = 0.5f;
  spec.initializer = InitializerKind::normal;
  spec.initializer_scale = 0.025f;
  spec.initializer_from = 1;
  spec.seed = 1234567890123;
  Bytes bytes;
  spec.encode(bytes);
  detail::ByteReader reader(bytes, "read a table");
  const auto back = TableSpec::decode(reader);
  CHECK(back == spec);
  CHECK(back.differences(spec).empty());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const auto front = std::span(bytes).first(length);
    detail::ByteReader part(front, "read a table");
    CHECK_THROWS_AS(TableSpec::decode(part), hf::Error);
  }
}

TEST_CASE("differing descriptions name what differs") {
  TableSpec a, b;
  a.width = 8, b.width = 16, b.seed = 3;
  CHECK(a.differences(b) == "width 8 instead of 16, seed 0 instead of 3");
}

TEST_CASE("values out of range are refused") {
  const std::function<void(TableSpec&)> faults[] = {
      [](TableSpec& s) { s.width = 0; },
      [](TableSpec& s) { s.width = TableSpec::max_width + 1; },
      [](TableSpec& s) { s.initializer_from = s.width + 1; },
      [](TableSpec& s) { s.learning_rate = std::numeric_limits<float>::infinity(); },
      [](TableSpec& s) { s.initial_accumulator = -1; },
      [](TableSpec& s) { s.l2 = std::numeric_limits<float>::quiet_NaN(); },
      [](TableSpec& s) { s.optimizer = static_cast<OptimizerKind>(7); },
      [](TableSpec& s) { s.initializer = static_cast<InitializerKind>(7); },
      [](TableSpec& s) { s.name.assign(1000, 'x'); }};
  for (const auto& fault : faults) {
    TableSpec spec;
    spec.width = 4;
    spec.check();
    fault(spec);
    CHECK_THROWS_AS(spec.check(), hf::Error);
    Bytes bytes;
    spec.encode(bytes);
    detail::ByteReader reader(bytes, "read a table");
    CHECK_THROWS_AS(TableSpec::decode(reader), hf::Error);
  }
}
