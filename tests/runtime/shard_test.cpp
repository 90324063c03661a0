#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <hyperframes/runtime/call_on.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/local_channel.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <string>
#include <thread>
#include <vector>

#include "captured_log.hpp"
#include "manual.hpp"

using namespace hyperframes;
using test::Manual;

namespace {

/// Work that calls a function each time it is run.
struct Item : detail::Work {
  explicit Item(std::function<void()> act = {}) : Work(&Item::run), act(std::move(act)) {}
  static void run(Work* work) noexcept {
    auto* self = static_cast<Item*>(work);
    if (self->act) self->act();
  }
  std::function<void()> act;
};

Task<void> ping(LocalChannel<int>& out, LocalChannel<int>& in, bool& stop, std::uint64_t& rounds) {
  while (!stop) {
    co_await out.send(1);
    if (!co_await in.receive()) break;
    ++rounds;
  }
  out.close();
}

Duration cpu_time() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  auto span = [](const timeval& time) {
    return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
  };
  return span(usage.ru_utime) + span(usage.ru_stime);
}

}  // namespace

TEST_CASE("a pair that plays ping-pong starves no timer, no other task and no system task") {
  Manual manual;
  LocalChannel<int> there(1), back(1);
  bool stop = false;
  std::uint64_t rounds = 0, others = 0, ticks = 0, heartbeats = 0;
  manual.spawn([&] { return ping(there, back, stop, rounds); });
  manual.spawn([&] { return ping(back, there, stop, rounds); });
  auto count = [](std::uint64_t& counter, bool& stop) -> Task<void> {
    while (!stop) {
      ++counter;
      co_await yield();
    }
  };
  auto tick = [](std::uint64_t& counter, bool& stop) -> Task<void> {
    while (!stop) {
      co_await sleep_for(1ms);
      ++counter;
    }
  };
  manual.spawn([&] { return count(others, stop); });
  manual.spawn([&] { return tick(ticks, stop); });
  manual.spawn([&] { return tick(heartbeats, stop); }, Group::system);
  for (int i = 0; i < 100; ++i) {
    manual.let_pass(2ms);
    manual.turn();
  }
  CHECK(rounds > 1000);
  CHECK(others > 1000);
  CHECK(ticks >= 95);
  CHECK(heartbeats >= 95);
  stop = true;
  manual.advance(10ms);
}

TEST_CASE("what the users' work leaves to the system group is done in the same turn") {
  Manual manual;
  std::vector<int> order;
  Item follows([&] { order.push_back(3); });
  Item user([&] {
    order.push_back(2);
    manual.shard().schedule(&follows, Group::system);
  });
  Item first([&] { order.push_back(1); });
  manual.on(0, [&] {
    manual.shard().schedule(&user);
    manual.shard().schedule(&first, Group::system);
  });
  CHECK_FALSE(manual.turn());
  CHECK(order == std::vector{1, 2, 3});
}

