// Receives that links have in common: what they cost, and what becomes of who finds none.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <hyperframes/net/rdma/receives.hpp>
#include <random>

#include "../runtime/captured_log.hpp"
#include "error_of.hpp"
#include "rdma_ends.hpp"

using namespace net_test;

namespace {

/// Of two links, whatever comes.
net::RdmaOptions sharing(FakeVerbs& verbs) {
  net::RdmaOptions options = options_of(verbs);
  options.shared_pieces = 2 * (16 + RdmaDevice::words);
  options.pool_bytes = 8u << 20;
  return options;
}

}  // namespace

TEST_CASE("links that share receives take memory for few, and each gets its own bytes") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  FakeVerbs verbs;
  {
    const auto device = RdmaDevice::open(sharing(verbs));
    const auto receives = device->receives(0);
    REQUIRE(receives);
    constexpr std::size_t count = 8;
    std::vector<std::unique_ptr<QueueEnds>> links;
    for (std::size_t i = 0; i < count; ++i) links.push_back(std::make_unique<QueueEnds>(device));
    CHECK(receives->count() == 40);
    CHECK(device->leased() == (2 * count + 2) * 20 * 1024);
    std::vector<std::string> sent(count), received(count);
    for (int round = 0; round < 2000; ++round) {
      const std::size_t i = random() % count;
      const std::string text(1 + random() % 3000, static_cast<char>('a' + random() % 26));
      sent[i] += text.substr(0, send_some(*links[i]->near, text));
      if (random() % 3) receive_into(received[i], *links[i]->far);
      (void)links[i]->near->next();
    }
    for (int round = 0; round < 50; ++round)
      for (std::size_t i = 0; i < count; ++i) {
        receive_into(received[i], *links[i]->far);
        (void)links[i]->near->next();
      }
    for (std::size_t i = 0; i < count; ++i) {
      CHECK(received[i] == sent[i]);
      CHECK(!links[i]->near->failure());
      CHECK(!links[i]->far->failure());
    }
    CHECK(verbs.shared_receives() == 40);
  }
  CHECK(verbs.counts().full_receives == 0);
  CHECK(verbs.counts().stray == 0);
  CHECK(verbs.counts().shared_queues == 0);
  CHECK(verbs.counts().memories == 0);
}

TEST_CASE("where all shared receives are taken senders wait, and lose nothing") {
  FakeVerbs verbs;
  const auto device = RdmaDevice::open(sharing(verbs));
  std::vector<std::unique_ptr<QueueEnds>> links;
  for (int i = 0; i < 4; ++i) links.push_back(std::make_unique<QueueEnds>(device));
  const std::string text(16 * 1024, 'q');
  for (auto& link : links) CHECK(send_some(*link->near, text) == text.size());
  CHECK(verbs.shared_receives() == 0);  // 64 pieces want 40 receives
  CHECK(verbs.counts().waited_for_receive > 0);
  std::vector<std::string> received(links.size());
  for (int round = 0; round < 10; ++round)
    for (std::size_t i = 0; i < links.size(); ++i) receive_into(received[i], *links[i]->far);
  for (std::size_t i = 0; i < links.size(); ++i) {
    CHECK(received[i] == text);
    CHECK(!links[i]->near->next());  // what the far end gives back, which took receives too
    CHECK(!links[i]->near->failure());
  }
  CHECK(verbs.shared_receives() == 40);
}

TEST_CASE("links that end with messages nobody looked at take no receives away from the others") {
  FakeVerbs verbs;
  const auto device = RdmaDevice::open(sharing(verbs));
  QueueEnds stays(device);
  for (int i = 0; i < 100; ++i) {
    QueueEnds goes(device);
    send_some(*goes.near, std::string(5000, 'g'));
    if (i % 3 == 0) (void)goes.far->next();  // handed out, and never given back
    if (i % 3 == 1) goes.far->end();
    if (i % 5 == 0) verbs.set([](auto& faults) { faults.lose = true; });
    send_some(*goes.near, "lost");
    verbs.set([](auto& faults) { faults.lose = false; });
  }
  // All but those that somebody was handed.
  CHECK(verbs.shared_receives() + 34 == 40);
}

TEST_CASE("a device that shares no receives has links with their own") {
  const bool fails = GENERATE(true, false);
  hf::test::CapturedLog log;
  FakeVerbs verbs;
  verbs.set([&](auto& faults) {
    if (fails) faults.receives = ENOMEM;
    if (!fails) faults.shared_receives = 10;
  });
  const auto device = RdmaDevice::open(sharing(verbs));
  CHECK(!device->receives(0));
  CHECK(!device->receives(0));
  QueueEnds ends(device);
  std::string received;
  CHECK(send_some(*ends.near, "as ever") == 7);
  receive_into(received, *ends.far);
  CHECK(received == "as ever");
  CHECK(!ends.near->offer().shares_receives);
  CHECK(has(log.text(), "each RDMA link has receives of its own") == fails);
}

TEST_CASE(
    "each core shard has receives of its own, made with its first link and gone with the last") {
  FakeVerbs verbs;
  const auto device = RdmaDevice::open(sharing(verbs));
  {
    const auto here = RdmaQueue::create(device, 0), there = RdmaQueue::create(device, 1);
    CHECK(verbs.counts().shared_queues == 2);
    CHECK(here->offer().shares_receives);
    CHECK(device->receives(0) != device->receives(1));
    CHECK(device->receives(1) == device->receives(1));
  }
  CHECK(verbs.counts().shared_queues == 0);
  CHECK(device->leased() == 0);
}

TEST_CASE("a pool that is used up leaves links to share what there is") {
  FakeVerbs verbs;
  auto options = sharing(verbs);
  options.pool_bytes = 4 * 20 * 1024;  // two that send, and what one receives into twice
  const auto device = RdmaDevice::open(options);
  const auto first = RdmaQueue::create(device), second = RdmaQueue::create(device);
  CHECK(device->receives(0)->count() == 40);
  CHECK(error_of([&] { RdmaQueue::create(device); }).is(hf::Errc::exhausted));
}
