// What the asio driver of a shard with its own thread, and of one on an embedder's io_context, have
// in common. Private to those two.
#pragma once

#include <asio/any_io_executor.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <cstdint>
#include <hyperframes/runtime/reactor.hpp>
#include <hyperframes/runtime/reactor/asio.hpp>
#include <memory>
#include <mutex>

namespace hyperframes::detail {

/// Every operation is tried at once; one that would block waits for its descriptor to become ready,
/// on a duplicate of its own: so the number that the operation named may be closed, and become
/// another file's, in the meantime.
class AsioReactor : public Reactor {
 public:
  AsioReactor(asio::any_io_executor executor, AsioReactorOptions options);
  ~AsioReactor() override;

  Time now() const noexcept final;
  void start(Operation* operation) noexcept final;
  void cancel(Operation* operation) noexcept final;
  std::size_t poll() noexcept final;
  int listen(const Address& address, int backlog) final;
  Address local_address(int descriptor) const final;
  void tune_socket(int descriptor, std::size_t unsent_backlog_bytes) noexcept final;
  void close_now(int descriptor) noexcept final;
  void reset_now(int descriptor) noexcept final;
  void close_listener(int descriptor) noexcept final;
  int listening_flags() const noexcept final;
  bool has_system_descriptors() const noexcept final { return true; }
  std::size_t in_flight() const noexcept final { return in_flight_; }
  bool drain(Time until) noexcept final;

 protected:
  /// What asio's handlers reach the driver through: they may run when it is gone.
  struct Gate {
    std::recursive_mutex mutex;  ///< Held by whoever runs the driver or the shard.
    AsioReactor* reactor = nullptr;
  };

  /// Lets those handlers run that need not be waited for.
  virtual void run_handlers() noexcept = 0;
  /// A handler has found something for `poll` to deliver, or the time that `arm` was given has
  /// come.
  virtual void on_activity() noexcept = 0;

  bool has_deliverable() const noexcept { return !ready_.empty() || !ended_.empty(); }
  /// Calls on_activity at `until`, or earlier.
  void arm(Time until);
  /// Once the derived class must not be called any more: its destructor's first act.
  void shut() noexcept;

  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  const asio::any_io_executor executor_;

 private:
  struct Wait;
  struct State;
  struct Chunk;
  struct Chunks;
  enum class Step : std::uint8_t { ended, blocked, again };

  static State& state_of(Operation& operation);
  int file_of(Operation& operation) noexcept;
  void begin_connect(Operation& operation) noexcept;
  void advance(Operation& operation) noexcept;
  Step attempt(Operation& operation, std::int64_t& result) noexcept;
  Step try_accept(Operation& operation, std::int64_t& result) noexcept;
  Step try_connect(Operation& operation, std::int64_t& result) noexcept;
  Step try_receive(Operation& operation, std::int64_t& result) noexcept;
  Step try_send(Operation& operation, std::int64_t& result) noexcept;
  Step try_stream(Operation& operation, std::int64_t& result) noexcept;
  bool hold_file(Operation& operation) noexcept;
  void wait_for(Operation& operation) noexcept;
  void starve(Operation& operation) noexcept;
  void restart_starved() noexcept;
  void move_to(List<Operation>& list, Operation& operation, std::uint64_t word) noexcept;
  void end_later(Operation& operation, std::int64_t result) noexcept;
  void finish(Operation* operation) noexcept;
  std::size_t deliver_ended() noexcept;
  std::size_t deliver_ready(Time limit) noexcept;

  const AsioReactorOptions options_;
  std::shared_ptr<Chunks> chunks_;
  asio::steady_timer timer_;
  Time armed_at_ = Time::max();
  std::size_t in_flight_ = 0;
  std::size_t ended_count_ = 0;
  bool draining_ = false;
  List<Operation> waiting_;  // for their descriptors
  List<Operation> ready_;    // to be tried again
  List<Operation> starved_;  // streams, for receive memory
  List<Operation> ended_;    // to be told to their owners
};

}  // namespace hyperframes::detail
