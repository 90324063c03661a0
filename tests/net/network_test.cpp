#include <dirent.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <catch2/catch_test_macros.hpp>
#include <deque>
#include <filesystem>
#include <fstream>
#include <hyperframes/net/network.hpp>
#include <hyperframes/net/network_core.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/log.hpp>
#include <random>

#include "../runtime/manual.hpp"
#include "error_of.hpp"
#include "process.hpp"
#include "raw_peer.hpp"
#include "support.hpp"
#include "transports.hpp"

using namespace net_test;
using net::FrameHeader;
using net::FrameKind;
using net::Lane;
using net::Message;

namespace {

net::Key key_of(const std::string& text) { return net::Key(std::as_bytes(std::span(text))); }

net::Network::Options with_key(const std::string& text) {
  net::Network::Options options;
  options.key = key_of(text);
  return options;
}

/// The error that `action` throws.
std::size_t receive_memory(Node& node) {
  return node.run([] {
    return hf::co_invoke([]() -> hf::Task<std::size_t> {
      co_return hf::Shard::current()->receive_pool().usage().used_bytes;
    });
  });
}

FrameHeader a_data_frame() {
  FrameHeader header;
  header.kind = FrameKind::data;
  header.lane = Lane::normal;
  header.message = header.sequence = 1;
  header.length = header.total = 64;
  return header;
}

}  // namespace

TEST_CASE(
    "a listener refuses an address that others reach unless there is a key, a certificate, or the "
    "word for it") {
  {
    Node node;
    const auto error = error_of([&] { node.listen("tcp://0.0.0.0:0"); });
    CHECK(error.is(hf::Errc::unauthenticated));
    CHECK(std::string(error.what()).find("0.0.0.0") != std::string::npos);
    CHECK(error.remedy().find("key file") != std::string::npos);
    CHECK(error.remedy().find("certificates") != std::string::npos);
    CHECK(error.remedy().find("insecure") != std::string::npos);
    CHECK_NOTHROW(node.listen("tcp://127.0.0.1:0"));
  }
  {
    net::Network::Options options;
    options.insecure = true;
    Node node(1, options);
    CHECK_NOTHROW(node.listen("tcp://0.0.0.0:0"));
  }
  {
    const Over over(Way::tls_certificates);
    Node node;
    CHECK_NOTHROW(node.listen("tcp://0.0.0.0:0"));
  }
  Node node(1, with_key("a key of this test"));
  CHECK_NOTHROW(node.listen("tcp://0.0.0.0:0"));
}

TEST_CASE("a listener binds only the address that it was given") {
  Node server, client;
  auto endpoint = server.listen("tcp://127.0.0.1:0");
  CHECK(endpoint.host == "127.0.0.1");
  CHECK(endpoint.port != 0);
  CHECK_NOTHROW(client.connect(endpoint));
  endpoint.host = "127.0.0.2";
  CHECK(error_of([&] { client.connect(endpoint); }).is(hf::Errc::unreachable));
}

TEST_CASE("a listener on a port in use says so") {
  Node first, second;
  const auto endpoint = first.listen();
  const auto error = error_of([&] { second.listen(endpoint.to_string()); });
  CHECK(error.code() == std::errc::address_in_use);
  CHECK(std::string(error.what()).find(std::to_string(endpoint.port)) != std::string::npos);
}

TEST_CASE(
    "an unreachable peer's error lists every address that was tried, with the reason of each") {
  Node node;
  // Bound and closed again: nobody listens there.
  auto endpoint = Node().listen();
  endpoint.host = "localhost";
  const auto error = error_of([&] { node.connect(endpoint); });
  CHECK(error.is(hf::Errc::unreachable));
  const std::string text = error.what();
  INFO(text);
  CHECK(text.find("tcp://localhost:" + std::to_string(endpoint.port)) != std::string::npos);
  CHECK(text.find("tcp://127.0.0.1:" + std::to_string(endpoint.port) + ": Connection refused") !=
        std::string::npos);
  CHECK(error_of([&] {
          node.connect(net::Endpoint::parse("no-such-host.invalid"));
        }).is(hf::Errc::unreachable));
}

