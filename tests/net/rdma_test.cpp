// Links through queue pairs: the accounts of one, what devices do at their worst, and how a session
// goes on without them.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <hyperframes/net/rdma/device.hpp>
#include <hyperframes/net/rdma/queue.hpp>
#include <hyperframes/net/rdma/setup.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <random>
#include <set>

#include "../runtime/captured_log.hpp"
#include "error_of.hpp"
#include "process.hpp"
#include "rdma_ends.hpp"
#include "storm.hpp"

using namespace net_test;
using net::Lane;
using net::Scheme;
using net::detail::RdmaDevice;
using net::detail::RdmaOffer;
using net::detail::RdmaQueue;
using Word = RdmaQueue::Word;

// ---- The accounts of a queue pair

TEST_CASE("pieces of any size arrive whole, and few sends are signalled") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  FakeVerbs verbs;
  {
    QueueEnds ends(verbs);
    ends.near->limit(GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{6000}));
    std::string sent, received;
    while (sent.size() < 400'000) {
      std::string text(1 + random() % (random() % 3 ? 100 : 20'000), '\0');
      for (char& c : text) c = static_cast<char>(random());
      for (std::size_t at = 0; at < text.size();) {
        at += send_some(*ends.near, std::string_view(text).substr(at));
        if (random() % 2 || at < text.size()) receive_into(received, *ends.far);
        (void)ends.near->next();  // what the far end gives back
      }
      sent += text;
    }
    receive_into(received, *ends.far);
    CHECK(received == sent);
    CHECK(!ends.near->failure());
    CHECK(!ends.far->failure());
  }
  const auto counts = verbs.counts();
  CHECK(counts.full_sends == 0);
  CHECK(counts.full_receives == 0);
  CHECK(counts.waited_for_receive == 0);
  CHECK(counts.stray == 0);
  CHECK(counts.inlined > 0);
  CHECK(counts.pairs == 0);
  CHECK(counts.queues == 0);
  CHECK(counts.memories == 0);
}

TEST_CASE("with nothing but a limit of its own a sender signals so rarely that it is worth it") {
  FakeVerbs verbs;
  QueueEnds ends(verbs);
  std::string received;
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(send_some(*ends.near, "a few words") == 11);
    receive_into(received, *ends.far);
    (void)ends.near->next();
  }
  CHECK(verbs.counts().sends >= 1000);
  CHECK(verbs.counts().signalled * 2 <= verbs.counts().sends);
}

