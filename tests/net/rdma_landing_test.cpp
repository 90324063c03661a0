// Memory that a peer writes into: who has which of it, what arrives there, and who is let in.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <hyperframes/net/detail/little_endian.hpp>
#include <hyperframes/net/rdma/landing.hpp>
#include <hyperframes/net/rdma/setup.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/crc32c.hpp>
#include <random>

#include "../runtime/captured_log.hpp"
#include "error_of.hpp"
#include "rdma_ends.hpp"
#include "storm.hpp"

using namespace net_test;
using net::Lane;
using net::detail::Landed;
using net::detail::LandingMap;
using net::detail::VerbsTarget;
using Word = RdmaQueue::Word;

// ---- Who has which of it

TEST_CASE("places of a landing never overlap, begin on a line, and all come back") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  constexpr std::uint32_t bytes = 1 << 20;
  LandingMap map(bytes);
  std::map<std::uint32_t, std::uint32_t> out;
  std::size_t refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 2) {
      const auto wanted = static_cast<std::uint32_t>(1 + random() % 40'000);
      const auto place = map.take(wanted, random() % 2);
      if (!place) {
        ++refused;
        continue;
      }
      REQUIRE(place->size > 0);
      REQUIRE(place->size <= wanted);
      REQUIRE(place->offset + place->size <= bytes);
      const auto after = out.lower_bound(place->offset);
      const bool clear = (after == out.end() || place->offset + place->size <= after->first) &&
                         (after == out.begin() ||
                          std::prev(after)->first + std::prev(after)->second <= place->offset);
      REQUIRE(clear);
      out.emplace(place->offset, place->size);
    } else if (!out.empty()) {
      const auto any = std::next(out.begin(), static_cast<long>(random() % out.size()));
      REQUIRE(map.give_back(any->first));
      REQUIRE(!map.give_back(any->first));
      out.erase(any);
    }
  }
  CHECK(refused > 0);
  CHECK(map.places_out() == out.size());
  for (const auto& [offset, size] : out) CHECK(map.give_back(offset));
  const auto all = map.take(bytes, false);
  REQUIRE(all);
  CHECK(all->size == bytes);
}