namespace {

hf::Task<void> connect_and_note(net::detail::NetworkCore* core, net::Endpoint endpoint,
                                std::optional<hf::Error>* failure) {
  try {
    co_await core->connect(endpoint, hf::after(1s));
  } catch (const hf::Error& error) {
    *failure = error;
  }
}

}  // namespace

TEST_CASE("a name server that does not answer costs a connect its deadline, and no more") {
  hf::test::Manual manual;
  Handler handler;
  auto core = manual.on(0, [&] {
    return std::make_shared<net::detail::NetworkCore>(manual.runtime(), net::Network::Options(),
                                                      handler);
  });
  std::optional<hf::Error> failure;
  const auto endpoint = net::Endpoint::parse("tcp://slow-to-resolve:6000");
  manual.spawn([&] { return connect_and_note(core.get(), endpoint, &failure); });
  manual.settle();
  REQUIRE(manual.reactor().started.size() == 1);
  CHECK(manual.reactor().cancels == 0);
  CHECK(!failure);
  manual.advance(2s);
  REQUIRE(failure);
  CHECK(failure->is(hf::Errc::deadline_exceeded));
  CHECK(failure->tried().find("slow-to-resolve") != std::string::npos);
  CHECK(failure->found().find("was not resolved in time") != std::string::npos);
  // As of a call that can't be called back; its answer is for nobody.
  CHECK(manual.reactor().cancels == 0);
  manual.reactor().complete(manual.reactor().started.front(), -ENXIO);
  manual.settle();
  manual.on(0, [&] { core->stop_here(); });
}

TEST_CASE("peer process: listens on a name of two addresses", "[.][peer]") {
  if (report_descriptor() < 0) return;
  const auto hosts =
      std::filesystem::temp_directory_path() / ("hosts-" + std::to_string(::getpid()));
  std::ofstream(hosts) << "127.0.0.1 of-two\n127.0.0.2 of-two\n";
  const bool mounted = ::unshare(CLONE_NEWNS) == 0 &&
                       ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                       ::mount(hosts.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) == 0;
  std::filesystem::remove(hosts);
  if (!mounted) return report("skip");
  Node node;
  for (const std::string taken : {"127.0.0.1", "127.0.0.2"}) {
    Node occupant;
    auto endpoint = occupant.listen("tcp://" + taken + ":0");
    endpoint.host = "of-two";
    const auto error = error_of([&] { node.listen(endpoint.to_string()); });
    if (error.code() != std::errc::address_in_use) return report(error.what());
    endpoint.host = taken == "127.0.0.1" ? "127.0.0.2" : "127.0.0.1";
    const auto refusal = error_of([&] { occupant.connect(endpoint); });
    if (refusal.found().find("Connection refused") == std::string::npos)
      return report(refusal.what());
  }
  report("on all or none");
}

TEST_CASE("who can't listen on all addresses of a name listens on none of them") {
  Process world("peer process: listens on a name of two addresses");
  const std::string outcome = world.line();
  if (outcome == "skip") SKIP("needs the right to mount");
  CHECK(outcome == "on all or none");
}

TEST_CASE("a peer that accepts and says nothing costs a connect its deadline, and no more") {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::listen(listener, 4) == 0);
  socklen_t length = sizeof address;
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  Node node;
  const auto error = error_of(
      [&] { node.connect({net::Scheme::tcp, "127.0.0.1", ntohs(address.sin_port)}, 200ms); });
  CHECK(error.is(hf::Errc::unreachable));
  CHECK(std::string(error.what()).find("deadline") != std::string::npos);
  ::close(listener);
}

