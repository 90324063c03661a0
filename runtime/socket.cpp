#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <deque>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <hyperframes/runtime/socket.hpp>

namespace hyperframes {
namespace {

// Chunks read ahead of the receiver before the stream is paused.
constexpr std::size_t read_ahead = 16;
// From this much on, filling memory directly is worth ending the stream of chunks for.
constexpr std::size_t direct_threshold = 64 << 10;

[[noreturn]] void fail(std::int64_t result, const std::string& tried) {
  throw Error::system(static_cast<int>(-result), tried);
}

}  // namespace

/// The receiving half is a stream operation that lives across calls; this is what it reports to.
class Socket::State final : public Completion {
 public:
  State(int descriptor, Address peer) noexcept
      : descriptor(descriptor), peer(peer), shard_(*Shard::current()) {}
  ~State() {
    if (stream_) {
      stream_->owner = nullptr;
      shard_.reactor().cancel(stream_);
    }
    if (descriptor >= 0) shard_.reactor().close_now(descriptor);
  }

  void start_stream() noexcept {
    if (stream_ || ended_ || failure_) return;
    pausing_ = false;
    stream_ = Operation::create(Operation::Kind::receive_stream, descriptor);
    stream_->owner = this;
    shard_.reactor().start(stream_);
  }
  void pause_stream() noexcept {
    if (!stream_ || pausing_) return;
    pausing_ = true;
    shard_.reactor().cancel(stream_);
  }
  bool streaming() const noexcept { return stream_ != nullptr; }

  Buffer pop() noexcept {
    if (chunks_.empty()) return {};
    Buffer chunk = std::move(chunks_.front());
    chunks_.pop_front();
    return chunk;
  }
  void push_front(Buffer rest) { chunks_.push_front(std::move(rest)); }
  bool has_chunk() const noexcept { return !chunks_.empty(); }
  /// What has been received is gone: the rest would be taken for something else.
  void lose_bytes() noexcept {
    if (failure_ == 0) failure_ = ECANCELED;
    chunks_.clear();
  }
  bool ended() const noexcept { return ended_; }
  int failure() const noexcept { return failure_; }

  /// Woken by a chunk, the end, a failure, or the stream's pause having taken effect.
  class Changed : public detail::Waiter {
   public:
    Changed(State& state, Time deadline) noexcept : Waiter(deadline), state_(state) {}
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    bool await_suspend(std::coroutine_handle<Promise> handle) noexcept {
      if (!begin(handle.promise())) return false;
      state_.waiting_.push_back(*this);
      return true;
    }
    void await_resume() const {
      if (promise()) throw_unless_woken("receive from a socket");
    }

   private:
    State& state_;
  };

  int descriptor;
  Address peer;

 private:
  void on_complete(Operation& operation, std::int64_t result, bool more) noexcept override {
    if (more) {
      if (failure_) return;  // bytes before these are lost
      chunks_.push_back(std::move(operation.chunk));
      if (chunks_.size() >= read_ahead) pause_stream();
    } else {
      stream_ = nullptr;
      if (result == 0) {
        ended_ = true;
      } else if (result < 0 && !(pausing_ && result == -ECANCELED)) {
        failure_ = static_cast<int>(-result);
      }
      pausing_ = false;
    }
    while (detail::Waiter* waiter = waiting_.pop_front()) waiter->wake();
  }

