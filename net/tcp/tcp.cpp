#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cassert>
#include <cerrno>
#include <hyperframes/net/tcp/tcp.hpp>
#include <hyperframes/runtime/reactor.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <hyperframes/runtime/socket.hpp>
#include <limits>
#include <utility>

namespace hyperframes::net {
namespace {

Endpoint endpoint_of(const Address& address) {
  return {Scheme::tcp, address.host(), address.port()};
}

bool is_passing(std::int64_t result) noexcept { return result == -EINTR || result == -EAGAIN; }

class TcpTransport final : public Transport {
 public:
  TcpTransport(int descriptor, const Address& peer) noexcept
      : descriptor_(descriptor), peer_(peer), receiver_(*this), sender_(*this) {}
  ~TcpTransport() override {
    stop();
    Reactor& reactor = Shard::current()->reactor();
    if (abandoned_) {
      if (descriptor_ >= 0) reactor.reset_now(descriptor_);
    } else {
      reactor.close_now(descriptor_);
    }
  }

  std::string_view name() const noexcept override { return "tcp"; }
  std::string peer() const override { return endpoint_of(peer_).to_string(); }

  Task<void> receive_exactly(Buffer into, Time deadline) override {
    while (!into.empty()) {
      Operation* operation = Operation::create(Operation::Kind::receive, descriptor_);
      operation->memory.push_back(into);
      hyperframes::detail::OperationAwaiter waiting(operation, deadline);
      const std::int64_t result = co_await waiting;
      if (is_passing(result)) continue;
      if (result == 0)
        throw Error(Errc::closed, "receive from " + peer(), "the peer closed the connection");
      if (result < 0) throw Error::system(static_cast<int>(-result), "receive from " + peer());
      into.remove_prefix(static_cast<std::size_t>(result));
    }
  }

  Task<void> send_all(Buffer bytes, Time deadline) override {
    while (!bytes.empty()) {
      Operation* operation = Operation::create(Operation::Kind::send, descriptor_);
      operation->memory.push_back(bytes);
      hyperframes::detail::OperationAwaiter waiting(operation, deadline);
      const std::int64_t result = co_await waiting;
      if (is_passing(result)) continue;
      if (result < 0) throw Error::system(static_cast<int>(-result), "send to " + peer());
      bytes.remove_prefix(static_cast<std::size_t>(result));
    }
  }

  void start(Owner& owner, std::size_t unsent_backlog_bytes) noexcept override {
    owner_ = &owner;
    live_ = true;
    Shard::current()->reactor().tune_socket(descriptor_, unsent_backlog_bytes);
    receive_next();
  }

  void send(Segments batch) noexcept override {
    assert(!sending_ && live_);
    start_send(std::move(batch));
  }

  void stop() noexcept override {
    live_ = false;
    owner_ = nullptr;
    leave_to_driver(receiving_);
    leave_to_driver(sending_);
  }

