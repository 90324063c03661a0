// Segments that are lent instead of copied: what two programs see of it, and who dies meanwhile.
#include <sys/socket.h>

#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <fstream>
#include <hyperframes/net/channel/messenger.hpp>
#include <hyperframes/net/shm/arena.hpp>
#include <hyperframes/runtime/call_on.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/crc32c.hpp>
#include <hyperframes/runtime/poller.hpp>
#include <random>
#include <sstream>

#include "messengers.hpp"
#include "process.hpp"
#include "shm_peer.hpp"
#include "storm.hpp"
#include "transports.hpp"

using namespace net_test;
using net::Lane;
using net::Message;

namespace {

constexpr std::size_t share = 4u << 20;

net::Network::Options lending(std::size_t bytes = share) {
  net::Network::Options options;
  options.loan_bytes = bytes;
  return options;
}
Messenger::Options lending_messenger(std::size_t bytes = share) {
  Messenger::Options options;
  options.network = lending(bytes);
  return options;
}

/// What /proc/self/maps says of that address: "r--s", say.
std::string access_of(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::string access;
    words >> std::hex >> begin >> dash >> end >> access;
    if (wanted >= begin && wanted < end)
      return line.find("hyperframes-shm") == line.npos ? "private" : access;
  }
  return "nothing";
}
bool is_lent(const hf::Buffer& buffer) { return access_of(buffer.data()) == "r--s"; }

void fill(const hf::Buffer& buffer, unsigned seed) {
  for (std::size_t i = 0; i < buffer.size(); ++i)
    buffer.data()[i] = static_cast<std::byte>(seed + i * 7 + (i >> 12) * 13);
}
bool is_filled(const hf::Buffer& buffer, unsigned seed) {
  for (std::size_t i = 0; i < buffer.size(); ++i)
    if (buffer.data()[i] != static_cast<std::byte>(seed + i * 7 + (i >> 12) * 13)) return false;
  return true;
}

hf::Task<bool> borrow_all(net::Network* network, std::size_t bytes) {
  try {
    co_return !(co_await network->loan(bytes, soon())).empty();
  } catch (const hf::Error&) {
    co_return false;
  }
}

/// Two programs, with a runtime each: so each may sleep while the other works.
struct Programs {
  static hf::Runtime::Options options(hf::Driver driver) {
    hf::Runtime::Options options = shards(1);
    options.driver = driver;
    return options;
  }
  /// It may keep more than all that is lent.
  static Messenger::Options keeping() {
    Messenger::Options options;
    options.window_bytes = 2 * share;
    return options;
  }
  struct OnShard {
    template <class Function>
    auto run(Function function) {
      return runtime->run([&](hf::Runtime&) { return hf::co_invoke(function); });
    }
    hf::Runtime* runtime;
  };
  explicit Programs(hf::Driver driver = hf::Driver::automatic, std::size_t bytes = share)
      : server_runtime(options(driver)),
        client_runtime(options(driver)),
        server(server_runtime, keeping()),
        client(client_runtime, lending_messenger(bytes)) {
    const std::string uri = keeps.run([this] { return server.listen(Over::uri()); }).to_string();
    here = lends.run([this, uri] { return client.connect(uri, soon()); });
    there = keeps.run([this] { return server.accept(soon()); });
  }
  ~Programs() {
    lends.run([this]() -> hf::Task<void> {
      here = {};
      co_return;
    });
    keeps.run([this]() -> hf::Task<void> {
      received.clear();
      there = {};
      co_return;
    });
  }
  /// Sends so many lent bytes; the other program keeps them.
  void send(std::size_t size, unsigned seed) {
    lends.run([&]() -> hf::Task<void> {
      TypedMessage message = typed("test.loan.one", "body");
      message.segments.push_back(co_await client.loan(size, soon()));
      fill(message.segments[0], seed);
      co_await here.send(std::move(message), soon());
    });
    keeps.run([&]() -> hf::Task<void> { received.push_back(co_await there.recv({}, soon())); });
  }
  void drop() {
    keeps.run([&]() -> hf::Task<void> {
      received.clear();
      co_return;
    });
  }
  /// All of it is there again.
  bool is_whole() {
    return lends.run([&]() -> hf::Task<bool> {
      try {
        co_return !(co_await client.loan(share, soon())).empty();
      } catch (const hf::Error&) {
        co_return false;
      }
    });
  }

  hf::Runtime server_runtime, client_runtime;
  OnShard keeps{&server_runtime}, lends{&client_runtime};
  Messenger server, client;
  Channel here, there;
  std::vector<TypedMessage> received;
};

}  // namespace