TEST_CASE("a full send queue is no room, and words have places that pieces can't take") {
  FakeVerbs verbs;
  QueueEnds ends(verbs);
  verbs.set([](auto& faults) { faults.hold = true; });
  const std::string text(100'000, 'x');
  const std::size_t sent = send_some(*ends.near, text);
  CHECK(sent == 16 * 1024);
  CHECK(ends.near->room(1).empty());
  for (std::uint32_t i = 0; i < RdmaDevice::words; ++i) CHECK(ends.near->say(Word::credit));
  CHECK(!ends.near->say(Word::credit));  // told before the device had to
  CHECK(!ends.near->failure());
  CHECK(verbs.counts().full_sends == 0);
  verbs.set([](auto& faults) { faults.hold = false; });
  std::string received;
  receive_into(received, *ends.far);
  CHECK(received == text.substr(0, sent));
  (void)ends.near->next();
  CHECK(!ends.near->room(1).empty());
}

TEST_CASE("who does not take pieces is sent no more than it has memory for") {
  FakeVerbs verbs;
  QueueEnds ends(verbs);
  std::string text(100'000, 'y'), received;
  std::size_t sent = 0;
  for (int i = 0; i < 20; ++i) {
    sent += send_some(*ends.near, std::string_view(text).substr(sent));
    (void)ends.near->next();
  }
  CHECK(sent == 16 * 1024);
  CHECK(verbs.counts().waited_for_receive == 0);
  receive_into(received, *ends.far);
  (void)ends.near->next();
  CHECK(send_some(*ends.near, std::string_view(text).substr(sent)) > 0);
}

TEST_CASE("a completion between the last look and the arming is found") {
  FakeVerbs verbs;
  QueueEnds ends(verbs);
  CHECK(!ends.far->next());
  verbs.set([&](auto& faults) {
    faults.before_arm = [&] {
      verbs.set([](auto& faults) { faults.before_arm = {}; });
      send_some(*ends.near, "just now");
    };
  });
  ends.far->arm();
  CHECK(ends.far->ready());
  std::string received;
  receive_into(received, *ends.far);
  CHECK(received == "just now");
}

TEST_CASE("a queue pair that fails says how, and gives all back before its memory is another's") {
  struct Case {
    const char* words;
    std::function<void(FakeVerbs::Faults&)> change;
  };
  const Case cases[] = {
      {"8 times within 536 ms", [](auto& faults) { faults.lose = true; }},
      {"no memory to receive into", [](auto& faults) { faults.no_receives = true; }}};
  for (const Case& fault : cases) {
    FakeVerbs verbs;
    const auto device = RdmaDevice::open(options_of(verbs));
    QueueEnds ends(device);
    verbs.set(fault.change);
    send_some(*ends.near, "lost");
    CHECK(!ends.near->next());
    REQUIRE(ends.near->failure());
    INFO(ends.near->failure()->what());
    CHECK(has(ends.near->failure()->what(), fault.words));
    CHECK(ends.near->room(1).empty());
    ends.near->end();
    CHECK(ends.near->is_drained());
    const std::size_t before = device->leased();
    ends.near.reset();
    CHECK(device->leased() == before / 2);
  }
}

TEST_CASE("a pair whose requests are flushed has failed, and sends nothing more") {
  FakeVerbs verbs;
  QueueEnds ends(verbs);
  verbs.fail_all();
  CHECK(!ends.far->next());
  REQUIRE(ends.far->failure());
  CHECK(ends.far->failure()->code() == std::errc::connection_reset);
  CHECK(!ends.far->say(Word::credit));
}

TEST_CASE("a peer that breaks the rules of its words is found out") {
  const std::uint32_t words[] = {
      static_cast<std::uint32_t>(Word::credit) | 1u << 16,  // it was sent nothing
      0,                                                    // no such word
      9, static_cast<std::uint32_t>(Word::piece)};          // without a byte
  for (const std::uint32_t word : words) {
    INFO("word " << word);
    FakeVerbs verbs;
    const auto device = RdmaDevice::open(options_of(verbs));
    const auto queue = RdmaQueue::create(device);
    int failure = 0;
    auto completions = device->verbs().make_completions(8, failure);
    auto liar = device->verbs().make_pair(completions, {8, 8, 0}, failure);
    RdmaOffer offer = queue->offer();
    net::detail::VerbsPath path;
    path.peer_pair = offer.pair;
    CHECK(liar->connect(path) == 0);
    offer.pair = liar->number();
    queue->connect(offer);
    CHECK(liar->post_send({1, {}, 0, word, true, false}) == 0);
    CHECK(!queue->next());
    REQUIRE(queue->failure());
    CHECK(queue->failure()->is(hf::Errc::corrupt));
  }
}

// ---- The device and its memory

TEST_CASE("memory is registered in regions of many links, once, and goes back to the pool") {
  FakeVerbs verbs;
  auto options = options_of(verbs);
  const std::size_t half = std::size_t{16 + RdmaDevice::words} * 1024;  // of a link
  options.pool_bytes = 10 * half;
  auto device = RdmaDevice::open(options);
  const std::size_t registered = device->registered();
  for (int round = 0; round < 3; ++round) {
    std::vector<RdmaDevice::Lease> leases;
    std::set<const std::byte*> places;
    for (int i = 0; i < 10; ++i) {
      leases.push_back(device->lease());
      places.insert(leases.back().bytes().data());
    }
    CHECK(places.size() == 10);
    CHECK(device->leased() == 10 * half);
    const auto error = error_of([&] { device->lease(); });
    CHECK(error.is(hf::Errc::exhausted));
    CHECK(has(error.what(), "pool_bytes"));
  }
  CHECK(device->leased() == 0);
  CHECK(device->registered() == registered);
  CHECK(verbs.counts().memories == 1);
  device.reset();
  CHECK(verbs.counts().memories == 0);
}

TEST_CASE("a failed registration says of how much, why, and what the limit is") {
  FakeVerbs verbs;
  verbs.set([](auto& faults) { faults.registration = ENOMEM; });
  const auto error = error_of([&] { RdmaDevice::open(options_of(verbs)); });
  INFO(error.what());
  CHECK(error.code() == std::errc::not_enough_memory);
  CHECK(has(error.tried(), "register 33554432 bytes of memory with fake0"));
  CHECK(has(error.found(), "Cannot allocate memory; the limit of locked memory is "));
  CHECK(has(error.remedy(), "ulimit -l"));
}

TEST_CASE("the address that others reach best is chosen, and ports that are down are not") {
  FakeVerbs verbs;
  auto options = options_of(verbs);
  CHECK(RdmaDevice::open(options)->to_string() == "fake0 port 1, address ::ffff:10.0.0.7");
  options.address_index = 1;
  CHECK(RdmaDevice::open(options)->to_string() == "fake0 port 1, address fe80::");
  options.device = "fake0:1";
  CHECK_NOTHROW(RdmaDevice::open(options));
  options.address_index = -1;
  options.device = "10.0.0.7";  // the port that has it
  CHECK(RdmaDevice::open(options)->to_string() == "fake0 port 1, address ::ffff:10.0.0.7");
  options.device = "fe80::";
  CHECK(RdmaDevice::open(options)->to_string() == "fake0 port 1, address fe80::");
  options.device = "10.0.0.8";
  CHECK(has(error_of([&] { RdmaDevice::open(options); }).what(),
            "no port is up of fake0, with the address ::ffff:10.0.0.8"));
  options.device = "";
  CHECK(RdmaDevice::open(options, "fe80::")->to_string() == "fake0 port 1, address fe80::");
  CHECK(RdmaDevice::open(options, "10.0.0.8")->to_string() ==
        "fake0 port 1, address ::ffff:10.0.0.7");
  CHECK(RdmaDevice::open(options, "localhost")->port_number() == 1);
  options.device = "fake0:2";
  CHECK(error_of([&] { RdmaDevice::open(options); }).is(hf::Errc::unsupported));
  options.device = "other";
  CHECK(error_of([&] { RdmaDevice::open(options); }).is(hf::Errc::not_found));
  options.device = "fake0:x";
  CHECK(error_of([&] { RdmaDevice::open(options); }).is(hf::Errc::invalid_argument));
  options.device = "";
  verbs.set([](auto& faults) { faults.port_is_up = false; });
  CHECK(has(error_of([&] { RdmaDevice::open(options); }).what(), "no port is up of fake0"));
  verbs.set([](auto& faults) { faults.devices.clear(); });
  CHECK(has(error_of([&] { RdmaDevice::open(options); }).what(), "no RDMA device"));
}

TEST_CASE("options that no pair can have are refused, and a small device bounds the others") {
  FakeVerbs verbs;
  const auto refused = [&](auto change) {
    auto options = options_of(verbs);
    change(options);
    return error_of([&] { RdmaDevice::open(options); }).is(hf::Errc::invalid_argument);
  };
  CHECK(refused([](auto& options) { options.piece_bytes = 1023; }));
  CHECK(refused([](auto& options) { options.pieces = 7; }));
  CHECK(refused([](auto& options) { options.timeout = 0; }));
  CHECK(refused([](auto& options) { options.retries = 8; }));
  CHECK(refused([](auto& options) { options.pool_bytes = 1000; }));
  CHECK(net::retry_time({.timeout = 14, .retries = 7}) == 536'870'912ns);
  verbs.set([](auto& faults) { faults.queue_entries = 15; });
  CHECK(RdmaDevice::open(options_of(verbs))->requests() == 15);
}

TEST_CASE("an offer that no device could mean is refused, and any bytes are harmless") {
  RdmaOffer offer;
  offer.pair = 17;
  offer.sequence = 0xffffff;
  offer.packet_bytes = 4096;
  offer.lid = 3;
  offer.layer = net::detail::VerbsLayer::infiniband;
  offer.pieces = 64;
  offer.piece_bytes = 16 << 10;
  offer.address.fill(std::byte{7});
  const auto good = offer.encode();
  auto read = net::detail::decode_rdma_offer(good, "x");
  REQUIRE(read);
  CHECK(read->encode() == good);
  for (const std::size_t at : {0u, 12u, 19u, 23u, 24u, 30u, 32u, 37u, 43u}) {
    auto bad = good;
    bad[at] ^= std::byte{0xfe};
    INFO("byte " << at);
    CHECK(!net::detail::decode_rdma_offer(bad, "x"));
  }
  auto other = good;
  other[8] = std::byte{9};
  read = net::detail::decode_rdma_offer(other, "x");
  REQUIRE(read);
  CHECK(read->status == RdmaOffer::Status::refusal);
  CHECK(has(read->text, "version 9"));
  CHECK(!net::detail::decode_rdma_offer(std::span(good).first(255), "x"));
}

// ---- Sessions

TEST_CASE("by rdma:// every link goes through a queue pair, and all of it goes back at the end") {
  FakeVerbs verbs;
  for (const auto& [shards_here, shards_there] : {std::pair{1u, 1u}, {2u, 3u}}) {
    INFO(shards_here << " and " << shards_there << " shards");
    Node server(shards_here, with(&verbs)), client(shards_there, with(&verbs));
    const auto endpoint = server.listen("rdma://127.0.0.1:0");
    CHECK(endpoint.scheme == Scheme::rdma);
    client.connect(endpoint);
    REQUIRE(eventually([&] { return server.handler.ups == static_cast<int>(shards_here); }));
    CHECK(eventually([&] { return all_are(server, "rdma") && all_are(client, "rdma"); }));
    exchange(server, client);
  }
  const auto counts = verbs.counts();
  CHECK(counts.pairs == 0);
  CHECK(counts.queues == 0);
  CHECK(counts.memories == 0);
  CHECK(counts.stray == 0);
  CHECK(counts.full_sends == 0);
  CHECK(counts.waited_for_receive == 0);
}

TEST_CASE("auto:// uses queue pairs between hosts, and memory on one") {
  FakeVerbs verbs;
  auto elsewhere = with(&verbs);
  elsewhere.boot_id = "another host";
  Node server(1, with(&verbs)), near(1, with(&verbs)), distant(1, elsewhere);
  const auto endpoint = server.listen("auto://127.0.0.1:0");
  near.connect(endpoint);
  distant.connect(endpoint);
  CHECK(all_are(near, "shm"));
  CHECK(eventually([&] { return all_are(distant, "rdma"); }));
  exchange(server, distant);
}

TEST_CASE("whatever keeps RDMA from being set up, the link stays on TCP, and a line says why") {
  struct Case {
    const char* words;
    std::function<void(FakeVerbs::Faults&)> change;
  };
  const Case cases[] = {
      {"RDMA is off: ", [](auto& faults) { faults.registration = ENOMEM; }},
      {"this host has no RDMA device", [](auto& faults) { faults.devices.clear(); }},
      {"make a completion queue", [](auto& faults) { faults.completions = ENOMEM; }},
      {"make a queue pair", [](auto& faults) { faults.pair = EMFILE; }},
      {"connect a queue pair", [](auto& faults) { faults.connect = ENETUNREACH; }},
      {"did not meet in time", [](auto& faults) { faults.swallow = true; }},
      {"acknowledged nothing", [](auto& faults) { faults.lose = true; }},
      {"no memory to receive into", [](auto& faults) { faults.no_receives = true; }}};
  for (const Case& fault : cases) {
    for (const bool at_server : {false, true}) {
      INFO(fault.words << (at_server ? " (server)" : " (client)"));
      hf::test::CapturedLog log;
      FakeVerbs sound, faulty;
      faulty.set(fault.change);
      // Of shared receives there may be none for a while.
      for (FakeVerbs* verbs : {&sound, &faulty})
        verbs->set([](auto& faults) { faults.shared_receives = 0; });
      Node server(1, with(at_server ? &faulty : &sound)),
          client(1, with(at_server ? &sound : &faulty));
      client.connect(server.listen("rdma://127.0.0.1:0"));
      exchange(server, client);
      CHECK(all_are(server, "tcp"));
      CHECK(all_are(client, "tcp"));
      CHECK(server.handler.ups == 1);
      CHECK(server.handler.down_count + client.handler.down_count == 0);
      // Two fakes do not reach each other: so the other side's words may be those of that.
      const std::string text = log.text();
      INFO(text);
      const bool told = has(text, fault.words) || has(text, "acknowledged nothing");
      CHECK(told);
      CHECK(eventually([&] { return sound.counts().pairs + faulty.counts().pairs == 0; }));
    }
  }
}

TEST_CASE("rdma:// on a host without it is TCP, with one warning at each end") {
  hf::test::CapturedLog log;
  FakeVerbs none, one;
  none.set([](auto& faults) { faults.devices.clear(); });
  Node server(1, with(&none)), client(1, with(&one)), other(1, with(&none));
  const auto endpoint = server.listen("rdma://127.0.0.1:0");
  client.connect(endpoint);
  exchange(server, client);
  CHECK(all_are(client, "tcp"));
  const auto times = [&](const std::string& words) {
    const std::string text = log.text();
    int count = 0;
    for (auto at = text.find(words); at != text.npos; at = text.find(words, at + 1)) ++count;
    return count;
  };
  INFO(log.text());
  CHECK(times("TCP is used, for there is no RDMA here: ") == 1);
  CHECK(times("TCP is used, for the peer does not offer RDMA") == 1);
  // Who connects again and again has been told.
  for (int i = 0; i < 3; ++i) other.connect(endpoint);
  CHECK(times("TCP is used, for there is no RDMA here: ") == 2);
}

TEST_CASE("what is encrypted over TCP goes through queue pairs only if that is said on purpose") {
  const std::string secret = "a secret of both";
  for (const bool on_purpose : {false, true}) {
    hf::test::CapturedLog log;
    FakeVerbs verbs;
    auto options = with(&verbs);
    options.key = net::Key(std::as_bytes(std::span(secret)));
    options.rdma.beside_encryption = on_purpose;
    Node server(1, options), client(1, options);
    client.connect(server.listen("rdma://127.0.0.1:0"));
    const std::string expected = on_purpose ? "rdma" : "tls";
    CHECK(eventually([&] { return all_are(client, expected) && all_are(server, expected); }));
    CHECK(has(log.text(), "RDMA carries no encryption") == !on_purpose);
    exchange(server, client);
  }
}

TEST_CASE("a link whose queue pair fails goes on over TCP: each message comes once, in order",
          "[threads]") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 4; ++round) {
    FakeVerbs verbs;
    Record record;
    auto options = with(&verbs);
    options.rdma.piece_bytes = 4096;
    Node server(2, options), client(2, options);
    Talker in_server(server.handler, record, seed), in_client(client.handler, record, seed + 1000);
    client.connect(server.listen("rdma://127.0.0.1:0"));
    REQUIRE(eventually([&] { return server.handler.ups == 2; }));
    REQUIRE(eventually([&] { return all_are(server, "rdma") && all_are(client, "rdma"); }));
    std::vector<std::thread> talkers;
    const auto talk = [&](Node& from, Talker& talker, Node& to, unsigned shard,
                          std::uint64_t name) {
      talkers.emplace_back([&, shard, name, target = to.network.node_id()] {
        const auto run = [&] { return talker.talk(&from.network, target, name, 150, 2'000'000); };
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
    const int taken = static_cast<int>(random() % 200);
    eventually([&] { return in_server.told + in_client.told >= taken; });
    switch (round % 4) {
      case 0: verbs.fail_all(); break;
      case 1: verbs.set([](auto& faults) { faults.lose = true; }); break;
      case 2: verbs.set([](auto& faults) { faults.no_receives = true; }); break;
      case 3: verbs.set([](auto& faults) { faults.swallow = true; }); break;
    }
    for (auto& talker : talkers) talker.join();
    CHECK(eventually([&] {
      return in_server.told + in_client.told == record.tells + record.asks &&
             in_server.answered + in_client.answered == record.asks;
    }));
    CHECK(in_server.right);
    CHECK(in_client.right);
    CHECK(server.handler.down_count + client.handler.down_count == 0);
    CHECK(all_are(server, "tcp"));
    CHECK(all_are(client, "tcp"));
    CHECK(standing_of(client).resumes >= 1);
    CHECK(eventually([&] { return verbs.counts().pairs == 0; }));
    CHECK(verbs.counts().stray == 0);
    CHECK(verbs.counts().full_sends == 0);
  }
}

TEST_CASE("a segment of 64 MiB arrives as it was sent", "[device]") {
  auto options = with(Over::verbs());
  options.rdma.landing_bytes = 128u << 20;
  options.rdma.pool_bytes = 192u << 20;
  Node server(1, options), client(1, options);
  std::mt19937_64 random(64);
  const hf::Buffer segment = random_bytes(random, 64 << 20);
  const std::uint32_t sum = hf::crc32c(segment.bytes());
  std::atomic<int> right{0};
  server.handler.react = [&](net::Session&, Lane, net::Message message) {
    right += message.segments.count() == 1 && message.segments[0].size() == 64u << 20 &&
             hf::crc32c(message.segments[0].bytes()) == sum;
  };
  client.connect(server.listen("rdma://127.0.0.1:0"));
  REQUIRE(eventually([&] { return all_are(server, "rdma") && all_are(client, "rdma"); }));
  // The first one goes in pieces while the peer makes room for it, the second one is written there.
  for (int count = 1; count <= 2; ++count) {
    client.run([&]() -> hf::Task<void> {
      return hf::co_invoke(
          [](net::Network* network, std::uint64_t to, hf::Buffer segment) -> hf::Task<void> {
            auto session = session_with(*network, to);
            net::Message message;
            message.segments.push_back(std::move(segment));
            co_await session->send(std::move(message), Lane::bulk,
                                   hf::after(hf::timing().scaled(60s)));
          },
          &client.network, server.network.node_id(), segment);
    });
    CHECK(eventually([&] { return right == count; }, 120s));
  }
  CHECK(all_are(client, "rdma"));
}

namespace {

/// How often the next ones do what they do: so often, or as the environment says.
int rounds(int usual, int share = 1) {
  const char* const text = std::getenv("HYPERFRAMES_TEST_ROUNDS");
  return text ? std::max(std::atoi(text) / share, 1) : usual;
}

/// Of this process' device of tests, or of all devices of the host, as the kernel counts them.
int queue_pairs() {
  if (const FakeVerbs* const verbs = Over::verbs()) return verbs->counts().pairs;
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen("rdma resource show", "r"), &::pclose);
  REQUIRE(pipe);
  char line[1000] = {};
  int count = 0;
  while (std::fgets(line, sizeof line, pipe.get()))
    if (const char* const at = std::strstr(line, " qp ")) count += std::atoi(at + 4);
  return count;
}

std::ptrdiff_t descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

net::Network::Options incarnation(std::uint64_t number) {
  net::Network::Options options = slim(Over::verbs());
  options.node_id = 77;  // a peer that is started anew
  options.incarnation = number;
  return options;
}

}  // namespace

TEST_CASE("many sessions one after the other leave as many queue pairs and descriptors as before",
          "[device]") {
  Node server(1, slim(Over::verbs()));
  const auto endpoint = server.listen("rdma://127.0.0.1:0");
  const auto once = [&](int number) {
    Node client(1, incarnation(static_cast<std::uint64_t>(number) + 1));
    client.connect(endpoint);
    client.send(server.network.node_id(), "first");  // succeeds each time
    return eventually([&] { return server.handler.count == number + 1; });
  };
  REQUIRE(once(0));
  CHECK(eventually([&] { return server.handler.down_count == 1; }));
  REQUIRE(eventually([&] { return queue_pairs() <= 1; }));  // a host has one of its own
  const auto descriptors_before = descriptors();
  const int count = rounds(40);
  for (int i = 1; i < count; ++i) {
    INFO("session " << i);
    REQUIRE(once(i));
  }
  CHECK(eventually([&] { return server.handler.down_count == count; }));
  CHECK(eventually([&] { return descriptors() <= descriptors_before; }));
  CHECK(eventually([&] { return queue_pairs() <= 1; }));
}

TEST_CASE("a peer that is started anew gets the first message that it is sent", "[device]") {
  Node client(1, slim(Over::verbs()));
  std::string uri = "rdma://127.0.0.1:0";
  std::ptrdiff_t descriptors_before = 0;
  const int count = rounds(20, 10);
  for (int i = 0; i < count; ++i) {
    INFO("start " << i);
    Node server(1, incarnation(static_cast<std::uint64_t>(i) + 1));
    const auto endpoint = server.listen(uri);
    uri = endpoint.to_string();
    client.connect(endpoint);
    if (i % 2) REQUIRE(eventually([&] { return all_are(server, "rdma"); }));
    client.send(77, "first");
    REQUIRE(eventually([&] { return server.handler.count == 1; }));
    if (i == 1) descriptors_before = descriptors();
  }
  CHECK(eventually([&] { return client.handler.down_count == count; }));
  CHECK(eventually([&] { return queue_pairs() <= 1; }));
  CHECK(descriptors() <= descriptors_before);
}

TEST_CASE("peer process: serves over queue pairs", "[.][peer]") {
  if (report_descriptor() < 0) return;
  Node server(1,
              incarnation(std::strtoull(std::getenv("HYPERFRAMES_TEST_INCARNATION"), nullptr, 10)));
  server.handler.react = [](net::Session&, Lane, net::Message message) {
    report(std::string(message.body.text()));
  };
  report(server.listen(std::getenv("HYPERFRAMES_TEST_URI")).to_string());
  while (true) ::pause();
}

TEST_CASE("a peer that is killed and started again gets the first message that it is sent",
          "[device]") {
  if (Over::verbs()) return;  // one of tests is not in two processes
  Node client(1, slim(nullptr));
  std::string uri = "rdma://127.0.0.1:0";
  for (int i = 0, count = rounds(4, 100); i < count; ++i) {
    INFO("start " << i);
    Process server(
        "peer process: serves over queue pairs",
        {{"HYPERFRAMES_TEST_URI", uri}, {"HYPERFRAMES_TEST_INCARNATION", std::to_string(i + 1)}});
    uri = server.line();
    client.connect(net::Endpoint::parse(uri), 20s);
    REQUIRE(eventually([&] { return all_are(client, "rdma"); }));
    client.send(77, "first");
    REQUIRE(server.line() == "first");
    server.signal(SIGKILL);
    server.wait();
    CHECK(eventually([&] { return client.handler.down_count == i + 1; }));
  }
  CHECK(eventually([&] { return queue_pairs() <= 1; }));
}

TEST_CASE("children that are forked meanwhile take nothing away from a link", "[device]") {
  Node server(1, with(Over::verbs())), client(1, with(Over::verbs()));
  client.connect(server.listen("rdma://127.0.0.1:0"));
  REQUIRE(eventually([&] { return all_are(server, "rdma") && all_are(client, "rdma"); }));
  for (int i = 0; i < 5; ++i) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) ::_exit(0);
    exchange(server, client);
    ::waitpid(child, nullptr, 0);
    exchange(server, client);
  }
  CHECK(server.handler.down_count + client.handler.down_count == 0);
  CHECK(all_are(server, "rdma"));
}

