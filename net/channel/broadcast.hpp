// The same messages to many readers, each at its own pace.
//
//   hf::net::Broadcast feed;
//   feed.add(co_await messenger.accept());
//   co_await feed.send({.type = "market.feed.tick", .body = tick});   // waits for nobody
//
// Each reader has a queue here, which holds references, not copies. While one does not keep up its
// queue fills, and nobody else notices. What happens when it is full is chosen for all: the reader
// is let go, which is the default, so that nothing is ever lost unseen; or messages are dropped,
// which is counted; or `send` waits. On the shard of the channels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hyperframes/net/channel/channel.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/scope.hpp>
#include <hyperframes/runtime/task.hpp>
#include <hyperframes/runtime/time.hpp>
#include <memory>
#include <string>
#include <vector>

namespace hyperframes::net {

/// What becomes of a reader whose queue is full.
enum class SlowReader : std::uint8_t {
  let_go,       ///< Its channel is closed, and says why.
  wait,         ///< `send` waits for it, and with it for all.
  drop_newest,  ///< It misses the message that is sent.
  drop_oldest,  ///< It misses those that have waited longest.
};

class Broadcast {
 public:
  struct Options {
    std::size_t queue_bytes = 4u << 20;  ///< Of each reader, of data; one message always fits.
    SlowReader slow = SlowReader::let_go;
  };
  struct ReaderStats {
    std::uint64_t number = 0;  ///< What `add` returned.
    std::string address;
    std::uint64_t sent = 0;     ///< Handed over to its channel.
    std::uint64_t dropped = 0;  ///< That it has missed.
    std::size_t queued_messages = 0, queued_bytes = 0;
  };

  explicit Broadcast(Options options);
  Broadcast() : Broadcast(Options()) {}
  /// Closes all channels; what is queued is not sent any more.
  ~Broadcast();
  Broadcast(const Broadcast&) = delete;
  Broadcast& operator=(const Broadcast&) = delete;

  /// From the next message on; returns its number, as in ReaderStats. When its channel has ended it
  /// leaves with the next message, and is counted until then. What it sends is not received.
  /// Errc::invalid_argument for an empty channel.
  std::uint64_t add(Channel reader);
  /// To every reader. Waits only with SlowReader::wait: deadline_exceeded (default: 5 s from now)
  /// names who was slow, and nobody has got the message. invalid_argument and too_large as
  /// Channel::send, before anybody got it.
  Task<void> send(TypedMessage message, Time deadline = Time{});
  /// Waits until all that is queued was handed over, or its readers have left. `Time{}`: 5 s from
  /// now, then Errc::deadline_exceeded; what is queued stays so.
  Task<void> drain(Time deadline = Time{});

  std::vector<ReaderStats> readers() const;
  std::size_t reader_count() const noexcept;
  /// Messages that readers have missed, those included that have left since.
  std::uint64_t dropped() const noexcept { return dropped_; }
  /// Readers that were let go because they were slow.
  std::uint64_t let_go() const noexcept { return let_go_; }

 private:
  struct Reader;
  bool is_full(const Reader& reader, std::size_t bytes) const noexcept;
  const Reader* slowest(std::size_t bytes) const noexcept;
  void enqueue(Reader& reader, const TypedMessage& message, std::size_t bytes);
  void let_go_of(Reader& reader) noexcept;
  Task<void> pump(Reader* reader);
  void remove(const Reader* reader) noexcept;

  Options options_;
  std::vector<std::unique_ptr<Reader>> readers_;
  std::uint64_t next_number_ = 0, dropped_ = 0, let_go_ = 0;
  Event progressed_;  ///< Pulsed when a queue got shorter, or a reader left.
  Scope pumps_;       ///< Ends first, since its tasks use the rest.
};

}  // namespace hyperframes::net
