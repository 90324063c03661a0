#include <fcntl.h>
#include <liburing.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <hyperframes/runtime/reactor/blocking.hpp>
#include <hyperframes/runtime/reactor/uring.hpp>
#include <hyperframes/runtime/shard.hpp>

namespace hyperframes {
namespace {

using detail::finish_operation;

socklen_t to_system(const Address& address, sockaddr_storage& storage) noexcept {
  std::memset(&storage, 0, sizeof storage);
  if (address.is_v6()) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(storage);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(address.port());
    std::memcpy(&v6.sin6_addr, address.bytes().data(), 16);
    return sizeof v6;
  }
  auto& v4 = reinterpret_cast<sockaddr_in&>(storage);
  v4.sin_family = AF_INET;
  v4.sin_port = htons(address.port());
  std::memcpy(&v4.sin_addr, address.bytes().data(), 4);
  return sizeof v4;
}

Address from_system(const sockaddr_storage& storage) noexcept {
  if (storage.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
    std::array<std::uint8_t, 16> bytes;
    std::memcpy(bytes.data(), &v6.sin6_addr, 16);
    return Address::v6(bytes, ntohs(v6.sin6_port));
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
  std::array<std::uint8_t, 4> bytes;
  std::memcpy(bytes.data(), &v4.sin_addr, 4);
  return Address::v4(bytes, ntohs(v4.sin_port));
}

/// What the kernel reads or writes beside the operation's own buffers.
struct State final : Operation::DriverState {
  static constexpr std::size_t vector_limit = 64;
  sockaddr_storage address;
  socklen_t address_length = sizeof(sockaddr_storage);
  msghdr message{};
  std::array<iovec, vector_limit> vectors;

  static void* operator new(std::size_t size) { return detail::pool_allocate(size); }
  static void operator delete(void* memory) noexcept { detail::pool_release(memory); }

  unsigned fill_vectors(const Segments& segments) noexcept {
    unsigned count = 0;
    for (const Buffer& buffer : segments) {
      if (count == vector_limit) break;
      vectors[count++] = {buffer.data(), buffer.size()};
    }
    return count;
  }
};

State& state_of(Operation& operation) {
  if (!operation.driver_state) operation.driver_state = std::make_unique<State>();
  return static_cast<State&>(*operation.driver_state);
}

std::string read_setting(const char* path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text);
  return text.empty() ? "unreadable" : text;
}

[[noreturn]] void throw_setup_failure(int failure) {
  const std::string tried = "set up an io_uring";
  if (failure == -EPERM || failure == -EACCES)
    throw Error(Errc::unsupported, tried,
                "the kernel forbids it: kernel.io_uring_disabled is " +
                    read_setting("/proc/sys/kernel/io_uring_disabled") +
                    " and must be 0, or a seccomp filter denies the call (containers do)",
                "run 'sysctl -w kernel.io_uring_disabled=0', or allow io_uring_setup, "
                "io_uring_enter and io_uring_register in the container's seccomp profile");
  if (failure == -ENOMEM) {
    rlimit limit{};
    ::getrlimit(RLIMIT_MEMLOCK, &limit);
    throw Error(Errc::unsupported, tried,
                "not enough lockable memory: the memlock limit is " +
                    std::to_string(limit.rlim_cur / 1024) + " KiB",
                "raise it to 8192 KiB or more for each shard: 'ulimit -l 65536', or "
                "LimitMEMLOCK= in the service's unit file");
  }
  if (failure == -EMFILE || failure == -ENFILE)
    throw Error::system(failure, tried, {}, "raise the open-files limit (ulimit -n)");
  if (failure == -ENOSYS)
    throw Error(Errc::unsupported, tried, "this kernel has no io_uring", "use Linux 6.0 or newer");
  throw Error::system(failure, tried, {}, "see io_uring_setup(2)");
}

class UringReactor final : public Reactor {
 public:
  explicit UringReactor(UringOptions options) : options_(options) {
    set_up_ring();
    wake_descriptor_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_descriptor_ < 0) {
      const int failure = errno;
      ::io_uring_queue_exit(&ring_);
      throw Error::system(failure, "make an eventfd", {}, "raise the open-files limit (ulimit -n)");
    }
    set_up_chunks();
    arm_wake();
  }

