#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstring>
#include <hyperframes/runtime/call_on.hpp>
#include <hyperframes/runtime/detail/pool.hpp>
#include <random>
#include <thread>
#include <vector>

#include "manual.hpp"

using namespace hyperframes;
using detail::pool_allocate;
using detail::pool_release;
using test::Manual;

namespace {

/// Whether this build pools at all: under AddressSanitizer each block is the heap's.
bool pools(Manual& manual) {
  return manual.on(0, [&] {
    const auto before = manual.shard().load().frames;
    void* block = pool_allocate(64);
    const bool counted = manual.shard().load().frames == before + 1;
    pool_release(block);
    return counted;
  });
}

}  // namespace

TEST_CASE("pooled blocks are aligned, apart, and reused") {
  Manual manual;
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto before = manual.frames();
  manual.on(0, [&] {
    struct Held {
      unsigned char* memory;
      std::size_t size;
      unsigned char mark;
    };
    std::vector<Held> held;
    bool good = true;
    for (int i = 0; i < 20'000; ++i) {
      if (held.size() < 500 && random() % 2) {
        const std::size_t size = random() % 8 ? random() % 2100 : random() % 10'000;
        Held block{static_cast<unsigned char*>(pool_allocate(size)), size,
                   static_cast<unsigned char>(random())};
        good &= reinterpret_cast<std::uintptr_t>(block.memory) % 16 == 0;
        std::memset(block.memory, block.mark, size);
        held.push_back(block);
      } else if (!held.empty()) {
        std::swap(held[random() % held.size()], held.back());
        const Held block = held.back();
        held.pop_back();
        for (std::size_t k = 0; k < block.size; ++k) good &= block.memory[k] == block.mark;
        pool_release(block.memory);
      }
    }
    for (const Held& block : held) pool_release(block.memory);
    CHECK(good);
    pool_release(nullptr);
  });
  CHECK(manual.frames() == before);
  if (pools(manual)) {
    manual.on(0, [&] {
      void* block = pool_allocate(100);
      pool_release(block);
      void* again = pool_allocate(128);  // the same class
      CHECK(block == again);
      pool_release(again);
    });
  }
}

TEST_CASE("a block released on another shard travels home at the end of the turn") {
  Manual manual(2);
  const auto before = manual.frames(0);
  std::vector<void*> blocks;
  manual.on(0, [&] {
    for (int i = 0; i < 100; ++i) blocks.push_back(pool_allocate(200));
  });
  manual.on(1, [&] {
    for (void* block : blocks) pool_release(block);
  });
  if (pools(manual)) CHECK(manual.frames(0) == before + 100);
  manual.turn(1);
  CHECK(manual.frames(0) == before);
}

TEST_CASE("a block released on a foreign thread goes home, one made there to the heap") {
  Manual manual;
  const auto before = manual.frames();
  std::vector<void*> blocks;
  manual.on(0, [&] {
    for (int i = 0; i < 100; ++i) blocks.push_back(pool_allocate(200));
  });
  std::thread foreign([&] {
    for (void* block : blocks) pool_release(block);
    pool_release(pool_allocate(100));
  });
  foreign.join();
  CHECK(manual.frames() == before);
}

TEST_CASE("a block may outlive its shard") {
  void* block = nullptr;
  {
    Manual manual;
    block = manual.on(0, [] { return pool_allocate(100); });
    std::memset(block, 1, 100);
  }
  std::memset(block, 2, 100);
  pool_release(block);
}

TEST_CASE("frames of calls between shards all come home") {
  Runtime runtime({.shards = 2});
  auto count = [&] {
    std::atomic<std::size_t> frames{0};
    for (int i = 0; i < 4; ++i) runtime.on_every_shard([](Shard&) {});
    runtime.on_every_shard([&](Shard& shard) { frames += shard.load().frames; });
    return frames.load();
  };
  const auto before = count();
  for (int round = 0; round < 3; ++round) {
    runtime.run([](Runtime& runtime) -> Task<void> {
      std::vector<Task<int>> calls;
      for (int i = 0; i < 500; ++i)
        calls.push_back(call_on(runtime.shard(1), [i]() -> Task<int> {
          co_await yield();
          co_return i;
        }));
      co_await when_all(std::move(calls));
    });
  }
  CHECK(count() == before);
}
