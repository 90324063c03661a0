// The two ends of one direction of a stream, without the type of its messages.
//
// A sink (where one writes) and a source (where one reads) know each other by numbers, and send
// each other frames: on one shard, between shards, or through a session of the network. A source
// lends the sink a window, in messages and in bytes. What the sink has sent stays charged until the
// source says that it has been read; so a reader that is slow holds up the writers of its stream,
// and nothing else: what arrives from a peer is copied out of what the network lends its sender.
//
// An end lives as long as the handle that owns it. A frame to an end that is gone is answered, if
// it brings something to read, by the wish to stop: so a sink never writes for long to nobody.
#pragma once

#include <cstdint>
#include <hyperframes/actors/within.hpp>
#include <hyperframes/net/lane.hpp>
#include <hyperframes/runtime/buffer.hpp>
#include <hyperframes/runtime/detail/list.hpp>
#include <hyperframes/runtime/detail/pool.hpp>
#include <hyperframes/runtime/detail/waiter.hpp>
#include <hyperframes/runtime/detail/work.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/time.hpp>
#include <hyperframes/runtime/timer.hpp>
#include <memory>
#include <optional>

namespace hyperframes {

/// How much of a stream may have been written and not been read yet.
struct StreamWindow {
  std::uint32_t messages = 64;
  /// At most 1 GiB. One message that is larger passes when it is the only one.
  std::uint32_t bytes = 256u << 10;
  // A writer in another process goes 65,536 messages and 64 MiB ahead at most, whatever is granted.
};

namespace detail {

class NodeCore;
class NodeShard;
class RemotePeer;
class StreamSink;
class StreamSource;

/// Numbers are part of the wire protocol.
enum class StreamOp : std::uint8_t {
  data = 0,     ///< To a source: one message.
  end = 1,      ///< To a source: there are no more.
  failure = 2,  ///< To a source: the writer ended with an error.
  blocked = 3,  ///< To a source: a writer waits for credit; or, first of all, there is one.
  credit = 4,   ///< To a sink: so much was read.
  stop = 5,     ///< To a sink: nobody reads any more.
};
inline constexpr StreamOp last_stream_op = StreamOp::stop;

/// What one end says to the other; on its way, and in a source's queue.
struct StreamFrame : Work {
  static void* operator new(std::size_t size) { return pool_allocate(size); }
  static void operator delete(void* memory) noexcept { pool_release(memory); }
  StreamFrame(StreamOp op, std::uint64_t target, std::uint64_t from) noexcept
      : Work(nullptr), op(op), target(target), from(from) {}

  StreamOp op;
  std::uint64_t target, from;  ///< Numbers of ends.
  NodeShard* there = nullptr;  ///< Between shards: the target's.
  std::uint32_t messages = 0;  ///< Of a credit.
  std::uint32_t bytes = 0;
  Buffer body;
  std::unique_ptr<Error> error;
};
/// On the target's shard. `peer`: where it came from, if from another process.
void deliver(NodeShard& here, std::unique_ptr<StreamFrame> frame, RemotePeer* peer) noexcept;
/// To an end of this process, or of that peer's: as PeerShard::post.
Result<void> send(NodeShard& here, std::unique_ptr<StreamFrame> frame, RemotePeer* peer,
                  net::Lane lane) noexcept;

Error node_ended();

/// What a source must know of its messages' type.
struct StreamElement {
  const char* name;
  /// Checks what came from outside, and may move it where its type wants it.
  Result<Buffer> (*verify)(Buffer bytes);
};

/// Where an end is, and whom it belongs to.
struct StreamPlace {
  NodeShard* home = nullptr;
  RemotePeer* peer = nullptr;  ///< The other end's process, if it is another one.
  net::Lane lane = net::Lane::normal;
  Time deadline = no_deadline;  ///< Of the stream as a whole.
  std::uint32_t owner = 0;      ///< The actor that made the end, if one did (runtime/witness.hpp).
};

class StreamEnd {
 public:
  StreamEnd(const StreamEnd&) = delete;
  static void* operator new(std::size_t size) { return pool_allocate(size); }
  static void operator delete(void* memory) noexcept { pool_release(memory); }

  std::uint64_t number() const noexcept { return number_; }
  RemotePeer* peer() const noexcept { return place_.peer; }
  virtual bool takes(StreamOp op) const noexcept = 0;
  virtual void receive(std::unique_ptr<StreamFrame> frame) noexcept = 0;
  /// Nothing more can come from the other end.
  virtual void fail(Error error) noexcept = 0;
  /// Its node is gone.
  void detach() noexcept;
  bool detached() const noexcept { return !place_.home; }

 protected:
  explicit StreamEnd(const StreamPlace& place);
  ~StreamEnd();
  /// How it tells the other end that this one gives up.
  virtual StreamOp farewell() const noexcept = 0;
  void say(StreamOp op, std::unique_ptr<Error> error = nullptr) noexcept;
  /// What can't be sent ends it.
  void send(std::unique_ptr<StreamFrame> frame, net::Lane lane) noexcept;
  std::unique_ptr<StreamFrame> frame(StreamOp op) const;
  net::Lane lane_of(StreamOp op) const noexcept;
  NodeShard* home() const noexcept { return place_.home; }
  /// This end is dropped: tells the other one why.
  void give_up(const char* what) noexcept;
  void stop_clock() noexcept { clock_.stop(); }

  StreamPlace place_;
  std::uint64_t number_ = 0;
  std::uint64_t other_ = 0;  ///< 0: not known yet.

