// What a shard asks of the system, as one interface with several drivers.
//
//   auto* operation = hf::Operation::create(hf::Operation::Kind::read, descriptor);
//   operation->memory.push_back(buffer);
//   std::int64_t bytes = co_await hf::detail::OperationAwaiter(operation);   // or a negated errno
//
// Programs use File, Socket and Listener; this is what those, and the drivers, are written
// against. The system owns an operation's memory until its completion has arrived, whatever
// became of the coroutine that started it: so the Operation, not the coroutine, holds the buffers,
// and an operation whose awaiter is gone is finished by the driver, which closes any descriptor
// that still arrives.
#pragma once

#include <array>
#include <cstdint>
#include <hyperframes/runtime/address.hpp>
#include <hyperframes/runtime/buffer.hpp>
#include <hyperframes/runtime/time.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace hyperframes {

class Operation;

/// Told of an operation's end. Runs on the shard, in its turn, after the completion was copied out
/// of the driver: it may start and cancel operations.
class Completion {
 public:
  /// `result`: bytes, a descriptor, or a negated errno. With `more`, further results follow
  /// (receive_stream) and `operation` stays in flight; else it is freed after this returns, so
  /// move out what you need.
  virtual void on_complete(Operation& operation, std::int64_t result, bool more) noexcept = 0;

 protected:
  ~Completion() = default;
};

/// One request and, once it is completed, what it brought. It has a fixed place in memory.
class Operation : public detail::ListNode {  // a node of the driver's list of what is in flight
 public:
  enum class Kind : std::uint8_t {
    accept,          ///< descriptor → connected descriptor; `address` becomes the peer's
    connect,         ///< address → connected descriptor
    receive,         ///< descriptor, memory[0] → bytes: as many as have come, at least one; 0 at
                     ///< the end
    receive_stream,  ///< descriptor → many results; each moves one pooled chunk into `chunk`
    send,            ///< descriptor, memory → bytes, possibly fewer than all
    shutdown,        ///< descriptor: no more sends
    close,           ///< descriptor
    open,            ///< path, flags → descriptor
    read,            ///< descriptor, offset, memory[0] → bytes, 0 at the end
    write,           ///< descriptor, offset, memory → bytes, possibly fewer than all
    sync,            ///< descriptor: data and what is needed to find it are durable
    sync_directory,  ///< path: names in that directory are durable
    truncate,        ///< descriptor, offset = new size
    size,            ///< descriptor → bytes
    rename,          ///< path → second_path
    remove,          ///< path; a file or an empty directory
    make_directory,  ///< path, with its parents; existing is fine
    list_directory,  ///< path → names, sorted
    resolve,         ///< path = host name, address.port → addresses
  };

  /// From the current shard's pool; freed by the driver after the last completion.
  static Operation* create(Kind kind, int descriptor = -1);
  /// Of one that was never started. Drivers: of one that has ended.
  static void destroy(Operation* operation) noexcept;

  Kind kind;
  int descriptor = -1;
  int flags = 0;                ///< open(2)'s for `open`, recv(2)'s for `receive`.
  Completion* owner = nullptr;  ///< Null once abandoned.
  std::uint64_t offset = 0;
  Segments memory;  ///< What the system reads or writes.
  Buffer chunk;     ///< receive_stream: the bytes of this result.
  Address address;
  std::string path, second_path;
  std::vector<std::string> names;
  std::vector<Address> addresses;

  /// The driver's own part, such as an iovec array; opaque here.
  struct DriverState {
    virtual ~DriverState() = default;
  };
  std::unique_ptr<DriverState> driver_state;
  std::uint64_t driver_word = 0;

 private:
  explicit Operation(Kind kind, int descriptor) noexcept : kind(kind), descriptor(descriptor) {}
  ~Operation() = default;
};

/// One shard's driver. All calls on the shard's own thread or strand, except `wake` and
/// `hold_turns`.
class Reactor {
 public:
  virtual ~Reactor() = default;
  /// "uring", "asio", "sim": for logs and tests.
  virtual std::string_view name() const noexcept = 0;
  /// Read afresh: the system's monotonic clock, or the simulator's. Never decreases.
  virtual Time now() const noexcept = 0;

  /// Begins `operation` and owns it from here on. Failing to begin is a completion like any other,
  /// delivered by a later `poll`, never from inside this call.
  virtual void start(Operation* operation) noexcept = 0;
  /// Asks for an early end. The completion still comes (-ECANCELED, or the result that won).
  virtual void cancel(Operation* operation) noexcept = 0;
  /// Hands over what was started and delivers what has completed, without waiting; the rest comes
  /// with the next call if delivering takes long. Returns the number delivered.
  virtual std::size_t poll() noexcept = 0;
  /// Whether there may be something for `poll` to hand over or deliver. Only looks, so a shard that
  /// has nothing to do can ask again and again.
  virtual bool has_news() const noexcept { return true; }
  /// Hands over what was started and sleeps until there is something for `poll` to deliver, a
  /// `wake`, or `until`.
  virtual void wait(Time until) noexcept = 0;
  /// Ends a `wait`, now or the next one. From any thread.
  virtual void wake() noexcept = 0;