TEST_CASE("nodes with the same key have a session; with another key, or none, both learn why not") {
  const Over over(GENERATE(bare_transports()));
  std::mutex mutex;
  std::string log;
  hf::log::set_sink([&](hf::log::Level, std::string_view line) {
    std::scoped_lock lock(mutex);
    log += std::string(line) + "\n";
  });
  const std::string secret = "the right key, and secret";
  {
    Node server(1, with_key(secret));
    const auto endpoint = server.listen();
    {
      Node friendly(2, with_key(secret));
      friendly.send(friendly.connect(endpoint), "hello");
      CHECK(eventually([&] { return server.handler.count == 1; }));
    }
    Node wrong(1, with_key("a wrong key, and no secret"));
    auto error = error_of([&] { wrong.connect(endpoint); });
    CHECK(error.is(hf::Errc::unauthenticated));
    CHECK(std::string(error.what()).find("key") != std::string::npos);

    Node keyless;
    error = error_of([&] { keyless.connect(endpoint); });
    CHECK(error.is(hf::Errc::unauthenticated));
    CHECK(std::string(error.what()).find("key file") != std::string::npos);

    Node open_server;
    error = error_of([&] { wrong.connect(open_server.listen()); });
    CHECK(error.is(hf::Errc::unauthenticated));
  }
  {
    // The server's side of it; its lines are held to one a second.
    Node server(1, with_key(secret));
    const auto endpoint = server.listen();
    Node keyless;
    (void)error_of([&] { keyless.connect(endpoint); });
    CHECK(eventually([&] {
      std::scoped_lock lock(mutex);
      return log.find("'authentication'") != std::string::npos;
    }));
  }
  hf::log::set_sink({});
  CHECK(log.find(secret) == std::string::npos);
}

TEST_CASE("a peer without the key can't use what it heard: proofs are bound to one connection") {
  auto options = with_key("the key of this test");
  options.encryption.plaintext = true;
  Node server(1, options);
  const auto endpoint = server.listen();
  RawPeer peer(endpoint);
  auto hello = RawPeer::hello(5);
  hello.node.authentication = net::Authentication::shared_key;
  peer.send(encode(hello));
  const auto challenge = net::decode_challenge(peer.receive_frame().payload).value();
  REQUIRE(challenge.proof);
  // The accepting side's proof, sent back as ours.
  peer.send(encode(net::Proof{challenge.proof}));
  const auto answer = peer.receive_frame();
  REQUIRE(answer.header.kind == FrameKind::reject);
  CHECK(net::decode_reject(answer.payload).value().check == net::Check::authentication);
  CHECK(peer.is_closed());
  CHECK(server.handler.ups == 0);
}

TEST_CASE("a peer of another protocol range learns both ranges") {
  Node server;
  RawPeer peer(server.listen());
  auto hello = RawPeer::hello(5);
  hello.protocol_lowest = 8;
  hello.protocol_highest = 9;
  peer.send(encode(hello));
  const auto reject = net::decode_reject(peer.receive_frame().payload).value();
  CHECK(reject.check == net::Check::protocol_version);
  CHECK(reject.text.find("8 to 9") != std::string::npos);
  CHECK(reject.text.find("1 to 1") != std::string::npos);
}

TEST_CASE("a peer of absurdly many shards is turned away, on whichever side it is") {
  {
    Node server;
    RawPeer peer(server.listen());
    auto hello = RawPeer::hello(5);
    hello.node.shard_count = 4096;
    peer.send(encode(hello));
    peer.receive_frame();
    peer.send(encode(net::Proof{}));
    const auto answer = peer.receive_frame();
    REQUIRE(answer.header.kind == FrameKind::reject);
    const auto reject = net::decode_reject(answer.payload).value();
    CHECK(reject.check == net::Check::limits);
    CHECK(reject.text.find("4096 shards") != std::string::npos);
    CHECK(server.handler.ups == 0);
  }
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::listen(listener, 4) == 0);
  socklen_t length = sizeof address;
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  std::thread server([&] {
    RawPeer peer(::accept(listener, nullptr, nullptr));
    peer.receive_frame();
    net::Challenge challenge;
    challenge.node = RawPeer::hello(6).node;
    challenge.node.shard_count = 4096;
    peer.send(encode(challenge));
    peer.is_closed();
  });
  Node node;
  const auto error =
      error_of([&] { node.connect({net::Scheme::tcp, "127.0.0.1", ntohs(address.sin_port)}, 5s); });
  server.join();
  ::close(listener);
  CHECK(error.is(hf::Errc::rejected));
  CHECK(std::string(error.what()).find("4096 shards") != std::string::npos);
}

