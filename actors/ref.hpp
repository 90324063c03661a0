// A reference to an actor: on this shard, on another one, or in another process.
//
//   demo::CounterRef counter = co_await server.find<demo::Counter>("counter");
//   auto value = co_await counter.add({.delta = 2}, hf::within(50ms));
//   bool taken = counter.try_add({.delta = 2});   // tells, and never suspends
//
// A plain value that may be copied and sent to any thread; it must not outlive its node. It stays
// valid while its actor is restarted. When the actor has ended, asks fail with Errc::actor_down;
// when its process has, with Errc::peer_lost; of an empty reference, with Errc::invalid_argument.
// It calls on shards of its node's runtime only; other threads have hf::submit
// (actors/foreign.hpp).
//
// A generated reference has for each method `Add`: add (an Ask), tell_add (a Tell), try_add; for a
// oneway one just add (a Tell) and try_add; for a streaming one add alone (actors/stream.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <hyperframes/actors/ask.hpp>
#include <hyperframes/actors/detail/send_waiter.hpp>
#include <hyperframes/actors/within.hpp>
#include <hyperframes/runtime/buffer.hpp>
#include <utility>

namespace hyperframes {

/// Without its service: for monitoring, stopping and as the base of generated references.
class ActorRef {
 public:
  ActorRef() noexcept = default;
  /// For the runtime.
  explicit ActorRef(detail::Destination to) noexcept : to_(to) {}

  explicit operator bool() const noexcept { return to_.id != 0; }
  /// Unique in its node, and not used again there before 16 million others were in its place.
  std::uint64_t id() const noexcept { return to_.id; }
  /// Whether it runs in this process.
  bool is_local() const noexcept { return to_.cell != nullptr; }
  const detail::Destination& destination() const noexcept { return to_; }

  friend bool operator==(const ActorRef& a, const ActorRef& b) noexcept {
    return a.to_.id == b.to_.id && a.to_.cell == b.to_.cell && a.to_.peer == b.to_.peer;
  }

 protected:
  // `what`: the request or its fields, and its segments if it has any.
  template <class Method, class... What>
  Ask<Method> ask(Within within, What&&... what) const {
    return {to_, within, std::forward<What>(what)...};
  }
  template <class Method, class... What>
  Tell<Method> tell(Within within, What&&... what) const {
    return {to_, within, std::forward<What>(what)...};
  }
  template <class Method, class... What>
  bool try_tell(What&&... what) const {
    return Tell<Method>(to_, {}, std::forward<What>(what)...).now();
  }

 private:
  detail::Destination to_;
};

}  // namespace hyperframes

template <>
struct std::hash<hyperframes::ActorRef> {
  std::size_t operator()(const hyperframes::ActorRef& ref) const noexcept {
    return std::hash<std::uint64_t>()(ref.id());
  }
};