TEST_CASE("memory that is unmapped and mapped again between messages is never sent as it was",
          "[device]") {
  Node server(1, with(Over::verbs())), client(1, with(Over::verbs()));
  std::atomic<int> right{0};
  server.handler.react = [&](net::Session&, Lane, net::Message message) {
    const std::string_view text = message.body.text();
    const char expected = static_cast<char>('a' + message.envelope.context % 26);
    right += text.find_first_not_of(expected) == text.npos && text.size() == 1u << 20;
  };
  client.connect(server.listen("rdma://127.0.0.1:0"));
  REQUIRE(eventually([&] { return all_are(server, "rdma") && all_are(client, "rdma"); }));
  constexpr int count = 40;
  client.run([&] {
    return hf::co_invoke(
        [](net::Network* network, std::uint64_t to) -> hf::Task<void> {
          auto session = session_with(*network, to);
          for (int i = 0; i < count; ++i) {
            net::Message message;
            message.envelope.context = static_cast<std::uint64_t>(i);
            message.body = hf::Buffer::heap(1 << 20);  // so large that it is mapped for itself
            std::memset(message.body.data(), 'a' + i % 26, message.body.size());
            co_await session->send(std::move(message), Lane::normal,
                                   hf::after(hf::timing().scaled(30s)));
          }
        },
        &client.network, server.network.node_id());
  });
  CHECK(eventually([&] { return right == count; }, 60s));
}

TEST_CASE("where little memory may be locked, one line says so", "[device]") {
  if (Over::verbs()) return;  // of a device of the host only: others lock none
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit little{64 << 10, 64 << 10};
    std::string text = "it went well";
    if (::setrlimit(RLIMIT_MEMLOCK, &little) != 0 || ::setuid(65534) != 0) ::_exit(1);
    try {
      RdmaDevice::open({});
    } catch (const hf::Error& error) {
      text = error.what();
    }
    [[maybe_unused]] const auto written = ::write(ends[1], text.data(), text.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  char text[1000] = {};
  [[maybe_unused]] const auto got = ::read(ends[0], text, sizeof text - 1);
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  INFO(text);
  CHECK(has(text, "register 33554432 bytes of memory with "));
  CHECK(has(text, "Cannot allocate memory; the limit of locked memory is 64 KiB"));
}