TEST_CASE("many connects to one node share one session") {
  const Over over(GENERATE(schemes()));
  Node server(2), client(2);
  const auto endpoint = server.listen();
  std::vector<std::thread> threads;
  std::vector<std::uint64_t> nodes(6);
  for (unsigned i = 0; i < nodes.size(); ++i)
    threads.emplace_back([&, i] {
      nodes[i] = client.run([&] { return client.connect_task(endpoint, 10s); }, i % 2);
    });
  for (auto& thread : threads) thread.join();
  for (const auto node : nodes) CHECK(node == server.network.node_id());
  CHECK(client.handler.ups == 2);  // one for each shard
  CHECK(eventually([&] { return server.handler.ups == 2; }));
}

TEST_CASE("two nodes that connect to each other at the same time have one session") {
  const Over over(GENERATE(schemes()));
  for (int round = 0; round < 20; ++round) {
    Node a, b;
    const auto to_a = a.listen(), to_b = b.listen();
    std::thread other([&, to_a] { b.connect(to_a, 10s); });
    a.connect(to_b, 10s);
    other.join();
    a.send(b.network.node_id(), "to b");
    b.send(a.network.node_id(), "to a");
    CHECK(eventually([&] { return a.handler.count == 1 && b.handler.count == 1; }));
    CHECK(a.handler.ups == 1);
    CHECK(b.handler.ups == 1);
    CHECK(a.handler.down_count == 0);
    CHECK(b.handler.down_count == 0);
  }
}

TEST_CASE("a node that connects to itself is told so") {
  const Over over(GENERATE(schemes()));
  Node node;
  const auto endpoint = node.listen();
  const auto error = error_of([&] { node.connect(endpoint); });
  CHECK(error.is(hf::Errc::rejected));
  CHECK(std::string(error.what()).find("yourself") != std::string::npos);
}

TEST_CASE("a restarted node replaces the stale session of its old self at once") {
  const Over over(GENERATE(schemes()));
  Node server;
  const auto endpoint = server.listen();
  const auto self = [](std::uint64_t incarnation) {
    net::Network::Options options;
    options.node_id = 77;
    options.incarnation = incarnation;
    return options;
  };
  // The old self stays connected and alive: its session is as stale as can be.
  Node old(1, self(10));
  old.connect(endpoint);
  Node young(1, self(11));
  young.send(young.connect(endpoint), "from the new one");
  CHECK(eventually([&] { return server.handler.count == 1; }));
  REQUIRE(eventually([&] { return server.handler.down_count == 1; }));
  CHECK(server.handler.downs()[0].code == hf::Errc::peer_lost);
  CHECK(server.handler.downs()[0].text.find("incarnation 11") != std::string::npos);
  // The old one sees its session end, and can't come back.
  CHECK(eventually([&] { return old.handler.down_count == 1; }));
  const auto error = error_of([&] { old.connect(endpoint); });
  CHECK(error.is(hf::Errc::rejected));
  CHECK(std::string(error.what()).find("incarnation 11") != std::string::npos);
  young.send(server.network.node_id(), "still there");
  CHECK(eventually([&] { return server.handler.count == 2; }));
}

TEST_CASE("a node finds the restarted peer behind an address, though its old session is still up") {
  const Over over(GENERATE(schemes()));
  Node client;
  net::Network::Options options;
  options.node_id = 78;
  options.incarnation = 1;
  std::optional<Node> old(std::in_place, 1, options);
  const auto endpoint = old->listen();
  client.connect(endpoint);
  old.reset();
  options.incarnation = 2;
  Node young(1, options);
  young.listen(endpoint.to_string());
  // Whether the client has seen its old session end by now or not.
  client.send(client.connect(endpoint), "to the new one");
  CHECK(eventually([&] { return young.handler.count == 1; }));
}

TEST_CASE("the first message after each of many reconnects arrives") {
  const Over over(GENERATE(schemes()));
  Node server;
  const auto endpoint = server.listen();
  net::Network::Options options;
  options.node_id = 5;
  for (int round = 1; round <= 50; ++round) {
    options.incarnation = static_cast<std::uint64_t>(round);
    Node client(1, options);
    client.send(client.connect(endpoint), std::to_string(round));
    REQUIRE(eventually([&] { return server.handler.count == round; }));
  }
}

