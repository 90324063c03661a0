#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/net/flow_control.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <memory>
#include <vector>

#include "support.hpp"

using namespace hf::net;

namespace {

struct Owner final : ReceiveAccount::Owner {
  void on_credit_owed() noexcept override { ++owed; }
  void on_reply_room() noexcept override { ++rooms; }
  int owed = 0, rooms = 0;
};

struct Waiting final : ReceiveBudget::Waiting {
  explicit Waiting(std::uint64_t size) { bytes = size; }
  void on_granted() noexcept override { granted = true; }
  bool granted = false;
};

/// Runs on a shard, where accounts and buffers belong.
void on_shard(void (*body)()) {
  hf::Runtime::Options options;
  options.shards = 1;
  hf::Runtime runtime(options);
  runtime.run([body](hf::Runtime&) {
    return hf::co_invoke(
        [](void (*body)()) -> hf::Task<void> {
          body();
          co_return;
        },
        body);
  });
}

}  // namespace

TEST_CASE("a budget grants in the order of asking, and nobody overtakes a large one that waits") {
  ReceiveBudget budget(100);
  Waiting first(70), second(50), third(10);
  budget.wait(first);
  CHECK(first.granted);
  budget.wait(second);
  budget.wait(third);
  CHECK_FALSE(second.granted);
  CHECK_FALSE(third.granted);
  budget.give_back(70);
  CHECK(second.granted);
  CHECK(third.granted);
  CHECK(budget.free() == 40);
}

TEST_CASE("what a channel holds is no credit of its lane's, as long as the budget has room") {
  on_shard([] {
    const auto budget = std::make_shared<ReceiveBudget>(16u << 20);
    Owner owner;
    const auto account = ReceiveAccount::open(budget, owner);
    const std::uint64_t free = budget->free(), cost = account->window(Lane::normal) / 2;
    REQUIRE(account->charge(Lane::normal, cost));
    REQUIRE(account->move_to_budget(Lane::normal, cost) == ReceiveAccount::Charge::granted);
    CHECK(owner.owed == 1);
    CHECK(account->take_owed(Lane::normal) == cost);
    CHECK(account->used(Lane::normal) == 0);
    CHECK(budget->free() == free - cost);
    hf::Buffer held = account->allocate(ReceiveAccount::Charge::granted, cost, 100);
    held.reset();
    CHECK(budget->free() == free);

    // What is kept for the windows of new peers is not for that.
    const std::uint64_t rest = budget->free() - budget->free_for_windows();
    REQUIRE(budget->try_take(rest));
    REQUIRE(account->charge(Lane::normal, cost));
    CHECK(account->move_to_budget(Lane::normal, cost) == ReceiveAccount::Charge::normal);
    CHECK(account->used(Lane::normal) == cost);
    CHECK(account->take_owed(Lane::normal, true) == 0);
    account->allocate(ReceiveAccount::Charge::normal, cost, 100).reset();
    CHECK(account->take_owed(Lane::normal, true) == cost);
    budget->give_back(rest);
    account->close();
  });
}

TEST_CASE("whatever is granted, there is room for the windows of a new peer") {
  ReceiveBudget budget(64u << 20);
  std::vector<std::unique_ptr<Waiting>> granted;
  do {
    granted.push_back(std::make_unique<Waiting>(5u << 20));
    budget.wait(*granted.back());
  } while (granted.back()->granted);
  CHECK(ReceiveAccount::is_possible(budget));
  CHECK(budget.free_for_windows() == 16u << 20);
  // And the largest that may be asked for can be granted.
  for (const auto& one : granted)
    if (one->granted) budget.give_back(one->bytes);
  granted.clear();
  Waiting largest(budget.largest_grant());
  budget.wait(largest);
  CHECK(largest.granted);
}

TEST_CASE("a budget forgets who no longer waits") {
  ReceiveBudget budget(100);
  Waiting first(70), third(10);
  budget.wait(first);
  {
    Waiting second(75);
    budget.wait(second);
    budget.wait(third);
    CHECK_FALSE(third.granted);
  }
  budget.give_back(10);
  CHECK(third.granted);
}

TEST_CASE(
    "credit returns when the last buffer of a message is destroyed, not when it is handed over") {
  on_shard([] {
    auto budget = std::make_shared<ReceiveBudget>(64u << 20);
    Owner owner;
    auto account = ReceiveAccount::open(budget, owner);
    const std::uint64_t window = account->window(Lane::normal);
    const std::uint64_t cost = credit_cost(window / 2);
    REQUIRE(account->charge(Lane::normal, cost));
    hf::Buffer whole = account->allocate(ReceiveAccount::Charge::normal, cost, window / 2);
    hf::Buffer part = whole.slice(100, 10);
    whole = {};
    CHECK(account->take_owed(Lane::normal) == 0);
    CHECK(account->used(Lane::normal) == cost);
    part = {};
    CHECK(owner.owed == 1);
    CHECK(account->take_owed(Lane::normal) == cost);
    CHECK(account->used(Lane::normal) == 0);
    account->close();
    CHECK(budget->free() == budget->total());
  });
}

TEST_CASE("a peer can't be charged beyond its window") {
  on_shard([] {
    auto budget = std::make_shared<ReceiveBudget>(64u << 20);
    Owner owner;
    auto account = ReceiveAccount::open(budget, owner);
    const std::uint64_t window = account->window(Lane::bulk);
    CHECK(account->charge(Lane::bulk, window));
    CHECK_FALSE(account->charge(Lane::bulk, 1));
    CHECK(account->charge(Lane::normal, 64));  // lanes are apart
    account->close();
  });
}

