// Replies and ends of streams that an exception destroys on its way out of a handler.
//
// They go before anybody knows the exception, which can't be looked at while it unwinds. So what
// their destructors have to say waits until the turn has failed, and then says why. If the handler
// itself caught the exception, it is said as ever, as soon as the shard goes on to other work.
#pragma once

#include <cstdint>
#include <hyperframes/net/lane.hpp>
#include <hyperframes/runtime/detail/work.hpp>
#include <memory>
#include <vector>

namespace hyperframes::detail {

class ActorCell;
class NodeShard;
class RemotePeer;
struct Letter;
struct StreamFrame;

/// Of one shard.
class Unwound : Work {
 public:
  explicit Unwound(NodeShard& home) noexcept;
  Unwound(const Unwound&) = delete;
  ~Unwound();

  /// Whether what is destroyed now, without a known reason, is better kept.
  bool takes() const noexcept;
  void keep(Letter* letter) noexcept;
  /// The farewell of a stream's end that the actor of that number (runtime/witness.hpp) had; it
  /// holds the error that it says unless there is a better one.
  void keep(std::uint32_t owner, std::unique_ptr<StreamFrame> farewell, RemotePeer* peer,
            net::Lane lane) noexcept;
  /// A turn of that actor has failed: ends what it left, with the shard's drop reason.
  void end(const ActorCell& cell) noexcept;

 private:
  struct Kept;
  static void run(Work* work) noexcept;
  void add(Kept kept) noexcept;
  void end(Kept& kept) noexcept;

  NodeShard& home_;
  std::vector<Kept> kept_;
  bool queued_ = false;
};

}  // namespace hyperframes::detail