TEST_CASE("a thousand silent sockets keep no real peer out, and are closed after 5 seconds") {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t needed = 4096;
  if (limit.rlim_cur < needed) {
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, needed);
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur < needed) SKIP("needs an open-files limit of 4096 (ulimit -n)");
  struct Side {
    Node server, client;
    std::vector<RawPeer> silent;
  };
  std::deque<Side> sides;  // at once, since they wait for the same 5 seconds
  for (const Way way : {Way::tcp, Way::tls_certificates}) {
    const Over over(way);
    Side& side = sides.emplace_back();
    const auto endpoint = side.server.listen();
    for (int i = 0; i < 500; ++i) {
      side.silent.emplace_back(endpoint);
      // Some begin a handshake of TLS and stop in the middle of it.
      if (Over::is_tls() && i % 2)
        side.silent.back().send(std::as_bytes(std::span("\x16\x03\x01\x02")));
    }
    side.client.send(side.client.connect(endpoint), "real");
    CHECK(eventually([&] { return side.server.handler.count == 1; }));
  }
  for (Side& side : sides) {
    for (RawPeer& peer : side.silent) REQUIRE(peer.is_closed());
    side.client.send(side.server.network.node_id(), "still here");
    CHECK(eventually([&] { return side.server.handler.count == 2; }));
  }
}

TEST_CASE("hostile bytes before the handshake close that connection and no more") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const Over over(GENERATE(over_tcp()));
  INFO(Over::name());
  Node server, client;
  const auto endpoint = server.listen();
  const auto node = client.connect(endpoint);
  for (int round = 0; round < 100; ++round) {
    RawPeer peer(endpoint);
    std::vector<std::byte> bytes(64 + random() % 1000);
    for (auto& byte : bytes) byte = static_cast<std::byte>(random());
    // A record of a handshake, of which nothing more comes than it says.
    if (round % 8 == 4) {
      const std::byte head[] = {std::byte{22}, std::byte{3}, std::byte{3}, std::byte{0},
                                std::byte{59}};
      std::ranges::copy(head, bytes.begin());
      bytes.resize(64);
    }
    if (round % 4 == 1) {
      const char* text =
          "GET / HTTP/1.1\r\nHost: localhost\r\n\r\nUser-Agent: a browser, perhaps\r\n";
      std::memcpy(bytes.data(), text, 64);
    }
    if (round % 4 == 2) {
      FrameHeader header;
      header.kind = FrameKind::hello;
      header.length = 200;
      header.encode(bytes.data());
      bytes.resize(64 + 200);
    }
    if (round % 4 == 3) a_data_frame().encode(bytes.data());
    peer.send(bytes);
    REQUIRE(peer.is_closed());
  }
  client.send(node, "unharmed");
  CHECK(eventually([&] { return server.handler.count == 1; }));
  CHECK(server.handler.down_count == 0);
}

TEST_CASE("a frame with a garbage length allocates nothing, and closes that connection only") {
  Node server, client;
  const auto endpoint = server.listen();
  const auto node = client.connect(endpoint);
  const struct {
    const char* what;
    void (*change)(FrameHeader&);
  } cases[] = {
      {"a length beyond all", [](FrameHeader& h) { h.length = ~std::uint64_t{0}; }},
      {"a total beyond all",
       [](FrameHeader& h) {
         h.total = std::uint64_t{1} << 39;
         h.length = 1 << 20;
       }},
      {"more than there is credit for", [](FrameHeader& h) { h.total = h.length = 8u << 20; }},
      {"a fragment of nothing",
       [](FrameHeader& h) {
         h.offset = 0;
         h.total = 128;
         h.offset = 64;
       }},
      {"an answer to no question", [](FrameHeader& h) { h.flags = net::frame_flag::prepaid; }},
      {"a frame out of sequence", [](FrameHeader& h) { h.sequence = 5; }},
      {"an acknowledgement of the future", [](FrameHeader& h) { h.acknowledgement = 1000; }},
      {"a channel that is not open", [](FrameHeader& h) { h.channel = 1; }},
      {"a handshake in mid-session",
       [](FrameHeader& h) {
         h.kind = FrameKind::hello;
         h.sequence = 0;
       }},
      {"credit that was never lent",
       [](FrameHeader& h) {
         h.kind = FrameKind::credit;
         h.length = 0;
         h.total = 1u << 20;
       }},
      {"a message of garbage", [](FrameHeader&) {}},
  };
  std::uint64_t id = 1000;
  for (const auto& [what, change] : cases) {
    INFO(what);
    RawPeer peer(endpoint);
    peer.enter(++id);
    FrameHeader header = a_data_frame();
    change(header);
    peer.send(encoded(header));
    std::vector<std::byte> payload(64, std::byte{0xff});
    peer.send(payload);
    REQUIRE(peer.is_closed());
    CHECK(receive_memory(server) == 0);
  }
  REQUIRE(eventually([&] { return server.handler.down_count == std::ssize(cases); }));
  for (const auto& down : server.handler.downs()) CHECK(down.code == hf::Errc::corrupt);
  client.send(node, "unharmed");
  CHECK(eventually([&] { return server.handler.count == 1; }));
}

