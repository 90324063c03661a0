// Stands between two nodes on real TCP, and breaks what goes through it: at a given byte, all at
// once, or by going silent; or listens, and changes what it hears.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "raw_peer.hpp"

namespace net_test {

class Proxy {
 public:
  explicit Proxy(hf::net::Endpoint target)
      : target_(std::move(target)), wake_(::eventfd(0, EFD_CLOEXEC)), thread_([this] { run(); }) {}
  Proxy(const Proxy&) = delete;
  ~Proxy() {
    stopping_ = true;
    wake();
    thread_.join();
    for (Pair& pair : pairs_) close(pair);
    ::close(wake_);
  }

  hf::net::Endpoint endpoint() const { return listener_.endpoint(); }
  /// The connection that carries the `bytes`-th byte from now is reset behind that.
  void cut_after(std::int64_t bytes) { until_cut_ = bytes; }
  /// Resets every connection.
  void reset_all() { order(resetting_); }
  /// Ends every connection at both sides, as their own ends would.
  void end_all() { order(ending_); }
  /// Changes a bit of the `bytes`-th byte from now.
  void flip_after(std::int64_t bytes) { until_flip_ = bytes; }
  bool flip_is_to_come() const { return until_flip_ > 0; }
  /// All that it has carried so far, of both ways.
  std::string carried() const {
    std::scoped_lock lock(mutex_);
    return carried_;
  }
  /// Carries nothing more on the connections that there are; new ones work.
  void freeze() { order(freezing_); }
  /// Resets those that carry nothing.
  void bury() { order(burying_); }
  int resets() const { return resets_; }

 private:
  struct Way {
    int from = -1, to = -1;
    std::vector<std::byte> bytes;  ///< Read, and not written.
    bool ended = false, passed_on = false;
  };
  struct Pair {
    Way ways[2];
    bool frozen = false, broken = false;
  };

  void order(std::atomic<bool>& what) {
    what = true;
    wake();
    while (what) std::this_thread::yield();
  }
  void wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_, &one, sizeof one);
  }

  void run() {
    while (!stopping_) {
      std::vector<pollfd> polled{{wake_, POLLIN, 0}, {listener_.descriptor(), POLLIN, 0}};
      for (Pair& pair : pairs_)
        for (Way& way : pair.ways) {
          if (pair.frozen) continue;
          if (!way.bytes.empty()) polled.push_back({way.to, POLLOUT, 0});
          if (way.bytes.empty() && !way.ended) polled.push_back({way.from, POLLIN, 0});
        }
      ::poll(polled.data(), polled.size(), 100);
      if (polled[0].revents) {
        std::uint64_t count;
        [[maybe_unused]] const auto got = ::read(wake_, &count, sizeof count);
      }
      if (polled[1].revents) accept();
      for (Pair& pair : pairs_) {
        if (!pair.frozen)
          for (Way& way : pair.ways) move(pair, way);
      }
      obey();
    }
  }
  void accept() {
    const int near = ::accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC);
    if (near < 0) return;
    const int far = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(target_.port);
    ::inet_pton(AF_INET, target_.host.c_str(), &address.sin_addr);
    if (::connect(far, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      ::close(near);
      ::close(far);
      return;
    }
    for (const int descriptor : {near, far}) ::fcntl(descriptor, F_SETFL, O_NONBLOCK);
    Pair& pair = pairs_.emplace_back();
    pair.ways[0] = {near, far, {}, false, false};
    pair.ways[1] = {far, near, {}, false, false};
  }
  void move(Pair& pair, Way& way) {
    if (pair.broken) return;
    if (way.bytes.empty() && !way.ended) {
      way.bytes.resize(64 << 10);
      const auto got = ::recv(way.from, way.bytes.data(), way.bytes.size(), 0);
      way.bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
      way.ended = got == 0;
      if (got < 0 && errno != EAGAIN) pair.broken = true;
      listen_in(way.bytes);
    }
    if (!way.bytes.empty()) pass_on(pair, way);
    if (way.ended && way.bytes.empty() && !std::exchange(way.passed_on, true))
      ::shutdown(way.to, SHUT_WR);
  }
  void listen_in(std::vector<std::byte>& bytes) {
    {
      std::scoped_lock lock(mutex_);
      if (carried_.size() < kept_bytes)
        carried_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    const std::int64_t left = until_flip_;
    if (left <= 0) return;
    const auto size = static_cast<std::int64_t>(bytes.size());
    if (left <= size) bytes[static_cast<std::size_t>(left - 1)] ^= std::byte{4};
    until_flip_ = std::max<std::int64_t>(0, left - size);
  }
  void pass_on(Pair& pair, Way& way) {
    std::size_t most = way.bytes.size();
    const std::int64_t left = until_cut_;
    if (left > 0) most = std::min(most, static_cast<std::size_t>(left));
    const auto sent = ::send(way.to, way.bytes.data(), most, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno != EAGAIN) pair.broken = true;
      return;
    }
    way.bytes.erase(way.bytes.begin(), way.bytes.begin() + sent);
    if (left <= 0) return;
    if (sent == left) pair.broken = true;
    std::int64_t expected = left;
    until_cut_.compare_exchange_strong(expected, left - sent);
  }
  void obey() {
    // Read once: an order that comes meanwhile waits for the next time.
    const bool all = resetting_, freezing = freezing_, burying = burying_, ending = ending_;
    for (auto pair = pairs_.begin(); pair != pairs_.end();) {
      const bool over = pair->ways[0].passed_on && pair->ways[1].passed_on;
      if (freezing) pair->frozen = true;
      if (ending) {
        close(*pair);
        pair = pairs_.erase(pair);
      } else if (all || pair->broken || (burying && pair->frozen)) {
        reset(*pair);
        pair = pairs_.erase(pair);
      } else if (over) {
        close(*pair);
        pair = pairs_.erase(pair);
      } else {
        ++pair;
      }
    }
    if (all) resetting_ = false;
    if (freezing) freezing_ = false;
    if (burying) burying_ = false;
    if (ending) ending_ = false;
  }
  void reset(Pair& pair) {
    const linger now{1, 0};
    for (Way& way : pair.ways) ::setsockopt(way.from, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(pair);
    ++resets_;
  }
  static void close(Pair& pair) {
    for (Way& way : pair.ways) ::close(way.from);
  }

  hf::net::Endpoint target_;
  RawListener listener_;
  int wake_;
  std::list<Pair> pairs_;  ///< The thread's.
  std::atomic<bool> stopping_{false}, resetting_{false}, freezing_{false}, burying_{false};
  std::atomic<bool> ending_{false};
  std::atomic<std::int64_t> until_cut_{0}, until_flip_{0};
  static constexpr std::size_t kept_bytes = 1 << 20;
  mutable std::mutex mutex_;
  std::string carried_;
  std::atomic<int> resets_{0};
  std::thread thread_;
};

}  // namespace net_test
