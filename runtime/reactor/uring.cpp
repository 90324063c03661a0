#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
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
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/reactor/blocking.hpp>
#include <hyperframes/runtime/reactor/system_socket.hpp>
#include <hyperframes/runtime/reactor/uring.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <mutex>
#include <utility>

namespace hyperframes {
namespace {

using detail::finish_operation;
using detail::from_system;
using detail::to_system;

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
    if (!draining_) drain(now() + std::chrono::seconds(1));
    ::io_uring_queue_exit(&ring_);
    ::close(wake_descriptor_);
    for (const int descriptor : to_close_) ::close(descriptor);
    // Begun after the drain; who waits for them, if anybody, is not told any more.
    for (Operation* operation : std::exchange(later_, {})) {
      operation->owner = nullptr;
      end_unsubmitted(operation);
    }
    if (chunks_out_ == 0 && !kernel_keeps_memory_) {
      ::munmap(chunk_memory_, chunk_bytes_total());
    } else {
      keep_chunks();
    }
  }

  std::string_view name() const noexcept override { return "uring"; }
  Time now() const noexcept override {
    timespec time;
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return Time(std::chrono::seconds(time.tv_sec) + Duration(time.tv_nsec));
  }

  void start(Operation* operation) noexcept override {
    ++in_flight_;
    if (!draining_ && detail::is_blocking(operation->kind))
      return detail::start_blocking(operation, in_flight_);
    flying_.push_back(*operation);
    if (draining_) {
      // Too late, but for a close: nobody else knows that descriptor.
      const bool closes = operation->kind == Operation::Kind::close;
      if (closes) close_now(operation->descriptor);
      return complete_later(operation, closes ? 0 : -ECANCELED);
    }
    submit(*operation);
  }

  void cancel(Operation* operation) noexcept override {
    if (detail::is_blocking(operation->kind)) return;  // runs to its end on the offload executor
    const std::uint64_t word = operation->driver_word;
    if (word == starved || word == waiting) {
      // Not with the kernel at the moment: it ends here, by way of a completion like any other.
      complete_later(operation, -ECANCELED);
    } else if (word == armed) {  // else it is already on its way to its owner
      note_path(*operation);
      ask_to_cancel(*operation);
    }
  }