  /// A listening socket on `address`; port 0 picks one. Throws with the address and the cause.
  virtual int listen(const Address& address, int backlog) = 0;
  /// Where a socket is bound, with the port that was picked. Throws the system's error.
  virtual Address local_address(int descriptor) const = 0;
  /// Sets up a connected socket: no Nagle delay, and a send call that completes only while the
  /// unsent backlog is below `unsent_backlog_bytes` (0: the system's default).
  virtual void tune_socket(int descriptor, std::size_t unsent_backlog_bytes) noexcept = 0;
  /// Closes at once, ignoring errors: for descriptors that nobody waits for.
  virtual void close_now(int descriptor) noexcept = 0;
  /// The same for a connection, but its peer is told that it broke, not that it ended in order;
  /// what was not sent yet is dropped.
  virtual void reset_now(int descriptor) noexcept { close_now(descriptor); }
  /// The same for what `listen` made: nothing listens there any more, and accepts that wait end
  /// with -EINVAL.
  virtual void close_listener(int descriptor) noexcept { close_now(descriptor); }
  /// Of socket(2), for a listening socket that others make for this driver.
  virtual int listening_flags() const noexcept { return 0; }
  /// Whether descriptors are the process's own, so that close(2) closes them.
  virtual bool has_system_descriptors() const noexcept { return false; }
  /// Keeps other threads from running the shard's turns while it is held, for drivers whose turns
  /// run on an embedder's threads. From any thread. Elsewhere it is empty.
  virtual std::unique_lock<std::recursive_mutex> hold_turns() { return {}; }
  /// Operations started and not completed.
  virtual std::size_t in_flight() const noexcept = 0;
  /// Before the shard's end, on its thread while it has one: cancels all that is in flight, ends it
  /// to its owners and returns once the system has let go of its memory. What it holds on to until
  /// `until` is logged and kept for good; its owner gets -ECANCELED and no memory. Operations begun
  /// later are cancelled by the next `poll` or `drain`. False if the system holds on to something:
  /// the thread then can't end before that.
  virtual bool drain(Time until) noexcept {
    static_cast<void>(until);
    return true;
  }
};

namespace detail {

/// What such an operation does, for errors and logs: "connect", "write a file".
const char* name_of(Operation::Kind kind) noexcept;

/// Whether the result of such an operation is a new descriptor, which somebody must close.
constexpr bool brings_descriptor(Operation::Kind kind) noexcept {
  return kind == Operation::Kind::accept || kind == Operation::Kind::connect ||
         kind == Operation::Kind::open;
}

/// Awaits one operation. A cancelled chain asks the driver to cancel and still waits for the
/// completion; destroyed in mid-wait, it leaves the operation to the driver.
class OperationAwaiter final : public Completion {
 public:
  explicit OperationAwaiter(Operation* operation, Time deadline = no_deadline) noexcept;
  OperationAwaiter(const OperationAwaiter&) = delete;
  ~OperationAwaiter();

  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    return begin(handle.promise());
  }
  /// The result; throws Errc::cancelled or Errc::deadline_exceeded only if that is why it ended.
  std::int64_t await_resume();

  /// What the completed operation left behind.
  Segments memory;
  Address address;
  std::vector<std::string> names;
  std::vector<Address> addresses;

 private:
  struct OnCancel : CancelCallback {
    explicit OnCancel(OperationAwaiter& self) noexcept
        : CancelCallback(&OnCancel::run), self(self) {}
    static void run(CancelCallback& callback) noexcept;
    OperationAwaiter& self;
  };
  struct OnTimeout : Timer {
    explicit OnTimeout(OperationAwaiter& self) noexcept : Timer(&OnTimeout::run), self(self) {}
    static void run(Timer& timer) noexcept;
    OperationAwaiter& self;
  };
  bool begin(PromiseBase& promise) noexcept;
  void stop(Errc reason) noexcept;
  void on_complete(Operation& operation, std::int64_t result, bool more) noexcept override;

  Operation* operation_;
  PromiseBase* promise_ = nullptr;
  OnCancel on_cancel_;
  OnTimeout on_timeout_;
  Time deadline_;
  std::int64_t result_ = -1;
  bool stopped_ = false;
  bool claimed_ = false;  ///< The coroutine has the result.
  Errc stop_reason_ = Errc::cancelled;
  Operation::Kind kind_;
};

}  // namespace detail
}  // namespace hyperframes
