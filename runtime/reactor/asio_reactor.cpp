#include <hyperframes/runtime/reactor/asio_reactor.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <hyperframes/runtime/reactor/blocking.hpp>
#include <hyperframes/runtime/reactor/system_socket.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <new>
#include <utility>
#include <vector>

namespace hyperframes::detail {
namespace {

// Values of driver_word.
constexpr std::uint64_t ended = 0, waiting = 1, ready = 2, starved = 3;
// What one operation may move before others get their turn.
constexpr std::size_t transfer_limit = std::size_t{1} << 20;
constexpr std::size_t most_vectors = 64;
constexpr int most_chunks = 16;
constexpr unsigned longest_clock_stride = 32;

bool would_block(int failure) noexcept { return failure == EAGAIN || failure == EWOULDBLOCK; }

bool is_offloaded(Operation::Kind kind) noexcept { return is_blocking(kind) || is_of_file(kind); }

std::chrono::steady_clock::time_point to_steady(Time time) noexcept {
  return std::chrono::steady_clock::time_point(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(time.time_since_epoch()));
}

/// The rest of `segments` after `skipped` bytes, as far as one call takes it.
unsigned fill_vectors(std::array<iovec, most_vectors>& vectors, const Segments& segments,
                      std::size_t skipped) noexcept {
  unsigned count = 0;
  std::size_t bytes = 0;
  for (const Buffer& buffer : segments) {
    if (count == most_vectors || bytes >= transfer_limit) break;
    if (skipped >= buffer.size()) {
      skipped -= buffer.size();
      continue;
    }
    const std::size_t size = std::min(buffer.size() - skipped, transfer_limit - bytes);
    vectors[count++] = {buffer.data() + skipped, size};
    bytes += size;
    skipped = 0;
  }
  return count;
}

}  // namespace

/// Shared with asio's handler, which may run when the operation has long ended.
struct AsioReactor::Wait {
  Wait(const asio::any_io_executor& executor, Operation& operation)
      : descriptor(executor), operation(&operation) {}
  asio::posix::stream_descriptor descriptor;
  Operation* operation;  ///< Null once it has ended.
};

struct AsioReactor::State final : Operation::DriverState {
  static void* operator new(std::size_t size) { return pool_allocate(size); }
  static void operator delete(void* memory) noexcept { pool_release(memory); }
  std::shared_ptr<Wait> wait;
  std::size_t done = 0;  ///< Bytes moved so far.
};

// ---- Receive memory

struct AsioReactor::Chunk : Block {
  std::shared_ptr<Chunks> owner;  ///< While it is out.
};

/// Outlives the driver if chunks of it are still out.
struct AsioReactor::Chunks {
  explicit Chunks(AsioReactor& reactor) : reactor(&reactor) {
    free.reserve(reactor.options_.receive_chunks);
  }
  ~Chunks() {
    for (Chunk* chunk : free) release(chunk);
  }
  static void release(Chunk* chunk) noexcept {
    chunk->~Chunk();
    ::operator delete(chunk, std::align_val_t(64));
  }

  /// Null if there is none.
  Chunk* take() noexcept {
    if (out >= reactor->options_.receive_chunks) return nullptr;
    Chunk* chunk = nullptr;
    if (!free.empty()) {
      chunk = free.back();
      free.pop_back();
    } else {
      constexpr std::size_t header = (sizeof(Chunk) + 63) / 64 * 64;
      const std::size_t size = reactor->options_.receive_chunk_bytes;
      void* memory = ::operator new(header + size, std::align_val_t(64), std::nothrow);
      if (!memory) return nullptr;
      chunk = new (memory) Chunk;
      chunk->data = static_cast<std::byte*>(memory) + header;
      chunk->capacity = size;
      chunk->dispose = &Chunks::recycle;
    }
    ++out;
    return chunk;
  }
  void put_back(Chunk* chunk) noexcept {
    --out;
    if (reactor) {
      free.push_back(chunk);
    } else {
      release(chunk);
    }
  }
  static void recycle(Block* block) noexcept {
    auto* chunk = static_cast<Chunk*>(block);
    const std::shared_ptr<Chunks> self = std::move(chunk->owner);
    self->put_back(chunk);
    if (self->reactor && self->out <= self->reactor->options_.receive_chunks / 2)
      self->reactor->restart_starved();
  }

