// The simulated network between the nodes of a SimWorld, and its faults.
//
//   world.network().partition(a, b);                  // silence both ways, no reset
//   world.network().cut(a, b);                        // what a sends never reaches b; b is heard
//   world.network().heal();
//
// It moves bytes at the level of stream sockets: each connection's stream arrives in order and
// whole, in pieces of random sizes after random delays, or breaks. What TCP would send again after
// a loss is late, not lost. Send buffers and receive windows are bounded.
#pragma once

#include <cstdint>
#include <hyperframes/runtime/time.hpp>
#include <memory>

namespace hyperframes {
class SimNode;
namespace detail {
class SimStreams;
}

class SimNetwork {
 public:
  /// One direction between two nodes.
  struct Link {
    Duration latency = 50us, jitter = 100us;         ///< Each piece takes latency + up to jitter.
    std::uint64_t bytes_per_second = 1'250'000'000;  ///< Of each connection; 0: no limit.
  };
  struct Faults {
    double loss = 0;              ///< Of each piece: sent again by TCP, so it and the rest is late.
    Duration retransmit = 200ms;  ///< How late, at least; up to twice that.
    double spike = 0;             ///< Of each piece: delayed by up to `spike_max`.
    Duration spike_max = 500ms;
    double reset = 0;   ///< Of each piece: the connection breaks instead, on both sides.
    double refuse = 0;  ///< Of each connect.
  };
  struct Limits {
    std::size_t send_buffer = 256 << 10;
    std::size_t receive_window = 256 << 10;
    std::size_t largest_piece = 16 << 10;
    Duration give_up = 900s;          ///< A stream without progress breaks with ETIMEDOUT.
    Duration connect_give_up = 127s;  ///< So does a connect.
    double short_send = 0.02;         ///< A send takes fewer bytes than it could.
  };

  Faults& faults() noexcept { return faults_; }
  Limits& limits() noexcept { return limits_; }
  /// Between nodes that no `set_link` named.
  Link& default_link() noexcept { return default_link_; }
  void set_link(const SimNode& from, const SimNode& to, Link link);

  void cut(const SimNode& from, const SimNode& to);
  void partition(const SimNode& a, const SimNode& b);
  /// Cuts the node off from every other.
  void isolate(const SimNode& node);
  void heal(const SimNode& a, const SimNode& b);
  void heal();
  /// Breaks every connection between two nodes, now and on both sides. Returns how many.
  std::size_t reset(const SimNode& a, const SimNode& b);
  /// Breaks one connection of the world, chosen by the seed; false if there is none.
  bool reset_any();
  std::size_t connection_count() const noexcept;

 private:
  friend class SimWorld;
  friend class detail::SimStreams;
  SimNetwork() = default;

  Link default_link_;
  Faults faults_;
  Limits limits_;
  detail::SimStreams* streams_ = nullptr;
};

}  // namespace hyperframes
