// One bed for every driver: a case says what must hold, and runs on io_uring, on asio in its own
// loop and in an embedder's, and on a few seeds of the simulator.
//
//   TEST_CASE("...") {
//     Bed bed(GENERATE(beds()));
//     bed.run([](Runtime&) -> Task<void> { ... });
//   }
#pragma once

#include <unistd.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <filesystem>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/file.hpp>
#include <hyperframes/runtime/reactor/sim.hpp>
#include <hyperframes/runtime/reactor/uring.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <hyperframes/runtime/socket.hpp>
#include <iterator>
#include <memory>
#include <string>

#include "embedding.hpp"

namespace hyperframes::test {

/// Bed 0 is io_uring, those above it are seeds of the simulator. Below it are asio's: on threads of
/// their own, and embedded in an io_context with one thread, and with two.
#ifdef HYPERFRAMES_HAS_ASIO
inline constexpr int first_bed = -3;
#else
inline constexpr int first_bed = 0;
#endif
inline auto beds(int simulated = 3) { return Catch::Generators::range(first_bed, simulated + 1); }

class Bed {
 public:
  explicit Bed(int number, unsigned shards = 2) {
    if (number <= 0) {
      start(number, shards);
      folder_ = "conformance_" + std::to_string(::getpid());
      std::filesystem::remove_all(folder_);
      std::filesystem::create_directory(folder_);
    } else {
      name_ = "sim, seed " + std::to_string(number);
      world_ =
          std::make_unique<SimWorld>(SimWorld::Options{.seed = static_cast<std::uint64_t>(number)});
      node_ = &world_->add_node({.shards = shards});
      folder_ = "/conformance";
      node_->disk().put(folder_ + "/.made", "");
      world_->run(*node_, 0, [this](Runtime&) { return remove_file(folder_ + "/.made"); });
    }
  }
  ~Bed() {
    runtime_.reset();
    embedding_.reset();
    if (!world_ && !folder_.empty()) std::filesystem::remove_all(folder_);
  }

  template <class Function>
  auto run(Function function, unsigned shard = 0) {
    INFO("driver: " << name_);
    if (world_) return world_->run(*node_, shard, std::move(function));
    return (embedding_ ? embedding_->runtime() : *runtime_).run(std::move(function), shard);
  }
  const std::string& name() const { return name_; }
  bool simulated() const { return world_ != nullptr; }
  SimNode& node() { return *node_; }
  /// Empty at first, gone at the end.
  const std::string& folder() const { return folder_; }
  /// Open descriptors of the process, real or simulated.
  std::size_t descriptors() const {
    if (world_) return node_->descriptor_count();
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                      std::filesystem::directory_iterator()));
  }

 private:
  void start(int number, unsigned shards) {
    static constexpr const char* names[] = {"uring", "asio", "asio, embedded in one thread",
                                            "asio, embedded in two threads"};
    name_ = names[-number];
    if (number < -1) {
      embedding_ = make_embedding(shards, static_cast<unsigned>(-number - 1));
      return;
    }
    try {
      runtime_ = std::make_unique<Runtime>(
          Runtime::Options{.shards = shards,
                           .driver = number == 0 ? Driver::uring : Driver::asio,
                           .stop_deadline = 100ms});
    } catch (const Error& error) {
      SKIP("the " << name_ << " driver can't be used here: " << error.what());
    }
  }

  std::string name_, folder_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Embedding> embedding_;
  std::unique_ptr<SimWorld> world_;
  SimNode* node_ = nullptr;
};

inline std::string pattern(std::size_t size, std::size_t from = 0) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i)
    text[i] = static_cast<char>('a' + (from + i) * 7 % 23 + (from + i) / 5000 % 3);
  return text;
}

inline Address loopback(std::uint16_t port = 0) { return Address::v4({127, 0, 0, 1}, port); }

/// Two ends of one connection.
struct Pair {
  Socket near, far;
};

inline Task<Pair> connected_pair() {
  Listener listener = Listener::bind(loopback());
  auto both = co_await when_all(Socket::connect(listener.address()), listener.accept());
  Pair pair;
  pair.near = std::move(std::get<0>(both));
  pair.far = std::move(std::get<1>(both));
  co_return pair;
}

/// All that comes until the stream ends.
inline Task<std::string> receive_all(Socket& socket) {
  std::string got;
  while (true) {
    Buffer chunk = co_await socket.receive();
    if (chunk.empty()) co_return got;
    got += chunk.text();
  }
}

inline Task<std::string> receive_some(Socket& socket, std::size_t size) {
  std::string got;
  while (got.size() < size) {
    Buffer chunk = co_await socket.receive();
    if (chunk.empty()) break;
    got += chunk.text();
  }
  co_return got;
}

inline Task<void> send_text(Socket& socket, std::string text) {
  co_await socket.send(Segments(Buffer::copy_of(text)));
}

/// The code of what `task` throws; zero if it ends well.
template <class T>
Task<std::error_code> outcome_of(Task<T> task) {
  try {
    co_await std::move(task);
  } catch (const Error& error) {
    co_return error.code();
  }
  co_return std::error_code();
}

template <class T>
Task<std::string> text_of_failure(Task<T> task) {
  try {
    co_await std::move(task);
  } catch (const Error& error) {
    co_return error.what();
  }
  co_return "no failure";
}

inline std::error_code system_error(int number) { return {number, std::generic_category()}; }

}  // namespace hyperframes::test
