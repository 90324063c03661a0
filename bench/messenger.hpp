// Two processes that send each other messages, whatever by: what the project is compared with, and
// itself.
//
//   auto messenger = make_sessions(net::Scheme::shm, true);
//   messenger->round_trips(64, 10'000);           // one under way
//   messenger->stream(32 << 10, 100'000);         // returns when the other end has all of them
//
// This end is the calling process, the other one an OtherEnd. Bodies are made once and sent again
// and again: nobody fills them, and nobody looks at them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "harness.hpp"
#include "other_end.hpp"

namespace hyperframes::bench {

class Messenger {
 public:
  virtual ~Messenger() = default;
  virtual void round_trips(std::size_t size, int count) = 0;
  virtual void stream(std::size_t size, int count) = 0;
  /// Of both processes, user and system, so far.
  double both_cpu_seconds() { return cpu_seconds() + other_.cpu_seconds(); }

 protected:
  explicit Messenger(const std::vector<std::string>& role) : other_(role) {}
  OtherEnd other_;
};

using MakeMessenger = std::function<std::unique_ptr<Messenger>()>;

}  // namespace hyperframes::bench
