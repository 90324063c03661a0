// What the doctor says of the way to a peer.
#include <hyperframes/apps/tools/doctor/peer.hpp>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "host_tree.hpp"

using namespace hyperframes::tools::doctor;
using tools_test::contains;
using tools_test::find;

namespace {

/// A port of loopback on which somebody listens and never accepts, as the kernel does for him.
class Listener {
 public:
  Listener() : file_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    auto* const address = reinterpret_cast<sockaddr*>(&address_);
    REQUIRE(::bind(file_, address, size) == 0);
    REQUIRE(::listen(file_, 16) == 0);
    REQUIRE(::getsockname(file_, address, &size) == 0);
  }
  ~Listener() { ::close(file_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  std::uint16_t port() const { return ntohs(address_.sin_port); }

 private:
  int file_;
  sockaddr_in address_{};
};

const Peer node7{.host = "node7", .port = 6000};

PeerFindings good() {
  return {.addresses = {"10.0.0.7"},
          .own_address = "10.0.0.5",
          .connect_ms = {.3, .1, .2},
          .path = {.hops = 2,
                   .answers = true,
                   .interface = "eth2",
                   .link_mtu = 9000,
                   .mtu = 9000,
                   .proven = true}};
}

}  // namespace

TEST_CASE("a peer is a host, with a port or without") {
  CHECK(parse_peer("node7").host == "node7");
  CHECK(!parse_peer("node7").port);
  CHECK(parse_peer("node7:6001").port == 6001);
  CHECK(parse_peer("tcp://10.0.0.7:6001").text() == "10.0.0.7:6001");
  CHECK(parse_peer("[fd00::7]:6001").host == "fd00::7");
  CHECK(parse_peer("[fd00::7]:6001").text() == "[fd00::7]:6001");
  CHECK(parse_peer("fd00::7").host == "fd00::7");
  CHECK(!parse_peer("fd00::7").port);
  for (const char* text : {"", ":6000", "node7:0", "node7:99999", "shm://x", "node7:", "a b"})
    CHECK_THROWS_AS(parse_peer(text), hyperframes::Error);
}

TEST_CASE("a peer that is reached passes, with its addresses, time, MTU and hops") {
  const Checks checks = check_peer(node7, good());
  CHECK(count(checks, Status::pass) == 4);
  CHECK(find(checks, "address", "node7:6000").measured == "10.0.0.7, reached from 10.0.0.5");
  CHECK(find(checks, "connection", "node7:6000").measured ==
        "accepted within 0.2 ms (the median of 3)");
  CHECK(find(checks, "path MTU", "node7:6000").measured == "9000 B, answered");
  CHECK(find(checks, "hops", "node7:6000").measured == "2: 1 router between");
}

TEST_CASE("what stands in the way to a peer is named, with what mends it") {
  PeerFindings found = good();
  found.connect_ms = {40, 50, 60};
  CHECK(find(check_peer(node7, found), "connection", "node7:6000").status == Status::warn);
  found.connect_ms.clear();
  found.connect_error = ECONNREFUSED;
  found.refusals = "10.0.0.7: Connection refused";
  Check connection = find(check_peer(node7, found), "connection", "node7:6000");
  CHECK(connection.status == Status::fail);
  CHECK(connection.measured == "10.0.0.7: Connection refused");
  CHECK(contains(connection.remedy, "--listen"));
  found.connect_error = ETIMEDOUT;
  connection = find(check_peer(node7, found), "connection", "node7:6000");
  CHECK(contains(connection.remedy, "firewall"));

  const PeerFindings unknown{.unknown_name = "Name or service not known"};
  CHECK(check_peer(node7, unknown).size() == 1);
  CHECK(find(check_peer(node7, unknown), "address", "node7:6000").status == Status::fail);

  const Peer without{.host = "node7"};
  CHECK(find(check_peer(without, good()), "connection", "node7").status == Status::none);
}

TEST_CASE("a path that swallows large packets fails, and one of which nothing is known does not") {
  PeerFindings found = good();
  const auto mtu = [&] { return find(check_peer(node7, found), "path MTU", "node7:6000"); };
  found.path.mtu = 1400;
  CHECK(mtu().status == Status::warn);
  CHECK(mtu().measured == "1400 B, and 9000 B on this host's link");
  CHECK(contains(mtu().remedy, "ip link set eth2 mtu 1400"));
  found.path.proven = false;
  found.path.black_hole = true;
  CHECK(mtu().status == Status::fail);
  CHECK(contains(mtu().remedy, "tcp_mtu_probing=1"));
  found.path = {.link_mtu = 1500, .mtu = 1500};
  CHECK(mtu().status == Status::none);
  CHECK(find(check_peer(node7, found), "hops", "node7:6000").status == Status::none);
  found.path = {};
  CHECK(mtu().status == Status::none);
}

TEST_CASE("a listener on this host is measured, and a port without one is refused") {
  std::uint16_t port = 0;
  {
    const Listener listener;
    port = listener.port();
    const PeerFindings found = measure_peer({.host = "127.0.0.1", .port = port});
    CHECK(found.addresses == std::vector<std::string>{"127.0.0.1"});
    CHECK(found.own_address == "127.0.0.1");
    CHECK(!found.connect_ms.empty());
    CHECK(found.refusals.empty());
    CHECK(found.path.interface == "lo");
    CHECK(found.path.link_mtu > 1000);
    CHECK(!found.path.black_hole);
    if (found.path.answers) {  // a firewall may forbid it even here
      CHECK(found.path.hops == 1);
      CHECK(found.path.proven);
    }
  }
  const PeerFindings nobody = measure_peer({.host = "127.0.0.1", .port = port});
  CHECK(nobody.connect_ms.empty());
  CHECK(nobody.connect_error == ECONNREFUSED);
  CHECK(contains(nobody.refusals, "127.0.0.1: Connection refused"));
}

TEST_CASE("a name that nobody knows is said to be unknown") {
  const PeerFindings found = measure_peer({.host = "no-such-host.invalid", .port = 6000});
  CHECK(found.addresses.empty());
  CHECK(!found.unknown_name.empty());
}
