// The options of a cluster's programs that say how bytes travel.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/apps/ps/command_line.hpp>
#include <hyperframes/apps/ps/transport.hpp>
#include <string>
#include <vector>

namespace ps = hyperframes::ps;

namespace {

struct Parsed {
  ps::TransportOptions options;
  std::string failure;
};

Parsed parse(std::vector<std::string> words) {
  Parsed parsed;
  CLI::App app;
  ps::add_transport_options(app, parsed.options);
  try {
    std::ranges::reverse(words);  // as the library takes them
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    parsed.failure = error.what();
  }
  return parsed;
}

std::uint64_t pool_of(const std::string& text) {
  const auto parsed = parse({"--rdma", "--buffer_pool_size", text});
  return parsed.failure.empty() ? parsed.options.options.pool_bytes : 0;
}

bool has(const std::string& text, const std::string& words) {
  return text.find(words) != text.npos;
}

}  // namespace

TEST_CASE("without --rdma processes meet over TCP, and look for no device") {
  const auto parsed = parse({});
  CHECK(parsed.options.endpoint("10.0.0.7:6000").to_string() == "tcp://10.0.0.7:6000");
  hyperframes::net::Network::Options network;
  parsed.options.apply(network);
  CHECK(!network.rdma.enabled);
}

TEST_CASE("with --rdma they ask for it, by what was said of the device and its patience") {
  const auto parsed = parse({"--rdma", "--rdma_device", "mlx5_0:2", "--rdma_timeout", "16",
                             "--rdma_retries", "3", "--rdma_beside_encryption"});
  REQUIRE(parsed.failure.empty());
  CHECK(parsed.options.endpoint("10.0.0.7:6000").to_string() == "rdma://10.0.0.7:6000");
  hyperframes::net::Network::Options network;
  parsed.options.apply(network);
  CHECK(network.rdma.enabled);
  CHECK(network.rdma.device == "mlx5_0:2");
  CHECK(network.rdma.timeout == 16);
  CHECK(network.rdma.retries == 3);
  CHECK(network.rdma.beside_encryption);
}

TEST_CASE("the size of the pool is read with its unit, and what is none is refused") {
  CHECK(pool_of("8GB") == std::uint64_t{8} << 30);
  CHECK(pool_of("8GiB") == std::uint64_t{8} << 30);
  CHECK(pool_of("512M") == std::uint64_t{512} << 20);
  CHECK(pool_of("65536KB") == std::uint64_t{64} << 20);
  CHECK(pool_of("4194304") == std::uint64_t{4} << 20);
  for (const char* bad : {"", "GB", "8 GB", "-8GB", "8PB", "8Gb", "0x8GB", "1KB", "2000TB",
                          "99999999999999999999GB", "8GBB"}) {
    INFO(bad);
    CHECK(pool_of(bad) == 0);
  }
  CHECK(
      has(parse({"--rdma", "--buffer_pool_size", "much"}).failure, "'much' is no number of bytes"));
  CHECK(has(parse({"--buffer_pool_size", "1GB"}).failure, "--rdma"));
}

TEST_CASE("after a run the size of the pool that would do is said, from the largest batch") {
  auto options = parse({"--rdma", "--buffer_pool_size", "256MB"}).options;
  CHECK(ps::pool_advice(options, 0).empty());
  CHECK(has(ps::pool_advice(options, 1000), "64MB of registered memory"));
  const std::string large = ps::pool_advice(options, 200'000'001);  // 2.5 of them, in whole 2 MiB
  CHECK(has(large, "the largest batch had 200000001 bytes: 478MB of registered memory"));
  CHECK(has(large, "--buffer_pool_size is 256MB: what finds no place there is copied"));
  options.rdma = false;
  CHECK(ps::pool_advice(options, 1000).empty());
}

TEST_CASE("an address may be given as logs print it, whatever it is reached by") {
  for (const char* text : {"10.0.0.7:6000", "tcp://10.0.0.7:6000", "rdma://10.0.0.7:6000"}) {
    std::string address;
    CLI::App app;
    ps::take_address(app.add_option("--at", address, ""));
    std::vector<std::string> words{text, "--at"};
    app.parse(words);
    CHECK(address == "10.0.0.7:6000");
  }
}
