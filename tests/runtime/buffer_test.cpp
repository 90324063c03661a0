#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <hyperframes/runtime/buffer.hpp>
#include <hyperframes/runtime/call_on.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/failpoint.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "manual.hpp"

using namespace hyperframes;
using test::Manual;

namespace {

std::string text_of(const Segments& segments) {
  std::string text;
  for (const Buffer& buffer : segments) text += buffer.text();
  return text;
}

/// A pool of its own on a hand-driven shard.
struct PoolOnShard {
  explicit PoolOnShard(BufferPool::Options options) {
    manual.on(0, [&] { pool = std::make_unique<BufferPool>(manual.shard(), options); });
  }
  ~PoolOnShard() {
    manual.on(0, [&] { pool.reset(); });
  }
  Manual manual;
  std::unique_ptr<BufferPool> pool;
};

/// Takes a buffer and keeps it until told; notes its name when it has it.
Task<void> take(BufferPool& pool, std::size_t size, int name, std::vector<int>& order,
                Event& release, Time deadline = no_deadline) {
  Buffer buffer = co_await pool.allocate(size, deadline);
  order.push_back(name);
  co_await release.wait();
}

/// Whether the kernel was asked for huge pages where `address` is.
bool asked_for_huge_pages(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  bool there = false;
  std::ifstream map("/proc/self/smaps");
  for (std::string line; std::getline(map, line);) {
    std::uintptr_t from = 0, to = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &from, &to) == 2)
      there = from <= wanted && wanted < to;
    else if (there && line.starts_with("VmFlags:"))
      return line.find(" hg") != line.npos;
  }
  return false;
}

}  // namespace

TEST_CASE("slices share memory and count, and the last one gives the block back") {
  PoolOnShard at({.name = "test", .quota_bytes = 1 << 20});
  at.manual.on(0, [&] {
    Buffer whole = at.pool->try_allocate(1000).value();
    CHECK(whole.size() == 1000);
    CHECK(reinterpret_cast<std::uintptr_t>(whole.data()) % 64 == 0);
    CHECK(whole.unique());
    Buffer middle = whole.slice(100, 200);
    CHECK_FALSE(whole.unique());
    CHECK(middle.data() == whole.data() + 100);
    Buffer copy = middle;
    middle.data()[0] = std::byte{42};
    CHECK(copy.data()[0] == std::byte{42});
    whole = {};
    middle = {};
    CHECK(at.pool->usage().used_bytes == 1024);
    CHECK(copy.unique());
    copy.remove_prefix(150);
    CHECK(copy.size() == 50);
    copy.resize_down(20);
    CHECK(copy.size() == 20);
    copy = {};
    CHECK(at.pool->usage().used_bytes == 0);
    CHECK(at.pool->usage().free_bytes == 1024);
  });
}