TEST_CASE("segments of lent memory are read where they are, and over TCP they are copied") {
  const Over over(GENERATE(values({Way::tcp, Way::shm, Way::automatic})));
  INFO(Over::name());
  const bool in_memory = std::string(Over::transport()) == "shm";
  Messengers both(lending_messenger());
  both.run([&]() -> hf::Task<void> {
    Ends ends = co_await both.connect();
    for (const std::size_t size : {1u, 4095u, 4096u, 4097u, 100'000u, 1u << 20}) {
      INFO(size << " bytes");
      TypedMessage message = typed("test.loan.one", "a body");
      message.segments.push_back(co_await both.client->loan(size, soon()));
      message.segments.push_back(hf::Buffer::copy_of("between"));
      message.segments.push_back(co_await both.client->loan(2 * size, soon()));
      fill(message.segments[0], 1);
      fill(message.segments[2], 2);
      co_await ends.here.send(std::move(message), soon());
      TypedMessage got = co_await ends.there.recv({}, soon());
      CHECK(got.body.text() == "a body");
      REQUIRE(got.segments.count() == 3);
      CHECK(got.segments[0].size() == size);
      CHECK(is_filled(got.segments[0], 1));
      CHECK(got.segments[1].text() == "between");
      CHECK(is_filled(got.segments[2], 2));
      CHECK(is_lent(got.segments[0]) == (in_memory && size >= 4096));
      CHECK(is_lent(got.segments[2]) == (in_memory && 2 * size >= 4096));
      CHECK(!is_lent(got.body));
      // What was lent may travel on, to wherever: the memory is the first owner's.
      co_await ends.there.send(std::move(got), soon());
      TypedMessage back = co_await ends.here.recv({}, soon());
      CHECK(is_filled(back.segments[0], 1));
      CHECK(is_filled(back.segments[2], 2));
    }
  });
}

TEST_CASE("one that is larger than a frame is one segment, in one place") {
  const Over over(net::Scheme::shm);
  constexpr std::size_t size = (40u << 20) + 77;
  Messengers both(lending_messenger(48u << 20));
  both.run([&]() -> hf::Task<void> {
    Ends ends = co_await both.connect();
    TypedMessage message = typed("test.loan.large", "");
    message.segments.push_back(co_await both.client->loan(size, soon()));
    fill(message.segments[0], 3);
    co_await ends.here.send(std::move(message), soon());
    TypedMessage got = co_await ends.there.recv({}, soon());
    CHECK(got.segments[0].size() == size);
    CHECK(is_lent(got.segments[0]));
    CHECK(is_filled(got.segments[0], 3));
  });
}

TEST_CASE("lent memory moves between shards at both ends, and comes back from there") {
  const Over over(net::Scheme::shm);
  Messengers both(lending_messenger(2 * share), 2);
  both.run([&]() -> hf::Task<void> {
    Ends ends = co_await both.connect();
    for (int round = 0; round < 20; ++round) {
      // Of the other shard's share.
      auto borrow = [&both] { return both.client->loan(share, soon()); };
      hf::Buffer memory = co_await hf::call_on(both.runtime.shard(1), borrow);
      fill(memory, static_cast<unsigned>(round));
      TypedMessage message = typed("test.loan.one", "");
      message.segments.push_back(std::move(memory));
      co_await ends.here.send(std::move(message), soon());
      TypedMessage got = co_await ends.there.recv({}, soon());
      CHECK(is_lent(got.segments[0]));
      CHECK(is_filled(got.segments[0], static_cast<unsigned>(round)));
      hf::Buffer segment = std::exchange(got.segments[0], hf::Buffer());
      got = {};
      auto end = [segment = segment.unique() ? std::move(segment) : segment.proxy()] {
        return segment.size();
      };
      const std::size_t size = co_await hf::call_on(both.runtime.shard(1), std::move(end));
      CHECK(size == share);
    }
  });
}

TEST_CASE("who lacks memory waits for what comes back, on every driver, also while all sleep") {
  const Over over(net::Scheme::shm);
  const auto driver = GENERATE(hf::Driver::automatic, hf::Driver::asio);
  std::unique_ptr<Programs> made;
  try {
    made = std::make_unique<Programs>(driver);
  } catch (const hf::Error& error) {
    SKIP(error.what());
  }
  Programs& programs = *made;
  for (unsigned round = 0; round < 3; ++round) {
    programs.send(share, round);
    std::atomic<bool> whole{false};
    std::thread waits([&] { whole = programs.is_whole(); });
    std::this_thread::sleep_for(20ms);  // so that it waits, as a rule
    programs.keeps.run([&]() -> hf::Task<void> {
      CHECK(is_lent(programs.received.at(0).segments[0]));
      CHECK(is_filled(programs.received.at(0).segments[0], round));
      co_return;
    });
    programs.drop();
    waits.join();
    CHECK(whole);
  }
}

TEST_CASE("memory that is not there is an error that says who has it, and what to raise") {
  const Over over(net::Scheme::shm);
  Programs programs;
  programs.send(1u << 20, 1);
  programs.send(2u << 20, 2);
  programs.lends.run([&]() -> hf::Task<void> {
    const hf::Buffer own = co_await programs.client.loan(512u << 10, soon());
    const hf::Error lack = co_await failure_of(programs.client.loan(share, hf::after(10ms)));
    CHECK(lack.is(hf::Errc::exhausted));
    INFO(lack.what());
    CHECK(mentions(lack, std::to_string(share) + " bytes"));
    CHECK(mentions(lack, std::to_string(512u << 10) + " are free"));
    CHECK(mentions(lack, "shm://"));
    CHECK(mentions(lack, "holds " + std::to_string(3u << 20) + " bytes in 2 loans"));
    CHECK(mentions(lack, "loan_bytes"));
    const hf::Error large = co_await failure_of(programs.client.loan(share + 1, soon()));
    CHECK(large.is(hf::Errc::too_large));
    CHECK(mentions(large, std::to_string(share)));
    CHECK((co_await failure_of(programs.client.loan(0, soon()))).is(hf::Errc::invalid_argument));
  });
  const hf::Error none = programs.keeps.run([&]() -> hf::Task<hf::Error> {
    co_return co_await failure_of(programs.server.loan(1, soon()));
  });
  CHECK(none.is(hf::Errc::unsupported));
  CHECK(mentions(none, "loan_bytes"));
  programs.drop();
  CHECK(programs.is_whole());
}

TEST_CASE("memory that another shard's link has lent is not said to be held here") {
  const Over over(net::Scheme::shm);
  Messengers both(lending_messenger(2 * share), 2);
  both.run([&]() -> hf::Task<void> {
    Ends ends = co_await both.connect();
    auto borrow = [&both] { return both.client->loan(share, soon()); };
    TypedMessage message = typed("test.loan.one", "");
    message.segments.push_back(co_await hf::call_on(both.runtime.shard(1), borrow));
    co_await ends.here.send(std::move(message), soon());
    const TypedMessage got = co_await ends.there.recv({}, soon());
    REQUIRE(is_lent(got.segments[0]));
    auto lack = [&both] { return failure_of(both.client->loan(64, hf::after(10ms))); };
    const hf::Error there = co_await hf::call_on(both.runtime.shard(1), lack);
    INFO(there.what());
    CHECK(mentions(there, "held here, or lent by links of other shards"));
    // Nor does it stand in the error of the shard whose link it was.
    const hf::Buffer all = co_await both.client->loan(share, soon());
    const hf::Error here = co_await failure_of(both.client->loan(64, hf::after(10ms)));
    INFO(here.what());
    CHECK(here.is(hf::Errc::exhausted));
    CHECK(!mentions(here, "in 1 loan"));
  });
}

TEST_CASE("those who wait for memory get it in the order in which they came") {
  const Over over(net::Scheme::shm);
  Messengers both(lending_messenger());
  both.run([&]() -> hf::Task<void> {
    std::vector<int> order;
    hf::Buffer all = co_await both.client->loan(share, soon());
    const auto borrow = [](Messenger* from, std::size_t size, int number,
                           std::vector<int>* order) -> hf::Task<void> {
      const hf::Buffer memory = co_await from->loan(size, soon());
      order->push_back(number);
    };
    const auto give = [](hf::Buffer* all) -> hf::Task<void> {
      co_await hf::sleep_for(1ms);
      all->reset();
    };
    co_await hf::when_all(borrow(both.client.get(), share, 1, &order),
                          borrow(both.client.get(), 64, 2, &order), give(&all));
    CHECK(order == std::vector<int>{1, 2});
  });
}

TEST_CASE("who takes no loans gets copies, and what it holds is nobody else's memory") {
  const Over over(net::Scheme::shm);
  Messenger::Options careful;
  careful.network.take_loans = false;
  Messengers both(careful, lending_messenger());
  both.run([&]() -> hf::Task<void> {
    Ends ends = co_await both.connect();
    for (const std::size_t size : {5000u, 1u << 20}) {
      TypedMessage message = typed("test.loan.one", "a body");
      message.segments.push_back(co_await both.client->loan(size, soon()));
      message.segments.push_back(hf::Buffer::copy_of("behind it"));
      fill(message.segments[0], 4);
      co_await ends.here.send(std::move(message), soon());
      const TypedMessage got = co_await ends.there.recv({}, soon());
      CHECK(!is_lent(got.segments[0]));
      CHECK(is_filled(got.segments[0], 4));
      CHECK(got.segments[1].text() == "behind it");
      CHECK((co_await both.client->loan(share, soon())).size() == share);
    }
  });
}

TEST_CASE("who waits for memory of a network that ends is told so") {
  const Over over(net::Scheme::shm);
  Messengers both(lending_messenger());
  std::atomic<int> told{0};
  const auto wait = [](Messenger* from, std::atomic<int>* told) -> hf::Task<void> {
    const hf::Buffer all = co_await from->loan(share, soon());
    const hf::Error error = co_await failure_of(from->loan(64, soon()));
    *told = error.is(hf::Errc::shutting_down) ? 1 : 2;
  };
  both.run([&]() -> hf::Task<void> {
    hf::Shard::current()->spawn(wait(both.client.get(), &told));
    co_await hf::sleep_for(1ms);  // behind what was spawned
  });
  both.client.reset();
  CHECK(eventually([&] { return told != 0; }));
  CHECK(told == 1);
}

TEST_CASE("what a receiver holds is lent to nobody else, whatever of the message has gone") {
  const Over over(net::Scheme::shm);
  Messengers both(lending_messenger());
  both.run([&]() -> hf::Task<void> {
    Ends ends = co_await both.connect();
    for (const char* const body : {"", "a body"}) {
      TypedMessage message = typed("test.loan.two", body);
      message.segments.push_back(co_await both.client->loan(share / 4, soon()));
      message.segments.push_back(co_await both.client->loan(share / 2, soon()));
      fill(message.segments[1], 8);
      co_await ends.here.send(std::move(message), soon());
      TypedMessage got = co_await ends.there.recv({}, soon());
      hf::Buffer held = std::exchange(got.segments[1], hf::Buffer());
      got = {};
      const hf::Error lack = co_await failure_of(both.client->loan(share / 2, hf::after(10ms)));
      CHECK(lack.is(hf::Errc::exhausted));
      CHECK(is_lent(held));
      CHECK(is_filled(held, 8));
      held.reset();
      CHECK((co_await both.client->loan(share, soon())).size() == share);
    }
  });
}

TEST_CASE("what is held longer than its connection stays whole, and comes back all the same") {
  const Over over(net::Scheme::shm);
  Programs programs;
  programs.send(3u << 20, 9);
  REQUIRE(is_lent(programs.received.at(0).segments[0]));
  // Both ends of the session end; the processes live.
  programs.keeps.run([&]() -> hf::Task<void> { co_await programs.server.close(1s); });
  const hf::Error lack = programs.lends.run([&]() -> hf::Task<hf::Error> {
    // The end travels from shard to shard.
    const hf::Time limit = soon();
    while (programs.here.up() && hf::Clock::now() < limit) co_await hf::sleep_for(1ms);
    hf::Error error = co_await failure_of(programs.client.loan(share, hf::after(10ms)));
    while (!mentions(error, "connection has ended") && hf::Clock::now() < limit)
      error = co_await failure_of(programs.client.loan(share, hf::after(10ms)));
    co_return error;
  });
  INFO(lack.what());
  CHECK(lack.is(hf::Errc::exhausted));
  CHECK(mentions(lack, "whose connection has ended, holds " + std::to_string(3u << 20)));
  CHECK(is_filled(programs.received.at(0).segments[0], 9));
  programs.drop();
  CHECK(programs.is_whole());
}

// ---- Peers that lie

namespace {

hf::Task<void> send_lent(net::Network* network, std::uint64_t to) {
  auto session = session_with(*network, to);
  Message message;
  message.segments.push_back(co_await network->loan(10'000, soon()));
  co_await session->send(std::move(message), Lane::bulk, soon());
}

}  // namespace

TEST_CASE("a peer that lends nonsense loses its link, and nobody else does") {
  const Over over(net::Scheme::shm);
  Node node, friendly;
  const auto endpoint = node.listen();
  friendly.connect(endpoint);
  const int before = mappings();
  constexpr std::size_t arena = 1u << 20;
  struct Lie {
    const char* words;
    std::uint16_t slot;
    std::uint32_t line, size;
  };
  const Lie lies[] = {{"lends 0 bytes", 0, 0, 0},
                      {"4294967295 bytes", 0, 0, 0xffffffff},
                      {"lends 65 bytes at 1048512 of 1048576", 0, arena / 64 - 1, 65},
                      {"slot 1024 of 1024", 1024, 0, 64},
                      {"did not come back", 7, 0, 4096}};
  std::uint64_t id = 1000;
  int downs = 0;
  for (const Lie& lie : lies) {
    INFO(lie.words);
    ShmRawPeer peer(endpoint.host, {}, arena);
    peer.enter(++id);
    REQUIRE(eventually([&] { return node.handler.ups == downs + 2; }));
    // The second loan comes while the first is part of a message that is not complete.
    net::FrameHeader header;
    header.lane = Lane::bulk;
    header.message = 1;
    header.total = header.length = 20'000;
    header.sequence = 1;
    std::vector<std::byte> bytes(net::FrameHeader::size);
    header.encode(bytes.data());
    peer.send(bytes);
    for (int i = 0; i < 2; ++i) {
      peer.writer->publish_loan(lie.slot, lie.line, lie.size);
      peer.ring_if_due(*peer.writer);
    }
    REQUIRE(eventually([&] { return node.handler.down_count == downs + 1; }));
    const std::string text = node.handler.downs()[static_cast<std::size_t>(downs)].text;
    INFO(text);
    CHECK(text.find(lie.words) != text.npos);
    CHECK(text.find("corrupt") != text.npos);
    ++downs;
  }
  CHECK(eventually([&] { return mappings() == before; }));
  friendly.send(node.network.node_id(), "unharmed");
  CHECK(eventually([&] { return node.handler.count == 1; }));
}

TEST_CASE("a peer that returns nonsense loses its link, and what was lent to it is there again") {
  const Over over(net::Scheme::shm);
  Node node(1, lending());
  const auto endpoint = node.listen();
  Node friendly;
  friendly.connect(endpoint);
  ShmRawPeer peer(endpoint.host);
  peer.enter(5);
  peer.lend(1u << 20);
  node.run([&] { return send_lent(&node.network, 5); });
  peer.words().returned = 77;
  net::FrameHeader heartbeat;  // so that it looks
  heartbeat.kind = net::FrameKind::heartbeat;
  std::vector<std::byte> bytes(net::FrameHeader::size);
  heartbeat.encode(bytes.data());
  peer.send(bytes);
  REQUIRE(eventually([&] { return node.handler.down_count == 1; }));
  INFO(node.handler.downs()[0].text);
  CHECK(node.handler.downs()[0].text.find("returned 77 loans") != std::string::npos);
  CHECK(node.handler.downs()[0].code == hf::Errc::corrupt);
  // Its process lives, and what it says from now on counts for nothing.
  CHECK(node.run([&] { return borrow_all(&node.network, share); }));
  friendly.send(node.network.node_id(), "unharmed");
  CHECK(eventually([&] { return node.handler.count == 1; }));
}

namespace {

/// What a connection leaves behind if it is cut with a loan taken.
struct LeftBehind {
  shm::ShmSegment own, others;
};

}  // namespace

TEST_CASE("a process that takes a loan and leaves, over and over, leaves little behind") {
  const Over over(net::Scheme::shm);
  Node node(1, lending());
  const auto endpoint = node.listen();
  std::vector<LeftBehind> left;
  constexpr int rounds = 40, most = static_cast<int>(shm::LoanShare::most_ended);
  int lent = 0;
  for (int round = 1; round <= rounds; ++round) {
    ShmRawPeer peer(endpoint.host);
    const auto id = static_cast<std::uint64_t>(100 + round);
    peer.enter(id);
    peer.lend(1u << 20);
    const int before = node.handler.down_count;
    node.run([&] { return send_lent(&node.network, id); });
    net::FrameHeader header;
    do {
      const auto bytes = peer.receive(net::FrameHeader::size);
      REQUIRE(decode(std::span<const std::byte, 64>(bytes.data(), 64), net::FrameLimits(),
                     header) == net::FrameFault::none);
      if (header.kind != net::FrameKind::data) peer.receive(header.length);
    } while (header.kind != net::FrameKind::data);
    // The envelope, the segment's length and the gap behind it come first, then what is lent.
    peer.receive(128);
    while (!peer.reader->has_piece()) std::this_thread::sleep_for(1ms);
    const auto* descriptors = reinterpret_cast<const shm::ShmDescriptor*>(
        peer.others.memory() + shm::ShmLayout::descriptors_at);
    lent += descriptors[peer.words().taken].where >> 48 == shm::ShmDescriptor::lent;
    ++peer.words().taken;
    depart(peer.own.memory(), shm::Departure::ended);
    ::shutdown(peer.caller.socket(), SHUT_RDWR);
    REQUIRE(eventually([&] { return node.handler.down_count == before + 1; }));
    left.push_back({std::move(peer.own), std::move(peer.others)});
  }
  CHECK(lent == most);
  // Two of them are ours in each round, and what a link has had may go a moment later.
  CHECK(eventually([&] { return mappings() - 2 * rounds <= 1 + most; }));
  const hf::Error lack =
      node.run([&] { return failure_of(node.network.loan(share, hf::after(hf::Duration{1}))); });
  INFO(lack.what());
  CHECK(mentions(lack, "and " + std::to_string(most - 8) + " more"));
  Node friendly;
  friendly.connect(endpoint);
  friendly.send(node.network.node_id(), "unharmed");
  CHECK(eventually([&] { return node.handler.count == 1; }));
  // Once it has returned what it has, it is lent to again.
  for (auto& one : left) reinterpret_cast<shm::ShmWords*>(one.own.memory())->returned = 1;
  CHECK(node.run([&] { return borrow_all(&node.network, share); }));
}

TEST_CASE(
    "a peer whose socket was cut keeps what it took, and the rest comes back once it leaves") {
  const Over over(net::Scheme::shm);
  Node node(1, lending());
  ShmRawPeer peer(node.listen().host);
  peer.enter(5);
  peer.lend(1u << 20);
  const auto send = [](net::Network* network) -> hf::Task<void> {
    auto session = session_with(*network, 5);
    Message message;
    message.segments.push_back(co_await network->loan(10'000, soon()));
    message.segments.push_back(co_await network->loan(20'000, soon()));
    co_await session->send(std::move(message), Lane::bulk, soon());
  };
  node.run([&] { return send(&node.network); });
  // Nothing else is there to be borrowed meanwhile.
  const auto says = [&](const std::string& words) {
    return eventually([&] {
      const hf::Error lack = node.run(
          [&] { return failure_of(node.network.loan(share, hf::after(hf::Duration{1}))); });
      return mentions(lack, words);
    });
  };
  REQUIRE(says("holds 30000 bytes in 2 loans"));
  ::shutdown(peer.caller.socket(), SHUT_RDWR);
  CHECK(says("whose connection has ended, holds 30000 bytes in 2 loans"));

  std::size_t first = 0;
  const auto lent_at = [&](std::size_t i) {
    return reinterpret_cast<const shm::ShmDescriptor*>(peer.others.memory() +
                                                       shm::ShmLayout::descriptors_at)[i]
        .where.load();
  };
  while (lent_at(first) >> 48 != shm::ShmDescriptor::lent) REQUIRE(++first < 100);
  peer.words().taken = first + 1;
  depart(peer.own.memory(), shm::Departure::broken_off);
  CHECK(says("holds 10000 bytes in 1 loan;"));
  auto* entries = reinterpret_cast<std::atomic<std::uint16_t>*>(peer.own.memory() +
                                                                shm::ShmLayout().returns_at());
  entries[0] = static_cast<std::uint16_t>(lent_at(first) >> 32);
  peer.words().returned = 1;
  CHECK(node.run([&] { return borrow_all(&node.network, share); }));
}

// ---- Who takes copies

namespace {

constexpr std::size_t lent_frame = 4u << 20, lent_total = 16 * lent_frame;

/// How much comes from a peer between two looks at it, in which others of the shard have a turn.
struct Steps final : hf::Poller {
  explicit Steps(net::SessionRef session) : session(std::move(session)) {}
  std::size_t poll() noexcept override {
    const std::uint64_t now = session->stats().bytes_received;
    longest = std::max(longest, now - std::exchange(before, now));
    return 0;
  }
  void arm() noexcept override {}
  bool ready() const noexcept override { return false; }
  void disarm() noexcept override {}
  net::SessionRef session;
  std::uint64_t before = 0, longest = 0;
};

/// One message, all but its envelope lent, and all of it there before the node looks.
hf::Task<std::uint64_t> longest_step(Node* node, ShmRawPeer* peer) {
  Message message;
  message.body = hf::Buffer::heap(lent_total - net::wire::envelope_size);
  std::byte envelope[net::wire::envelope_size];
  net::wire::encode_head(message, envelope);
  Steps steps(node->network.session(5));
  hf::Shard::current()->add_poller(steps);
  net::FrameHeader header;
  header.lane = Lane::bulk;
  header.message = 1;
  header.total = lent_total;
  header.length = lent_frame;
  for (std::uint16_t slot = 0; header.offset < lent_total; ++slot) {
    peer->say(header);
    const std::size_t copied = slot == 0 ? sizeof envelope : 0;
    peer->send(std::span(envelope, copied));
    peer->writer->publish_loan(slot, 0, static_cast<std::uint32_t>(lent_frame - copied));
    header.offset += lent_frame;
  }
  const hf::Time limit = soon();
  while (node->handler.count == 0 && hf::Clock::now() < limit) co_await hf::sleep_for(1ms);
  hf::Shard::current()->remove_poller(steps);
  co_return steps.longest;
}

}  // namespace

TEST_CASE("who copies what is lent does no more of it at a time than of what is not") {
  const Over over(net::Scheme::shm);
  net::Network::Options careful;
  careful.take_loans = false;
  Node node(1, careful);
  node.handler.react = [](net::Session&, Lane, Message) {};
  ShmRawPeer peer(node.listen().host, {}, lent_frame);
  peer.enter(5);
  net::FrameHeader announce;
  announce.kind = net::FrameKind::announce;
  announce.lane = Lane::bulk;
  announce.message = 1;
  announce.total = lent_total;
  peer.say(announce);
  while (peer.receive_frame().header.kind != net::FrameKind::grant) continue;
  const std::uint64_t longest = node.run([&] { return longest_step(&node, &peer); });
  CHECK(node.handler.count == 1);
  // A turn ends with the loan that fills it. The first look may come in the middle.
  CHECK(longest <= 2 * (lent_frame + (1u << 20)));
}

// ---- Other processes

namespace {

/// Numbered messages with a lent segment each, and its sum; a pause now and then.
hf::Task<void> lend_numbers(net::Network* network, std::uint64_t to, int count,
                            std::uint64_t seed) {
  std::mt19937_64 random(seed);
  auto session = session_with(*network, to);
  for (int i = 0; i < count; ++i) {
    const std::size_t size = 1 + random() % (random() % 8 ? 100'000 : 900'000);
    Message message;
    message.segments.push_back(co_await network->loan(size, hf::after(600s)));
    fill(message.segments[0], static_cast<unsigned>(i));
    message.envelope.type_id = static_cast<std::uint64_t>(i);
    message.envelope.context = hf::crc32c(message.segments[0].bytes());
    co_await session->send(std::move(message), Lane::bulk, hf::after(600s));
    if (random() % 5 == 0) co_await hf::sleep_for(1ms);
  }
}

/// The other side of it: some are kept for a while.
struct NumbersIn {
  explicit NumbersIn(Handler& handler) {
    handler.react = [this](net::Session&, Lane, Message message) { take(std::move(message)); };
  }
  void take(Message message) {
    const hf::Buffer& segment = message.segments[0];
    if (message.envelope.type_id != static_cast<std::uint64_t>(taken) ||
        message.envelope.context != hf::crc32c(segment.bytes()))
      right = false;
    lent += is_lent(segment);
    hf::Shard::current()->spawn(keep(std::move(message)));
    ++taken;
  }
  static hf::Task<void> keep(Message message) {
    co_await hf::sleep_for(std::chrono::microseconds(message.envelope.type_id % 5 * 400));
  }
  std::atomic<int> taken{0}, lent{0};
  std::atomic<bool> right{true};
};

/// Lends until that fails, or all has gone. What it says to the test.
std::string lend_to(Node& node, const net::Endpoint& endpoint, int count) {
  try {
    const std::uint64_t to = node.connect(endpoint, 20s);
    node.run([&] { return lend_numbers(&node.network, to, count, 5); });
    return "done";
  } catch (const hf::Error& error) {
    return error.code().message();
  }
}

/// A victim waits for what happens to it, and not for ever.
void stay() { std::this_thread::sleep_for(hf::timing().scaled(60s)); }

bool was_killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

}  // namespace

TEST_CASE("peer process: lends over memory that breaks", "[.][peer]") {
  if (report_descriptor() < 0) return;
  Node server, client(1, lending());
  NumbersIn numbers(server.handler);
  const auto endpoint = server.listen("auto://127.0.0.1:0");
  if (lend_to(client, endpoint, 200) != "done") return report("not all was sent");
  if (!eventually([&] { return numbers.taken == 200; })) return report("not all of it came");
  if (!numbers.right) return report("it came wrong");
  if (client.handler.down_count) return report("the session ended");
  const auto standing = client.run([&] { return standing_here(&client.network); });
  if (!standing.resumes) return report("nothing broke");
  const bool whole = client.run([&] { return borrow_all(&client.network, share); });
  report(whole ? "whole" : "memory is missing");
}

TEST_CASE("a link that breaks in the middle of loans goes on over TCP, and each comes once") {
  const auto seed = std::random_device()();
  std::mt19937_64 random(seed);
  for (const std::uint64_t piece :
       {std::uint64_t{1}, 2 + random() % 20, 20 + random() % 200, 100 + random() % 300}) {
    INFO("seed " << seed << ", it breaks at piece " << piece);
    Process world("peer process: lends over memory that breaks",
                  {{"HYPERFRAMES_FAILPOINT", "shm-broken=error:" + std::to_string(piece)}});
    CHECK(world.line() == "whole");
  }
}

TEST_CASE("peer process: borrows", "[.][peer]") {
  if (report_descriptor() < 0) return;
  Node node;
  NumbersIn numbers(node.handler);
  report(node.listen(Over::uri()).to_string());
  stay();
}

TEST_CASE("what a process has borrowed comes back when it is killed, at whatever step") {
  const Over over(net::Scheme::shm);
  for (const char* const armed :
       {"shm-borrowed=kill:1", "shm-borrowed=kill:30", "shm-returned=kill:1",
        "shm-returned=kill:30", "shm-copied=kill:50"}) {
    INFO(armed);
    Node node(1, lending());
    Process victim("peer process: borrows", {{"HYPERFRAMES_FAILPOINT", armed}});
    CHECK(lend_to(node, victim.endpoint(), 1000) != "done");
    CHECK(was_killed(victim.wait()));
    CHECK(node.run([&] { return borrow_all(&node.network, share); }));
  }
}

TEST_CASE("peer process: lends", "[.][peer]") {
  if (report_descriptor() < 0) return;
  Node node(1, lending());
  report(lend_to(node, net::Endpoint::parse(std::getenv("HYPERFRAMES_TEST_URI")), 1000));
}

namespace {

struct Kept {
  std::size_t count = 0, lent = 0;
  bool whole = true;
};

hf::Task<Kept> look_at(std::vector<Message>* kept) {
  Kept found;
  found.count = kept->size();
  for (std::size_t i = 0; i < kept->size(); ++i) {
    const Message& message = (*kept)[i];
    found.lent += is_lent(message.segments[0]);
    found.whole &= message.envelope.type_id == i &&
                   is_filled(message.segments[0], static_cast<unsigned>(i)) &&
                   message.envelope.context == hf::crc32c(message.segments[0].bytes());
  }
  co_return found;
}

}  // namespace

TEST_CASE("what a process has lent stays whole when it is killed, at whatever step") {
  const Over over(net::Scheme::shm);
  for (const int loan : {1, 2, 20}) {
    const std::string armed = "shm-lent=kill:" + std::to_string(loan);
    INFO(armed);
    Node node;
    std::vector<Message> kept;
    node.handler.react = [&](net::Session&, Lane, Message message) {
      kept.push_back(std::move(message));
    };
    const auto endpoint = node.listen();
    Process victim("peer process: lends", {{"HYPERFRAMES_TEST_URI", endpoint.to_string()},
                                           {"HYPERFRAMES_FAILPOINT", armed}});
    CHECK(victim.line() == "");
    CHECK(was_killed(victim.wait()));  // and the system has let go of all that it had
    CHECK(eventually([&] { return node.handler.ups == 1 && node.handler.down_count == 1; }));
    // All that it had published came: a loan is the end of its message. It is where it was.
    const Kept found = node.run([&] { return look_at(&kept); });
    CHECK(found.whole);
    CHECK(found.lent == static_cast<std::size_t>(loan));
    const Kept again = node.run([&] { return look_at(&kept); });
    CHECK(again.whole);
    CHECK(again.lent == found.lent);
    node.run([&] {
      return hf::co_invoke(
          [](std::vector<Message>* kept) -> hf::Task<void> {
            kept->clear();
            co_return;
          },
          &kept);
    });
    CHECK(eventually([&] { return mappings() == 0; }));
  }
}

TEST_CASE("peer process: writes to what it has borrowed", "[.][peer]") {
  if (report_descriptor() < 0) return;
  Node node;
  node.handler.react = [](net::Session&, Lane, Message message) {
    report(is_lent(message.segments[0]) ? "lent" : "copied");
    ::signal(SIGSEGV, SIG_DFL);  // and no report of it
    message.segments[0].data()[0] = std::byte{1};
    report("written");
  };
  report(node.listen(Over::uri()).to_string());
  stay();
}

TEST_CASE("who writes to what was lent to it gets a SIGSEGV, and the lender loses nothing") {
  const Over over(net::Scheme::shm);
  Node node(1, lending());
  Process victim("peer process: writes to what it has borrowed");
  const auto endpoint = victim.endpoint();
  node.run([&] {
    return hf::co_invoke(
        [](net::Network* network, net::Endpoint endpoint) -> hf::Task<void> {
          auto session = co_await network->connect(endpoint, soon());
          Message message;
          message.segments.push_back(co_await network->loan(10'000, soon()));
          co_await session->send(std::move(message), Lane::bulk, soon());
        },
        &node.network, endpoint);
  });
  CHECK(victim.line() == "lent");
  CHECK(victim.line() == "");
  const int status = victim.wait();
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV));
  CHECK(node.run([&] { return borrow_all(&node.network, share); }));
}
