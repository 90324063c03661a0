// A message on its way inside a process, and how one method's messages are handled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hyperframes/runtime/buffer.hpp>
#include <hyperframes/runtime/detail/pool.hpp>
#include <hyperframes/runtime/detail/work.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/task.hpp>
#include <hyperframes/runtime/time.hpp>
#include <memory>
#include <new>
#include <span>

namespace hyperframes {
class Actor;

namespace detail {

class ActorCell;
class NodeShard;
class RemotePeer;
class SendWaiter;
struct MethodInfo;
struct Receipt;
struct RemoteRoute;

/// One request, and later its answer, in memory of the shard that made it. An ask's letter always
/// comes back: answered, or failed. It has one owner at a time, who may touch all of it but
/// `waiting`, which belongs to the shard it came from. The payload follows it in memory.
struct Letter : Work {
  enum class Content : std::uint8_t { nothing, request, answer, failure };
  /// What becomes of it at its end.
  enum class Kind : std::uint8_t {
    tell,        ///< Freed.
    ask,         ///< Goes back to `origin`, to `waiting`.
    remote_ask,  ///< Goes back to `origin`, and from there to a peer, by `route`.
  };

  explicit Letter(const MethodInfo& info) noexcept : Work(nullptr), method(&info) {}

  /// Letters are 16-byte aligned, and so may be what lies in them.
  template <class T>
  static constexpr std::size_t payload_offset() noexcept {
    static_assert(alignof(T) <= 16);
    return (sizeof(Letter) + alignof(T) - 1) & ~(alignof(T) - 1);
  }
  template <class T>
  void* payload() noexcept {
    return reinterpret_cast<std::byte*>(this) + payload_offset<T>();
  }
  template <class T>
  T& content_as() noexcept {
    return *std::launder(static_cast<T*>(payload<T>()));
  }

  const MethodInfo* method;
  union {
    ActorCell* cell = nullptr;  ///< The addressee; or
    RemotePeer* peer;           ///< where it is, while an ask waits for its answer from there.
  };
  NodeShard* origin = nullptr;  ///< Where an answer goes.
  union {
    SendWaiter* waiting = nullptr;  ///< ask: who waits there, or null if nobody does any more.
    RemoteRoute* route;             ///< remote_ask
    Receipt* receipt;  ///< tell: to be sent back once the mailbox took it; may be null.
    Buffer* credit;    ///< tell, `holds_credit`: what came from its sender.
  };
  Time deadline = no_deadline;
  std::uint32_t bytes = 0;  ///< What the mailbox is charged.
  union {
    std::uint32_t generation = 0;  ///< The addressee's.
    std::uint32_t correlation;     ///< `peer` is set: the ask's slot there.
  };
  Content content = Content::nothing;
  Kind kind = Kind::tell;
  bool immediate = false;     ///< An ask that is answered while it is being awaited.
  bool at_peer = false;       ///< `peer` and `correlation` are the ones that count.
  bool system = false;        ///< The addressee's scheduling group.
  bool holds_credit = false;  ///< A peer's, without room in the mailbox: it gets no credit back.
  bool chained = false;       ///< See call_chain.hpp.
};

/// What a method's messages need, without their types.
struct MethodInfo {
  std::uint64_t id;
  const char* name;  ///< "demo.Counter.Add".
  std::uint16_t index;
  bool interleaved, oneway, bulk;
  bool streams;  ///< Its request is a StreamOffer first, its answer a StreamOpened.

  /// Takes the letter over and calls the handler. An empty task: the handler is done.
  Task<void> (*invoke)(Actor& actor, Letter* letter);
  /// Destroys the letter's request or answer.
  void (*destroy_content)(Letter& letter) noexcept;
  /// Moves the letter's request or answer out, as it travels between processes.
  void (*write)(Letter& letter, Buffer& body, Segments& segments);
  /// Makes a letter of a request from outside, after verifying it.
  Result<Letter*> (*read_request)(Buffer body, Segments segments);
  /// Puts an answer from outside into the letter of its ask, after verifying it.
  Result<void> (*read_answer)(Letter& letter, Buffer body, Segments segments);
  /// Makes what the letter's content refers to fit to be used on another shard.
  void (*detach)(Letter& letter);
};

struct ServiceInfo {
  std::uint64_t id;
  const char* name;  ///< "demo.Counter".
  std::span<const MethodInfo* const> methods;

  const MethodInfo* find(std::uint64_t method_id) const noexcept {
    for (const MethodInfo* method : methods)
      if (method->id == method_id) return method;
    return nullptr;
  }
};

/// Frees a letter and what it holds, without telling anybody.
void destroy(Letter* letter) noexcept;
/// Ends a letter that holds an answer or a failure, on its actor's shard: it goes to who asked.
void send_back(Letter* letter) noexcept;
/// Ends a letter with an error. A tell just ends.
void fail(Letter* letter, Error error) noexcept;
/// Ends a letter whose Reply was dropped: if by an exception, once that is known (unwound.hpp).
void drop_unanswered(Letter* letter) noexcept;
/// The same at once.
void end_unanswered(Letter* letter) noexcept;
/// Keeps what a peer's letter was received in, so that the peer gets no credit back for it.
void hold_credit(Letter& letter, Buffer received) noexcept;
void release_credit(Letter& letter) noexcept;
/// Replaces whatever it holds.
void set_failure(Letter& letter, Error error) noexcept;

}  // namespace detail
}  // namespace hyperframes