TEST_CASE("size classes waste at most half of the need and are reused") {
  PoolOnShard at({.name = "test", .quota_bytes = 1 << 30, .keep_bytes = 1 << 20});
  at.manual.on(0, [&] {
    for (std::size_t size : {1u, 255u, 256u, 257u, 384u, 385u, 511u, 513u, 4096u, 4097u, 99'999u}) {
      const Buffer buffer = at.pool->try_allocate(size).value();
      const std::size_t used = at.pool->usage().used_bytes;
      CHECK(used >= size);
      CHECK(used <= std::max<std::size_t>(256, size + size / 2 + 1));
    }
    const std::byte* memory = at.pool->try_allocate(900).value().data();
    CHECK(at.pool->try_allocate(800).value().data() == memory);
    // What is kept for reuse is bounded too.
    at.pool->try_allocate(3 << 20).value();
    CHECK(at.pool->usage().free_bytes <= 1 << 20);
    CHECK(at.pool->usage().used_bytes == 0);
  });
}

TEST_CASE("an exhausted pool says its name, the need and what is in use") {
  PoolOnShard at({.name = "letters", .quota_bytes = 10'000});
  at.manual.on(0, [&] {
    Buffer most = at.pool->try_allocate(8000).value();
    const auto refused = at.pool->try_allocate(5000);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().is(Errc::exhausted));
    const std::string text = refused.error().what();
    CHECK(text.find("'letters'") != std::string::npos);
    CHECK(text.find("5000") != std::string::npos);
    CHECK(text.find("8192 of 10000") != std::string::npos);
    CHECK(text.find("quota") != std::string::npos);
    CHECK(at.pool->usage().exhausted_count == 1);
    const auto never = at.pool->try_allocate(20'000);
    REQUIRE_FALSE(never.has_value());
    CHECK(never.error().is(Errc::too_large));
  });
}

TEST_CASE("large blocks lie on huge pages, where there are any") {
  if (::access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) != 0)
    SKIP("this kernel has no transparent huge pages");
  PoolOnShard at({.name = "test", .quota_bytes = 64u << 20});
  at.manual.on(0, [&] {
    for (const std::size_t size : {std::size_t{4} << 20, std::size_t{20'000'000}}) {
      const Buffer large = at.pool->try_allocate(size).value();
      CHECK(reinterpret_cast<std::uintptr_t>(large.data()) % 64 == 0);
      CHECK(asked_for_huge_pages(large.data()));
      CHECK(asked_for_huge_pages(large.data() + size / 2));
      std::memset(large.data(), 1, size);
    }
  });
}

TEST_CASE("a size beyond all sense is refused, whatever the quota") {
  PoolOnShard at({.name = "test", .quota_bytes = SIZE_MAX});
  at.manual.on(0, [&] {
    for (const std::size_t size :
         {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 2 + 2, std::size_t{1} << 60}) {
      const auto refused = at.pool->try_allocate(size);
      REQUIRE_FALSE(refused.has_value());
      CHECK(refused.error().is(Errc::too_large));
    }
    CHECK(at.pool->usage().used_bytes == 0);
  });
}

// The sanitizers' allocators end the process themselves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !(defined(__has_feature) &&                                        \
      (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer)))
TEST_CASE("memory that the system refuses is an error and not the end of the process") {
  constexpr std::size_t size = std::size_t{700} << 30;
  if (void* granted = std::malloc(size)) {
    std::free(granted);
    SKIP("this system hands out 700 GiB without a question");
  }
  PoolOnShard at({.name = "test", .quota_bytes = SIZE_MAX});
  at.manual.on(0, [&] {
    const auto refused = at.pool->try_allocate(size);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().is(Errc::exhausted));
    CHECK(at.pool->usage().used_bytes == 0);
  });
}
#endif

TEST_CASE("a pool that gets no memory from the system says so, and goes on once it gets some") {
  PoolOnShard at({.name = "test"});
  at.manual.on(0, [&] {
    {
      const ArmedFailpoint no_memory("pool-memory=plant");
      const auto refused = at.pool->try_allocate(100);
      REQUIRE_FALSE(refused.has_value());
      CHECK(refused.error().is(Errc::exhausted));
      CHECK(std::string(refused.error().what()).find("no memory left") != std::string::npos);
      CHECK(at.pool->usage().used_bytes == 0);
      CHECK(at.pool->usage().exhausted_count == 1);
    }
    CHECK(at.pool->try_allocate(100).has_value());
  });
}

TEST_CASE("allocation waits in line, whatever the sizes") {
  PoolOnShard at({.name = "test", .quota_bytes = 4096});
  Event release, held;
  std::vector<int> order;
  at.manual.spawn([&] { return take(*at.pool, 4096, 1, order, release); });
  at.manual.settle();
  at.manual.spawn([&] { return take(*at.pool, 4000, 2, order, release); });
  at.manual.spawn([&] { return take(*at.pool, 100, 3, order, held); });
  at.manual.settle();
  CHECK(order == std::vector<int>{1});
  CHECK(at.pool->usage().waiting == 2);
  // Those who don't wait don't pass those who do.
  CHECK_FALSE(at.manual.on(0, [&] { return at.pool->try_allocate(1).has_value(); }));
  at.manual.on(0, [&] { release.set(); });
  at.manual.settle();
  CHECK(order == std::vector<int>{1, 2, 3});
  at.manual.on(0, [&] { held.set(); });
  at.manual.settle();
  CHECK(at.pool->usage().used_bytes == 0);
}