  std::size_t poll() noexcept override {
    if (drained_) return deliver_later();
    if (!has_news()) return 0;
    catch_up();
    const unsigned flags = IO_URING_READ_ONCE(*ring_.sq.kflags);
    if (::io_uring_sq_ready(&ring_) || (flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)))
      note_entered(::io_uring_submit_and_get_events(&ring_));
    return deliver();
  }

  bool has_news() const noexcept override {
    const unsigned flags = IO_URING_READ_ONCE(*ring_.sq.kflags);
    return ::io_uring_cq_ready(&ring_) || (flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) ||
           ::io_uring_sq_ready(&ring_) || copied_at_ < copied_count_ || !later_.empty() ||
           waiting_count_ || !wake_armed_;
  }

  void wait(Time until) noexcept override {
    if (!later_.empty() || copied_at_ < copied_count_ || ::io_uring_cq_ready(&ring_)) return;
    catch_up();
    // What the kernel did not take is offered again soon.
    if (waiting_count_ || !wake_armed_) until = std::min(until, now() + retry_delay);
    io_uring_cqe* first = nullptr;
    if (until == Time::max()) {
      note_entered(::io_uring_submit_and_wait(&ring_, 1));
    } else {
      const auto left = std::max<std::int64_t>(0, (until - now()).count());
      __kernel_timespec limit{left / 1'000'000'000, left % 1'000'000'000};
      note_entered(::io_uring_submit_and_wait_timeout(&ring_, &first, 1, &limit, nullptr));
    }
  }

  void wake() noexcept override {
    if (wake_rung_.exchange(true, std::memory_order_acq_rel)) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_descriptor_, &one, sizeof one);
  }

  int listen(const Address& address, int backlog) override {
    return detail::listen_on(address, backlog, 0);
  }

  Address local_address(int descriptor) const override {
    return detail::local_address_of(descriptor);
  }

  void tune_socket(int descriptor, std::size_t unsent_backlog_bytes) noexcept override {
    detail::tune(descriptor, unsent_backlog_bytes);
  }

  // An entry that names the descriptor must have reached the kernel, which then holds the file: the
  // number may be another file's the moment it is free.
  void close_now(int descriptor) noexcept override {
    if (!drained_ && ::io_uring_sq_ready(&ring_)) {
      enter();
      if (::io_uring_sq_ready(&ring_)) return to_close_.push_back(descriptor);
    }
    ::close(descriptor);
  }
  void reset_now(int descriptor) noexcept override {
    detail::reset_on_close(descriptor);
    close_now(descriptor);
  }
  // Closing alone would leave it listening for as long as an accept holds the file.
  void close_listener(int descriptor) noexcept override {
    ::shutdown(descriptor, SHUT_RDWR);
    close_now(descriptor);
  }
  bool has_system_descriptors() const noexcept override { return true; }
  std::size_t in_flight() const noexcept override { return in_flight_; }

  bool drain(Time until) noexcept override {
    if (!std::exchange(draining_, true)) {
      flying_.for_each([this](Operation& operation) { cancel(&operation); });
      if (io_uring_sqe* entry = next_entry()) {
        ::io_uring_prep_cancel64(entry, wake_tag, 0);
        ::io_uring_sqe_set_data64(entry, ignored);
      }
      do {
        poll();
        if (flying_.empty() && !wake_armed_) break;
        wait(std::min(until, now() + std::chrono::milliseconds(10)));
      } while (now() < until);
      while (copied_at_ < copied_count_ || copy_out()) dispatch(copied_[copied_at_++]);
      drained_ = true;
      keep_what_is_flying();
    }
    deliver_later();
    return !kernel_keeps_memory_;
  }

 private:
  // Values of user_data that are no operation.
  static constexpr std::uint64_t ignored = 0, wake_tag = 1;
  // Values of driver_word; 0: on its way to its owner.
  static constexpr std::uint64_t armed = 1;       // with the kernel
  static constexpr std::uint64_t starved = 2;     // a stream that waits for receive memory
  static constexpr std::uint64_t cancelling = 3;  // with the kernel, which knows that we gave up
  static constexpr std::uint64_t waiting = 4;     // the kernel did not take it yet
  static constexpr std::uint64_t to_cancel = 5;   // with the kernel, which can't be told yet
  static constexpr unsigned deliver_batch = 128;
  static constexpr unsigned longest_clock_stride = 32;
  static constexpr std::size_t transfer_limit = std::size_t{1} << 30;  // lengths are 32 bits wide
  static constexpr Duration retry_delay = std::chrono::milliseconds(1);
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
    if (memory == MAP_FAILED) {
      const int failure = errno;
      ::close(wake_descriptor_);
      ::io_uring_queue_exit(&ring_);
      throw Error::system(
          failure, "map " + std::to_string(chunk_bytes_total()) + " bytes of receive buffers", {},
          "give the process more memory, or run fewer shards");
    }
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
    if (!chunk->reactor) return;  // its driver is gone, and left the memory to whoever holds it
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

  // What is out, or still with the kernel, outlives the driver.
  void keep_chunks() {
    for (Chunk& chunk : chunks_) chunk.reactor = nullptr;
    static std::mutex mutex;
    static auto& kept = *new std::vector<std::vector<Chunk>>;
    std::scoped_lock lock(mutex);
    kept.push_back(std::move(chunks_));
  }

  // The kernel has not let go of these in time: a slow or dead disk. Their memory stays, for good;
  // who waits for them is told, and gets none of it back.
  void keep_what_is_flying() {
    static std::mutex mutex;
    static auto& kept = *new std::vector<Operation*>;
    while (Operation* operation = flying_.pop_front()) {
      if (operation->driver_word == 0) {  // it is in later_
        held_back_.push_back(*operation);
        continue;
      }
      kernel_keeps_memory_ = true;
      log::warning("the kernel did not end an operation in time, its memory is kept: " +
                   describe_operation(*operation));
      if (Completion* owner = std::exchange(operation->owner, nullptr)) {
        Operation* message = Operation::create(operation->kind, operation->descriptor);
        message->owner = owner;
        finish_operation(message, -ECANCELED, *this);
      }
      std::scoped_lock lock(mutex);
      kept.push_back(operation);
    }
    while (Operation* operation = held_back_.pop_front()) flying_.push_back(*operation);
  }

  static std::string describe_operation(const Operation& operation) {
    const std::string name = detail::name_of(operation.kind);
    return operation.path.empty() ? name : name + " '" + operation.path + "'";
  }

  // Of a file operation that is given up: its descriptor may be closed when the name is needed.
  static void note_path(Operation& operation) noexcept {
    using enum Operation::Kind;
    if (operation.kind != read && operation.kind != write && operation.kind != sync) return;
    char target[512];
    const std::string link = "/proc/self/fd/" + std::to_string(operation.descriptor);
    const auto length = ::readlink(link.c_str(), target, sizeof target);
    if (length > 0) operation.path.assign(target, static_cast<std::size_t>(length));
  }

  // Null if the submission queue is full, and the kernel takes nothing at the moment.
  io_uring_sqe* next_entry() noexcept {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    if (entry) return entry;
    enter();
    return ::io_uring_get_sqe(&ring_);
  }

  void enter() noexcept {
    int result = ::io_uring_submit(&ring_);
    for (int tries = 0; result == -EINTR && tries < 100; ++tries)
      result = ::io_uring_submit(&ring_);
    note_entered(result);
  }

  // Short of memory, or with completions that have to be taken first, the kernel takes entries
  // later. Any other failure is that of all that is queued.
  void note_entered(int result) noexcept {
    if (result < 0 && result != -EAGAIN && result != -EBUSY && result != -EINTR && result != -ETIME)
      fail_queued(result);
    if (to_close_.empty() || ::io_uring_sq_ready(&ring_)) return;
    for (const int descriptor : std::exchange(to_close_, {})) ::close(descriptor);
  }

  void fail_queued(int failure) noexcept {
    io_uring_sq& queue = ring_.sq;
    const unsigned head = io_uring_smp_load_acquire(queue.khead);
    for (unsigned at = head; at != queue.sqe_tail; ++at) {
      const std::uint64_t tag = queue.sqes[at & *queue.kring_mask].user_data;
      if (tag == wake_tag) {
        wake_armed_ = false;
      } else if (tag != ignored) {
        complete_later(reinterpret_cast<Operation*>(tag), failure);
      }
    }
    queue.sqe_head = queue.sqe_tail = head;
    io_uring_smp_store_release(queue.ktail, head);
  }

  // Offers again what the kernel did not take.
  void catch_up() noexcept {
    if (!wake_armed_ && !draining_) arm_wake();
    if (waiting_count_ == 0) return;
    flying_.for_each([this](Operation& operation) {
      const std::uint64_t word = operation.driver_word;
      if (word != waiting && word != to_cancel) return;
      --waiting_count_;
      if (word == waiting) {
        submit(operation);
      } else {
        ask_to_cancel(operation);
      }
    });
  }

  void ask_to_cancel(Operation& operation) noexcept {
    io_uring_sqe* entry = next_entry();
    if (!entry) {
      if (operation.driver_word == 0) return;  // making room has ended it
      operation.driver_word = to_cancel;
      ++waiting_count_;
      return;
    }
    ::io_uring_prep_cancel(entry, &operation, 0);
    ::io_uring_sqe_set_data64(entry, ignored);
    if (operation.driver_word != 0) operation.driver_word = cancelling;
  }

  void submit(Operation& operation) noexcept {
    using enum Operation::Kind;
    if (operation.kind == connect && operation.descriptor < 0) {
      const int family = operation.address.is_v6() ? AF_INET6 : AF_INET;
      operation.descriptor = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (operation.descriptor < 0) return complete_later(&operation, -errno);
    }
    io_uring_sqe* entry = next_entry();
    operation.driver_word = entry ? armed : waiting;
    if (!entry) {
      ++waiting_count_;
      return;
    }
    prepare(*entry, operation);
    ::io_uring_sqe_set_data(entry, &operation);
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
        if (operation.memory.empty()) {
          ::io_uring_prep_poll_add(&entry, descriptor, POLLIN);
          break;
        }
        ::io_uring_prep_recv(&entry, descriptor, operation.memory[0].data(),
                             std::min(operation.memory[0].size(), transfer_limit), operation.flags);
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
        ::io_uring_prep_read(
            &entry, descriptor, operation.memory[0].data(),
            static_cast<unsigned>(std::min(operation.memory[0].size(), transfer_limit)),
            operation.offset);
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
                           std::min(operation.memory[0].size(), transfer_limit), flags);
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
    wake_armed_ = entry != nullptr;
    if (!entry) return;
    ::io_uring_prep_read(entry, wake_descriptor_, &wake_count_, sizeof wake_count_, 0);
    ::io_uring_sqe_set_data64(entry, wake_tag);
  }

  void complete_later(Operation* operation, std::int64_t result) noexcept {
    forget_state(*operation);
    operation->offset = static_cast<std::uint64_t>(result);
    later_.push_back(operation);
  }

  void forget_state(Operation& operation) noexcept {
    const std::uint64_t word = std::exchange(operation.driver_word, 0);
    if (word == starved) --starved_count_;
    if (word == waiting || word == to_cancel) --waiting_count_;
  }

  void end_unsubmitted(Operation* operation) noexcept {
    const auto result = static_cast<std::int64_t>(operation->offset);
    if (operation->kind == Operation::Kind::connect && operation->descriptor >= 0)
      ::close(operation->descriptor);
    end(operation, result);
  }

  // Those there are now; what ending them adds comes with the next call.
  std::size_t deliver_later() noexcept {
    if (later_.empty()) return 0;
    const std::vector<Operation*> ended = std::exchange(later_, {});
    for (Operation* operation : ended) end_unsubmitted(operation);
    return ended.size();
  }

  // Completions are copied out before any of them is acted on: acting may submit, and so reuse the
  // queue's memory. It may also take long, so there is a limit of time; what is left is delivered
  // by the next call, before anything newer.
  std::size_t deliver() noexcept {
    std::size_t total = deliver_later();
    if (copied_at_ == copied_count_ && !copy_out()) return total;
    // One completion alone needs no look at the clock.
    const bool several = copied_count_ - copied_at_ > 1;
    Time limit = several ? now() + options_.deliver_time_limit : Time{};
    unsigned count = 0, stride = 1, next_look = 1;
    while (true) {
      dispatch(copied_[copied_at_++]);
      ++count;
      if (count >= options_.entries || (copied_at_ == copied_count_ && !copy_out())) break;
      if (count < next_look) continue;
      const Time seen = now();
      if (limit == Time{}) limit = seen + options_.deliver_time_limit;
      if (seen >= limit) break;
      stride = std::min(2 * stride, longest_clock_stride);
      next_look = count + stride;
    }
    return total + count;
  }

  bool copy_out() noexcept {
    io_uring_cqe* entries[deliver_batch];
    copied_at_ = 0;
    copied_count_ = ::io_uring_peek_batch_cqe(&ring_, entries, deliver_batch);
    for (unsigned i = 0; i < copied_count_; ++i)
      copied_[i] = {entries[i]->user_data, entries[i]->res, entries[i]->flags};
    ::io_uring_cq_advance(&ring_, copied_count_);
    return copied_count_ > 0;
  }

  void dispatch(const Result& result) noexcept {
    if (result.tag == ignored) return;
    if (result.tag == wake_tag) {
      wake_rung_.store(false, std::memory_order_release);
      wake_armed_ = false;
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
    const bool stopping = draining_ || operation->driver_word == cancelling ||
                          operation->driver_word == to_cancel || !operation->owner;
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
    forget_state(*operation);
    operation->unlink();
    finish_operation(operation, result, *this);
  }

  UringOptions options_;
  io_uring ring_{};
  int wake_descriptor_ = -1;
  std::uint64_t wake_count_ = 0;
  std::atomic<bool> wake_rung_{false};
  bool wake_armed_ = false;
  bool draining_ = false, drained_ = false;
  bool kernel_keeps_memory_ = false;
  std::size_t in_flight_ = 0;
  std::size_t waiting_count_ = 0;  // operations that wait for an entry, or to be cancelled by one
  detail::List<Operation> flying_, held_back_;
  std::vector<Operation*> later_;
  std::vector<int> to_close_;  // once the kernel has taken what is queued
  Result copied_[deliver_batch];
  unsigned copied_at_ = 0, copied_count_ = 0;
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
