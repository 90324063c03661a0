#include <hyperframes/apps/tools/perf/protocol.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <random>
#include <set>
#include <string>

namespace hf = hyperframes;
namespace perf = hf::tools::perf;
using Catch::Matchers::ContainsSubstring;

namespace {

/// On a shard, where payloads live: `function(payload)`.
template <class Function>
void with_payload(std::uint64_t size, Function function) {
  hf::Runtime runtime({.shards = 1});
  runtime.run([&](hf::Runtime&) -> hf::Task<void> {
    const perf::Payload payload = co_await perf::Payload::make(size);
    function(payload);
  });
}

/// As it would arrive: with bytes of its own.
hf::net::Message arrived(const perf::Payload& payload, std::uint64_t sequence) {
  hf::net::Message message = payload.next(perf::Kind::data, sequence);
  message.body = hf::Buffer::copy_of(message.body.bytes());
  return message;
}

}  // namespace

TEST_CASE("a message that came as it was sent is right, whatever its size") {
  for (const std::uint64_t size : {8u, 9u, 64u, 4097u, 3u << 20})
    with_payload(size, [size](const perf::Payload& payload) {
      for (const std::uint64_t sequence : {1u, 2u, 77u})
        CHECK(perf::check(arrived(payload, sequence), sequence, size).empty());
    });
}

TEST_CASE("any one byte that changed on the way makes a message wrong") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (const std::uint64_t size : {8u, 100u, 70'000u})
    with_payload(size, [&](const perf::Payload& payload) {
      for (int i = 0; i < 50; ++i) {
        hf::net::Message message = arrived(payload, 5);
        message.body.data()[random() % size] ^= static_cast<std::byte>(1u << random() % 8);
        CHECK_THAT(perf::check(message, 5, size), ContainsSubstring("have the checksum"));
      }
    });
}

TEST_CASE("a message that is lost, doubled, or too short is wrong") {
  with_payload(64, [](const perf::Payload& payload) {
    CHECK_THAT(perf::check(arrived(payload, 6), 5, 64), ContainsSubstring("in the place of"));
    CHECK_THAT(perf::check(arrived(payload, 4), 5, 64), ContainsSubstring("in the place of"));
    hf::net::Message message = arrived(payload, 5);
    message.body.resize_down(63);
    CHECK_THAT(perf::check(message, 5, 64), ContainsSubstring("63 bytes instead of 64"));
  });
}

TEST_CASE("bodies that follow each other differ, so that one in the place of another is found") {
  for (const std::uint64_t size : {8u, 4096u, 1u << 20, 2u << 20})
    with_payload(size, [size](const perf::Payload& payload) {
      std::set<std::uint64_t> sums;
      for (std::uint64_t sequence = 1; sequence <= 64; ++sequence)
        sums.insert(payload.next(perf::Kind::data, sequence).envelope.context);
      CHECK(sums.size() == (size <= 4096 ? 64 : size <= 1u << 20 ? 8 : 2));
    });
}

TEST_CASE("what the ends say to each other is read back") {
  const perf::Mark mark{12, 3, 45, 6.5, .25, "message 7 ..."};
  const perf::Mark read = perf::read_mark(perf::to_text(mark));
  CHECK(read.received == 12);
  CHECK(read.wrong == 3);
  CHECK(read.time_ns == 45);
  CHECK(read.cpu_s == 6.5);
  CHECK(read.check_s == .25);
  CHECK(read.problem == "message 7 ...");
  const perf::Hello hello = perf::read_hello(
      perf::to_text(perf::Hello{.program = "1.2.3", .host = "h\xff", .busy = true}));
  CHECK(hello.protocol == perf::protocol_version);
  CHECK(hello.program == "1.2.3");
  CHECK(hello.busy);
}

TEST_CASE("what is no JSON, or lacks a member, is refused") {
  for (const char* text : {"", "{", "[]", "{}", "7", R"({"received":"many"})"}) {
    INFO(text);
    CHECK_THROWS_AS(perf::read_mark(text), hf::Error);
    CHECK_THROWS_AS(perf::read_hello(text), hf::Error);
  }
}