  Shard& shard_;
  Operation* stream_ = nullptr;
  bool pausing_ = false, ended_ = false;
  int failure_ = 0;
  std::deque<Buffer> chunks_;
  detail::List<detail::Waiter> waiting_;
};

Socket::Socket() noexcept = default;
Socket::Socket(Socket&&) noexcept = default;
Socket& Socket::operator=(Socket&&) noexcept = default;
Socket::~Socket() = default;
Socket::Socket(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}

Socket Socket::adopt(int descriptor, Address peer) {
  Shard::current()->reactor().tune_socket(descriptor, 0);
  return Socket(std::make_unique<State>(descriptor, peer));
}

int Socket::release() noexcept {
  assert(state_ && !state_->streaming() && !state_->has_chunk());
  const int descriptor = std::exchange(state_->descriptor, -1);
  state_.reset();
  return descriptor;
}

Task<Socket> Socket::connect(Address address, Time deadline) {
  Operation* operation = Operation::create(Operation::Kind::connect);
  operation->address = address;
  detail::OperationAwaiter waiting(operation, deadline);
  const std::int64_t result = co_await waiting;
  if (result < 0) fail(result, "connect to " + address.to_string());
  co_return adopt(static_cast<int>(result), address);
}

bool Socket::is_open() const noexcept { return state_ && state_->descriptor >= 0; }
const Address& Socket::peer() const noexcept { return state_->peer; }

void Socket::set_unsent_backlog(std::size_t bytes) noexcept {
  Shard::current()->reactor().tune_socket(state_->descriptor, bytes);
}

Buffer Socket::try_receive() noexcept {
  Buffer chunk = state_->pop();
  return chunk;
}

Task<Buffer> Socket::receive(Time deadline) {
  State& state = *state_;
  while (true) {
    if (state.has_chunk()) co_return state.pop();
    if (state.failure()) fail(-state.failure(), "receive from " + state.peer.to_string());
    if (state.ended()) co_return Buffer();
    state.start_stream();
    co_await State::Changed(state, deadline);
  }
}

// Bytes that a receive took and can't give to anybody are missing from the stream.
Task<void> Socket::receive_exactly(Buffer into) {
  const std::size_t wanted = into.size();
  try {
    while (!into.empty()) co_await receive_part(into);
  } catch (...) {
    if (into.size() < wanted) state_->lose_bytes();
    throw;
  }
}

Task<void> Socket::receive_part(Buffer& into) {
  State& state = *state_;
  const bool direct = into.size() >= direct_threshold && !state.ended() && !state.failure();
  if (!state.has_chunk() && direct && state.streaming()) {
    state.pause_stream();
    co_await State::Changed(state, no_deadline);
  } else if (!state.has_chunk() && direct) {
    Operation* operation = Operation::create(Operation::Kind::receive, state.descriptor);
    operation->memory.push_back(into);
    operation->flags = MSG_WAITALL;
    detail::OperationAwaiter waiting(operation);
    const std::int64_t result = co_await waiting;
    if (result < 0) fail(result, "receive from " + state.peer.to_string());
    if (result == 0) ended_early(into);
    into.remove_prefix(static_cast<std::size_t>(result));
  } else {
    Buffer chunk = co_await receive();
    if (chunk.empty()) ended_early(into);
    const std::size_t count = std::min(chunk.size(), into.size());
    std::memcpy(into.data(), chunk.data(), count);
    into.remove_prefix(count);
    chunk.remove_prefix(count);
    if (!chunk.empty()) state.push_front(std::move(chunk));
  }
}

void Socket::ended_early(const Buffer& into) const {
  throw Error(Errc::closed, "receive from " + state_->peer.to_string(),
              "the stream ended " + std::to_string(into.size()) + " bytes early");
}

Task<void> Socket::send(Segments data, Time deadline) {
  State& state = *state_;
  while (data.size_bytes() > 0) {
    Operation* operation = Operation::create(Operation::Kind::send, state.descriptor);
    operation->memory = std::move(data);
    detail::OperationAwaiter waiting(operation, deadline);
    const std::int64_t result = co_await waiting;
    data = std::move(waiting.memory);
    if (result == -EINTR || result == -EAGAIN) continue;
    if (result < 0) fail(result, "send to " + state.peer.to_string());
    data.remove_prefix(static_cast<std::size_t>(result));
  }
}

Task<void> Socket::shutdown_send() {
  detail::OperationAwaiter waiting(
      Operation::create(Operation::Kind::shutdown, state_->descriptor));
  const std::int64_t result = co_await waiting;
  if (result < 0 && result != -ENOTCONN)
    fail(result, "shut down sending to " + state_->peer.to_string());
}

Task<void> Socket::close() {
  if (!is_open()) co_return;
  State& state = *state_;
  while (state.streaming()) {
    state.pause_stream();
    co_await State::Changed(state, no_deadline);
  }
  detail::OperationAwaiter waiting(
      Operation::create(Operation::Kind::close, std::exchange(state.descriptor, -1)));
  co_await waiting;
}

Listener::Listener(Listener&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      of_system_(other.of_system_),
      address_(other.address_) {}
Listener& Listener::operator=(Listener&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(of_system_, other.of_system_);
  std::swap(address_, other.address_);
  return *this;
}
Listener::~Listener() { close(); }

Listener Listener::bind(const Address& address, int backlog) {
  Reactor& reactor = Shard::current()->reactor();
  Listener listener;
  listener.descriptor_ = reactor.listen(address, backlog);
  listener.of_system_ = reactor.has_system_descriptors();
  listener.address_ = reactor.local_address(listener.descriptor_);
  return listener;
}

Task<Socket> Listener::accept(Time deadline) {
  while (true) {
    detail::OperationAwaiter waiting(Operation::create(Operation::Kind::accept, descriptor_),
                                     deadline);
    const std::int64_t result = co_await waiting;
    // The peer gave up while it was queued: not the listener's failure.
    if (result == -ECONNABORTED || result == -EINTR || result == -EAGAIN) continue;
    if (result == -EINVAL && !is_open())
      throw Error(Errc::closed, "accept on " + address_.to_string(), "the listener was closed");
    if (result < 0)
      throw Error::system(static_cast<int>(-result), "accept on " + address_.to_string(), {},
                          result == -EMFILE ? "raise the open-files limit (ulimit -n)" : "");
    co_return Socket::adopt(static_cast<int>(result), waiting.address);
  }
}

void Listener::close() noexcept {
  if (descriptor_ < 0) return;
  const int descriptor = std::exchange(descriptor_, -1);
  if (Shard* shard = Shard::current()) {
    shard->reactor().close_listener(descriptor);
  } else if (of_system_) {
    ::shutdown(descriptor, SHUT_RDWR);  // an accept that waits would keep it listening
    ::close(descriptor);
  }
}

Task<std::vector<Address>> resolve(std::string host, std::uint16_t port) {
  if (auto numeric = Address::parse(host, port)) co_return std::vector<Address>{*numeric};
  Operation* operation = Operation::create(Operation::Kind::resolve);
  operation->path = host;
  operation->address.set_port(port);
  detail::OperationAwaiter waiting(operation);
  const std::int64_t result = co_await waiting;
  if (result <= 0)
    throw Error(Errc::unreachable, "resolve the host name '" + host + "'",
                result == -EAGAIN ? "the name server did not answer" : "no such host",
                "check the name, or give a numeric address");
  co_return std::move(waiting.addresses);
}

}  // namespace hyperframes