  ~UringReactor() override {
    drain();
    ::io_uring_queue_exit(&ring_);
    ::close(wake_descriptor_);
    while (Operation* operation = flying_.pop_front()) Operation::destroy(operation);
    if (chunks_out_ == 0) ::munmap(chunk_memory_, chunk_bytes_total());
  }

  std::string_view name() const noexcept override { return "uring"; }
  Time now() const noexcept override {
    timespec time;
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return Time(std::chrono::seconds(time.tv_sec) + Duration(time.tv_nsec));
  }

  void start(Operation* operation) noexcept override {
    ++in_flight_;
    if (detail::is_blocking(operation->kind)) return detail::start_blocking(operation, in_flight_);
    flying_.push_back(*operation);
    submit(*operation);
  }

  void cancel(Operation* operation) noexcept override {
    if (detail::is_blocking(operation->kind)) return;  // runs to its end on the offload executor
    if (operation->driver_word == starved) {
      // Not with the kernel at the moment: it ends here, by way of a completion like any other.
      complete_later(operation, -ECANCELED);
      return;
    }
    if (operation->driver_word != armed) return;  // already on its way to its owner
    operation->driver_word = cancelling;
    io_uring_sqe* entry = next_entry();
    ::io_uring_prep_cancel(entry, operation, 0);
    ::io_uring_sqe_set_data64(entry, ignored);
  }