  AsioReactor* reactor;  ///< Null once it is gone.
  std::size_t out = 0;
  std::vector<Chunk*> free;
};

// ---- Life

AsioReactor::AsioReactor(asio::any_io_executor executor, AsioReactorOptions options)
    : executor_(std::move(executor)),
      options_(options),
      chunks_(std::make_shared<Chunks>(*this)),
      timer_(executor_) {
  gate_->reactor = this;
}

void AsioReactor::shut() noexcept {
  std::scoped_lock lock(gate_->mutex);
  if (!draining_) drain(now());
  gate_->reactor = nullptr;
}

AsioReactor::~AsioReactor() {
  // Begun after the drain; who waits for them, if anybody, is not told any more.
  while (Operation* operation = ended_.pop_front()) {
    operation->owner = nullptr;
    finish(operation);
  }
  chunks_->reactor = nullptr;
}

Time AsioReactor::now() const noexcept {
  timespec time;
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return Time(std::chrono::seconds(time.tv_sec) + Duration(time.tv_nsec));
}

bool AsioReactor::drain(Time) noexcept {
  draining_ = true;
  timer_.cancel();
  armed_at_ = Time::max();
  for (auto* list : {&ready_, &waiting_, &starved_})
    while (!list->empty()) cancel(&list->front());
  while (!ended_.empty()) deliver_ended();
  return true;
}

void AsioReactor::arm(Time until) {
  if (until == Time::max() || armed_at_ <= until) return;
  armed_at_ = until;
  timer_.expires_at(to_steady(until));
  timer_.async_wait([gate = gate_, until](const asio::error_code& failure) {
    if (failure) return;  // set anew
    std::scoped_lock lock(gate->mutex);
    if (!gate->reactor) return;
    if (gate->reactor->armed_at_ == until) gate->reactor->armed_at_ = Time::max();
    gate->reactor->on_activity();
  });
}

// ---- Operations

AsioReactor::State& AsioReactor::state_of(Operation& operation) {
  if (!operation.driver_state) operation.driver_state = std::make_unique<State>();
  return static_cast<State&>(*operation.driver_state);
}

int AsioReactor::file_of(Operation& operation) noexcept {
  State& state = state_of(operation);
  return state.wait ? state.wait->descriptor.native_handle() : operation.descriptor;
}

void AsioReactor::move_to(List<Operation>& list, Operation& operation,
                          std::uint64_t word) noexcept {
  operation.unlink();
  operation.driver_word = word;
  list.push_back(operation);
}

void AsioReactor::start(Operation* operation) noexcept {
  using enum Operation::Kind;
  ++in_flight_;
  const int descriptor = operation->descriptor;
  if (operation->kind == close)  // also while draining: nobody else knows that descriptor
    return end_later(*operation, ::close(descriptor) < 0 ? -errno : 0);
  if (draining_) return end_later(*operation, -ECANCELED);
  if (is_offloaded(operation->kind)) return start_blocking(operation, in_flight_);
  switch (operation->kind) {
    case shutdown: return end_later(*operation, ::shutdown(descriptor, SHUT_WR) < 0 ? -errno : 0);
    case connect: return begin_connect(*operation);
    case receive_stream: return wait_for(*operation);  // it delivers, which only `poll` may do
    default: return advance(*operation);
  }
}

void AsioReactor::begin_connect(Operation& operation) noexcept {
  const int family = operation.address.is_v6() ? AF_INET6 : AF_INET;
  if (operation.descriptor < 0)
    operation.descriptor = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (operation.descriptor < 0) return end_later(operation, -errno);
  sockaddr_storage address;
  const socklen_t length = to_system(operation.address, address);
  if (::connect(operation.descriptor, reinterpret_cast<sockaddr*>(&address), length) == 0)
    return end_later(operation, operation.descriptor);
  if (errno == EINPROGRESS || errno == EINTR) return wait_for(operation);
  end_later(operation, -errno);
}

void AsioReactor::advance(Operation& operation) noexcept {
  std::int64_t result = 0;
  switch (attempt(operation, result)) {
    case Step::ended: return end_later(operation, result);
    case Step::blocked: return wait_for(operation);
    case Step::again:
      if (hold_file(operation)) move_to(ready_, operation, ready);
      return;
  }
}

AsioReactor::Step AsioReactor::attempt(Operation& operation, std::int64_t& result) noexcept {
  switch (operation.kind) {
    case Operation::Kind::accept: return try_accept(operation, result);
    case Operation::Kind::connect: return try_connect(operation, result);
    case Operation::Kind::receive: return try_receive(operation, result);
    case Operation::Kind::send: return try_send(operation, result);
    case Operation::Kind::receive_stream: return try_stream(operation, result);
    default: result = -EINVAL; return Step::ended;
  }
}

AsioReactor::Step AsioReactor::try_accept(Operation& operation, std::int64_t& result) noexcept {
  sockaddr_storage peer{};
  socklen_t length = sizeof peer;
  const int accepted = ::accept4(file_of(operation), reinterpret_cast<sockaddr*>(&peer), &length,
                                 SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (accepted < 0 && would_block(errno)) return Step::blocked;
  result = accepted < 0 ? -errno : accepted;
  if (accepted >= 0) operation.address = from_system(peer);
  return Step::ended;
}

AsioReactor::Step AsioReactor::try_connect(Operation& operation, std::int64_t& result) noexcept {
  int failure = 0;
  socklen_t length = sizeof failure;
  if (::getsockopt(operation.descriptor, SOL_SOCKET, SO_ERROR, &failure, &length) < 0)
    failure = errno;
  sockaddr_storage peer;
  socklen_t peer_length = sizeof peer;
  if (!failure &&
      ::getpeername(operation.descriptor, reinterpret_cast<sockaddr*>(&peer), &peer_length) < 0) {
    if (errno == ENOTCONN) return Step::blocked;
    failure = errno;
  }
  result = failure ? -failure : operation.descriptor;
  return Step::ended;
}

// With MSG_WAITALL until the memory is full; a part that has come is a result like any other.
AsioReactor::Step AsioReactor::try_receive(Operation& operation, std::int64_t& result) noexcept {
  if (operation.memory.empty()) {
    pollfd look{file_of(operation), POLLIN, 0};
    const int ready = ::poll(&look, 1, 0);
    result = ready < 0 ? -errno : ready;
    return ready == 0 ? Step::blocked : Step::ended;
  }
  State& state = state_of(operation);
  const Buffer& into = operation.memory[0];
  const bool whole = (operation.flags & MSG_WAITALL) != 0;
  const int flags = MSG_DONTWAIT | (operation.flags & MSG_PEEK);
  for (std::size_t moved = 0; moved < transfer_limit;) {
    const std::size_t size = std::min(into.size() - state.done, transfer_limit);
    const auto got = ::recv(file_of(operation), into.data() + state.done, size, flags);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && would_block(errno)) return Step::blocked;
    result = got < 0 ? -errno : 0;
    if (got < 0) return Step::ended;
    state.done += static_cast<std::size_t>(got);
    moved += static_cast<std::size_t>(got);
    result = static_cast<std::int64_t>(state.done);
    if (got == 0 || !whole || state.done == into.size()) return Step::ended;
  }
  return Step::again;
}

AsioReactor::Step AsioReactor::try_send(Operation& operation, std::int64_t& result) noexcept {
  State& state = state_of(operation);
  for (std::size_t moved = 0; moved < transfer_limit;) {
    std::array<iovec, most_vectors> vectors;
    msghdr message{};
    message.msg_iov = vectors.data();
    message.msg_iovlen = fill_vectors(vectors, operation.memory, state.done);
    const auto sent = ::sendmsg(file_of(operation), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && would_block(errno)) return Step::blocked;
    result = sent < 0 ? -errno : 0;
    if (sent < 0) return Step::ended;
    state.done += static_cast<std::size_t>(sent);
    moved += static_cast<std::size_t>(sent);
    result = static_cast<std::int64_t>(state.done);
    if (state.done >= operation.memory.size_bytes()) return Step::ended;
  }
  return Step::again;
}

// Hands chunk by chunk to the owner, who may end the operation at each of them.
AsioReactor::Step AsioReactor::try_stream(Operation& operation, std::int64_t& result) noexcept {
  for (int i = 0; i < most_chunks; ++i) {
    Chunk* const chunk = chunks_->take();
    if (!chunk) {
      starve(operation);
      return Step::again;
    }
    ssize_t got;
    do {
      got = ::recv(file_of(operation), chunk->data, chunk->capacity, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    const int failure = got < 0 ? errno : 0;
    if (got <= 0) {
      chunks_->put_back(chunk);
      result = -failure;
      return would_block(failure) ? Step::blocked : Step::ended;
    }
    const bool drained = static_cast<std::size_t>(got) < chunk->capacity;
    chunk->references = 1;
    chunk->home = Shard::current();
    chunk->owner = chunks_;
    operation.chunk = Buffer::adopt(chunk, chunk->data, static_cast<std::size_t>(got));
    if (operation.owner) operation.owner->on_complete(operation, got, true);
    operation.chunk = {};
    if (operation.driver_word != ready) return Step::again;  // it was ended meanwhile
    if (drained) return Step::blocked;
  }
  return Step::again;
}

bool AsioReactor::hold_file(Operation& operation) noexcept {
  State& state = state_of(operation);
  if (state.wait) return true;
  const int duplicate = ::fcntl(operation.descriptor, F_DUPFD_CLOEXEC, 0);
  if (duplicate < 0) {
    end_later(operation, -errno);
    return false;
  }
  state.wait = std::make_shared<Wait>(executor_, operation);
  asio::error_code failure;
  state.wait->descriptor.assign(duplicate, failure);
  if (!failure) return true;
  ::close(duplicate);
  end_later(operation, -failure.value());
  return false;
}

void AsioReactor::wait_for(Operation& operation) noexcept {
  if (!hold_file(operation)) return;
  move_to(waiting_, operation, waiting);
  const bool to_write =
      operation.kind == Operation::Kind::send || operation.kind == Operation::Kind::connect;
  auto wait = state_of(operation).wait;
  wait->descriptor.async_wait(
      to_write ? asio::posix::descriptor_base::wait_write : asio::posix::descriptor_base::wait_read,
      [gate = gate_, wait](const asio::error_code&) {
        std::scoped_lock lock(gate->mutex);
        AsioReactor* const self = gate->reactor;
        if (!self || !wait->operation || wait->operation->driver_word != waiting) return;
        self->move_to(self->ready_, *wait->operation, ready);
        self->on_activity();
      });
}

void AsioReactor::starve(Operation& operation) noexcept { move_to(starved_, operation, starved); }

void AsioReactor::restart_starved() noexcept {
  while (Operation* operation = starved_.pop_front()) move_to(ready_, *operation, ready);
}

void AsioReactor::cancel(Operation* operation) noexcept {
  if (is_offloaded(operation->kind)) return;    // runs to its end on the offload executor
  if (operation->driver_word == ended) return;  // is on its way to its owner
  const std::size_t done = state_of(*operation).done;
  end_later(*operation, done ? static_cast<std::int64_t>(done) : -ECANCELED);
}

void AsioReactor::end_later(Operation& operation, std::int64_t result) noexcept {
  if (operation.driver_state) {
    State& state = state_of(operation);
    if (state.wait) {
      state.wait->operation = nullptr;
      asio::error_code ignored;
      state.wait->descriptor.close(ignored);
      state.wait.reset();
    }
  }
  if (operation.kind == Operation::Kind::connect && result < 0 && operation.descriptor >= 0)
    ::close(std::exchange(operation.descriptor, -1));
  operation.offset = static_cast<std::uint64_t>(result);
  move_to(ended_, operation, ended);
  ++ended_count_;
}

void AsioReactor::finish(Operation* operation) noexcept {
  --in_flight_;
  --ended_count_;
  finish_operation(operation, static_cast<std::int64_t>(operation->offset), *this);
}

// Those there are now; what ending them adds comes with the next call.
std::size_t AsioReactor::deliver_ended() noexcept {
  const std::size_t count = ended_count_;
  for (std::size_t i = 0; i < count; ++i) finish(ended_.pop_front());
  return count;
}

// Acting on one may take long, so there is a limit of time; the rest comes with the next call.
std::size_t AsioReactor::deliver_ready(Time limit) noexcept {
  std::size_t count = 0, stride = 1, next_look = 1;
  while (Operation* operation = ready_.pop_front()) {
    std::int64_t result = 0;
    const Step step = attempt(*operation, result);
    // A stream may have been ended, or starved, by what it delivered.
    if (operation->driver_word == ready) {
      if (step == Step::ended) end_later(*operation, result);
      if (step == Step::blocked) wait_for(*operation);
      if (step == Step::again && !operation->linked()) ready_.push_back(*operation);
    }
    if (++count < next_look) continue;
    if (now() >= limit) break;
    stride = std::min<std::size_t>(2 * stride, longest_clock_stride);
    next_look = count + stride;
  }
  return count;
}

std::size_t AsioReactor::poll() noexcept {
  run_handlers();
  const Time limit = now() + options_.deliver_time_limit;
  std::size_t count = 0;
  count += deliver_ready(limit);
  count += deliver_ended();
  return count;
}

// ---- The rest of the driver

int AsioReactor::listen(const Address& address, int backlog) {
  return listen_on(address, backlog, listening_flags());
}
int AsioReactor::listening_flags() const noexcept { return SOCK_NONBLOCK; }
Address AsioReactor::local_address(int descriptor) const { return local_address_of(descriptor); }
void AsioReactor::tune_socket(int descriptor, std::size_t unsent_backlog_bytes) noexcept {
  tune(descriptor, unsent_backlog_bytes);
}
void AsioReactor::close_now(int descriptor) noexcept { ::close(descriptor); }
void AsioReactor::reset_now(int descriptor) noexcept {
  reset_on_close(descriptor);
  ::close(descriptor);
}
// Closing alone would leave it listening for as long as an accept waits on its duplicate.
void AsioReactor::close_listener(int descriptor) noexcept {
  ::shutdown(descriptor, SHUT_RDWR);
  ::close(descriptor);
}

}  // namespace hyperframes::detail
