// auto://: nodes that meet over TCP, share memory where they can, and go on over TCP where that
// ends.
#include <sched.h>
#include <sys/resource.h>
#include <sys/un.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdlib>
#include <filesystem>
#include <hyperframes/runtime/combinators.hpp>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>

#include "../runtime/captured_log.hpp"
#include "error_of.hpp"
#include "process.hpp"
#include "sanitized.hpp"
#include "shm_peer.hpp"
#include "sim_program.hpp"
#include "storm.hpp"

using namespace net_test;
using net::Lane;
using net::Message;
using net::Scheme;

namespace {

const char* const automatic = "auto://127.0.0.1:0";

net::Network::Options options_with(const std::string& key, const std::string& boot_id = {}) {
  net::Network::Options options;
  if (!key.empty()) options.key = net::Key(std::as_bytes(std::span(key)));
  options.encryption.plaintext = !key.empty();  // raw peers listen
  options.boot_id = boot_id;
  return options;
}

hf::Task<std::multiset<std::string>> transports_here(net::Network* network) {
  std::multiset<std::string> names;
  for (const auto& session : network->sessions()) names.insert(session->stats().transport);
  co_return names;
}

/// What the links carry on which the shards of a node send.
std::multiset<std::string> transports_of(Node& node) {
  std::multiset<std::string> all;
  for (unsigned shard = 0; shard < node.runtime.shard_count(); ++shard)
    all.merge(node.run([&] { return transports_here(&node.network); }, shard));
  return all;
}

std::multiset<std::string> times(std::size_t count, const std::string& name) {
  std::multiset<std::string> names;
  for (std::size_t i = 0; i < count; ++i) names.insert(name);
  return names;
}

std::size_t occurrences(const std::string& text, const std::string& words) {
  std::size_t found = 0;
  for (auto at = text.find(words); at != text.npos; at = text.find(words, at + 1)) ++found;
  return found;
}
bool has(const std::string& text, const std::string& words) { return occurrences(text, words) > 0; }

/// As a peer of this host says it.
net::Hello local_hello(std::uint64_t node) {
  auto hello = RawPeer::hello(node);
  hello.node.boot_id = shm::system_boot_id();
  hello.node.capabilities = net::capability::resume | net::capability::shared_memory;
  return hello;
}

net::Endpoint over_tcp(net::Endpoint endpoint) {
  endpoint.scheme = Scheme::tcp;
  return endpoint;
}

/// What a peer that says that hello is told of the memory.
std::string name_told(const net::Endpoint& endpoint, const net::Hello& hello) {
  RawPeer peer(endpoint);
  net::Challenge challenge;
  peer.enter(hello, &challenge);
  return challenge.shm_name;
}

/// A Unix socket of this process by which memory is shared, or to be shared.
struct MemorySocket {
  int descriptor;
  std::string name;
  bool listens;
};

std::vector<MemorySocket> memory_sockets() {
  const auto name_by = [](int descriptor, auto get_address) -> std::string {
    sockaddr_un address{};
    socklen_t length = sizeof address;
    if (get_address(descriptor, reinterpret_cast<sockaddr*>(&address), &length) != 0) return {};
    const std::string path(address.sun_path, length - offsetof(sockaddr_un, sun_path));
    const std::string prefix = std::string(1, '\0') + "hyperframes/shm/";
    const bool ours = address.sun_family == AF_UNIX && path.starts_with(prefix);
    return ours ? path.substr(prefix.size()) : std::string();
  };
  std::vector<MemorySocket> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::atoi(entry.path().filename().c_str());
    int listens = 0;
    socklen_t size = sizeof listens;
    if (::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0) continue;
    std::string name = name_by(descriptor, ::getsockname);
    if (name.empty()) name = name_by(descriptor, ::getpeername);
    if (!name.empty()) found.push_back({descriptor, name, listens != 0});
  }
  return found;
}

}  // namespace

