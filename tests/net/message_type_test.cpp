#include <catch2/catch_test_macros.hpp>
#include <hyperframes/net/channel/message_type.hpp>
#include <string>

namespace net = hf::net;
using net::MessageType;
using net::TypeFilter;

TEST_CASE("a message's type is three words, and anything else is refused with the reason") {
  CHECK(MessageType("ml.splitter.batch").name() == "ml.splitter.batch");
  CHECK(MessageType("a.b2.c_d").name() == "a.b2.c_d");
  const auto fault = [](const std::string& name) {
    auto type = MessageType::try_parse(name);
    REQUIRE(!type);
    CHECK(type.error().is(hf::Errc::invalid_argument));
    CHECK(type.error().remedy().find("module.part.event") != std::string::npos);
    return type.error().found();
  };
  CHECK(fault("") == "it has an empty part");
  CHECK(fault("ml") == "it has 1 part");
  CHECK(fault("ml.splitter") == "it has 2 parts");
  CHECK(fault("ml.splitter.batch.end") == "it has 4 parts");
  CHECK(fault("ml..batch") == "it has an empty part");
  CHECK(fault("ml.splitter.") == "it ends with '.'");
  CHECK(fault(".splitter.batch") == "it has an empty part");
  CHECK(fault("ml.splitter.batch.") == "it ends with '.'");
  CHECK(fault("ml.Splitter.batch").find("'Splitter'") != std::string::npos);
  CHECK(fault("ml.2nd.batch").find("'2nd'") != std::string::npos);
  CHECK(fault("ml.split-ter.batch").find("'split-ter'") != std::string::npos);
  CHECK(fault("ml.splitter.*").find("'*'") != std::string::npos);
  CHECK(fault("ml.splitter." + std::string(200, 'x')).find("the limit is 128") !=
        std::string::npos);
  CHECK_THROWS_AS(MessageType("two words"), hf::Error);
}

TEST_CASE("a type is known by the hash of its name") {
  const MessageType batch("ml.splitter.batch");
  CHECK(batch.id() == MessageType("ml.splitter.batch").id());
  CHECK(batch == MessageType("ml.splitter.batch"));
  CHECK(batch.id() != MessageType("ml.splitter.end").id());
  CHECK(batch != MessageType("ml.splitter.end"));
  CHECK(MessageType().id() == 0);
  CHECK(MessageType().name().empty());
  // What other programs compute as well: FNV-1a, 64 bits.
  CHECK(MessageType("a.b.c").id() == 0x066327b5131e437fu);
}

TEST_CASE("a filter takes one type, or all that a pattern stands for") {
  const MessageType batch("ml.splitter.batch");
  CHECK(TypeFilter().matches(batch));
  CHECK(TypeFilter("*").matches(batch));
  CHECK(TypeFilter("ml.splitter.batch").matches(batch));
  CHECK(TypeFilter(batch).matches(batch));
  CHECK(TypeFilter("ml.splitter.*").matches(batch));
  CHECK(TypeFilter("ml.*").matches(batch));
  CHECK(TypeFilter("ml.*.batch").matches(batch));
  CHECK(TypeFilter("*.splitter.*").matches(batch));
  CHECK(!TypeFilter("ml.splitter.end").matches(batch));
  CHECK(!TypeFilter("ml.split.*").matches(batch));
  CHECK(!TypeFilter("ml.*.end").matches(batch));
  CHECK(!TypeFilter("m.*").matches(batch));
}

TEST_CASE("a pattern that could match nothing is refused") {
  const auto is_refused = [](const char* pattern) {
    try {
      TypeFilter filter(pattern);
    } catch (const hf::Error& error) {
      return error.is(hf::Errc::invalid_argument) &&
             error.remedy().find("ml.splitter.*") != std::string::npos;
    }
    return false;
  };
  CHECK(is_refused(""));
  CHECK(is_refused("ml"));
  CHECK(is_refused("ml.splitter"));
  CHECK(is_refused("ml.split*.batch"));
  CHECK(is_refused("ml.splitter.batch.*"));
  CHECK(is_refused("*.batch"));
}
