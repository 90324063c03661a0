#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/runtime/detail/inbox.hpp>
#include <memory>
#include <random>
#include <thread>
#include <vector>

using namespace hyperframes;
using detail::ForeignInbox;
using detail::Work;
using detail::WorkQueue;
using detail::WorkRing;

namespace {

struct Item : Work {
  Item() : Work(nullptr) {}
  unsigned sender = 0;
  unsigned number = 0;
};

std::vector<Work*> take_all(WorkQueue& queue) {
  std::vector<Work*> all;
  while (Work* work = queue.pop()) all.push_back(work);
  return all;
}

}  // namespace

TEST_CASE("a work queue keeps order and count, and unlinks from anywhere") {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  WorkQueue queue;
  std::vector<Work*> model;
  std::vector<Item> items(50);
  std::vector<Item*> idle;
  for (Item& item : items) idle.push_back(&item);
  for (int step = 0; step < 5000; ++step) {
    switch (random() % 3) {
      case 0:
        if (idle.empty()) break;
        queue.push(idle.back());
        model.push_back(idle.back());
        idle.pop_back();
        break;
      case 1: {
        Work* got = queue.pop();
        CHECK(got == (model.empty() ? nullptr : model.front()));
        if (!got) break;
        idle.push_back(static_cast<Item*>(got));
        model.erase(model.begin());
        break;
      }
      default: {
        if (model.empty()) break;
        const auto at = model.begin() + static_cast<std::ptrdiff_t>(random() % model.size());
        queue.remove(*at);
        idle.push_back(static_cast<Item*>(*at));
        model.erase(at);
      }
    }
    CHECK(queue.size() == model.size());
    CHECK(queue.empty() == model.empty());
    std::size_t count = 0;
    queue.for_each([&](const Work& work) { count += &work == model[count]; });
    CHECK(count == model.size());
  }
  CHECK(take_all(queue) == model);
}

TEST_CASE("a ring takes what fits, in order, and no more") {
  WorkRing ring(5);  // rounded up to 8
  std::vector<Item> items(20);
  std::size_t pushed = 0;
  while (ring.push(&items[pushed], pushed % 2)) ++pushed;
  CHECK(pushed == 8);
  CHECK_FALSE(ring.has_room());
  WorkQueue queues[2];
  CHECK(ring.drain(queues, 3) == 3);
  CHECK(ring.has_room());
  for (int i = 0; i < 3; ++i) CHECK(ring.push(&items[pushed++], 0));
  CHECK_FALSE(ring.push(&items[pushed], 0));
  std::size_t drained = 0;
  while (!ring.empty()) drained += ring.drain(queues, 100);
  CHECK(drained == 8);
  CHECK(ring.empty());
  std::vector<Work*> even, odd;
  for (std::size_t i = 0; i < pushed; ++i) (i < 8 && i % 2 ? odd : even).push_back(&items[i]);
  CHECK(take_all(queues[0]) == even);
  CHECK(take_all(queues[1]) == odd);
}

TEST_CASE("a ring between two threads loses nothing and keeps order") {
  constexpr unsigned count = 100'000;
  WorkRing ring(64);
  std::vector<Item> items(count);
  std::thread producer([&] {
    for (unsigned i = 0; i < count; ++i) {
      items[i].number = i;  // plain memory: the ring has to hand it over
      while (!ring.push(&items[i], i & 1)) std::this_thread::yield();
    }
  });
  unsigned seen = 0, next[2] = {0, 1};
  bool ordered = true;
  while (seen < count) {
    WorkQueue queues[2];
    if (ring.drain(queues, 16) == 0) std::this_thread::yield();
    for (unsigned group = 0; group < 2; ++group) {
      while (Work* work = queues[group].pop()) {
        ordered &= static_cast<Item*>(work)->number == next[group];
        next[group] += 2;
        ++seen;
      }
    }
  }
  producer.join();
  CHECK(ordered);
  CHECK(ring.empty());
}

TEST_CASE("an inbox from many threads loses nothing and keeps each sender's order") {
  constexpr unsigned senders = 4, count = 20'000;
  ForeignInbox inbox;
  std::vector<std::vector<Item>> items(senders);
  for (auto& list : items) list = std::vector<Item>(count);
  std::vector<std::thread> threads;
  for (unsigned s = 0; s < senders; ++s)
    threads.emplace_back([&, s] {
      for (unsigned i = 0; i < count; ++i) {
        items[s][i].sender = s;
        items[s][i].number = i;
        inbox.push(&items[s][i]);
      }
    });
  std::vector<unsigned> next(senders);
  unsigned seen = 0;
  bool ordered = true;
  while (seen < senders * count) {
    WorkQueue queue;
    inbox.drain(queue);
    if (queue.empty()) std::this_thread::yield();
    while (Work* work = queue.pop()) {
      auto& item = *static_cast<Item*>(work);
      ordered &= item.number == next[item.sender]++;
      ++seen;
    }
  }
  for (auto& thread : threads) thread.join();
  CHECK(ordered);
  CHECK(inbox.empty());
}

TEST_CASE("a closed inbox gives out what it had and takes nothing more") {
  ForeignInbox inbox;
  Item first, second, late;
  CHECK(inbox.push(&first));
  CHECK(inbox.push(&second));
  WorkQueue queue;
  inbox.close(queue);
  CHECK_FALSE(inbox.push(&late));
  CHECK(inbox.empty());
  CHECK(take_all(queue) == std::vector<Work*>{&first, &second});
  inbox.drain(queue);
  inbox.close(queue);
  CHECK(queue.empty());
}

TEST_CASE("an inbox that is closed while others push loses nothing") {
  constexpr unsigned senders = 3, count = 20'000;
  ForeignInbox inbox;
  std::vector<std::vector<Item>> items(senders);
  for (auto& list : items) list = std::vector<Item>(count);
  std::atomic<unsigned> refused{0};
  std::vector<std::thread> threads;
  for (unsigned s = 0; s < senders; ++s)
    threads.emplace_back([&, s] {
      for (Item& item : items[s]) refused += !inbox.push(&item);
    });
  std::this_thread::sleep_for(std::chrono::microseconds(500));
  WorkQueue queue;
  inbox.close(queue);
  for (auto& thread : threads) thread.join();
  CHECK(take_all(queue).size() + refused == senders * count);
}