TEST_CASE("a backlog of 700,000 items holds up neither timers nor the system group") {
  test::CapturedLog log;
  Manual manual;
  std::vector<Item> backlog(700'000);
  std::uint64_t ran = 0;
  for (auto& item : backlog) item.act = [&ran] { ++ran; };
  manual.on(0, [&] {
    for (auto& item : backlog) manual.shard().schedule(&item);
  });
  std::uint64_t fired = 0, system_ran = 0;
  struct Tick : Timer {
    explicit Tick(std::uint64_t& fired) : Timer(&Tick::run), fired(fired) {}
    static void run(Timer& self) noexcept { ++static_cast<Tick&>(self).fired; }
    std::uint64_t& fired;
  } timer(fired);
  Item system([&] { ++system_ran; });
  for (std::uint64_t turn = 1; turn <= 20; ++turn) {
    manual.on(0, [&] {
      manual.shard().start_timer(timer, manual.now() + 10us);
      manual.shard().schedule(&system, Group::system);
    });
    manual.let_pass(1ms);
    CHECK(manual.turn());
    CHECK(fired == turn);
    CHECK(system_ran == turn);
    CHECK(ran <= turn * 512);
  }
  // The backlog is reported by what it consists of, and counted.
  CHECK(log.text().find("backlog of") != std::string::npos);
  CHECK(log.text().find("work that is no coroutine") != std::string::npos);
  manual.settle();
  CHECK(ran == 700'000);
  // Once, not each turn.
  CHECK(std::ranges::count(log.text(), '\n') < 10);
}

TEST_CASE("a backlog names the lines at which its coroutines go on") {
  test::CapturedLog log;
  Manual manual;
  Event event;
  auto wait = [](Event& event) -> Task<void> { co_await event.wait(); };
  for (int i = 0; i < 300; ++i) manual.spawn([&] { return wait(event); });
  manual.settle();
  manual.on(0, [&] { event.set(); });
  for (int i = 0; i < 7; ++i) manual.spawn([&] { return wait(event); });
  const auto backlog = manual.on(0, [&] { return manual.shard().backlog(); });
  REQUIRE(backlog.size() == 2);
  CHECK(backlog[0].count == 300);
  CHECK(backlog[0].where.find("shard_test.cpp:") != std::string::npos);
  CHECK(backlog[1].count == 7);
  const std::string dump = manual.on(0, [&] { return manual.shard().dump(); });
  CHECK(dump.find("ready: 300 x ") != std::string::npos);
  manual.settle();
}

TEST_CASE("slow items of one group hold a turn up by a few of them, not by dozens") {
  Manual manual;
  int slow = 0;
  std::vector<Item> items(100);
  for (auto& item : items)
    item.act = [&] {
      ++slow;
      manual.let_pass(10ms);
    };
  manual.on(0, [&] {
    for (auto& item : items) manual.shard().schedule(&item);
  });
  manual.turn();
  CHECK(slow <= 2);
  manual.settle();
  CHECK(slow == 100);
}

TEST_CASE("a producer on another shard waits when the consumer's shard is behind") {
  Manual manual(2, {.ring_capacity = 64, .turn_work_limit = 8});
  int sent = 0, ran = 0;
  bool stop = false;
  manual.spawn([&] {
    return co_invoke([&]() -> Task<void> {
      struct Count : detail::Work {
        explicit Count(int& ran) : Work(&Count::run), ran(ran) {}
        static void run(Work* work) noexcept {
          std::unique_ptr<Count> self(static_cast<Count*>(work));
          ++self->ran;
        }
        int& ran;
      };
      while (!stop) {
        co_await ring_room(manual.shard(1));
        manual.shard(1).post(new Count(ran));
        if (++sent % 16 == 0) co_await yield();
      }
    });
  });
  std::size_t largest = 0;
  for (int round = 0; round < 2000; ++round) {
    for (int i = 0; i < 4; ++i) manual.turn(0);
    manual.let_pass(200us);
    manual.turn(1);
    largest = std::max(largest, manual.on(1, [&] { return manual.shard(1).load().ready_user; }));
  }
  CHECK(sent - ran <= 1024 + 64 + 64);
  CHECK(largest <= 1024 + 64);
  CHECK(ran > 10'000);
  stop = true;
  for (int i = 0; i < 1000; ++i) manual.advance(1ms);
  CHECK(sent == ran);
}

TEST_CASE("a shard's own backlog does not shut other shards out") {
  Manual manual(3, {.turn_work_limit = 64});
  bool stop = false;
  auto spin = [](bool& stop) -> Task<void> {
    while (!stop) co_await yield();
  };
  for (int i = 0; i < 5000; ++i) manual.spawn([&] { return spin(stop); });
  int answered = 0;
  for (unsigned from : {1u, 2u}) {
    for (int i = 0; i < 100; ++i)
      manual.spawn(
          [&] {
            return co_invoke([&]() -> Task<void> {
              co_await call_on(manual.shard(0), [] {});
              ++answered;
            });
          },
          Group::user, from);
  }
  for (int i = 0; i < 1000; ++i) {
    manual.let_pass(100us);
    for (unsigned shard = 0; shard < 3; ++shard) manual.turn(shard);
  }
  CHECK(answered == 200);
  stop = true;
  manual.settle();
}

TEST_CASE("system work passes a ring that is full of user work") {
  Manual manual(2, {.ring_capacity = 16, .turn_work_limit = 4});
  std::vector<Item> items(200);
  int ran = 0;
  for (auto& item : items) item.act = [&ran] { ++ran; };
  bool system_ran = false;
  Item system([&] { system_ran = true; });
  manual.on(0, [&] {
    for (auto& item : items) manual.shard(1).post(&item);
    CHECK_FALSE(manual.shard(1).has_ring_room());
    CHECK(manual.shard(1).has_ring_room(Group::system));
    manual.shard(1).post(&system, Group::system);
  });
  manual.turn(1);
  CHECK(system_ran);
  CHECK(ran <= 4);
  manual.settle();
  CHECK(ran == 200);
}

TEST_CASE("a doorbell is rung once a turn for a shard that sleeps, and not for one that is awake") {
  Manual manual(2);
  std::vector<Item> items(10);
  manual.on(0, [&] {
    for (auto& item : items) manual.shard(1).post(&item);
  });
  manual.turn(0);
  CHECK(manual.reactor(1).wakes == 0);
  manual.settle();
}

TEST_CASE("work from many foreign threads reaches sleeping shards, all of it") {
  Runtime runtime({.shards = 2});
  constexpr int threads = 4, each = 500;
  std::atomic<int> ran{0};
  std::vector<std::thread> senders;
  for (int t = 0; t < threads; ++t)
    senders.emplace_back([&, t] {
      struct Count : detail::Work {
        explicit Count(std::atomic<int>& ran) : Work(&Count::run), ran(ran) {}
        static void run(Work* work) noexcept {
          std::unique_ptr<Count> self(static_cast<Count*>(work));
          ++self->ran;
        }
        std::atomic<int>& ran;
      };
      for (int i = 0; i < each; ++i) {
        runtime.shard(static_cast<unsigned>(i + t) % 2).post(new Count(ran));
        // Now and then long enough for the shards to fall asleep.
        if (i % 50 == 0) std::this_thread::sleep_for(std::chrono::microseconds(700));
      }
    });
  for (auto& sender : senders) sender.join();
  while (ran < threads * each) std::this_thread::yield();
  CHECK(ran == threads * each);
}

TEST_CASE("shards that call each other now and then are always woken") {
  Runtime runtime({.shards = 2});
  auto body = [](Runtime& runtime) -> Task<int> {
    int sum = 0;
    for (int i = 0; i < 300; ++i) {
      // From just awake to long asleep.
      if (i % 3) co_await sleep_for(Duration(i * 2000));
      sum += co_await call_on(runtime.shard(1), [] { return 1; });
    }
    co_return sum;
  };
  CHECK(runtime.run(body) == 300);
}

TEST_CASE("an idle runtime uses almost no processor time") {
  Runtime runtime({.shards = 2});
  // Also with tasks that wait, with and without deadlines that are far away.
  runtime.on_every_shard([](Shard& shard) {
    shard.spawn(co_invoke([]() -> Task<void> {
      Event never;
      auto wait = [](Event& event) -> Task<void> { co_await event.wait(); };
      co_await with_deadline(wait(never), no_deadline);
    }));
    shard.spawn(co_invoke([]() -> Task<void> { co_await sleep_for(24h); }));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  // The promise is 1 %. The best of a few seconds counts: a busy machine charges some of its own
  // work to whoever runs.
  const Duration promised = timing().scaled(10ms);
  Duration best = 1h;
  for (int attempt = 0; attempt < 10 && best >= promised; ++attempt) {
    const Duration before = cpu_time();
    std::this_thread::sleep_for(std::chrono::seconds(1));
    best = std::min(best, cpu_time() - before);
  }
  CHECK(best < promised);
  CHECK(runtime.stop(timing().scaled(5s)).clean);
}

TEST_CASE("a turn that lasts too long is reported with the line that it is stuck at") {
  test::CapturedLog log;
  Runtime runtime({.shards = 1, .stall_threshold = 20ms});
  auto wait_for_report = [&](std::uint64_t wanted) {
    while (runtime.stall_count() < wanted)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  runtime.run([&](Runtime&) -> Task<void> {
    co_await yield();
    const auto wanted = runtime.stall_count() + 1;
    wait_for_report(wanted);
  });
  CHECK(log.text().find("shard 0 has been in one turn for") != std::string::npos);
  CHECK(log.text().find("shard_test.cpp:") != std::string::npos);
  CHECK(log.text().find("hf::offload") != std::string::npos);
}

TEST_CASE("a stuck call from another shard is reported with the line of the call") {
  test::CapturedLog log;
  Runtime runtime({.shards = 2, .stall_threshold = 20ms});
  runtime.run([&](Runtime& runtime) -> Task<void> {
    co_await call_on(runtime.shard(1), [&runtime] {
      while (runtime.stall_count() < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  });
  CHECK(log.text().find("shard 1 has been in one turn for") != std::string::npos);
  CHECK(log.text().find("shard_test.cpp:") != std::string::npos);
}

TEST_CASE("who is told of a completion sees the time of that turn, however long the shard slept") {
  struct Clocked final : Completion {
    void on_complete(Operation&, std::int64_t, bool) noexcept override { told = Clock::now(); }
    Time told{};
  } clocked;
  Manual manual;
  manual.settle();
  manual.on(0, [&] {
    Operation* operation = Operation::create(Operation::Kind::receive, 0);
    operation->owner = &clocked;
    manual.shard().reactor().start(operation);
  });
  manual.let_pass(10s);
  manual.reactor().complete(manual.reactor().started.at(0), 0);
  manual.turn();
  CHECK(clocked.told == manual.now());
}

TEST_CASE("a dump follows a task into the scopes that it waits for") {
  Manual manual;
  Event never;
  auto leaf = [](Event& never) -> Task<void> { co_await never.wait(); };
  manual.spawn([&] {
    return co_invoke([&]() -> Task<void> {
      co_await when_all(leaf(never), co_invoke([&]() -> Task<void> {
                          Scope scope;
                          for (int i = 0; i < 20; ++i) scope.spawn(leaf(never));
                          co_await scope.join();
                        }));
    });
  });
  manual.settle();
  const std::string dump = manual.on(0, [&] { return manual.shard().dump(); });
  CHECK(dump.find("{2 tasks: ") != std::string::npos);
  CHECK(dump.find("{20 tasks: ") != std::string::npos);
  CHECK(dump.find("...}") != std::string::npos);
  manual.on(0, [&] { never.set(); });
  manual.settle();
}

namespace {

/// What each of these groups, each with a backlog that never ends, has run after some turns.
std::vector<std::uint64_t> shares_of(Manual& manual, const std::vector<Group>& groups, int turns,
                                     std::uint64_t* system_ran = nullptr) {
  std::vector<std::uint64_t> ran(groups.size());
  bool stop = false;
  auto work = [](std::uint64_t& counter, bool& stop) -> Task<void> {
    while (!stop) {
      ++counter;
      co_await yield();
    }
  };
  for (std::size_t i = 0; i < groups.size(); ++i)
    for (int task = 0; task < 8; ++task)
      manual.spawn([&, i] { return work(ran[i], stop); }, groups[i]);
  for (int i = 0; i < turns; ++i) {
    Item system([&] { *system_ran += 1; });
    if (system_ran) manual.on(0, [&] { manual.shard().schedule(&system, Group::system); });
    manual.let_pass(1ms);
    manual.turn();
  }
  auto result = ran;
  stop = true;
  manual.settle();
  return result;
}

Shard::Options with_groups() {
  Shard::Options options;
  options.user_shares = 100;
  options.groups = {{"serving", 600}, {"batch", 300}};
  return options;
}

}  // namespace

TEST_CASE("groups that are busy together get what their shares say, and starve no system work") {
  Manual manual(1, with_groups());
  std::uint64_t system_ran = 0;
  const auto ran = shares_of(
      manual, {Group::user, manual.runtime().group("serving"), manual.runtime().group("batch")},
      1000, &system_ran);
  const double all = static_cast<double>(ran[0] + ran[1] + ran[2]);
  CHECK(std::abs(static_cast<double>(ran[0]) / all - .1) < .02);
  CHECK(std::abs(static_cast<double>(ran[1]) / all - .6) < .02);
  CHECK(std::abs(static_cast<double>(ran[2]) / all - .3) < .02);
  CHECK(system_ran == 1000);
}

TEST_CASE("a group alone gets the whole shard, and one that was idle has saved nothing up") {
  Manual manual(1, with_groups());
  const Group batch = manual.runtime().group("batch");
  const auto alone = shares_of(manual, {batch}, 1000);
  const auto user = shares_of(manual, {Group::user}, 1000);
  CHECK(alone[0] == user[0]);
  // After a long time alone, a group is not made to wait for those that had no work then.
  const auto both = shares_of(manual, {batch, Group::user}, 1000);
  const double part = static_cast<double>(both[0]) / static_cast<double>(both[0] + both[1]);
  CHECK(std::abs(part - .75) < .03);
}

TEST_CASE("shares count by their ratio only, however large or small they are") {
  for (const std::uint32_t unit : {1u, 1'000u, 333'333u}) {
    Shard::Options options;
    options.user_shares = unit;
    options.groups = {{"serving", 3 * unit}};
    Manual manual(1, options);
    const auto ran = shares_of(manual, {Group::user, manual.runtime().group("serving")}, 1000);
    const double part = static_cast<double>(ran[1]) / static_cast<double>(ran[0] + ran[1]);
    CHECK(std::abs(part - .75) < .03);
  }
}

TEST_CASE("a group that is unknown, doubled, without shares or one too many is refused by name") {
  Manual manual(1, with_groups());
  CHECK(manual.runtime().group("user") == Group::user);
  try {
    manual.runtime().group("absent");
    FAIL("it was found");
  } catch (const Error& error) {
    CHECK(error.is(Errc::not_found));
    CHECK(error.found() == "there are system, user, serving, batch");
  }
  const auto refused = [](std::vector<GroupOptions> groups) {
    Shard::Options options;
    options.groups = std::move(groups);
    CHECK_THROWS_AS(Manual(1, options), Error);
  };
  refused({{"user", 1}});
  refused({{"one", 1}, {"one", 2}});
  refused({{"", 1}});
  refused({{"one", 0}});
  refused({{"one", 1'000'001}});
  refused({{"1"}, {"2"}, {"3"}, {"4"}, {"5"}, {"6"}, {"7"}});
}