 private:
  struct Clock : Timer {
    explicit Clock(StreamEnd& end) noexcept : Timer(&Clock::run), end(end) {}
    static void run(Timer& timer) noexcept;
    StreamEnd& end;
  };
  Clock clock_;
};

/// A coroutine that has something to write.
class WriteWaiter : public Waiter {
 public:
  WriteWaiter(StreamSink* sink, Buffer body, Within within) noexcept
      : Waiter(no_deadline, Errc::deadline_exceeded, &WriteWaiter::left),
        sink_(sink),
        body_(std::move(body)),
        within_(within) {}
  ~WriteWaiter() { leave(); }
  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    return start(handle.promise());
  }
  /// Throws if it was not written.
  void await_resume();

 private:
  friend class StreamSink;
  bool start(PromiseBase& promise) noexcept;
  static void left(Waiter& self) noexcept;
  StreamSink* sink_;
  Buffer body_;
  Within within_;
  bool written_ = false;
  std::unique_ptr<Error> failure_;
};

class StreamSink final : public StreamEnd {
 public:
  /// `other`: the source's number.
  StreamSink(const StreamPlace& place, std::uint64_t other, StreamWindow window);
  ~StreamSink();

  /// Writes if there is credit; else `body` is untouched. False as well if the stream has ended,
  /// before or by that.
  bool try_write(Buffer& body) noexcept;
  /// Tells the source, which was there before, who writes to it: so that it can tell of its end.
  void introduce() noexcept;
  /// Ends it. What was written will still be read.
  void finish() noexcept;
  void finish(Error error) noexcept;
  /// Why nothing can be written any more, or null.
  const Error* failure() const noexcept { return failure_.get(); }

  bool takes(StreamOp op) const noexcept override { return op >= StreamOp::credit; }
  void receive(std::unique_ptr<StreamFrame> frame) noexcept override;
  void fail(Error error) noexcept override;

 private:
  friend class WriteWaiter;
  bool fits(std::size_t size) const noexcept;
  void put(Buffer body) noexcept;
  void admit() noexcept;
  void tell_blocked() noexcept;
  void close(Error error) noexcept;
  StreamOp farewell() const noexcept override { return StreamOp::failure; }

  StreamWindow window_;
  std::uint32_t messages_ = 0;  ///< Written, and not known to have been read.
  std::uint64_t bytes_ = 0;
  bool told_blocked_ = false;  ///< The source knows that a writer waits.
  List<WriteWaiter> waiting_;
  std::unique_ptr<Error> failure_;
};

/// A coroutine that waits for something to read.
class ReadWaiter : public Waiter {
 public:
  ReadWaiter(StreamSource* source, Within within) noexcept : source_(source), within_(within) {}
  ~ReadWaiter();
  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    return start(handle.promise());
  }
  /// The bytes of the next message; none at the stream's end. Throws what it failed with.
  std::optional<Buffer> take();

 private:
  friend class StreamSource;
  bool start(PromiseBase& promise) noexcept;
  StreamSource* source_;  ///< Null once it is gone.
  Within within_;
  bool waits_ = false;
  bool second_ = false;  ///< Somebody else reads already.
};

class StreamSource final : public StreamEnd {
 public:
  StreamSource(const StreamPlace& place, const StreamElement& element, StreamWindow window);
  ~StreamSource();

  /// The sink's number, and where it is, once they are known.
  void connect(std::uint64_t other) noexcept;
  StreamWindow window() const noexcept { return window_; }
  std::size_t waiting_messages() const noexcept { return queue_.size(); }

  bool takes(StreamOp op) const noexcept override { return op < StreamOp::credit; }
  void receive(std::unique_ptr<StreamFrame> frame) noexcept override;
  void fail(Error error) noexcept override;

 private:
  friend class ReadWaiter;
  bool has_something() const noexcept { return !queue_.empty() || ended_ || failure_; }
  void take_in(std::unique_ptr<StreamFrame> frame) noexcept;
  void return_credit() noexcept;
  void wake_reader() noexcept;
  void drop_queue() noexcept;
  std::optional<Buffer> next();
  StreamOp farewell() const noexcept override { return StreamOp::stop; }

  const StreamElement& element_;
  StreamWindow window_;
  WorkQueue queue_;
  std::uint64_t held_bytes_ = 0;     ///< Charged to the window: in the queue, or not returned yet.
  std::uint32_t read_messages_ = 0;  ///< Read, and not returned yet.
  std::uint64_t read_bytes_ = 0;
  bool sink_waits_ = false;
  bool ended_ = false;
  ReadWaiter* reader_ = nullptr;
  std::unique_ptr<Error> failure_;
};

/// What an opening asks for, as it lies at the beginning of its letter.
struct alignas(16) StreamOffer {
  std::uint64_t source = 0;  ///< The caller's.
  StreamWindow window;
  Time deadline = no_deadline;

  /// Between processes, where clocks differ, what is left of the deadline travels.
  Buffer to_bytes() const;
  static Result<StreamOffer> from_bytes(const Segments& segments);
};

/// The answer to an opening: the handler's ends. Unless it is taken, they are told to end.
struct StreamOpened {
  StreamOpened() noexcept = default;
  StreamOpened(StreamOpened&& other) noexcept;
  StreamOpened& operator=(StreamOpened&&) = delete;
  ~StreamOpened();
  /// From now on somebody looks after those ends.
  void taken() noexcept { source = sink = 0; }
  Buffer to_bytes() &&;
  /// False if that is no such answer.
  bool read(const Buffer& bytes) noexcept;

  NodeCore* core = nullptr;
  RemotePeer* peer = nullptr;
  std::uint64_t source = 0, sink = 0;
  StreamWindow window;  ///< Of `source`.
};
/// An answer that came when nobody waited for it any more; or, without a peer, can't be sent.
void abandon_opened(NodeShard& here, RemotePeer* peer, const Buffer& body) noexcept;

}  // namespace detail
}  // namespace hyperframes