  std::size_t poll() noexcept override {
    const unsigned flags = IO_URING_READ_ONCE(*ring_.sq.kflags);
    if (::io_uring_sq_ready(&ring_) || (flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)))
      ::io_uring_submit_and_get_events(&ring_);
    return deliver();
  }

  void wait(Time until) noexcept override {
    if (!later_.empty() || ::io_uring_cq_ready(&ring_)) {
      poll();
      return;
    }
    io_uring_cqe* first = nullptr;
    if (until == Time::max()) {
      ::io_uring_submit_and_wait(&ring_, 1);
    } else {
      const auto left = std::max<std::int64_t>(0, (until - now()).count());
      __kernel_timespec limit{left / 1'000'000'000, left % 1'000'000'000};
      ::io_uring_submit_and_wait_timeout(&ring_, &first, 1, &limit, nullptr);
    }
    deliver();
  }

  void wake() noexcept override {
    if (wake_rung_.exchange(true, std::memory_order_acq_rel)) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_descriptor_, &one, sizeof one);
  }

  int listen(const Address& address, int backlog) override {
    const std::string tried = "listen on " + address.to_string();
    const int family = address.is_v6() ? AF_INET6 : AF_INET;
    const int descriptor = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) throw Error::system(errno, tried);
    const int on = 1;
    ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address.is_v6()) ::setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    sockaddr_storage storage;
    const socklen_t length = to_system(address, storage);
    if (::bind(descriptor, reinterpret_cast<sockaddr*>(&storage), length) < 0 ||
        ::listen(descriptor, backlog) < 0) {
      const int failure = errno;
      ::close(descriptor);
      throw Error::system(failure, tried, {},
                          failure == EADDRINUSE
                              ? "another process listens there; stop it or choose another port"
                          : failure == EADDRNOTAVAIL ? "use an address of this host"
                                                     : "");
    }
    return descriptor;
  }

  Address local_address(int descriptor) const override {
    sockaddr_storage storage{};
    socklen_t length = sizeof storage;
    if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&storage), &length) < 0)
      throw Error::system(errno, "read the address of a socket");
    return from_system(storage);
  }

  void tune_socket(int descriptor, std::size_t unsent_backlog_bytes) noexcept override {
    const int on = 1;
    ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (unsent_backlog_bytes) {
      const int bytes = static_cast<int>(unsent_backlog_bytes);
      ::setsockopt(descriptor, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
    }
  }

  void close_now(int descriptor) noexcept override { ::close(descriptor); }
  std::size_t in_flight() const noexcept override { return in_flight_; }

  void drain() noexcept override {
    if (std::exchange(draining_, true)) return;
    flying_.for_each([this](Operation& operation) {
      operation.owner = nullptr;
      cancel(&operation);
    });
    io_uring_sqe* entry = next_entry();
    ::io_uring_prep_cancel64(entry, wake_tag, 0);
    ::io_uring_sqe_set_data64(entry, ignored);
    for (int round = 0; !flying_.empty() && round < 1000; ++round)
      wait(now() + std::chrono::milliseconds(10));
  }

 private:
  // Values of user_data that are no operation, and of driver_word.
  static constexpr std::uint64_t ignored = 0, wake_tag = 1;
  static constexpr std::uint64_t armed = 1, starved = 2, cancelling = 3;
  static constexpr unsigned deliver_batch = 128;
  static constexpr int chunk_group = 0;

  struct Chunk : detail::Block {
    UringReactor* reactor;
  };
  struct Result {
    std::uint64_t tag;
    std::int32_t result;
    std::uint32_t flags;
  };

  void set_up_ring() {
    static constexpr unsigned wanted[] = {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                                              IORING_SETUP_CLAMP | IORING_SETUP_TASKRUN_FLAG |
                                              IORING_SETUP_CQSIZE,
                                          IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
                                              IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE};
    int failure = 0;
    for (const unsigned flags : wanted) {
      io_uring_params parameters{};
      parameters.flags = flags;
      parameters.cq_entries = options_.entries * 4;
      failure = ::io_uring_queue_init_params(options_.entries, &ring_, &parameters);
      if (failure != -EINVAL) break;
    }
    if (failure < 0) throw_setup_failure(failure);
    ::io_uring_ring_dontfork(&ring_);
  }

  std::size_t chunk_bytes_total() const noexcept {
    return options_.receive_chunks * (options_.receive_chunk_bytes + sizeof(io_uring_buf));
  }

  void set_up_chunks() {
    assert(std::has_single_bit(options_.receive_chunks));
    void* memory = ::mmap(nullptr, chunk_bytes_total(), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      throw Error::system(
          errno, "map " + std::to_string(chunk_bytes_total()) + " bytes of receive buffers");
    chunk_memory_ = static_cast<std::byte*>(memory);
    chunk_ring_ = static_cast<io_uring_buf_ring*>(memory);
    io_uring_buf_reg registration{};
    registration.ring_addr = reinterpret_cast<std::uint64_t>(memory);
    registration.ring_entries = options_.receive_chunks;
    registration.bgid = chunk_group;
    if (const int failure = ::io_uring_register_buf_ring(&ring_, &registration, 0)) {
      ::munmap(memory, chunk_bytes_total());
      ::close(wake_descriptor_);
      ::io_uring_queue_exit(&ring_);
      if (failure == -EINVAL)
        throw Error(Errc::unsupported, "register a ring of receive buffers",
                    "this kernel is older than 6.0", "use Linux 6.0 or newer");
      throw_setup_failure(failure);
    }
    chunks_.resize(options_.receive_chunks);
    ::io_uring_buf_ring_init(chunk_ring_);
    for (unsigned i = 0; i < options_.receive_chunks; ++i) {
      Chunk& chunk = chunks_[i];
      chunk.reactor = this;
      chunk.data = chunk_memory_ + options_.receive_chunks * sizeof(io_uring_buf) +
                   i * options_.receive_chunk_bytes;
      chunk.capacity = options_.receive_chunk_bytes;
      chunk.dispose = &UringReactor::recycle;
      provide(i);
    }
  }

  void provide(unsigned index) noexcept {
    ::io_uring_buf_ring_add(
        chunk_ring_, chunks_[index].data, static_cast<unsigned>(options_.receive_chunk_bytes),
        static_cast<unsigned short>(index), ::io_uring_buf_ring_mask(options_.receive_chunks), 0);
    ::io_uring_buf_ring_advance(chunk_ring_, 1);
  }

  // A chunk came back: the kernel may fill it again, and a stream that had found none goes on.
  static void recycle(detail::Block* block) noexcept {
    auto* chunk = static_cast<Chunk*>(block);
    UringReactor& self = *chunk->reactor;
    --self.chunks_out_;
    self.provide(static_cast<unsigned>(chunk - self.chunks_.data()));
    if (self.starved_count_ && self.chunks_out_ <= self.options_.receive_chunks / 2)
      self.restart_starved();
  }

  void restart_starved() noexcept {
    flying_.for_each([this](Operation& operation) {
      if (operation.driver_word != starved) return;
      --starved_count_;
      submit(operation);
    });
  }

  io_uring_sqe* next_entry() noexcept {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    while (!entry) {
      // The submission queue is full: the kernel takes all of it in one call.
      ::io_uring_submit(&ring_);
      entry = ::io_uring_get_sqe(&ring_);
    }
    return entry;
  }

  void submit(Operation& operation) noexcept {
    using enum Operation::Kind;
    if (operation.kind == connect && operation.descriptor < 0) {
      const int family = operation.address.is_v6() ? AF_INET6 : AF_INET;
      operation.descriptor = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (operation.descriptor < 0) return complete_later(&operation, -errno);
    }
    io_uring_sqe* entry = next_entry();
    prepare(*entry, operation);
    ::io_uring_sqe_set_data(entry, &operation);
    operation.driver_word = armed;
  }

  void prepare(io_uring_sqe& entry, Operation& operation) noexcept {
    using enum Operation::Kind;
    const int descriptor = operation.descriptor;
    switch (operation.kind) {
      case accept: {
        State& state = state_of(operation);
        ::io_uring_prep_accept(&entry, descriptor, reinterpret_cast<sockaddr*>(&state.address),
                               &state.address_length, SOCK_CLOEXEC);
        break;
      }
      case connect: {
        State& state = state_of(operation);
        const socklen_t length = to_system(operation.address, state.address);
        ::io_uring_prep_connect(&entry, descriptor, reinterpret_cast<sockaddr*>(&state.address),
                                length);
        break;
      }
      case receive:
        ::io_uring_prep_recv(&entry, descriptor, operation.memory[0].data(),
                             operation.memory[0].size(), operation.flags);
        break;
      case receive_stream:
        ::io_uring_prep_recv_multishot(&entry, descriptor, nullptr, 0, 0);
        entry.flags |= IOSQE_BUFFER_SELECT;
        entry.buf_group = chunk_group;
        break;
      case send: prepare_send(entry, operation); break;
      case shutdown: ::io_uring_prep_shutdown(&entry, descriptor, SHUT_WR); break;
      case close: ::io_uring_prep_close(&entry, descriptor); break;
      case open:
        ::io_uring_prep_openat(&entry, AT_FDCWD, operation.path.c_str(),
                               operation.flags | O_CLOEXEC, 0644);
        break;
      case read:
        ::io_uring_prep_read(&entry, descriptor, operation.memory[0].data(),
                             static_cast<unsigned>(operation.memory[0].size()), operation.offset);
        break;
      case write: {
        State& state = state_of(operation);
        const unsigned count = state.fill_vectors(operation.memory);
        ::io_uring_prep_writev(&entry, descriptor, state.vectors.data(), count, operation.offset);
        break;
      }
      case sync: ::io_uring_prep_fsync(&entry, descriptor, IORING_FSYNC_DATASYNC); break;
      default: ::io_uring_prep_nop(&entry); break;
    }
  }

  // MSG_WAITALL makes the kernel go on after a short send, instead of waking us for the rest.
  void prepare_send(io_uring_sqe& entry, Operation& operation) noexcept {
    constexpr int flags = MSG_NOSIGNAL | MSG_WAITALL;
    if (operation.memory.count() == 1) {
      ::io_uring_prep_send(&entry, operation.descriptor, operation.memory[0].data(),
                           operation.memory[0].size(), flags);
      return;
    }
    State& state = state_of(operation);
    state.message = {};
    state.message.msg_iov = state.vectors.data();
    state.message.msg_iovlen = state.fill_vectors(operation.memory);
    ::io_uring_prep_sendmsg(&entry, operation.descriptor, &state.message, flags);
  }

  void arm_wake() noexcept {
    io_uring_sqe* entry = next_entry();
    ::io_uring_prep_read(entry, wake_descriptor_, &wake_count_, sizeof wake_count_, 0);
    ::io_uring_sqe_set_data64(entry, wake_tag);
  }

  void complete_later(Operation* operation, std::int64_t result) noexcept {
    if (operation->driver_word == starved) --starved_count_;
    operation->driver_word = 0;
    operation->offset = static_cast<std::uint64_t>(result);
    later_.push_back(operation);
  }

  // Copies completions out before any of them is acted on: acting may submit, and so reuse the
  // queue's memory.
  std::size_t deliver() noexcept {
    std::size_t total = 0;
    while (!later_.empty()) {
      std::vector<Operation*> ready;
      ready.swap(later_);
      for (Operation* operation : ready)
        end(operation, static_cast<std::int64_t>(operation->offset));
      total += ready.size();
    }
    Result results[deliver_batch];
    while (true) {
      io_uring_cqe* entries[deliver_batch];
      const unsigned count = ::io_uring_peek_batch_cqe(&ring_, entries, deliver_batch);
      if (count == 0) return total;
      for (unsigned i = 0; i < count; ++i)
        results[i] = {entries[i]->user_data, entries[i]->res, entries[i]->flags};
      ::io_uring_cq_advance(&ring_, count);
      for (unsigned i = 0; i < count; ++i) dispatch(results[i]);
      total += count;
      if (count < deliver_batch) return total;
    }
  }

  void dispatch(const Result& result) noexcept {
    if (result.tag == ignored) return;
    if (result.tag == wake_tag) {
      wake_rung_.store(false, std::memory_order_release);
      if (!draining_) arm_wake();
      return;
    }
    auto* operation = reinterpret_cast<Operation*>(result.tag);
    switch (operation->kind) {
      case Operation::Kind::receive_stream: return stream_result(operation, result);
      case Operation::Kind::connect:
        if (result.result < 0) {
          ::close(operation->descriptor);
          return end(operation, result.result);
        }
        return end(operation, operation->descriptor);
      case Operation::Kind::accept:
        operation->address = from_system(state_of(*operation).address);
        return end(operation, result.result);
      default: return end(operation, result.result);
    }
  }

  void stream_result(Operation* operation, const Result& result) noexcept {
    const bool more = result.flags & IORING_CQE_F_MORE;
    if (result.flags & IORING_CQE_F_BUFFER) {
      Chunk& chunk = chunks_[result.flags >> IORING_CQE_BUFFER_SHIFT];
      chunk.references = 1;
      chunk.home = Shard::current();
      ++chunks_out_;
      Buffer bytes =
          Buffer::adopt(&chunk, chunk.data, static_cast<std::size_t>(std::max(0, result.result)));
      if (result.result > 0 && operation->owner) {
        operation->chunk = std::move(bytes);
        operation->owner->on_complete(*operation, result.result, true);
        operation->chunk = {};
      }
    }
    if (more) return;
    // The series has ended. Unless we asked for that, it goes on: at once, or when there are
    // chunks.
    const bool stopping = operation->driver_word == cancelling || !operation->owner;
    if (result.result == -ENOBUFS && !stopping) {
      operation->driver_word = starved;
      ++starved_count_;
      if (chunks_out_ <= options_.receive_chunks / 2) restart_starved();
    } else if (result.result > 0 && !stopping) {
      submit(*operation);
    } else {
      const bool goes_on = result.result > 0 || result.result == -ENOBUFS;
      end(operation, goes_on ? -ECANCELED : result.result);
    }
  }

  void end(Operation* operation, std::int64_t result) noexcept {
    --in_flight_;
    operation->unlink();
    finish_operation(operation, result, *this);
  }

  UringOptions options_;
  io_uring ring_{};
  int wake_descriptor_ = -1;
  std::uint64_t wake_count_ = 0;
  std::atomic<bool> wake_rung_{false};
  bool draining_ = false;
  std::size_t in_flight_ = 0;
  detail::List<Operation> flying_;
  std::vector<Operation*> later_;
  std::vector<Chunk> chunks_;
  std::byte* chunk_memory_ = nullptr;
  io_uring_buf_ring* chunk_ring_ = nullptr;
  std::size_t chunks_out_ = 0;
  std::size_t starved_count_ = 0;
};

}  // namespace

std::unique_ptr<Reactor> make_uring_reactor(UringOptions options) {
  return std::make_unique<UringReactor>(options);
}

}  // namespace hyperframes