TEST_CASE("memory of a received message is aligned to 64 bytes, small or large") {
  on_shard([] {
    auto budget = std::make_shared<ReceiveBudget>(64u << 20);
    Owner owner;
    auto account = ReceiveAccount::open(budget, owner);
    for (std::size_t size : {1, 63, 64, 65, 1000, 1536, 1537, 5000, 100'000}) {
      const auto buffer = account->allocate(ReceiveAccount::Charge::normal, 0, size);
      CHECK(buffer.size() == size);
      CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64 == 0);
    }
    account->close();
  });
}

TEST_CASE("buffers may outlive their link; what they held returns to the budget with them") {
  on_shard([] {
    auto budget = std::make_shared<ReceiveBudget>(64u << 20);
    Owner owner;
    std::vector<hf::Buffer> kept;
    {
      auto account = ReceiveAccount::open(budget, owner);
      for (const Lane lane : {Lane::control, Lane::normal, Lane::bulk}) {
        REQUIRE(account->charge(lane, 1024));
        kept.push_back(account->allocate(ReceiveAccount::charge_of(lane), 1024, 1000));
      }
      REQUIRE(account->promise_reply(4096));
      REQUIRE(account->begin_reply(1000));
      kept.push_back(account->allocate(ReceiveAccount::Charge::reply, credit_cost(1000), 1000));
      REQUIRE(account->finish_reply(4096, 1000));
      account->close();
    }
    CHECK(budget->free() == budget->total() - 3 * 1024 - credit_cost(1000));
    kept.clear();
    CHECK(budget->free() == budget->total());
  });
}

TEST_CASE("the room of an answer is reserved before its ask leaves, and free again after it") {
  on_shard([] {
    auto budget = std::make_shared<ReceiveBudget>(64u << 20);
    Owner owner;
    auto account = ReceiveAccount::open(budget, owner);
    const std::uint32_t room = account->largest_reply_room();
    CHECK(account->promise_reply(room));
    CHECK(account->promise_reply(room));
    CHECK_FALSE(account->promise_reply(room));
    // One answer comes in its room and is kept; one comes on the lane's credit.
    REQUIRE(account->begin_reply(100));
    auto answer = account->allocate(ReceiveAccount::Charge::reply, credit_cost(100), 100);
    REQUIRE(account->finish_reply(room, 100));
    CHECK_FALSE(account->promise_reply(room));
    REQUIRE(account->release_reply(room));
    CHECK(account->promise_reply(room));
    answer = {};
    CHECK(account->promise_reply(room));
    // Nobody was asked for a third.
    REQUIRE(account->release_reply(room));
    REQUIRE(account->release_reply(room));
    CHECK_FALSE(account->release_reply(room));
    CHECK_FALSE(account->begin_reply(100));
    account->close();
    CHECK(budget->free() == budget->total());
  });
}

TEST_CASE("windows leave three quarters of the budget for grants until links are very many") {
  on_shard([] {
    auto budget = std::make_shared<ReceiveBudget>(64u << 20);
    Owner owner;
    std::vector<ReceiveAccount::Reference> accounts;
    for (int i = 0; i < 10; ++i) accounts.push_back(ReceiveAccount::open(budget, owner));
    CHECK(budget->largest_grant() >= 48u << 20);
    Waiting large(budget->largest_grant());
    budget->wait(large);
    CHECK(large.granted);
    budget->give_back(large.bytes);
    while (ReceiveAccount::is_possible(*budget))
      accounts.push_back(ReceiveAccount::open(budget, owner));
    CHECK(accounts.size() > 200);
    CHECK_THROWS_AS(ReceiveAccount::open(budget, owner), hf::Error);
    for (auto& account : accounts) account->close();
    CHECK(budget->free() == budget->total());
  });
}

TEST_CASE("a sleeping shard hears of credit that returns on another one") {
  hf::Runtime::Options options;
  options.shards = 2;
  hf::Runtime runtime(options);
  auto budget = std::make_shared<ReceiveBudget>(64u << 20);
  struct Heard final : ReceiveAccount::Owner {
    void on_credit_owed() noexcept override { heard = true; }
    void on_reply_room() noexcept override {}
    std::atomic<bool> heard{false};
  } owner;
  ReceiveAccount::Reference account;
  hf::Buffer buffer;
  const auto on = [&runtime](unsigned shard, std::function<void()> body) {
    runtime.run(
        [body](hf::Runtime&) {
          return hf::co_invoke(
              [](std::function<void()> body) -> hf::Task<void> {
                body();
                co_return;
              },
              body);
        },
        shard);
  };
  on(0, [&] {
    account = ReceiveAccount::open(budget, owner);
    const std::uint64_t window = account->window(Lane::normal);
    REQUIRE(account->charge(Lane::normal, window));
    buffer = account->allocate(ReceiveAccount::Charge::normal, window, window - 64);
  });
  // Nothing else ever happens on shard 0: it sleeps, and only this can wake it.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  on(1, [&] { buffer = {}; });
  CHECK(net_test::eventually([&] { return owner.heard.load(); }));
  on(0, [&] {
    account->close();
    account = {};
  });
}