TEST_CASE("waiting for memory ends at the deadline with the pool's name") {
  PoolOnShard at({.name = "receive", .quota_bytes = 4096});
  Buffer all = at.manual.on(0, [&] { return at.pool->try_allocate(4096).value(); });
  std::optional<Error> late, never;
  at.manual.spawn([&] {
    return co_invoke([&]() -> Task<void> {
      try {
        co_await at.pool->allocate(100, after(5ms));
      } catch (const Error& error) {
        late = error;
      }
      try {
        co_await at.pool->allocate(10'000);
      } catch (const Error& error) {
        never = error;
      }
    });
  });
  at.manual.settle();
  at.manual.advance(10ms);
  REQUIRE(late);
  CHECK(late->is(Errc::exhausted));
  CHECK(std::string(late->what()).find("'receive'") != std::string::npos);
  REQUIRE(never);
  CHECK(never->is(Errc::too_large));
  at.manual.on(0, [&] { all = {}; });
}

TEST_CASE("when the first who waits for memory leaves, those behind it get what there is") {
  for (const std::string how : {"deadline", "cancelled", "destroyed"}) {
    DYNAMIC_SECTION("because of: " << how) {
      PoolOnShard at({.name = "test", .quota_bytes = 4096});
      Buffer half = at.manual.on(0, [&] { return at.pool->try_allocate(2048).value(); });
      Event release;
      std::vector<int> order;
      auto scope = at.manual.on(0, [&] {
        auto scope = std::make_unique<Scope>();
        const Time deadline = how == "deadline" ? at.manual.now() + 5ms : no_deadline;
        scope->spawn(co_invoke([&, deadline]() -> Task<void> {
          try {
            co_await take(*at.pool, 4096, 1, order, release, deadline);
          } catch (const Error&) {
          }
        }));
        return scope;
      });
      at.manual.settle();
      at.manual.spawn([&] { return take(*at.pool, 1000, 2, order, release); });
      at.manual.settle();
      CHECK(order.empty());
      if (how == "deadline") at.manual.advance(10ms);
      at.manual.on(0, [&] {
        if (how == "cancelled") scope->cancel();
        if (how == "destroyed") scope.reset();
      });
      at.manual.settle();
      CHECK(order == std::vector<int>{2});
      at.manual.on(0, [&] {
        release.set();
        scope.reset();
        half = {};
      });
      at.manual.settle();
    }
  }
}

TEST_CASE("memory given to a frame that is destroyed goes to the next in line") {
  PoolOnShard at({.name = "test", .quota_bytes = 4096});
  Buffer all = at.manual.on(0, [&] { return at.pool->try_allocate(4096).value(); });
  Event release;
  std::vector<int> order;
  auto scope = at.manual.on(0, [&] {
    auto scope = std::make_unique<Scope>();
    scope->spawn(take(*at.pool, 4096, 1, order, release));
    return scope;
  });
  at.manual.settle();
  at.manual.spawn([&] { return take(*at.pool, 4096, 2, order, release); });
  at.manual.settle();
  at.manual.on(0, [&] {
    all = {};
    scope.reset();
  });
  at.manual.settle();
  CHECK(order == std::vector<int>{2});
  at.manual.on(0, [&] { release.set(); });
  at.manual.settle();
}

TEST_CASE("a buffer released on another shard goes home and wakes who waits there for it") {
  Manual manual(2, {.send_quota_bytes = 4096});
  BufferPool& pool = manual.shard(0).send_pool();
  Buffer far = manual.on(0, [&] { return pool.try_allocate(4096).value(); });
  Event release;
  std::vector<int> order;
  manual.spawn([&] { return take(pool, 4096, 1, order, release); });
  manual.settle();
  // The home shard has nothing to do and would sleep.
  CHECK(manual.shard(0).next_turn() > manual.now());
  manual.on(1, [&] { far = {}; });
  manual.turn(1);
  CHECK(manual.shard(0).next_turn() <= manual.now());
  manual.settle();
  CHECK(order == std::vector<int>{1});
  manual.on(0, [&] { release.set(); });
  manual.settle();
}

TEST_CASE("a sleeping shard is woken by the memory that one of its tasks waits for") {
  Runtime runtime({.shards = 2, .shard = {.send_quota_bytes = 4096}});
  auto body = [](Runtime& runtime) -> Task<int> {
    int rounds = 0;
    for (; rounds < 50; ++rounds) {
      BufferPool& pool = Shard::current()->send_pool();
      Buffer all = co_await pool.allocate(4096);
      // Handed over; released over there a little later, when this shard sleeps, by a task that
      // goes on, so that nothing else wakes this shard.
      Scope scope;
      scope.spawn(call_on(runtime.shard(1), [all = std::move(all)]() mutable -> Task<void> {
        co_await sleep_for(500us);
        all = {};
        try {
          co_await sleep_for(1h);
        } catch (const Error&) {
        }
      }));
      Buffer again = co_await pool.allocate(4096);
      scope.cancel();
      co_await scope.join();
    }
    co_return rounds;
  };
  CHECK(runtime.run(body) == 50);
}

TEST_CASE("memory released on a foreign thread wakes its shard too") {
  Runtime runtime({.shards = 1, .shard = {.send_quota_bytes = 4096}});
  for (int round = 0; round < 50; ++round) {
    Buffer all = runtime.run([](Runtime&) -> Task<Buffer> {
      co_return co_await Shard::current()->send_pool().allocate(4096);
    });
    std::thread releaser([all = std::move(all)]() mutable {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      all = {};
    });
    runtime.run(
        [](Runtime&) -> Task<void> { co_await Shard::current()->send_pool().allocate(4096); });
    releaser.join();
  }
}

TEST_CASE("a proxy goes to another shard while its memory stays in use here") {
  Manual manual(2);
  BufferPool& pool = manual.shard(0).send_pool();
  Buffer mine = manual.on(0, [&] {
    Buffer buffer = pool.try_allocate(100).value();
    std::memcpy(buffer.data(), "shared", 6);
    buffer.resize_down(6);
    return buffer;
  });
  Buffer theirs = manual.on(0, [&] { return mine.slice(2, 4).proxy(); });
  CHECK(theirs.unique());
  CHECK_FALSE(mine.unique());
  CHECK(theirs.text() == "ared");
  manual.on(1, [&] {
    const Buffer moved = std::move(theirs);
    CHECK(moved.text() == "ared");
  });
  manual.settle();
  CHECK(mine.unique());
  manual.on(0, [&] { mine = {}; });
  CHECK(pool.usage().used_bytes == 0);
}

TEST_CASE("a buffer that moved to another shard may be copied, sliced and sent on from there") {
  Manual manual(3);
  BufferPool& pool = manual.shard(0).send_pool();
  Buffer moved = manual.on(0, [&] {
    Buffer buffer = pool.try_allocate(100).value();
    std::memcpy(buffer.data(), "copied", 6);
    buffer.resize_down(6);
    return buffer;
  });
  Buffer farther;
  manual.on(1, [&] {
    Buffer copy = moved;
    Buffer slice = copy.slice(2, 4);
    moved = {};
    farther = slice.proxy();
    copy = {};
    CHECK(slice.text() == "pied");
  });
  CHECK(pool.usage().used_bytes > 0);
  manual.on(2, [&] {
    Buffer again = farther;
    farther = {};
    CHECK(again.text() == "pied");
  });
  manual.settle();
  CHECK(pool.usage().used_bytes == 0);
}

TEST_CASE("a heap buffer counts atomically and goes anywhere") {
  const Buffer shared = Buffer::copy_of("anywhere");
  CHECK(shared.proxy().data() == shared.data());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([shared] {
      for (int round = 0; round < 1000; ++round) {
        Buffer copy = shared;
        Buffer part = copy.slice(1, 3);
        if (part.text() != "nyw") std::abort();
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(shared.unique());
  CHECK(Buffer::heap(0).empty());
}

TEST_CASE("segments drop their first bytes and flatten without losing any") {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    Segments segments;
    std::string wanted;
    for (unsigned i = random() % 6; i > 0; --i) {
      std::string part(random() % 5, static_cast<char>('a' + random() % 26));
      wanted += part;
      segments.push_back(Buffer::copy_of(part));
    }
    CHECK(segments.size_bytes() == wanted.size());
    CHECK(segments.flatten().text() == wanted);
    while (segments.size_bytes() > 0) {
      const std::size_t count = random() % (segments.size_bytes() + 1);
      segments.remove_prefix(count);
      wanted.erase(0, count);
      CHECK(text_of(segments) == wanted);
    }
    segments.remove_prefix(0);
    CHECK(text_of(segments).empty());
  }
}

TEST_CASE("quotas hold under random use from two shards, and everything comes home") {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  constexpr std::size_t quota = 64 << 10;
  Runtime runtime({.shards = 2, .shard = {.send_quota_bytes = quota}});
  auto body = [seed](Runtime& runtime) -> Task<bool> {
    struct User {
      static Task<void> run(Runtime& runtime, std::uint32_t seed, std::size_t quota, bool& good) {
        std::mt19937 random(seed);
        BufferPool& pool = Shard::current()->send_pool();
        const unsigned other = 1 - Shard::current()->index();
        for (int i = 0; i < 100; ++i) {
          const std::size_t size = 1 + random() % (quota / 4);
          Buffer buffer;
          try {
            buffer = co_await pool.allocate(size, random() % 4 ? no_deadline : after(200us));
          } catch (const Error& error) {
            good &= error.is(Errc::exhausted);
            continue;
          }
          good &= buffer.size() == size && pool.usage().used_bytes <= quota;
          std::memset(buffer.data(), static_cast<int>(i), size);
          if (random() % 3 == 0) co_await sleep_for(Duration(random() % 100'000));
          if (random() % 2) {
            Buffer moving = random() % 2 ? buffer.proxy() : Buffer();
            if (moving.empty()) moving = std::move(buffer);
            good &=
                co_await call_on(runtime.shard(other), [moving = std::move(moving), i]() mutable {
                  const Buffer mine = std::move(moving);
                  return std::ranges::all_of(mine.bytes(), [i](std::byte byte) {
                    return byte == static_cast<std::byte>(i);
                  });
                });
          }
        }
      }
      static Task<bool> several(Runtime& runtime, std::uint32_t seed, std::size_t quota) {
        bool good = true;
        Scope scope;
        for (std::uint32_t i = 0; i < 10; ++i) scope.spawn(run(runtime, seed + i, quota, good));
        co_await scope.join();
        co_return good;
      }
    };
    const auto both = co_await when_all(
        call_on(runtime.shard(0), [&runtime, seed] { return User::several(runtime, seed, quota); }),
        call_on(runtime.shard(1),
                [&runtime, seed] { return User::several(runtime, seed + 100, quota); }));
    co_return std::get<0>(both) && std::get<1>(both);
  };
  CHECK(runtime.run(body));
  // What the other shard released last arrives with the next turns.
  for (int round = 0; round < 3; ++round) runtime.on_every_shard([](Shard&) {});
  runtime.on_every_shard([](Shard& shard) {
    if (shard.send_pool().usage().used_bytes != 0) std::abort();
  });
}

TEST_CASE("whether a heap buffer is sole may be asked while another thread lets go of its copy") {
  for (int round = 0; round < 200; ++round) {
    Buffer mine = Buffer::copy_of("shared");
    std::thread other([theirs = mine]() mutable {
      CHECK(theirs.text() == "shared");
      theirs = {};
    });
    while (!mine.unique()) std::this_thread::yield();
    mine.data()[0] = std::byte{'S'};
    other.join();
  }
}
