#include <catch2/catch_test_macros.hpp>
#include <hyperframes/net/endpoint.hpp>
#include <string>

using hf::net::Endpoint;
using hf::net::Scheme;

TEST_CASE("an endpoint is read from each scheme") {
  CHECK(Endpoint::parse("tcp://10.0.0.7:41") == Endpoint{Scheme::tcp, "10.0.0.7", 41});
  CHECK(Endpoint::parse("rdma://node-3:7000") == Endpoint{Scheme::rdma, "node-3", 7000});
  CHECK(Endpoint::parse("auto://node.example:1") == Endpoint{Scheme::automatic, "node.example", 1});
  CHECK(Endpoint::parse("shm://training.1") == Endpoint{Scheme::shm, "training.1", 0});
}

TEST_CASE("an endpoint without a scheme is tcp, and without a port has port 6000") {
  CHECK(Endpoint::parse("localhost") == Endpoint{Scheme::tcp, "localhost", 6000});
  CHECK(Endpoint::parse("localhost:0") == Endpoint{Scheme::tcp, "localhost", 0});
  CHECK(Endpoint::parse("tcp://[::1]") == Endpoint{Scheme::tcp, "::1", 6000});
}

TEST_CASE("an IPv6 endpoint stands in brackets") {
  CHECK(Endpoint::parse("tcp://[fe80::2]:65535") == Endpoint{Scheme::tcp, "fe80::2", 65535});
  const auto bare = Endpoint::try_parse("tcp://fe80::2:65535");
  REQUIRE_FALSE(bare);
  CHECK(bare.error().found().find("brackets") != std::string::npos);
}

TEST_CASE("an endpoint written and read again is the same") {
  for (const char* uri :
       {"tcp://10.0.0.7:41", "tcp://[::1]:6000", "auto://h:0", "shm://a-b_c.d", "rdma://h:6001"}) {
    CHECK(Endpoint::parse(uri).to_string() == uri);
    CHECK(Endpoint::parse(Endpoint::parse(uri).to_string()) == Endpoint::parse(uri));
  }
}

TEST_CASE("a bad endpoint is refused with the part that is wrong and the forms that are right") {
  const struct {
    const char* uri;
    const char* part;
  } cases[] = {{"http://h:80", "'http'"}, {"tcp://", "host"},
               {"tcp://h:", "port"},      {"tcp://h:65536", "65536"},
               {"tcp://h:-1", "-1"},      {"tcp://h:12a", "12a"},
               {"tcp://[::1", "']'"},     {"tcp://[::1]6000", "':port'"},
               {"tcp://u@h:1", "'@'"},    {"tcp://h/path", "'/'"},
               {"shm://", "name"},        {"shm://a/b", "'/'"},
               {"tcp://:6000", "host"},   {"", "host"}};
  for (const auto& [uri, part] : cases) {
    INFO(uri);
    const auto result = Endpoint::try_parse(uri);
    REQUIRE_FALSE(result);
    CHECK(result.error().is(hf::Errc::invalid_argument));
    CHECK(result.error().found().find(part) != std::string::npos);
    CHECK(result.error().remedy().find("tcp://host:port") != std::string::npos);
    CHECK_THROWS_AS(Endpoint::parse(uri), hf::Error);
  }
}
