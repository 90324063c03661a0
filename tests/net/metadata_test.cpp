#include <catch2/catch_test_macros.hpp>
#include <hyperframes/net/channel/codec.hpp>
#include <hyperframes/net/channel/metadata.hpp>
#include <string>

namespace net = hf::net;
using net::MessageType;
using net::Metadata;

namespace {

/// The error of reading these bytes.
std::string fault_of(const hf::Buffer& bytes) {
  auto read = net::detail::decode_metadata(bytes.bytes());
  REQUIRE(!read);
  CHECK(read.error().is(hf::Errc::corrupt));
  return read.error().found();
}

}  // namespace

TEST_CASE("metadata keeps one text a key, and finds it") {
  Metadata metadata{{"trace", "7f3a"}, {"step", "1"}};
  metadata.set("step", "2");
  CHECK(metadata.size() == 2);
  REQUIRE(metadata.find("step"));
  CHECK(*metadata.find("step") == "2");
  CHECK(!metadata.find("nothing"));
}

TEST_CASE("metadata and the name of a type survive a trip") {
  const MessageType type("ml.splitter.batch");
  const Metadata metadata{{"trace", "7f3a"}, {"raw", std::string("\0\xff", 2)}};
  const hf::Buffer bytes = net::detail::encode_metadata(&type, metadata);
  auto read = net::detail::decode_metadata(bytes.bytes());
  REQUIRE(read);
  CHECK(read->metadata == metadata);
  REQUIRE(read->type);
  CHECK(*read->type == type);
  CHECK(net::detail::encode_metadata(nullptr, {}).empty());
}

TEST_CASE("metadata of a peer that is malformed is an error that says why") {
  CHECK(fault_of({}) == "it does not verify");
  CHECK(fault_of(hf::Buffer::copy_of("garbage that is long enough")) == "it does not verify");
  CHECK(fault_of(net::detail::encode_metadata(nullptr, {{"no key", ""}})).find("small letters") !=
        std::string::npos);
  CHECK(fault_of(net::detail::encode_metadata(nullptr, {{std::string(100, 'k'), ""}}))
            .find("the limit is 64") != std::string::npos);
  // Each byte of a good one, damaged: read or refused, and nothing else.
  const MessageType type("ml.splitter.batch");
  const hf::Buffer good = net::detail::encode_metadata(&type, {{"trace", "7f3a"}});
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const int damage : {0x01, 0x80, 0xff}) {
      const hf::Buffer bad = hf::Buffer::copy_of(good.bytes());
      bad.data()[i] ^= static_cast<std::byte>(damage);
      (void)net::detail::decode_metadata(bad.bytes());
    }
    (void)net::detail::decode_metadata(good.bytes().subspan(0, i));
  }
}

TEST_CASE("more metadata than a message may have is refused before it is sent") {
  Metadata metadata;
  for (std::size_t i = 0; i <= Metadata::most_entries; ++i)
    metadata.set("k" + std::to_string(i), "");
  CHECK_THROWS_AS(net::detail::encode_metadata(nullptr, metadata), hf::Error);
}

TEST_CASE("the keys that a peer declares come sorted, and each once") {
  const auto keys =
      net::detail::decode_opening(net::detail::encode_opening({"step", "a", "step"}).bytes())
          .value();
  CHECK(keys == std::vector<std::string>{"a", "step"});
  CHECK(!net::detail::decode_opening(net::detail::encode_opening({"No"}).bytes()));
  CHECK(!net::detail::decode_opening(hf::Buffer::copy_of("12345678").bytes()));
}