  // However much waits below: nothing comes behind it.
  void send_last(std::span<const std::byte> bytes) noexcept override {
    assert(!sending_);
    if (descriptor_ < 0 || !Shard::current()->reactor().has_system_descriptors()) return;
    const int any = std::numeric_limits<int>::max();
    ::setsockopt(descriptor_, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &any, sizeof any);
    (void)::send(descriptor_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }

  bool can_be_abandoned() const noexcept override { return true; }
  Segments abandon() noexcept override {
    live_ = false;
    abandoned_ = true;
    Segments batch = std::exchange(whole_, Segments());
    if (batch.empty() && sending_) batch = sending_->memory;
    Reactor& reactor = Shard::current()->reactor();
    if (receiving_) reactor.cancel(receiving_);
    if (sending_) reactor.cancel(sending_);
    if (!receiving_ && !sending_) reactor.reset_now(std::exchange(descriptor_, -1));
    return batch;
  }
  bool is_released() const noexcept override { return descriptor_ < 0; }

 private:
  struct Receiver final : Completion {
    explicit Receiver(TcpTransport& self) noexcept : self(self) {}
    void on_complete(Operation& operation, std::int64_t result, bool more) noexcept override {
      if (operation.kind == Operation::Kind::receive_stream) {
        self.on_stream(operation, result, more);
      } else {
        self.on_direct(result);
      }
    }
    TcpTransport& self;
  };
  struct Sender final : Completion {
    explicit Sender(TcpTransport& self) noexcept : self(self) {}
    void on_complete(Operation& operation, std::int64_t result, bool) noexcept override {
      self.on_send(std::move(operation.memory), result);
    }
    TcpTransport& self;
  };

  static void leave_to_driver(Operation*& operation) noexcept {
    if (!operation) return;
    operation->owner = nullptr;
    Shard::current()->reactor().cancel(std::exchange(operation, nullptr));
  }

  void begin(Operation* operation, Completion& completion) noexcept {
    operation->owner = &completion;
    Shard::current()->reactor().start(operation);
  }

  /// An operation has ended after this transport was abandoned.
  void release() noexcept {
    if (!abandoned_ || receiving_ || sending_ || descriptor_ < 0) return;
    Shard::current()->reactor().reset_now(std::exchange(descriptor_, -1));
    if (owner_) owner_->on_released();
  }

  void receive_next() noexcept {
    if (!live_) return;
    if (receiving_) {
      // A stream runs. If the link wants its bytes elsewhere, that has to end first.
      if (pausing_ || owner_->receive_target().empty()) return;
      pausing_ = true;
      Shard::current()->reactor().cancel(receiving_);
      return;
    }
    Buffer target = owner_->receive_target();
    if (target.empty()) {
      receiving_ = Operation::create(Operation::Kind::receive_stream, descriptor_);
    } else {
      receiving_ = Operation::create(Operation::Kind::receive, descriptor_);
      receiving_->memory.push_back(std::move(target));
    }
    begin(receiving_, receiver_);
  }

  void on_stream(Operation& operation, std::int64_t result, bool more) noexcept {
    if (!more) receiving_ = nullptr;
    if (!live_) return release();
    if (!more) {
      const bool paused = std::exchange(pausing_, false);
      if (result == 0) return end(peer_closed());
      const bool usual = (paused && result == -ECANCELED) || is_passing(result) ||
                         result == -ENOBUFS || result > 0;
      if (!usual) return end(failure("receive from ", result));
    }
    if (!operation.chunk.empty()) owner_->on_chunk(std::move(operation.chunk));
    receive_next();
  }

  void on_direct(std::int64_t result) noexcept {
    receiving_ = nullptr;
    if (!live_) return release();
    if (result == 0) return end(peer_closed());
    if (result < 0 && !is_passing(result)) return end(failure("receive from ", result));
    if (result > 0) owner_->on_filled(static_cast<std::size_t>(result));
    receive_next();
  }

  void start_send(Segments bytes) noexcept {
    sending_ = Operation::create(Operation::Kind::send, descriptor_);
    sending_->memory = std::move(bytes);
    begin(sending_, sender_);
  }

  void on_send(Segments memory, std::int64_t result) noexcept {
    sending_ = nullptr;
    if (!live_) return release();
    if (result < 0 && !is_passing(result)) {
      if (whole_.empty()) whole_ = std::move(memory);
      return end(failure("send to ", result));
    }
    const auto sent = static_cast<std::size_t>(result < 0 ? 0 : result);
    if (sent < memory.size_bytes()) {
      // The owner gets the whole batch back in the end, so the rest goes out from a list of its
      // own.
      Segments rest = memory;
      rest.remove_prefix(sent);
      if (whole_.empty()) whole_ = std::move(memory);
      return start_send(std::move(rest));
    }
    owner_->on_sent(whole_.empty() ? std::move(memory) : std::exchange(whole_, Segments()));
  }

  // The system tells of a reset once, and a send that had done a part keeps that to itself: what is
  // left for a receive then looks like an end. A reset behind an end is another matter.
  bool was_reset() const noexcept {
    if (!Shard::current()->reactor().has_system_descriptors()) return false;
    tcp_info info{};
    socklen_t size = sizeof info;
    const bool known = ::getsockopt(descriptor_, IPPROTO_TCP, TCP_INFO, &info, &size) == 0;
    if (!known || info.tcpi_state != TCP_CLOSE) return false;
    int error = 0;
    size = sizeof error;
    return ::getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != EPIPE;
  }
  Error peer_closed() const {
    if (was_reset()) return failure("receive from ", -ECONNRESET);
    return Error(Errc::closed, "receive from " + peer(), "the peer closed the connection");
  }
  Error failure(const char* tried, std::int64_t result) const {
    return Error::system(static_cast<int>(-result), tried + peer());
  }
  /// What else is in flight ends by `stop` or `abandon`, whichever the owner chooses.
  void end(Error reason) noexcept {
    live_ = false;
    owner_->on_ended(std::move(reason));
  }

  int descriptor_;
  Address peer_;
  Owner* owner_ = nullptr;
  Receiver receiver_;
  Sender sender_;
  Operation* receiving_ = nullptr;
  Operation* sending_ = nullptr;
  bool live_ = false;  ///< Started, and neither ended nor stopped.
  bool abandoned_ = false;
  bool pausing_ = false;
  Segments whole_;  ///< The batch being sent, while its rest goes out from a list of its own.
};

class TcpListener final : public TransportListener {
 public:
  explicit TcpListener(Listener listener)
      : listener_(std::move(listener)), endpoint_(endpoint_of(listener_.address())) {}
  const Endpoint& endpoint() const noexcept override { return endpoint_; }
  Task<std::unique_ptr<Transport>> accept() override {
    Socket socket = co_await listener_.accept();
    const Address peer = socket.peer();
    co_return std::make_unique<TcpTransport>(socket.release(), peer);
  }

 private:
  Listener listener_;
  Endpoint endpoint_;
};

class TcpProvider final : public TransportProvider {
 public:
  Task<std::vector<Endpoint>> resolve(Endpoint endpoint) override {
    std::vector<Address> addresses = co_await hyperframes::resolve(endpoint.host, endpoint.port);
    std::vector<Endpoint> found;
    for (const Address& address : addresses) {
      found.push_back(endpoint_of(address));
      found.back().looked_up_as = endpoint.host;
    }
    co_return found;
  }

  bool is_local(const Endpoint& address) const noexcept override {
    const auto parsed = Address::parse(address.host, address.port);
    return parsed && parsed->is_loopback();
  }

  Task<std::unique_ptr<Transport>> connect(Endpoint endpoint, Time deadline) override {
    const auto address = Address::parse(endpoint.host, endpoint.port);
    if (!address)
      throw Error(Errc::invalid_argument, "connect to " + endpoint.to_string(),
                  "it is no numeric address");
    Socket socket = co_await Socket::connect(*address, deadline);
    co_return std::make_unique<TcpTransport>(socket.release(), *address);
  }

  std::unique_ptr<TransportListener> listen(const Endpoint& endpoint) override {
    const auto address = Address::parse(endpoint.host, endpoint.port);
    if (!address)
      throw Error(Errc::invalid_argument, "listen on " + endpoint.to_string(),
                  "it is no numeric address");
    return std::make_unique<TcpListener>(Listener::bind(*address));
  }
};

}  // namespace

std::unique_ptr<TransportProvider> make_tcp_provider() { return std::make_unique<TcpProvider>(); }

}  // namespace hyperframes::net