TEST_CASE("what goes on lies right behind what came before, and what is new on a line of its own") {
  LandingMap map(100'000);
  CHECK(map.take(1001, false)->offset == 0);
  CHECK(map.take(500, true)->offset == 1001);
  CHECK(map.take(5000, false)->offset == 1536);
  CHECK(map.give_back(1001));
  CHECK(map.take(200'000, true)->offset == 6536);
  CHECK(!map.take(50'000, false));  // the 500 bytes are not worth it for that
  CHECK(map.take(100, false)->offset == 1024);
}

// ---- Between two queues

namespace {

/// As `answer` of a queue says it, which is to have been asked.
void give_landing(RdmaQueue& writer, RdmaQueue& owner, const std::shared_ptr<RdmaDevice>& device) {
  writer.ask_for_landing();
  const auto asked = owner.next();
  REQUIRE(asked);
  REQUIRE(asked->word == Word::ask);
  owner.release(*asked);
  REQUIRE(owner.answer(device->land()));
  REQUIRE(!writer.next());
  REQUIRE(writer.lands());
}

std::size_t write_some(RdmaQueue& from, std::string_view text) {
  std::size_t sent = 0;
  while (sent < text.size()) {
    const auto room = from.room(text.size() - sent);
    if (room.empty()) break;
    const auto place = from.place(room.size(), sent != 0);
    if (!place) break;
    std::memcpy(room.data(), text.data() + sent, place->size);
    from.publish_at(*place);
    sent += place->size;
  }
  return sent;
}

}  // namespace

TEST_CASE("what is written takes receives and places as pieces do, so neither runs out") {
  FakeVerbs verbs;
  {
    const auto device = RdmaDevice::open(options_of(verbs));
    QueueEnds ends(device);
    give_landing(*ends.near, *ends.far, device);
    const std::string text(100'000, 'w');
    std::string received;
    std::size_t sent = 0;
    std::vector<std::uint32_t> offsets;
    while (received.size() < text.size()) {
      sent += write_some(*ends.near, std::string_view(text).substr(sent));
      while (const auto arrival = ends.far->next()) {
        REQUIRE(arrival->landed);
        received.append(reinterpret_cast<const char*>(arrival->bytes.data()),
                        arrival->bytes.size());
        offsets.push_back(*arrival->landed);
        ends.far->release(*arrival);
      }
      ends.far->give_back();
      if (offsets.size() > 20) ends.far->give_back_places(offsets);
      REQUIRE(!ends.near->next());
      REQUIRE(!ends.near->failure());
    }
    CHECK(received == text);
    CHECK(!ends.far->failure());
  }
  const auto counts = verbs.counts();
  CHECK(counts.written >= 98);
  CHECK(counts.full_sends == 0);
  CHECK(counts.full_receives == 0);
  CHECK(counts.waited_for_receive == 0);
  CHECK(counts.stray == 0);
  CHECK(counts.memories == 0);
}

TEST_CASE("a request is no larger than the device's limit") {
  FakeVerbs verbs;
  verbs.set([](auto& faults) { faults.message_bytes = 300; });
  QueueEnds ends(verbs);
  CHECK(ends.near->room(1000).size() == 300);
}

TEST_CASE("the key of a landing is good for one link, and as long as that") {
  FakeVerbs verbs;
  const auto device = RdmaDevice::open(options_of(verbs));
  std::span<std::byte> memory;
  {
    QueueEnds ends(device);
    give_landing(*ends.near, *ends.far, device);
    CHECK(verbs.landings() == 1);
    auto other = device->land();
    CHECK(verbs.landings() == 2);
    memory = other->bytes();
    CHECK(device->landings() == 2);
  }
  CHECK(verbs.landings() == 0);
  CHECK(device->landings() == 0);
  const auto again = device->land();
  CHECK(verbs.is_landing(again->bytes()));
  CHECK(!memory.empty());
}

TEST_CASE("landings leave a quarter of the pool to pieces, and what comes back is used again") {
  FakeVerbs verbs;
  auto options = options_of(verbs);
  options.landing_bytes = 10u << 20;
  options.pool_bytes = 100u << 20;  // of which a region takes 32 MiB
  const auto device = RdmaDevice::open(options);
  std::vector<std::shared_ptr<RdmaDevice::Landing>> landings;
  while (auto landing = device->land()) landings.push_back(std::move(landing));
  REQUIRE(landings.size() == 7);
  CHECK(landings[0]->bytes().size() == 10u << 20);
  CHECK(landings[6]->bytes().size() < 10u << 20);
  const std::byte* const first = landings[3]->bytes().data();
  landings.erase(landings.begin() + 3);
  CHECK(device->land()->bytes().data() == first);
  options.landing_bytes = 0;
  CHECK(!RdmaDevice::open(options)->land());
  options.landing_bytes = std::size_t{4} << 30;
  CHECK(error_of([&] { RdmaDevice::open(options); }).is(hf::Errc::invalid_argument));
}

TEST_CASE("a peer that breaks the rules of landings is found out") {
  FakeVerbs verbs;
  const auto device = RdmaDevice::open(options_of(verbs));
  const auto queue = RdmaQueue::create(device);
  int failure = 0;
  auto completions = device->verbs().make_completions(64, failure);
  auto liar = device->verbs().make_pair(completions, {16, 16, 0}, failure);
  auto offer = queue->offer();
  net::detail::VerbsPath path;
  path.peer_pair = offer.pair;
  REQUIRE(liar->connect(path) == 0);
  offer.pair = liar->number();
  queue->connect(offer);
  const auto lease = device->lease();
  std::uint64_t number = 0;
  const auto say = [&](Word word, std::size_t size, std::optional<VerbsTarget> into = {},
                       std::uint32_t immediate = 0) {
    net::detail::VerbsPair::Send send;
    send.id = ++number;
    send.bytes = lease.bytes().first(size);
    send.key = lease.key();
    send.immediate = into ? immediate : static_cast<std::uint32_t>(word);
    send.signalled = true;
    send.into = into;
    REQUIRE(liar->post_send(send) == 0);
  };
  const auto landing = device->land();
  const VerbsTarget there{reinterpret_cast<std::uint64_t>(landing->bytes().data()),
                          landing->remote_key()};
  SECTION("it tells of a landing that it was not asked for") { say(Word::landing, 24); }
  SECTION("it returns what was never written") { say(Word::returned, 4); }
  SECTION("it returns half a number") { say(Word::returned, 2); }
  SECTION("it asks twice") {
    say(Word::ask, 0);
    const auto asked = queue->next();
    REQUIRE(asked);
    queue->release(*asked);
    say(Word::ask, 0);
  }
  SECTION("it says bytes with a word that has none") { say(Word::ask, 8); }
  SECTION("it writes, and was let in nowhere") { say(Word::piece, 100, there, 0); }
  SECTION("it says that it wrote where nothing is") {
    say(Word::ask, 0);
    const auto asked = queue->next();
    REQUIRE(asked);
    queue->release(*asked);
    REQUIRE(queue->answer(landing));
    say(Word::piece, 100, there, static_cast<std::uint32_t>(landing->bytes().size() - 99));
  }
  CHECK(!queue->next());
  REQUIRE(queue->failure());
  INFO(queue->failure()->what());
  CHECK(queue->failure()->is(hf::Errc::corrupt));
}

// ---- Between two nodes

namespace {

net::Message with_segment(hf::Buffer segment) {
  net::Message message;
  message.envelope.context = segment.size();
  message.body = hf::Buffer::copy_of("a segment follows");
  message.segments.push_back(std::move(segment));
  return message;
}

hf::Task<void> send_segment(net::Network* network, std::uint64_t to, hf::Buffer segment,
                            Lane lane) {
  auto session = session_with(*network, to);
  co_await session->send(with_segment(std::move(segment)), lane,
                         hf::after(hf::timing().scaled(60s)));
}

/// As many in one turn as the session takes, so that they leave together.
hf::Task<void> send_flood(net::Network* network, std::uint64_t to, hf::Buffer segment, int count) {
  auto session = session_with(*network, to);
  for (int i = 0; i < count; ++i) {
    net::Message message = with_segment(segment);
    const auto sent = session->try_send(message);
    if (!sent) co_await session->send(std::move(message));
  }
}

/// What came, with its sum, and whether it lies where the peer wrote it.
struct Came {
  std::atomic<int> count{0}, right{0}, landed{0};
};

struct Pair {
  explicit Pair(FakeVerbs& verbs, net::Network::Options options)
      : verbs(verbs), server(1, options), client(1, options) {
    server.handler.react = [this](net::Session&, Lane, net::Message message) {
      const hf::Buffer& segment = message.segments[0];
      const bool right =
          message.segments.count() == 1 && segment.size() == message.envelope.context &&
          message.body.text() == "a segment follows" && hf::crc32c(segment.bytes()) == expected;
      came.right += right;
      came.landed += this->verbs.is_landing(segment.bytes());
      if (keeps) kept.push_back(std::move(message));
      ++came.count;
    };
    client.connect(server.listen("rdma://127.0.0.1:0"));
    REQUIRE(eventually([&] { return all_are(server, "rdma") && all_are(client, "rdma"); }));
  }
  ~Pair() { forget(); }
  void forget() {
    server.run([this]() -> hf::Task<void> {
      return hf::co_invoke(
          [](Pair* self) -> hf::Task<void> {
            self->kept.clear();
            co_return;
          },
          this);
    });
  }
  /// And waits until it has come.
  void send(const hf::Buffer& segment, Lane lane = Lane::bulk) {
    expected = hf::crc32c(segment.bytes());
    const int before = came.count;
    client.run([&, this] {
      return send_segment(&client.network, server.network.node_id(), segment, lane);
    });
    REQUIRE(eventually([&] { return came.count == before + 1; }));
  }
  void flood(const hf::Buffer& segment, int count) {
    expected = hf::crc32c(segment.bytes());
    const int before = came.count;
    client.run([&, this] {
      return send_flood(&client.network, server.network.node_id(), segment, count);
    });
    REQUIRE(eventually([&] { return came.count == before + count || client.handler.down_count; }));
    REQUIRE(came.count == before + count);
  }
  /// Whether it lands, sooner or later: what is sent before the peer has said where it may write,
  /// or that it may do so again, goes in pieces.
  bool lands(const hf::Buffer& segment, Lane lane = Lane::bulk) {
    const int before = came.landed;
    for (int i = 0; i < 1000 && came.landed == before; ++i) send(segment, lane);
    return came.landed > before;
  }
  void warm_up() {
    std::mt19937_64 random(1);
    REQUIRE(lands(random_bytes(random, 100'000)));
  }

  FakeVerbs& verbs;
  Came came;
  std::atomic<std::uint32_t> expected{0};
  bool keeps = false;
  std::vector<net::Message> kept;
  Node server, client;
};

}  // namespace

TEST_CASE("a large segment stays where the peer's device has written it, in one piece") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  FakeVerbs verbs;
  {
    Pair pair(verbs, with(&verbs));
    pair.warm_up();
    for (const std::size_t size :
         {std::size_t{16} << 10, std::size_t{100'001}, std::size_t{1} << 20, std::size_t{7'654'321},
          std::size_t{32} << 20}) {
      INFO(size << " bytes");
      for (const Lane lane : {Lane::normal, Lane::bulk}) {
        CHECK(pair.lands(random_bytes(random, size), lane));
      }
    }
    CHECK(pair.came.right == pair.came.count);
    CHECK(pair.verbs.counts().written > 0);
  }
  const auto counts = verbs.counts();
  CHECK(counts.stray == 0);
  CHECK(counts.full_sends == 0);
  CHECK(counts.waited_for_receive == 0);
  CHECK(counts.memories == 0);
}

TEST_CASE("places come back: more lands than there is memory for") {
  FakeVerbs verbs;
  auto options = with(&verbs);
  options.rdma.landing_bytes = 4u << 20;
  Pair pair(verbs, options);
  pair.warm_up();
  std::mt19937_64 random(2);
  const hf::Buffer segment = random_bytes(random, 1 << 20);
  for (int i = 0; i < 20; ++i) CHECK(pair.lands(segment));
  CHECK(pair.came.right == pair.came.count);
}

TEST_CASE("small messages that gather come as the link's bytes, not where payload is written") {
  FakeVerbs verbs;
  Pair pair(verbs, with(&verbs));
  pair.warm_up();
  std::mt19937_64 random(7);
  for (const std::size_t size : {8, 64, 500, 3000}) {
    INFO(size << " bytes");
    pair.flood(random_bytes(random, size), 3000);
    CHECK(pair.lands(random_bytes(random, 100'000)));
  }
  CHECK(pair.came.right == pair.came.count);
  CHECK(all_are(pair.client, "rdma"));
}

TEST_CASE("what a receiver keeps is not written over, and the rest comes in pieces") {
  FakeVerbs verbs;
  auto options = with(&verbs);
  options.rdma.landing_bytes = 2u << 20;
  Pair pair(verbs, options);
  pair.warm_up();
  pair.keeps = true;
  std::mt19937_64 random(3);
  std::vector<std::uint32_t> sums;
  for (int i = 0; i < 10; ++i) {
    const hf::Buffer segment = random_bytes(random, 500'000);
    sums.push_back(hf::crc32c(segment.bytes()));
    pair.send(segment);
  }
  CHECK(pair.came.right == pair.came.count);
  CHECK(pair.came.landed > 1);
  CHECK(pair.came.landed < 8);
  for (int i = 0; i < 10; ++i)
    CHECK(hf::crc32c(pair.kept[static_cast<std::size_t>(i)].segments[0].bytes()) ==
          sums[static_cast<std::size_t>(i)]);
  pair.forget();
  pair.keeps = false;
  CHECK(pair.lands(random_bytes(random, 500'000)));
}

TEST_CASE("what landed outlives its link, and its peer writes there no more") {
  FakeVerbs verbs;
  auto options = with(&verbs);
  Pair pair(verbs, options);
  pair.warm_up();
  pair.keeps = true;
  std::mt19937_64 random(4);
  const hf::Buffer segment = random_bytes(random, 3'000'000);
  pair.send(segment);
  verbs.fail_all();
  CHECK(eventually([&] { return all_are(pair.server, "tcp") && all_are(pair.client, "tcp"); }));
  CHECK(eventually([&] { return verbs.landings() == 0; }));
  pair.send(segment);  // by TCP
  REQUIRE(pair.kept.size() == 2);
  for (const net::Message& message : pair.kept)
    CHECK(hf::crc32c(message.segments[0].bytes()) == hf::crc32c(segment.bytes()));
}

TEST_CASE("without memory to write into large segments go in pieces, and a line says why") {
  const bool fails = GENERATE(true, false);
  hf::test::CapturedLog log;
  FakeVerbs verbs;
  auto options = with(&verbs);
  if (fails) verbs.set([](auto& faults) { faults.landing = ENOMEM; });
  if (!fails) options.rdma.landing_bytes = 0;
  Pair pair(verbs, options);
  std::mt19937_64 random(5);
  const hf::Buffer segment = random_bytes(random, 1 << 20);
  for (int i = 0; i < 5; ++i) pair.send(segment);
  CHECK(pair.came.right == 5);
  CHECK(pair.came.landed == 0);
  CHECK(verbs.counts().written == 0);
  CHECK(all_are(pair.client, "rdma"));
  CHECK(has(log.text(), "register 67108864 bytes of memory with fake0") == fails);
}

TEST_CASE("who takes no loans has copies, and the memory is free at once") {
  FakeVerbs verbs;
  auto options = with(&verbs);
  options.take_loans = false;
  options.rdma.landing_bytes = 1u << 20;
  Pair pair(verbs, options);
  pair.keeps = true;
  std::mt19937_64 random(6);
  for (int i = 0; i < 10; ++i) pair.send(random_bytes(random, 500'000));
  CHECK(pair.came.right == 10);
  CHECK(pair.came.landed == 0);
  CHECK(verbs.counts().written > 100);
}