TEST_CASE(
    "a peer that floods requests without reading answers is cut off, not served from the heap") {
  Node server;
  RawPeer peer(server.listen());
  peer.enter(9);
  FrameHeader announce;
  announce.kind = FrameKind::announce;
  announce.lane = Lane::bulk;
  announce.total = std::uint64_t{1} << 39;  // refused each time, with a text
  std::vector<std::byte> bytes(64 * 1000);
  for (std::uint64_t i = 0; i < 2'000'000; i += 1000) {
    for (std::uint64_t k = 0; k < 1000; ++k) {
      announce.message = announce.sequence = i + k + 1;
      announce.encode(bytes.data() + 64 * k);
    }
    if (!peer.send(bytes)) break;
  }
  CHECK(peer.is_closed());
  CHECK(eventually([&] { return server.handler.down_count == 1; }));
}

TEST_CASE("every connection of a network sends small writes at once") {
  Node server, client;
  client.connect(server.listen());
  int connections = 0;
  DIR* directory = ::opendir("/proc/self/fd");
  REQUIRE(directory);
  while (const dirent* entry = ::readdir(directory)) {
    const int descriptor = std::atoi(entry->d_name);
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &length) != 0) continue;
    if (peer.ss_family != AF_INET) continue;
    int no_delay = 0;
    length = sizeof no_delay;
    REQUIRE(::getsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &no_delay, &length) == 0);
    CHECK(no_delay == 1);
    ++connections;
  }
  ::closedir(directory);
  CHECK(connections == 2);
}

TEST_CASE("a network that is destroyed ends its sessions, and leaves no descriptor behind") {
  const Over over(GENERATE(schemes()));
  const auto count = [] {
    int descriptors = 0;
    DIR* directory = ::opendir("/proc/self/fd");
    while (::readdir(directory)) ++descriptors;
    ::closedir(directory);
    return descriptors;
  };
  Node server;
  const auto endpoint = server.listen();
  hf::Runtime runtime(shards(2));
  Handler handler;
  const int before = count();
  for (int round = 0; round < 20; ++round) {
    net::Network network(runtime, Over::secured(), handler);
    runtime.run([&](hf::Runtime&) {
      return hf::co_invoke(
          [](net::Network* network, net::Endpoint endpoint) -> hf::Task<void> {
            co_await network->listen(net::Endpoint::parse(Over::uri()));
            co_await network->connect(endpoint, hf::after(5s));
          },
          &network, endpoint);
    });
  }
  CHECK(eventually([&] { return count() <= before; }));
  CHECK(handler.down_count == handler.ups);
}

TEST_CASE("a network may be destroyed after its runtime was stopped") {
  const Over over(GENERATE(schemes()));
  Node server;
  const auto endpoint = server.listen();
  hf::Runtime runtime(shards(2));
  Handler handler;
  net::Network network(runtime, Over::secured(), handler);
  runtime.run([&](hf::Runtime&) {
    return hf::co_invoke(
        [](net::Network* network, net::Endpoint endpoint) -> hf::Task<void> {
          co_await network->listen(net::Endpoint::parse(Over::uri()));
          co_await network->connect(endpoint, hf::after(5s));
        },
        &network, endpoint);
  });
  CHECK(runtime.stop(hf::timing().scaled(5s)).stragglers.empty());
  CHECK(eventually([&] { return server.handler.down_count == 1; }));
}