TEST_CASE("nodes of one host that meet by auto:// share memory, on every link") {
  for (const auto& [shards_here, shards_there] : {std::pair{1u, 1u}, {2u, 3u}, {3u, 2u}}) {
    INFO(shards_here << " and " << shards_there << " shards");
    hf::test::CapturedLog log;
    Node server(shards_here), client(shards_there);
    const auto endpoint = server.listen(automatic);
    CHECK(endpoint.to_string() == "auto://127.0.0.1:" + std::to_string(endpoint.port));
    const auto node = client.connect(endpoint);
    REQUIRE(eventually([&] { return server.handler.ups == static_cast<int>(shards_here); }));
    CHECK(transports_of(server) == times(shards_here, "shm"));
    CHECK(transports_of(client) == times(shards_there, "shm"));
    for (unsigned shard = 0; shard < shards_there; ++shard)
      client.send(node, std::string(100'000, 'x'), Lane::bulk, 5s, shard);
    for (unsigned shard = 0; shard < shards_here; ++shard)
      server.send(client.network.node_id(), "back", Lane::normal, 5s, shard);
    CHECK(eventually([&] {
      return server.handler.count == static_cast<int>(shards_there) &&
             client.handler.count == static_cast<int>(shards_here);
    }));
    CHECK(!has(log.text(), "all the same"));
  }
}

TEST_CASE("who asks for tcp:// gets it, and so does a node that runs under another kernel") {
  hf::test::CapturedLog log;
  Node server(2), plain(2), distant(2, options_with({}, "another host"));
  const auto endpoint = server.listen(automatic);
  plain.connect(over_tcp(endpoint));
  CHECK(transports_of(plain) == times(2, "tcp"));
  distant.connect(endpoint);
  CHECK(transports_of(distant) == times(2, "tcp"));
  // And where the server did not offer any.
  Node modest, client;
  auto address = modest.listen("tcp://127.0.0.1:0");
  address.scheme = Scheme::automatic;
  client.connect(address);
  CHECK(transports_of(client) == times(1, "tcp"));
  CHECK(!has(log.text(), "all the same"));
}

TEST_CASE("auto:// is TCP in the simulator, which has no memory to share") {
  Handler to_a, to_b;  // the world's nodes refer to them to the end
  hf::SimWorld world({.seed = 5});
  hf::SimNode &a = world.add_node(), &b = world.add_node();
  const auto same_host = [](hf::SimNode& node) {
    return Program::completed(node, options_with({}));
  };
  auto& at_a = a.emplace<net::Network>(a.runtime(), same_host(a), to_a);
  auto& at_b = b.emplace<net::Network>(b.runtime(), same_host(b), to_b);
  const net::Endpoint endpoint{Scheme::automatic, a.address().host(), 6000};
  const auto bound = world.run(
      a, 0, [&](hf::Runtime&) -> hf::Task<net::Endpoint> { return at_a.listen(endpoint); });
  CHECK(bound == endpoint);
  world.run(b, 0, [&](hf::Runtime&) {
    return hf::co_invoke(
        [](net::Network* network, net::Endpoint to) -> hf::Task<void> {
          auto session = co_await network->connect(to, hf::after(5s));
          Message message;
          co_await session->send(std::move(message));
          CHECK(session->stats().transport == "tcp");
        },
        &at_b, bound);
  });
  CHECK(world.run_until([&] { return to_a.count == 1; }, 5s));
}

TEST_CASE("the name of the memory is told only to peers that can make use of it") {
  Node server;
  const auto endpoint = over_tcp(server.listen(automatic));
  const std::string name = name_told(endpoint, local_hello(10));
  CHECK(name.starts_with("auto-"));
  CHECK(name.size() > 32);
  CHECK(name_told(endpoint, local_hello(11)) == name);
  auto other = local_hello(12);
  other.node.boot_id = "another host";
  CHECK(name_told(endpoint, other).empty());
  auto old = local_hello(13);
  old.node.capabilities = net::capability::resume;
  CHECK(name_told(endpoint, old).empty());
  Node plain;
  CHECK(name_told(plain.listen("tcp://127.0.0.1:0"), local_hello(14)).empty());
}

TEST_CASE("through memory, too, nobody gets in without the key") {
  const std::string secret = "the key of this test";
  Node server(2, options_with(secret)), friendly(2, options_with(secret));
  const auto endpoint = server.listen(automatic);
  friendly.connect(endpoint);
  CHECK(transports_of(friendly) == times(2, "shm"));
  // Whoever asks is told the name, and that is all.
  RawPeer stranger(over_tcp(endpoint));
  auto hello = local_hello(10);
  hello.node.authentication = net::Authentication::shared_key;
  stranger.send(encode(hello));
  const auto challenge = net::decode_challenge(stranger.receive_frame().payload).value();
  REQUIRE(!challenge.shm_name.empty());
  const net::Endpoint memory{Scheme::shm, challenge.shm_name, 0};
  Node keyless, wrong(1, options_with("another key, of no use"));
  CHECK(error_of([&] { keyless.connect(memory); }).is(hf::Errc::unauthenticated));
  CHECK(error_of([&] { wrong.connect(memory); }).is(hf::Errc::unauthenticated));
  CHECK(error_of([&] { wrong.connect(endpoint); }).is(hf::Errc::unauthenticated));
  CHECK(server.handler.ups == 2);
}

TEST_CASE("what a node lends from is passed to nobody who has not proved that it has the key") {
  const Over over(Way::shm);
  auto options = options_with("the key of this test");
  options.loan_bytes = 1u << 20;
  auto open = options;
  open.key.reset();
  Node node(1, options), keyless(1, open);
  auto hello = local_hello(10);
  const auto listening = node.listen();
  {
    // As far as the challenge, and to the end with another key.
    ShmRawPeer stranger(listening.host);
    hello.node.authentication = net::Authentication::shared_key;
    stranger.send(encode(hello));
    CHECK(stranger.receive_frame().header.kind == net::FrameKind::challenge);
    CHECK(stranger.passed() == 0);
    stranger.send(encode(net::Proof{net::ProofBytes{}}));
    CHECK(stranger.receive_frame().header.kind == net::FrameKind::reject);
    CHECK(stranger.passed() == 0);
  }
  {
    // Under a name that somebody else has taken.
    const std::string name = "squatter-" + std::to_string(::getpid());
    const shm::OwnDescriptor listener = shm::listen_at(name);
    std::size_t passed = 1;
    std::thread squatter([&] {
      pollfd look{listener.get(), POLLIN, 0};
      if (::poll(&look, 1, 30'000) != 1) return;
      ShmRawPeer peer(shm::OwnDescriptor(::accept(listener.get(), nullptr, nullptr)));
      peer.receive_frame();
      net::Challenge challenge;
      challenge.node = hello.node;
      challenge.proof = net::ProofBytes{};
      peer.send(encode(challenge));
      peer.receive_frame();  // it is rejected
      passed = peer.passed();
    });
    const net::Endpoint taken{Scheme::shm, name, 0};
    CHECK(error_of([&] { node.connect(taken); }).is(hf::Errc::unauthenticated));
    squatter.join();
    CHECK(passed == 0);
  }
  // Who is let in gets it, once.
  ShmRawPeer peer(keyless.listen().host);
  hello.node.authentication = net::Authentication::none;
  peer.enter(hello);
  CHECK(peer.passed() == 1);
}

TEST_CASE("nodes that encrypt what they say over TCP share memory, and not with who does not") {
  const std::string secret = "the key of this test";
  const bool with_key = GENERATE(false, true), with_certificates = GENERATE(false, true);
  if (!with_key && !with_certificates) return;
  INFO((with_key ? "key " : "") << (with_certificates ? "certificates" : ""));
  const Over over(with_certificates ? Way::tls_certificates : Way::tls_key);
  const auto options = [&](bool key, bool certificates) {
    auto made = options_with(key ? secret : "");
    made.encryption = certificates ? Over::secured().encryption : net::Encryption();
    made.encryption.plaintext = !key && !certificates;  // or it is given what the others have
    return made;
  };
  Node server(2, options(with_key, with_certificates)),
      client(2, options(with_key, with_certificates));
  const auto endpoint = server.listen(automatic);
  const auto node = client.connect(endpoint);
  CHECK(transports_of(client) == times(2, "shm"));
  CHECK(transports_of(server) == times(2, "shm"));
  client.send(node, "hello");
  CHECK(eventually([&] { return server.handler.count == 1; }));
  // The name can be read by whoever is on this host.
  std::optional<net::Endpoint> memory;
  for (const auto& socket : memory_sockets())
    if (socket.listens) memory = net::Endpoint{Scheme::shm, socket.name, 0};
  REQUIRE(memory);
  for (const bool key : {false, true})
    for (const bool certificates : {false, true}) {
      INFO("a stranger with" << (key ? " the key" : "") << (certificates ? " a certificate" : ""));
      const bool can_by_key = with_key && !with_certificates && key;
      if (can_by_key) continue;
      Node stranger(1, options(key, certificates));
      CHECK(error_of([&] { stranger.connect(*memory); }).is(hf::Errc::unauthenticated));
    }
  CHECK(server.handler.ups == 2);
}

TEST_CASE("nodes that connect to each other by auto:// at the same time have one session") {
  for (int round = 0; round < 20; ++round) {
    Node a(2), b(2);
    const auto at_a = a.listen(automatic), at_b = b.listen(automatic);
    std::thread other([&] { b.connect(at_a); });
    a.connect(at_b);
    other.join();
    a.send(b.network.node_id(), "to b");
    b.send(a.network.node_id(), "to a");
    CHECK(eventually([&] { return a.handler.count == 1 && b.handler.count == 1; }));
    CHECK(transports_of(a) == times(2, "shm"));
    CHECK(transports_of(b) == times(2, "shm"));
    CHECK(a.handler.down_count == 0);
    CHECK(b.handler.down_count == 0);
  }
}

// ---- Memory that can't be had

namespace {

/// A limit of this process while in scope.
class Limited {
 public:
  Limited(__rlimit_resource which, rlim_t value) : which_(which) {
    ::getrlimit(which_, &before_);
    const rlimit low{value, before_.rlim_max};
    ::setrlimit(which_, &low);
  }
  ~Limited() { ::setrlimit(which_, &before_); }
  Limited(const Limited&) = delete;

 private:
  __rlimit_resource which_;
  rlimit before_{};
};

/// The limit below which there are so many descriptors that are free.
rlim_t limit_that_leaves(int free) {
  int limit = 0;
  for (; free; ++limit)
    if (::fcntl(limit, F_GETFD) < 0) --free;
  return static_cast<rlim_t>(limit);
}

/// Lets one node in over TCP, after it has told it that name.
class Guide {
 public:
  explicit Guide(std::string shm_name, std::optional<net::Reject> reject = std::nullopt)
      : thread_([this, shm_name, reject] {
          RawPeer peer = listener_.accept();
          auto challenge = net::Challenge();
          challenge.node = local_hello(6).node;
          challenge.shm_name = shm_name;
          if (!reject) {
            peer.let_in(challenge);
          } else {
            peer.receive_frame();
            peer.send(encode(challenge));
            peer.receive_frame();
            peer.send(encode(*reject));
          }
          peer.is_closed();
        }) {}
  ~Guide() { thread_.join(); }
  net::Endpoint endpoint() const {
    auto endpoint = listener_.endpoint();
    endpoint.scheme = Scheme::automatic;
    return endpoint;
  }

 private:
  RawListener listener_;
  std::thread thread_;
};

}  // namespace

TEST_CASE("where memory can't be had the session is over TCP, and a line says why") {
  hf::test::CapturedLog log;
  SECTION("nobody listens under the name") {
    Guide guide("auto-nobody");
    Node client;
    client.connect(guide.endpoint());
    CHECK(transports_of(client) == times(1, "tcp"));
    CHECK(has(log.text(), "shm://auto-nobody"));
    CHECK(has(log.text(), "nobody listens"));
  }
  SECTION("another node does") {
    Node other;
    const std::string uri = "shm://other-" + std::to_string(::getpid());
    Guide guide(other.listen(uri).host);
    Node client;
    client.connect(guide.endpoint());
    CHECK(transports_of(client) == times(1, "tcp"));
    CHECK(has(log.text(), "another node answers there"));
    CHECK(other.handler.ups == 0);
  }
  SECTION("somebody does who says nothing") {
    const std::string name = "silent-" + std::to_string(::getpid());
    const shm::OwnDescriptor listener = shm::listen_at(name);
    Guide guide(name);
    Node client;
    client.connect(guide.endpoint(), 20s);
    CHECK(transports_of(client) == times(1, "tcp"));
    CHECK(has(log.text(), "deadline"));
  }
  CHECK(occurrences(log.text(), "is reached over TCP all the same") == 1);
}

TEST_CASE("an error of auto:// lists every transport that was tried, with address and reason") {
  hf::test::CapturedLog log;
  Node client;
  {
    Guide guide("auto-nobody", net::Reject{net::Check::limits, "no room today"});
    const auto error = error_of([&] { client.connect(guide.endpoint()); });
    INFO(error.what());
    CHECK(error.is(hf::Errc::rejected));
    CHECK(has(error.what(), "tcp://127.0.0.1:" + std::to_string(guide.endpoint().port)));
    CHECK(has(error.what(), "no room today"));
    CHECK(has(error.what(), "shm://auto-nobody: nobody listens"));
  }
  auto endpoint = Node().listen(automatic);
  endpoint.host = "localhost";
  const auto error = error_of([&] { client.connect(endpoint); });
  INFO(error.what());
  CHECK(error.is(hf::Errc::unreachable));
  CHECK(has(error.what(), endpoint.to_string()));
  CHECK(has(error.what(),
            "tcp://127.0.0.1:" + std::to_string(endpoint.port) + ": Connection refused"));
  CHECK(has(error.what(), "shared memory: a peer that answers would say where"));
}

TEST_CASE("peer process: listens by auto", "[.][peer]") {
  if (report_descriptor() < 0) return;
  if (std::getenv("HYPERFRAMES_TEST_OTHER_USER") && (::setgid(65534) != 0 || ::setuid(65534) != 0))
    return report("tcp://127.0.0.1:1");
  const char* const shard_count = std::getenv("HYPERFRAMES_TEST_SHARDS");
  Node node(shard_count ? static_cast<unsigned>(std::atoi(shard_count)) : 3);
  report(node.listen(automatic).to_string());
  while (true) ::pause();
}

TEST_CASE("when the peer can't attach, the links that are left to make are made over TCP") {
  for (const unsigned failing : {1u, 2u, 3u}) {
    INFO("the attach that fails: " << failing);
    hf::test::CapturedLog log;
    Process server("peer process: listens by auto",
                   {{"HYPERFRAMES_FAILPOINT", "shm-attached=error:" + std::to_string(failing)}});
    Node client(3);
    const auto node = client.connect(server.endpoint());
    // Without the first link nothing is shared; the others are made side by side.
    const auto transports = transports_of(client);
    CHECK(transports.count("shm") >= failing - 1);
    CHECK(transports.count("tcp") >= 1);
    if (failing == 1) CHECK(transports.count("tcp") == 3);
    CHECK(occurrences(log.text(), "is reached over TCP all the same") == 1);
    CHECK(has(log.text(), "it is armed"));
    for (unsigned shard = 0; shard < 3; ++shard)
      client.send(node, "hello", Lane::normal, 5s, shard);
    CHECK(eventually([&] { return standing_of(client).unacknowledged == 0; }));
    CHECK(client.handler.down_count == 0);
  }
}

TEST_CASE("a process of another user is reached over TCP") {
  hf::test::CapturedLog log;
  Process server("peer process: listens by auto", {{"HYPERFRAMES_TEST_OTHER_USER", "1"}});
  const auto endpoint = server.endpoint();
  if (endpoint.scheme != Scheme::automatic) SKIP("needs the right to become another user");
  Node client;
  client.connect(endpoint);
  CHECK(transports_of(client) == times(1, "tcp"));
  CHECK(has(log.text(), "is reached over TCP all the same"));
  CHECK(has(log.text(), "of user 65534"));
}

net::Network::Options for_other_hosts() {
  net::Network::Options options;
  options.insecure = true;
  return options;
}

bool shell(const std::string& command) {
  return std::system((command + " 2>/dev/null").c_str()) == 0;
}

TEST_CASE("peer process: listens by auto in a network of its own", "[.][peer]") {
  if (report_descriptor() < 0) return;
  if (::unshare(CLONE_NEWNET) != 0) return report("skip");
  report(std::to_string(::getpid()));
  // Until the other end of the wire has been put here.
  if (!eventually([] { return shell("ip addr add 10.77.0.2/24 dev hf1 && ip link set hf1 up"); }))
    return report("no wire");
  Node node(1, for_other_hosts());
  report(node.listen("auto://10.77.0.2:0").to_string());
  while (true) ::pause();
}

TEST_CASE("peer process: connects to another network of this host", "[.][peer]") {
  if (report_descriptor() < 0) return;
  if (::unshare(CLONE_NEWNET) != 0 || !shell("ip link add hf0 type veth peer name hf1"))
    return report("skip");
  Process server("peer process: listens by auto in a network of its own");
  const std::string process = server.line();
  if (!shell("ip addr add 10.77.0.1/24 dev hf0 && ip link set hf0 up && ip link set hf1 netns " +
             process))
    return report("skip");
  const auto endpoint = server.endpoint();
  hf::test::CapturedLog log;
  Node client(1, for_other_hosts());
  const auto node = client.connect(endpoint);
  client.send(node, "across");
  const bool arrived = eventually([&] { return standing_of(client).unacknowledged == 0; });
  const bool over_tcp = transports_of(client) == times(1, "tcp");
  report(arrived && over_tcp && has(log.text(), "is reached over TCP all the same")
             ? "over TCP"
             : *transports_of(client).begin() + "\n" + log.text());
}

TEST_CASE("a process of this host in another network namespace is reached over TCP") {
  Process world("peer process: connects to another network of this host");
  const std::string outcome = world.line();
  if (outcome == "skip") SKIP("needs the right to make a network namespace, and ip");
  CHECK(outcome == "over TCP");
}

TEST_CASE("a process that may have no more memory or descriptors is reached over TCP") {
  hf::test::CapturedLog log;
  Process server("peer process: listens by auto", {{"HYPERFRAMES_TEST_SHARDS", "1"}});
  const auto endpoint = server.endpoint();
  SECTION("memory") {
    Node client;
    const Limited limited(RLIMIT_FSIZE, 1 << 20);
    client.connect(endpoint);
    CHECK(transports_of(client) == times(1, "tcp"));
    CHECK(has(log.text(), "ulimit -f"));
  }
  SECTION("descriptors") {
    if (sanitized) SKIP("the sanitizer itself needs descriptors");
    // One for TCP, one for the Unix socket, two for the memory.
    for (const int free : {1, 2, 4}) {
      INFO(free << " descriptors");
      Node client;
      transports_of(client);  // it has all that it needs itself
      const Limited limited(RLIMIT_NOFILE, limit_that_leaves(free));
      client.connect(endpoint);
      CHECK(transports_of(client) == times(1, free < 4 ? "tcp" : "shm"));
    }
    INFO(log.text());
    CHECK(occurrences(log.text(), "is reached over TCP all the same") == 2);
    CHECK(occurrences(log.text(), "ulimit -n") == 2);
  }
}

// ---- Memory that breaks

TEST_CASE("peer process: storms through memory that breaks", "[.][peer]") {
  if (report_descriptor() < 0) return;
  const std::uint64_t seed = std::strtoull(std::getenv("HYPERFRAMES_TEST_SEED"), nullptr, 10);
  Record record;
  Node server(2), client(2);
  Talker in_server(server.handler, record, seed), in_client(client.handler, record, seed + 1000);
  client.connect(server.listen(automatic));
  if (!eventually([&] { return server.handler.ups == 2; })) return report("not connected");
  std::vector<std::thread> talkers;
  const auto talk = [&](Node& from, Talker& talker, Node& to, unsigned shard, std::uint64_t name) {
    talkers.emplace_back([&, shard, name, target = to.network.node_id()] {
      const auto run = [&] { return talker.talk(&from.network, target, name, 300, 3'000'000); };
      try {
        from.run(run, shard);
      } catch (const hf::Error&) {
        talker.right = false;
      }
    });
  };
  for (unsigned shard = 0; shard < 2; ++shard) {
    talk(server, in_server, client, shard, 10 + shard);
    talk(client, in_client, server, shard, 20 + shard);
  }
  for (auto& talker : talkers) talker.join();
  const bool all = eventually([&] {
    return in_server.told + in_client.told == record.tells + record.asks &&
           in_server.answered + in_client.answered == record.asks;
  });
  const bool settled = eventually([&] {
    const Standing a = standing_of(server), b = standing_of(client);
    return a.unacknowledged + b.unacknowledged + a.held + b.held == 0;
  });
  if (!all || !settled) return report("not all of it came");
  if (!in_server.right || !in_client.right) return report("it came wrong");
  if (server.handler.down_count + client.handler.down_count) return report("the session ended");
  if (!standing_of(client).resumes || !standing_of(server).resumes) return report("nothing broke");
  const bool over_tcp =
      transports_of(client).contains("tcp") && transports_of(server).contains("tcp");
  if (!over_tcp) return report("not over TCP");
  // What a link had of memory is gone with it: each end has two pieces.
  const auto left = 2 * (transports_of(client).count("shm") + transports_of(server).count("shm"));
  report(eventually([&] { return mappings() == static_cast<int>(left); }) ? "whole"
                                                                          : "memory is left");
}

TEST_CASE("a link whose memory breaks goes on over TCP: each message comes once, in order") {
  const auto seed = std::random_device()();
  std::mt19937_64 random(seed);
  std::vector<std::uint64_t> pieces{1, 2, 3};
  for (int i = 0; i < 5; ++i) pieces.push_back(4 + random() % 2000);
  for (const std::uint64_t piece : pieces) {
    INFO("seed " << seed << ", it breaks at piece " << piece);
    Process world("peer process: storms through memory that breaks",
                  {{"HYPERFRAMES_FAILPOINT", "shm-broken=error:" + std::to_string(piece)},
                   {"HYPERFRAMES_TEST_SEED", std::to_string(seed % 1'000'000)}});
    CHECK(world.line() == "whole");
  }
}

namespace {

/// Messages of all sizes on all lanes that say themselves what they are, so that another process
/// can see that each came once, whole and in order.
class Marked {
 public:
  explicit Marked(Handler& handler) {
    handler.react = [this](net::Session&, Lane lane, Message message) {
      take(lane, std::move(message));
    };
  }
  /// Until `enough`, and then an empty one on each lane.
  hf::Task<void> talk(net::Network* network, std::uint64_t to, std::uint64_t sender) {
    std::mt19937_64 random(sender);
    auto session = session_with(*network, to);
    std::uint64_t numbers[3] = {};
    for (int left = 3; left;) {
      if (enough) --left;
      const std::size_t lane = enough ? static_cast<std::size_t>(left) : random() % 3;
      const std::size_t size = random() % (random() % 10 ? 2000 : 1'000'000);
      Message message;
      if (!enough) message.body = random_bytes(random, 1 + size);
      message.envelope.type_id = sender;
      message.envelope.context = numbers[lane]++ << 32 | hf::crc32c(message.body.bytes());
      co_await session->send(std::move(message), static_cast<Lane>(lane), hf::after(600s));
    }
  }
  std::function<void(int)> on_taken = [](int) {};  ///< With how many there are now.
  std::atomic<int> taken{0}, last_ones{0};
  std::atomic<bool> enough{false}, right{true};

 private:
  void take(Lane lane, Message message) {
    const std::uint64_t mark = message.envelope.context;
    {
      std::scoped_lock lock(mutex_);
      const auto number = next_[{message.envelope.type_id, lane}]++;
      const auto sum = hf::crc32c(message.body.bytes());
      if (mark != (number << 32 | sum)) right = false;
      if (message.body.empty()) ++last_ones;
    }
    on_taken(++taken);
  }

  std::mutex mutex_;
  std::map<std::pair<std::uint64_t, Lane>, std::uint64_t> next_;
};

constexpr std::uint64_t node_that_connects = 77;

/// Each of the node's two shards sends, until so many links have been taken up. Whether all of the
/// peer's messages have come then, and all of this side's are acknowledged.
bool talk_well(Node& from, Marked& marked, std::uint64_t to, std::uint64_t sender,
               std::uint64_t breaks) {
  std::vector<std::thread> talkers;
  for (unsigned shard = 0; shard < 2; ++shard)
    talkers.emplace_back([&, shard] {
      try {
        from.run([&] { return marked.talk(&from.network, to, sender + shard); }, shard);
      } catch (const hf::Error&) {
        marked.right = false;
      }
    });
  const bool taken_up = eventually([&] { return standing_of(from).resumes >= breaks; });
  marked.enough = true;
  for (auto& talker : talkers) talker.join();
  const bool all = eventually(
      [&] { return marked.last_ones == 2 * 3 && standing_of(from).unacknowledged == 0; });
  return taken_up && all && marked.right && from.handler.down_count == 0;
}

}  // namespace

TEST_CASE("peer process: exchanges marked messages", "[.][peer]") {
  if (report_descriptor() < 0) return;
  Node node(2);
  Marked marked(node.handler);
  report(node.listen().to_string());
  if (!eventually([&] { return node.handler.ups == 2; })) return report("nobody came");
  const auto breaks = static_cast<unsigned>(std::atoi(std::getenv("HYPERFRAMES_TEST_BREAKS")));
  report(talk_well(node, marked, node_that_connects, 10, breaks) ? "whole" : "not whole");
  while (true) ::pause();
}

TEST_CASE("links whose sockets are cut while both talk go on, and each message comes once") {
  const Over over(GENERATE(Way::shm, Way::automatic));
  const bool cut_all = GENERATE(false, true);
  const std::uint64_t breaks = cut_all ? 2 : 1;
  const auto seed = std::random_device()();
  const int cut_at = 1 + static_cast<int>(seed % 200);
  INFO(Over::name() << ", seed " << seed << ": " << breaks << " at message " << cut_at);
  Process peer("peer process: exchanges marked messages",
               {{"HYPERFRAMES_TEST_BREAKS", std::to_string(breaks)}});
  net::Network::Options options;
  options.node_id = node_that_connects;
  Node client(2, options);
  Marked marked(client.handler);
  marked.on_taken = [&](int count) {
    if (count != cut_at) return;
    const auto sockets = memory_sockets();
    for (std::size_t i = 0; i < sockets.size(); ++i)
      if (cut_all || i == seed % 2) ::shutdown(sockets[i].descriptor, SHUT_RDWR);
  };
  const auto node = client.connect(peer.endpoint());
  REQUIRE(memory_sockets().size() == 2);
  CHECK(talk_well(client, marked, node, 20, breaks));
  CHECK(peer.line() == "whole");
  CHECK(standing_of(client).resumes == breaks);
  auto expected = times(2 - breaks, "shm");
  expected.merge(times(breaks, over.current() == Way::shm ? "shm" : "tcp"));
  CHECK(transports_of(client) == expected);
}

TEST_CASE("a peer that shares memory and thaws in time goes on over TCP") {
  Process victim("peer process: listens by auto");
  Node client;
  const auto node = client.connect(victim.endpoint());
  client.send(node, "before");
  REQUIRE(eventually([&] { return standing_of(client).unacknowledged == 0; }));
  CHECK(transports_of(client) == times(1, "shm"));
  victim.signal(SIGSTOP);
  for (int i = 0; i < 5; ++i) client.send(node, "meanwhile");
  REQUIRE(eventually([&] { return standing_of(client).resuming == 3; }));
  victim.signal(SIGCONT);
  CHECK(eventually([&] {
    const Standing now = standing_of(client);
    return now.resuming == 0 && now.resumes >= 3 && now.unacknowledged == 0;
  }));
  CHECK(client.handler.down_count == 0);
  CHECK(transports_of(client) == times(1, "tcp"));
}

TEST_CASE("a peer whose process dies while it shares memory is lost, and nothing else is tried") {
  hf::test::CapturedLog log;
  Process victim("peer process: listens by auto");
  Node client(3);
  client.connect(victim.endpoint());
  CHECK(transports_of(client) == times(3, "shm"));
  victim.signal(SIGKILL);
  REQUIRE(eventually([&] { return client.handler.down_count == 3; }));
  for (const auto& down : client.handler.downs()) {
    CHECK(down.code == hf::Errc::peer_lost);
    CHECK(has(down.text, "process ended"));
  }
  CHECK(!has(log.text(), " broke"));
}
