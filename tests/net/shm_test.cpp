// Links through shared memory: names, strangers, peers that lie, and peers that die.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <hyperframes/net/network.hpp>
#include <hyperframes/net/shm/shm.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/poller.hpp>
#include <hyperframes/runtime/reactor/sim.hpp>
#include <iterator>
#include <sstream>

#include "error_of.hpp"
#include "process.hpp"
#include "shm_peer.hpp"
#include "storm.hpp"
#include "support.hpp"

using namespace net_test;
using net::Lane;
using net::Message;
using net::Scheme;

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

std::size_t entries_of(const char* folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder),
                                                std::filesystem::directory_iterator()));
}
std::size_t descriptors() { return entries_of("/proc/self/fd"); }

/// What must be as it was when all links have ended.
struct Footprint {
  std::size_t descriptors = ::descriptors(), in_dev_shm = entries_of("/dev/shm");
  int mappings = net_test::mappings();
  friend bool operator==(const Footprint&, const Footprint&) = default;
};

net::Endpoint named(std::string name) { return {Scheme::shm, std::move(name), 0}; }

}  // namespace

TEST_CASE("a name that none can have is refused, with what is wrong about it") {
  Node node;
  for (const std::string& name :
       {std::string(), std::string(65, 'a'), std::string("a/b"), std::string("a\0b", 3),
        std::string("../a"), std::string("a b")}) {
    CHECK(error_of([&] {
            node.run([&] { return node.network.listen(named(name)); });
          }).is(hf::Errc::invalid_argument));
    CHECK(error_of([&] { node.connect(named(name)); }).is(hf::Errc::invalid_argument));
  }
  CHECK(has(error_of([&] { node.connect(named(std::string(65, 'a'))); }).what(), "64 characters"));
}

TEST_CASE("a name that is taken is refused, with who has it, and is free again when it ends") {
  const Over over(Scheme::shm);
  net::Endpoint endpoint;
  {
    Node first, second;
    endpoint = first.listen();
    const auto error = error_of([&] { second.listen(endpoint.to_string()); });
    CHECK(error.code() == std::errc::address_in_use);
    CHECK(has(error.what(), endpoint.to_string()));
    CHECK(has(error.found(), "process " + std::to_string(::getpid())));
    CHECK(has(error.found(), "user " + std::to_string(::geteuid())));
    CHECK_NOTHROW(second.connect(endpoint));  // the question did no harm
  }
  for (int round = 0; round < 20; ++round) {
    Node again;
    CHECK_NOTHROW(again.listen(endpoint.to_string()));
  }
}

TEST_CASE("a name that nobody listens under is unreachable, with what containers need") {
  Node node;
  const auto error = error_of([&] { node.connect(named("nobody-is-here")); });
  CHECK(error.is(hf::Errc::unreachable));
  CHECK(has(error.what(), "shm://nobody-is-here"));
  CHECK(has(error.what(), "network namespace"));
}

TEST_CASE("the simulator has no shared memory, and says so") {
  hf::SimWorld world({.seed = 1});
  hf::SimNode& node = world.add_node({});
  std::error_code code;
  world.run(node, 0, [&](hf::Runtime&) {
    return hf::co_invoke(
        [](std::error_code* code) -> hf::Task<void> {
          auto provider = net::make_shm_provider();
          try {
            provider->listen(named("simulated"));
          } catch (const hf::Error& error) {
            *code = error.code();
          }
          co_return;
        },
        &code);
  });
  CHECK(code == hf::Errc::unsupported);
}

TEST_CASE("options that no memory can have are refused") {
  CHECK(
      error_of([] { net::make_shm_provider({.data_bytes = 100}); }).is(hf::Errc::invalid_argument));
  CHECK(error_of([] {
          net::make_shm_provider({.descriptors = 100});
        }).is(hf::Errc::invalid_argument));
}

// ---- Strangers

TEST_CASE("peer process: is another user", "[.][peer]") {
  if (report_descriptor() < 0) return;
  const std::string name = std::getenv("HYPERFRAMES_TEST_NAME");
  if (::setgid(65534) != 0 || ::setuid(65534) != 0) return report("skip");
  const shm::OwnDescriptor listener = shm::listen_at(name + "-theirs");
  report("listens");
  ShmCaller caller(name);
  const shm::Passed answer = caller.hear();
  auto offer = shm::decode_offer(answer.bytes, "it");
  report(offer && offer->refuses() && answer.descriptors.empty() ? offer.value().text : "let in");
  while (true) ::pause();
}

TEST_CASE("another user's name is not connected to, and another user is not let in") {
  const Over over(Scheme::shm);
  Node node;
  const auto endpoint = node.listen();
  Process stranger("peer process: is another user", {{"HYPERFRAMES_TEST_NAME", endpoint.host}});
  if (stranger.line() != "listens") SKIP("needs the right to become another user");
  const auto error = error_of([&] { node.connect(named(endpoint.host + "-theirs")); });
  CHECK(error.is(hf::Errc::rejected));
  CHECK(has(error.found(), "of user 65534"));
  CHECK(has(error.found(), "user " + std::to_string(::geteuid())));
  const std::string refusal = stranger.line();
  CHECK(has(refusal, "of user 65534"));
  Node friendly;
  CHECK_NOTHROW(friendly.connect(endpoint));
}

// ---- Peers that lie while they set up

namespace {

/// Connects as a peer that says `bytes` and passes `passed`: what it is told, and it is then
/// closed.
std::string refusal_of(const net::Endpoint& endpoint, std::span<const std::byte> bytes,
                       std::vector<int> passed) {
  ShmCaller caller(endpoint.host);
  caller.begin();
  iovec vector{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 16)] = {};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  if (!passed.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * passed.size());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * passed.size());
    std::memcpy(CMSG_DATA(header), passed.data(), sizeof(int) * passed.size());
  }
  REQUIRE(::sendmsg(caller.socket(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
  const shm::Passed answer = caller.hear();
  CHECK(answer.descriptors.empty());
  auto offer = shm::decode_offer(answer.bytes, "the node");
  if (!offer) return offer.error().what();
  CHECK(caller.is_closed());
  return offer->refuses() ? offer->text : "it was let in";
}

}  // namespace

TEST_CASE("a peer whose offer makes no sense is told why, and harms nobody") {
  const Over over(Scheme::shm);
  Node node, friendly;
  const auto endpoint = node.listen();
  friendly.connect(endpoint);
  const shm::ShmSegment segment = shm::ShmSegment::create({}, false);
  const int memory = segment.descriptor();
  const shm::ShmOffer good = ShmCaller::offer();
  const auto changed = [&](auto change) {
    shm::ShmOffer offer = good;
    change(offer);
    return offer.encode();
  };
  const shm::ShmSegment arena = shm::ShmSegment::create(1 << 20, false, "lend");
  const int lent = arena.descriptor();
  const Footprint before;

  CHECK(has(refusal_of(endpoint, good.encode(), {}), "0 descriptors"));
  CHECK(has(refusal_of(endpoint, good.encode(), {memory, memory}), "2 descriptors"));
  CHECK(has(refusal_of(endpoint, good.encode(), std::vector<int>(10, memory)), "more descriptors"));
  CHECK(has(refusal_of(endpoint, good.encode(), {::fileno(stdin)}), "no memfd"));
  CHECK(has(refusal_of(endpoint, std::vector<std::byte>(256), {memory}), "does not begin"));
  CHECK(has(refusal_of(endpoint, std::vector<std::byte>(10), {memory}), "10 bytes"));
  CHECK(has(refusal_of(endpoint, changed([](auto& offer) { offer.version = 9; }), {memory}),
            "version 9, this process by version 1"));
  CHECK(has(refusal_of(endpoint, changed([](auto& offer) { offer.boot_id = "other"; }), {memory}),
            "'other'"));
  CHECK(has(
      refusal_of(endpoint, changed([](auto& offer) { offer.layout.descriptors = 1000; }), {memory}),
      "1000"));
  CHECK(has(refusal_of(endpoint, changed([](auto& offer) { offer.layout.data_bytes = 1 << 30; }),
                       {memory}),
            "instead of"));
  const auto lending = [&](std::uint64_t bytes) {
    return changed([bytes](auto& offer) { offer.arena_bytes = bytes; });
  };
  CHECK(has(refusal_of(endpoint, lending(1 << 20), {memory, lent}), "2 descriptors"));
  CHECK(has(refusal_of(endpoint, lending(1000), {memory}), "whole pages"));
  CHECK(has(refusal_of(endpoint, lending(std::uint64_t{1} << 40), {memory}), "256 GiB"));
  auto status = good.encode();
  status[12] = std::byte{7};
  CHECK(has(refusal_of(endpoint, status, {memory}), "status 7"));
  {
    ShmCaller silent(endpoint.host);
  }

  CHECK(eventually([&] { return Footprint() == before; }));
  friendly.send(node.network.node_id(), "unharmed");
  CHECK(eventually([&] { return node.handler.count == 1; }));
  CHECK(node.handler.down_count == 0);
}

namespace {

/// What a peer is told that passes this as what it lends from, of which its offer says so many
/// bytes.
std::string rejection_of(const net::Endpoint& endpoint, std::size_t bytes, int descriptor) {
  ShmRawPeer peer(endpoint.host, {}, bytes);
  peer.send(encode(RawPeer::hello(9)));
  peer.receive_frame();
  peer.pass(descriptor);
  peer.send(encode(net::Proof{}));
  const RawPeer::Frame answer = peer.receive_frame();
  if (answer.header.kind != net::FrameKind::reject) return "it was let in";
  return net::decode_reject(answer.payload).value().text;
}

}  // namespace

TEST_CASE("a peer that passes no memory to lend from is not let in, and is told why") {
  const Over over(Scheme::shm);
  Node node;
  const auto endpoint = node.listen();
  const shm::ShmSegment arena = shm::ShmSegment::create(1 << 20, false, "lend");
  const shm::OwnDescriptor bare(::memfd_create("bare", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(bare.get(), 1 << 20) == 0);
  const Footprint before;
  CHECK(has(rejection_of(endpoint, 1 << 21, arena.descriptor()), "instead of 2097152"));
  CHECK(has(rejection_of(endpoint, 1 << 20, ::fileno(stdin)), "no memfd"));
  CHECK(has(rejection_of(endpoint, 1 << 20, bare.get()), "seals"));
  CHECK(eventually([&] { return Footprint() == before; }));
  CHECK(node.handler.ups == 0);
}

TEST_CASE("a peer that said it would lend, and passes nothing, is served with copies") {
  const Over over(Scheme::shm);
  Node node;
  ShmRawPeer peer(node.listen().host, {}, 1 << 20);
  peer.arena = {};
  peer.enter(9);
  CHECK(eventually([&] { return node.handler.ups == 1; }));
  const auto& node_words = *reinterpret_cast<const shm::ShmWords*>(peer.others.memory());
  CHECK(node_words.borrows == 0);
  peer.writer->publish_loan(0, 0, 4096);
  peer.ring_if_due(*peer.writer);
  REQUIRE(eventually([&] { return node.handler.down_count == 1; }));
  CHECK(has(node.handler.downs()[0].text, "kind 1"));
}

namespace {

using Bytes = std::vector<std::byte>;

Bytes encoded(const shm::ShmOffer& message) {
  const auto bytes = message.encode();
  return {bytes.begin(), bytes.end()};
}
Bytes encoded(shm::ShmOffer::Status status, std::string text = {}) {
  shm::ShmOffer message;
  message.status = status;
  message.text = std::move(text);
  return encoded(message);
}

/// A listener that says `at_first`, waits for an offer if `answer` says something to that, and
/// hangs up: the error of who connects to it.
hf::Error error_of_connecting(Node& node, const std::string& name, const Bytes& at_first,
                              const Bytes& answer = {}) {
  const shm::OwnDescriptor listener = shm::listen_at(name);
  std::thread liar([&] {
    pollfd look{listener.get(), POLLIN, 0};
    if (::poll(&look, 1, 30'000) != 1) return;
    const shm::OwnDescriptor socket(::accept(listener.get(), nullptr, nullptr));
    if (!at_first.empty()) shm::pass(socket.get(), at_first, -1);
    if (answer.empty()) return;
    look.fd = socket.get();
    ::poll(&look, 1, 30'000);
    shm::pass(socket.get(), answer, -1);
    // What was not received would make a reset of the end.
    ::recv(socket.get(), Bytes(512).data(), 512, 0);
  });
  const auto error = error_of([&] { node.connect(named(name)); });
  liar.join();
  return error;
}

}  // namespace

TEST_CASE("a listener that refuses, lies or hangs up is an error of the connect, with the reason") {
  using enum shm::ShmOffer::Status;
  Node node;
  const std::string name = "liar-" + std::to_string(::getpid());
  const auto instead = [&](const Bytes& bytes) {
    return std::string(error_of_connecting(node, name, bytes).what());
  };
  const auto behind = [&](const Bytes& bytes) {
    return std::string(error_of_connecting(node, name, encoded(go_on), bytes).what());
  };
  shm::ShmOffer old = ShmCaller::offer();
  old.version = 2;
  for (const bool at_once : {true, false}) {
    const auto text_of = [&](const Bytes& bytes) {
      return at_once ? instead(bytes) : behind(bytes);
    };
    CHECK(has(text_of(encoded(refusal, "not today")), "not today"));
    CHECK(has(text_of(encoded(lack, "no memory")), "refused for now: no memory"));
    CHECK(has(text_of(Bytes(256)), "does not begin"));
    CHECK(has(text_of(encoded(old)), "version 2"));
  }
  CHECK(has(instead({}), "closed"));
  CHECK(has(instead(encoded(ShmCaller::offer())), "another order"));
  CHECK(has(instead(encoded(go_on)), "closed"));
  CHECK(has(behind(encoded(ShmCaller::offer())), "0 descriptors"));
  CHECK(has(behind(encoded(go_on)), "another order"));
}

// Else it would pin the memory of each attempt for as long as it is stopped.
TEST_CASE("a process that does not accept is given no memory") {
  Node node;
  const std::string name = "stopped-" + std::to_string(::getpid());
  const shm::OwnDescriptor listener = shm::listen_at(name);
  CHECK_THROWS_AS(node.connect(named(name), 200ms), hf::Error);
  const shm::OwnDescriptor socket(::accept(listener.get(), nullptr, nullptr));
  pollfd look{socket.get(), POLLIN, 0};
  REQUIRE(::poll(&look, 1, 30'000) == 1);
  const shm::Passed passed = shm::receive_passed(socket.get(), shm::ShmOffer::size);
  CHECK(passed.bytes.empty());
  CHECK(passed.descriptors.empty());
}

namespace {

/// May open no more descriptors while in scope.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const shm::OwnDescriptor next(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    const rlimit none{static_cast<rlim_t>(next.get()), before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("a process whose end can't be watched says why, and what helps") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const shm::OwnDescriptor near(ends[0]);
  shm::OwnDescriptor far(ends[1]);
  const pid_t parent = ::getppid();
  const shm::ShmProcess known(near.get(), parent);
  CHECK(known.is_known());
  CHECK(known.lives());
  {
    const NoDescriptors full;
    const shm::ShmProcess lacking(near.get(), parent), by_number(parent);
    CHECK(!lacking.is_known());
    CHECK(has(lacking.why_unknown(), "ulimit -n"));
    CHECK(has(by_number.why_unknown(), "ulimit -n"));
    CHECK(!lacking.lives());
  }
  // Of no number, and where there is no socket that would tell.
  const shm::ShmProcess nameless(-1, 0), gone(-1, 0x3fffffff);
  CHECK(!nameless.is_known());
  CHECK(has(nameless.why_unknown(), "another process namespace"));
  CHECK(!gone.is_known());
  CHECK(has(gone.why_unknown(), "it has ended"));
  CHECK(shm::ShmProcess(::getpid()).is_known());
}

namespace {

/// A peer that has a small piece there whenever its shard polls.
struct Trickle final : hf::Poller {
  explicit Trickle(ShmRawPeer& peer) : peer(peer) {}
  std::size_t poll() noexcept override {
    const shm::ShmWords& node = *reinterpret_cast<const shm::ShmWords*>(peer.others.memory());
    furthest = std::max(furthest, peer.writer->count() - node.taken.load());
    if (left == 0) return 0;
    --left;
    net::FrameHeader heartbeat;
    heartbeat.kind = net::FrameKind::heartbeat;
    peer.say(heartbeat);
    return 1;
  }
  void arm() noexcept override {}
  bool ready() const noexcept override { return left != 0; }
  void disarm() noexcept override {}
  ShmRawPeer& peer;
  int left = 200;
  std::uint64_t furthest = 0;
};

hf::Task<std::uint64_t> furthest_behind(ShmRawPeer* peer) {
  Trickle trickle(*peer);
  hf::Shard::current()->add_poller(trickle);
  const hf::Time limit = hf::after(hf::timing().scaled(20s));
  while (trickle.left && hf::Clock::now() < limit) co_await hf::sleep_for(1ms);
  hf::Shard::current()->remove_poller(trickle);
  co_return trickle.left ? 1000 : trickle.furthest;
}

}  // namespace

TEST_CASE("a peer that has one more piece at each look has its memory back meanwhile") {
  const Over over(Scheme::shm);
  hf::Runtime::Options options = shards(1);
  options.shard.spin_always = true;  // before it sleeps it gives back all
  hf::Runtime runtime(options);
  Handler handler;
  net::Network network(runtime, {}, handler);
  const auto endpoint =
      runtime.run([&](hf::Runtime&) { return network.listen(net::Endpoint::parse(Over::uri())); });
  ShmRawPeer peer(endpoint.host);
  peer.enter(5);
  REQUIRE(eventually([&] { return handler.ups == 1; }));
  // Four may wait, and two be on their way while a turn has no time for one of the two pollers.
  CHECK(runtime.run([&](hf::Runtime&) { return furthest_behind(&peer); }) <= 4 + 1 + 2);
}

TEST_CASE("what could not be passed is an error with the reason of that") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const shm::OwnDescriptor near(ends[0]);
  shm::OwnDescriptor far(ends[1]);
  const Bytes bytes(256);
  CHECK(shm::pass(near.get(), bytes, -1) == 0);
  CHECK(shm::pass(near.get(), bytes, 4711) == EBADF);
  far.reset();
  const int gone = shm::pass(near.get(), bytes, -1);
  CHECK((gone == EPIPE || gone == ECONNRESET));
}

TEST_CASE("a peer that connects and says nothing costs a socket, and its deadline only") {
  const Over over(Scheme::shm);
  Node node;
  const auto endpoint = node.listen();
  const int before = mappings();
  std::vector<ShmCaller> silent;
  for (int i = 0; i < 100; ++i) silent.emplace_back(endpoint.host);
  Node client;
  client.send(client.connect(endpoint), "real");
  CHECK(eventually([&] { return node.handler.count == 1; }));
  CHECK(mappings() == before + 4);  // two for each end of the one link
  for (ShmCaller& caller : silent) REQUIRE(caller.is_closed());
}

// ---- Peers that lie in their memory

namespace {

/// Sends more than may be on its way, as soon as the peer has lent so much.
hf::Task<void> fill_memory(net::Network* network, std::uint64_t id) {
  auto session = session_with(*network, id);
  Message message;
  message.body = hf::Buffer::heap(400'000);
  co_await session->send(std::move(message), Lane::bulk, hf::after(20s));
}

void write_every_descriptor(ShmRawPeer& peer, std::uint64_t ready, std::uint64_t where) {
  for (std::size_t i = 0; i < shm::ShmLayout().descriptors; ++i) {
    peer.descriptor(i).where = where;
    peer.descriptor(i).ready = ready << 32 | (i + 1);
  }
}

}  // namespace

TEST_CASE("a peer that writes nonsense to its memory loses its link, and nobody else does") {
  const Over over(Scheme::shm);
  Node node, friendly;
  const auto endpoint = node.listen();
  friendly.connect(endpoint);
  const Footprint before;
  struct Lie {
    const char* word;
    void (*tell)(ShmRawPeer&);
  };
  const Lie lies[] = {
      {"sequence",
       [](ShmRawPeer& peer) {
         for (std::size_t i = 0; i < shm::ShmLayout().descriptors; ++i)
           peer.descriptor(i).ready = std::uint64_t{64} << 32 | 77'777;
       }},
      {"0 bytes at", [](ShmRawPeer& peer) { write_every_descriptor(peer, 0, 0); }},
      {"4294967295 bytes", [](ShmRawPeer& peer) { write_every_descriptor(peer, 0xffffffff, 0); }},
      {"at 4294967295", [](ShmRawPeer& peer) { write_every_descriptor(peer, 64, 0xffffffff); }},
      {"segment 5",
       [](ShmRawPeer& peer) { write_every_descriptor(peer, 64, std::uint64_t{5} << 32); }},
      {"has taken",
       [](ShmRawPeer& peer) {
         peer.lend(1 << 20);
         peer.words().taken = ~std::uint64_t{0};
       }},
      {"rings without end",
       [](ShmRawPeer& peer) {
         for (int i = 0; i < 10'000 && peer.ring(); ++i) {
         }
       }},
  };
  std::uint64_t id = 1000;
  int downs = 0;
  for (const Lie& lie : lies) {
    INFO(lie.word);
    ShmRawPeer peer(endpoint.host);
    peer.enter(++id);
    REQUIRE(eventually([&] { return node.handler.ups == downs + 2; }));
    lie.tell(peer);
    peer.ring_if_due(*peer.writer);
    // What the peer says it has taken is looked at once there is no room.
    if (has(lie.word, "has taken")) node.run([&] { return fill_memory(&node.network, id); });
    REQUIRE(eventually([&] { return node.handler.down_count == downs + 1; }));
    const std::string text = node.handler.downs()[static_cast<std::size_t>(downs)].text;
    INFO(text);
    CHECK(has(text, lie.word));
    CHECK(has(text, "corrupt"));
    CHECK(peer.caller.is_closed());
    ++downs;
  }
  CHECK(eventually([&] { return Footprint() == before; }));
  friendly.send(node.network.node_id(), "unharmed");
  CHECK(eventually([&] { return node.handler.count == 1; }));
}

TEST_CASE("bytes that are no frames end a link over memory as they do over a socket") {
  const Over over(Scheme::shm);
  Node node;
  const auto endpoint = node.listen();
  ShmRawPeer peer(endpoint.host);
  peer.enter(5);
  std::vector<std::byte> bytes(1000, std::byte{0xff});
  bytes[0] = std::byte{net::FrameHeader::version};
  peer.send(bytes);
  REQUIRE(eventually([&] { return node.handler.down_count == 1; }));
  CHECK(node.handler.downs()[0].code == hf::Errc::corrupt);
  CHECK(peer.caller.is_closed());
}

TEST_CASE("a peer that closes its socket and writes on is gone all the same") {
  const Over over(Scheme::shm);
  Node node;
  const auto endpoint = node.listen();
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    ShmRawPeer peer(endpoint.host, {16, 64 << 10});
    peer.enter(6);
    ::shutdown(peer.caller.socket(), SHUT_RDWR);
    net::FrameHeader header;
    header.kind = net::FrameKind::heartbeat;
    std::byte bytes[net::FrameHeader::size];
    header.encode(bytes);
    while (!stop) {
      const auto room = peer.writer->room(sizeof bytes);
      if (room.size() < sizeof bytes) continue;
      std::memcpy(room.data(), bytes, sizeof bytes);
      peer.writer->publish(sizeof bytes);
    }
  });
  CHECK(eventually([&] { return node.handler.down_count == 1; }));
  stop = true;
  writer.join();
}

TEST_CASE("a peer that gives up its memory, and lives, takes its link up again through other") {
  const Over over(Scheme::shm);
  Node node;
  const auto endpoint = node.listen();
  const auto standing = [&] { return node.run([&] { return standing_here(&node.network); }); };
  auto hello = RawPeer::hello(4);
  hello.node.capabilities = net::capability::resume;
  {
    ShmRawPeer peer(endpoint.host);
    CHECK(!peer.enter(hello).delivered);
    REQUIRE(eventually([&] { return node.handler.ups == 1; }));
    shm::depart(peer.own.memory(), shm::Departure::broken_off);
  }
  REQUIRE(eventually([&] { return standing().resuming == 1; }));
  hello.delivered = 0;
  ShmRawPeer again(endpoint.host);
  CHECK(again.enter(hello).delivered == 0);
  CHECK(eventually([&] { return standing().resuming == 0; }));
  CHECK(standing().resumes == 1);
  CHECK(node.handler.down_count == 0);
}

TEST_CASE("a peer that lacks memory for the moment is asked again, and its link goes on") {
  Node node;
  const std::string name = "short-" + std::to_string(::getpid());
  const shm::OwnDescriptor listener = shm::listen_at(name);
  const auto accept = [&] {
    pollfd look{listener.get(), POLLIN, 0};
    if (::poll(&look, 1, 30'000) != 1) throw std::runtime_error("nobody came for 30 s");
    return shm::OwnDescriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  };
  net::Challenge challenge;
  challenge.node = RawPeer::hello(4).node;
  challenge.node.capabilities = net::capability::resume;
  std::atomic<bool> done{false};
  std::string failure;
  std::thread host([&] {
    try {
      {
        ShmRawPeer first(accept());
        first.let_in(challenge);
        if (!eventually([&] { return node.handler.ups == 1; })) return;
        shm::depart(first.own.memory(), shm::Departure::broken_off);
      }
      {
        const shm::OwnDescriptor refused = accept();
        shm::pass(refused.get(), encoded(shm::ShmOffer::Status::lack, "no memory"), -1);
      }
      ShmRawPeer again(accept());
      again.let_in(challenge, 0);
      (void)eventually([&] { return done.load(); });
    } catch (const std::exception& error) {
      failure = error.what();
    }
  });
  node.connect(named(name));
  const auto standing = [&] { return node.run([&] { return standing_here(&node.network); }); };
  CHECK(eventually([&] { return standing().resumes == 1; }));
  CHECK(node.handler.down_count == 0);
  done = true;
  host.join();
  CHECK(failure.empty());
}

// ---- Peers that die

namespace {

/// A small one for each.
void answer(net::Session& session, Lane, Message message) {
  Message small;
  small.body = hf::Buffer::copy_of(message.body.text().substr(0, 100));
  (void)session.try_send(small, Lane::control);
}

}  // namespace

TEST_CASE("peer process: serves over memory", "[.][peer]") {
  if (report_descriptor() < 0) return;
  Node node;
  node.handler.react = &answer;
  report(node.listen(std::getenv("HYPERFRAMES_TEST_URI")).to_string());
  while (true) ::pause();
}

namespace {

/// Small ones and large ones, with pauses in which both ends fall asleep.
hf::Task<void> talk(net::Network* network, net::Endpoint endpoint) {
  auto session = co_await network->connect(endpoint, hf::after(20s));
  for (int i = 0; i < 100; ++i) {
    Message message;
    message.body = hf::Buffer::heap(i % 10 == 3 ? 700'000 : 100);
    co_await session->send(std::move(message), i % 3 ? Lane::normal : Lane::bulk, hf::after(20s));
    if (i % 5 == 0) co_await hf::sleep_for(2ms);
  }
}

std::error_code try_to_talk(Node& node, const net::Endpoint& endpoint) {
  try {
    node.run([&] { return talk(&node.network, endpoint); });
  } catch (const hf::Error& error) {
    return error.code();
  }
  return {};
}

const char* const failpoints[] = {
    "shm-connected",      "shm-allocated",   "shm-before-offer", "shm-after-offer", "shm-attached",
    "shm-before-publish", "shm-before-ring", "shm-copied",       "shm-given-back",  "shm-armed"};

bool is_of_connecting(std::string_view failpoint) { return failpoint == "shm-connected"; }
bool is_of_setting_up(std::string_view failpoint) {
  return !failpoint.starts_with("shm-before-publish") &&
         !failpoint.starts_with("shm-before-ring") && failpoint != "shm-copied" &&
         failpoint != "shm-given-back" && failpoint != "shm-armed";
}

bool was_killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

}  // namespace

TEST_CASE("peer process: talks over memory", "[.][peer]") {
  if (report_descriptor() < 0) return;
  Node node;
  const auto code = try_to_talk(node, net::Endpoint::parse(std::getenv("HYPERFRAMES_TEST_URI")));
  report(code ? code.message() : "done");
}

TEST_CASE("two processes talk over memory") {
  const Over over(Scheme::shm);
  Process server("peer process: serves over memory", {{"HYPERFRAMES_TEST_URI", Over::uri()}});
  Node client;
  client.handler.react = [&](net::Session&, Lane, Message) {};
  const auto endpoint = server.endpoint();
  CHECK(!try_to_talk(client, endpoint));
  CHECK(eventually([&] { return client.handler.count == 100; }));
}

TEST_CASE("a socket that ends without a word is a break only while its process lives") {
  const Over over(Scheme::shm);
  auto hello = RawPeer::hello(4);
  hello.node.capabilities = net::capability::resume;
  Node node;
  const auto endpoint = node.listen();
  const auto standing = [&] { return node.run([&] { return standing_here(&node.network); }); };
  {
    ShmRawPeer cut(endpoint.host);
    cut.enter(hello);
    REQUIRE(eventually([&] { return node.handler.ups == 1; }));
    ::shutdown(cut.caller.socket(), SHUT_RDWR);
    CHECK(eventually([&] { return standing().resuming == 1; }));
    CHECK(node.handler.down_count == 0);
  }
  hello.node.node_id = 5;
  {
    ShmRawPeer done(endpoint.host);
    done.enter(hello);
    REQUIRE(eventually([&] { return node.handler.ups == 2; }));
    shm::depart(done.own.memory(), shm::Departure::ended);
  }
  const auto has_lost = [&](std::uint64_t id) {
    return eventually([&] {
      for (const auto& down : node.handler.downs())
        if (down.node == id && has(down.text, "process ended")) return true;
      return false;
    });
  };
  CHECK(has_lost(5));
  Process dead("peer process: serves over memory", {{"HYPERFRAMES_TEST_URI", Over::uri()}});
  const std::uint64_t id = node.connect(dead.endpoint());
  dead.signal(SIGKILL);
  CHECK(has_lost(id));
}

TEST_CASE("a process killed at any step leaves nothing behind, and its peer is told") {
  const Over over(Scheme::shm);
  for (const char* failpoint : failpoints) {
    for (const int passage : {1, 4}) {
      if (passage > 1 && is_of_setting_up(failpoint)) continue;
      const std::string armed = std::string(failpoint) + "=kill:" + std::to_string(passage);
      INFO(armed);
      {
        INFO("the connecting process");
        Node node;
        node.handler.react = &answer;
        const auto endpoint = node.listen();
        const Footprint before;
        Process victim(
            "peer process: talks over memory",
            {{"HYPERFRAMES_TEST_URI", endpoint.to_string()}, {"HYPERFRAMES_FAILPOINT", armed}});
        CHECK(victim.line() == "");
        CHECK(was_killed(victim.wait()));
        CHECK(eventually([&] { return node.handler.ups == node.handler.down_count; }));
        // But for the pipe from the victim.
        CHECK(eventually([&] {
          const Footprint now;
          return now.descriptors == before.descriptors + 1 && now.mappings == before.mappings &&
                 now.in_dev_shm == before.in_dev_shm;
        }));
        Node another;
        CHECK(!try_to_talk(another, endpoint));
      }
      if (is_of_connecting(failpoint)) continue;
      INFO("the listening process");
      const std::string uri = Over::uri();
      Node node;
      const Footprint before;
      Process victim("peer process: serves over memory",
                     {{"HYPERFRAMES_TEST_URI", uri}, {"HYPERFRAMES_FAILPOINT", armed}});
      victim.line();
      CHECK(try_to_talk(node, net::Endpoint::parse(uri)));
      CHECK(was_killed(victim.wait()));
      CHECK(eventually([&] { return node.handler.ups == node.handler.down_count; }));
      CHECK(eventually([&] {
        const Footprint now;
        return now.descriptors == before.descriptors + 1 && now.mappings == before.mappings &&
               now.in_dev_shm == before.in_dev_shm;
      }));
      CHECK(eventually([&] {
        try {
          node.listen(uri);  // the name is free
          return true;
        } catch (const hf::Error&) {
          return false;
        }
      }));
    }
  }
}

TEST_CASE("what a process had sent before it was killed arrives as a clean prefix") {
  const Over over(Scheme::shm);
  for (const char* armed : {"shm-before-publish=kill:40", "shm-before-ring=kill:40"}) {
    Node node;
    const auto endpoint = node.listen();
    Process victim(
        "peer process: counts over memory",
        {{"HYPERFRAMES_TEST_URI", endpoint.to_string()}, {"HYPERFRAMES_FAILPOINT", armed}});
    CHECK(victim.line() == "");
    REQUIRE(eventually([&] { return node.handler.down_count == 1; }));
    const auto bodies = node.handler.bodies();
    for (std::size_t i = 0; i < bodies.size(); ++i) REQUIRE(bodies[i] == std::to_string(i));
    CHECK(bodies.size() > 10);
  }
}

TEST_CASE("peer process: counts over memory", "[.][peer]") {
  if (report_descriptor() < 0) return;
  Node node;
  const auto endpoint = net::Endpoint::parse(std::getenv("HYPERFRAMES_TEST_URI"));
  const auto id = node.connect(endpoint);
  for (int i = 0; i < 1000; ++i) node.send(id, std::to_string(i));
  report("survived");
}

// ---- Where it has to work

TEST_CASE("peer process: serves from a process namespace of its own", "[.][peer]") {
  if (report_descriptor() < 0) return;
  if (::unshare(CLONE_NEWPID) != 0) return report("skip");
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    Node node;
    report(node.listen(std::getenv("HYPERFRAMES_TEST_URI")).to_string());
    while (true) ::pause();
  }
  while (true) ::pause();
}

TEST_CASE("memory is shared across process namespaces") {
  const Over over(Scheme::shm);
  Process server("peer process: serves from a process namespace of its own",
                 {{"HYPERFRAMES_TEST_URI", Over::uri()}});
  const std::string line = server.line();
  if (line == "skip") SKIP("needs the right to make a process namespace");
  Node client;
  const auto id = client.connect(net::Endpoint::parse(line));
  client.send(id, "across");
  CHECK(eventually([&] {
    return client.run([&] {
      return hf::co_invoke(
          [](net::Network* network, std::uint64_t id) -> hf::Task<bool> {
            const auto session = network->session(id);
            co_return session && session->stats().lanes[1].messages_acknowledged == 1;
          },
          &client.network, id);
    });
  }));
}

TEST_CASE("peer process: talks with a full /dev/shm", "[.][peer]") {
  if (report_descriptor() < 0) return;
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=4k") != 0)
    return report("skip");
  std::ofstream("/dev/shm/full") << std::string(8192, 'x');
  Node server, client;
  const auto code = try_to_talk(client, server.listen(std::getenv("HYPERFRAMES_TEST_URI")));
  report(code ? code.message() : "done");
}

TEST_CASE("a full /dev/shm is nothing to shared memory") {
  const Over over(Scheme::shm);
  Process world("peer process: talks with a full /dev/shm",
                {{"HYPERFRAMES_TEST_URI", Over::uri()}});
  const std::string outcome = world.line();
  if (outcome == "skip") SKIP("needs the right to mount");
  CHECK(outcome == "done");
}

TEST_CASE("a child that is forked off and ends does nothing to the links of its parent") {
  const Over over(Scheme::shm);
  Node server, client;
  const auto id = client.connect(server.listen());
  for (int round = 0; round < 5; ++round) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    client.send(id, "on and on");
    int status = -1;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
  }
  CHECK(eventually([&] { return server.handler.count == 5; }));
  CHECK(server.handler.down_count == 0);
}
