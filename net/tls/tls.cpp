#include <hyperframes/net/tls/tls.hpp>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <hyperframes/net/frame.hpp>
#include <hyperframes/net/handshake.hpp>
#include <hyperframes/net/tls/detail/connection.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/reactor.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <optional>
#include <string>
#include <utility>

namespace hyperframes::net {
namespace {

using detail::TlsConnection;
using detail::TlsContext;
using detail::TlsStep;

// What is encrypted before it goes to the transport below.
constexpr std::size_t pass_bytes = 256 << 10;
// Pieces below this share a record with their neighbours: cheaper than one more record.
constexpr std::size_t gather_limit = 4 << 10;
// What arrives while the owner takes a large block.
constexpr std::size_t direct_bytes = 128 << 10;
// What is decrypted at once when the owner has no place of its own for it.
constexpr std::size_t chunk_bytes = 64 << 10;
// A peer that was refused has so long to read why, and may say so much meanwhile.
constexpr int last_records = 64;

// The first byte of a record, and of a frame that is not encrypted.
constexpr bool begins_record(std::byte first) noexcept {
  return first >= std::byte{20} && first <= std::byte{23};
}
constexpr bool begins_frame(std::byte first) noexcept {
  return first == std::byte{FrameHeader::version};
}

/// The connection itself, which may outlive the transport that a link had of it: until what it was
/// just sending has left, and it can say in order that it ends.
class TlsStream final : private Transport::Owner {
 public:
  /// `wanted`: the name by which the peer is called, on the connecting side.
  TlsStream(std::unique_ptr<Transport> below, std::shared_ptr<const TlsContext> context,
            std::optional<std::string> wanted)
      : below_(std::move(below)), context_(std::move(context)), wanted_(std::move(wanted)) {}
  ~TlsStream();

  Transport& below() const noexcept { return *below_; }
  std::string peer() const { return below_->peer(); }

  /// Shakes hands. A listener does that with the first receive, so that a peer which says nothing
  /// holds up nobody else, and costs nothing.
  Task<void> set_up(Time deadline);
  Task<void> receive_exactly(Buffer into, Time deadline);
  Task<void> send_all(Buffer bytes, Time deadline);

  void start(Transport::Owner& owner, std::size_t unsent_backlog_bytes) noexcept;
  void send(Segments batch) noexcept;
  void stop() noexcept;
  Segments abandon() noexcept;

  /// Something is on its way, so that an end in order can't be said yet.
  bool must_part() const noexcept { return below_sends_ && !abandoned_; }
  static Task<void> part(std::unique_ptr<TlsStream> self);

 private:
  /// What was left for a turn to come: a callback is never made from inside a call.
  struct Later : hyperframes::detail::Work {
    explicit Later(TlsStream& self) noexcept : Work(&Later::go), self(self) {}
    static void go(Work* work) noexcept {
      auto& later = static_cast<Later&>(*work);
      later.queued = false;
      later.self.catch_up();
    }
    TlsStream& self;
    bool queued = false;
  };

  // Before `start`.
  Task<void> shake_hands(Time deadline);
  Task<void> begin(Time deadline);
  Task<void> send_output(Time deadline);
  Task<void> receive_record(Time deadline);
  Task<void> receive_header(Time deadline);
  Task<void> meet_plaintext(Time deadline);
  Task<std::optional<Reject>> read_plaintext(Time deadline);
  Task<void> let_it_read_why(Time deadline);
  Error closed_early(const Error& reason) const;

  // From `start` on: the owner of what is below.
  Buffer receive_target() noexcept override;
  void on_chunk(Buffer chunk) noexcept override { decrypt(chunk.bytes()); }
  void on_filled(std::size_t size) noexcept override { decrypt(arriving_.bytes().first(size)); }
  void on_sent(Segments ciphertext) noexcept override;
  void on_ended(Error reason) noexcept override;
  void on_released() noexcept override {
    if (owner_) owner_->on_released();
  }

  void later() noexcept;
  void catch_up() noexcept;
  void go_on_sending() noexcept;
  std::span<const std::byte> next_record(std::span<std::byte> gathered) noexcept;
  void decrypt(std::span<const std::byte> ciphertext) noexcept;
  TlsStep deliver(std::size_t expected) noexcept;
  void end(Error reason) noexcept;
  void say_last_words() noexcept;

  Error ended_in_order() const {
    return Error(Errc::closed, "receive from " + peer(), "the peer closed the connection");
  }

  std::unique_ptr<Transport> below_;
  std::shared_ptr<const TlsContext> context_;
  std::optional<std::string> wanted_;
  std::optional<TlsConnection> connection_;
  std::optional<Error> failure_;  ///< Of the handshake.
  bool ready_ = false;
  Buffer header_ = Buffer::heap(TlsConnection::header_bytes), record_;

  Transport::Owner* owner_ = nullptr;
  bool live_ = false;  ///< Started, and neither ended nor stopped.
  bool abandoned_ = false;
  bool cut_short_ = false;  ///< A record may have left in part: nothing can come behind it.
  Event parted_;            ///< What was on its way has left, or never will.
  Buffer arriving_;         ///< What the transport below fills directly.
  Segments batch_;
  std::size_t buffer_ = 0, offset_ = 0;  ///< Where in it the bytes are that go next.
  std::size_t left_ = 0;
  bool sending_ = false, below_sends_ = false;
  Later later_{*this};
};

// ---- The handshake

// Once it has failed, it fails at once: whoever goes on with a word of regret does not wait again.
Task<void> TlsStream::set_up(Time deadline) {
  if (ready_) co_return;
  if (failure_) throw *failure_;
  try {
    co_await shake_hands(deadline);
    ready_ = true;
  } catch (const Error& error) {
    failure_ = error;
    throw;
  }
}

Task<void> TlsStream::shake_hands(Time deadline) {
  co_await begin(deadline);
  while (true) {
    const TlsStep step = connection_->shake_hands();
    co_await send_output(deadline);
    if (step == TlsStep::done) co_return;
    if (step == TlsStep::failed) {
      if (!connection_->failure().is(Errc::corrupt)) co_await let_it_read_why(deadline);
      throw connection_->failure();
    }
    if (step == TlsStep::ended) throw ended_in_order();
    co_await receive_record(deadline);
  }
}

/// The accepting side waits for the first record before it spends anything on the peer.
Task<void> TlsStream::begin(Time deadline) {
  if (!wanted_) co_await receive_record(deadline);
  connection_.emplace(context_, wanted_ ? &*wanted_ : nullptr, peer());
  if (!wanted_) connection_->give(record_.bytes());
}

Task<void> TlsStream::send_output(Time deadline) {
  if (connection_->output_bytes() == 0) co_return;
  Segments output = connection_->take_output();
  cut_short_ = true;
  for (std::size_t i = 0; i < output.count(); ++i)
    co_await below_->send_all(std::move(output[i]), deadline);
  cut_short_ = false;
}

/// One record, whole, and no byte beyond it.
Task<void> TlsStream::receive_record(Time deadline) {
  co_await receive_header(deadline);
  if (!begins_record(header_.data()[0])) co_await meet_plaintext(deadline);
  const std::size_t size = std::to_integer<std::size_t>(header_.data()[3]) << 8 |
                           std::to_integer<std::size_t>(header_.data()[4]);
  if (header_.data()[1] != std::byte{3} || size > TlsConnection::largest_payload)
    throw Error(Errc::corrupt, "shake hands with " + peer(), "what it sent is no TLS",
                "check that the port is a Hyperframes port");
  record_ = Buffer::heap(TlsConnection::header_bytes + size);
  std::memcpy(record_.data(), header_.data(), TlsConnection::header_bytes);
  Buffer payload = record_.slice(TlsConnection::header_bytes, size);
  try {
    co_await below_->receive_exactly(payload, deadline);
  } catch (const Error& error) {
    throw closed_early(error);
  }
  if (connection_) connection_->give(record_.bytes());
}

Task<void> TlsStream::receive_header(Time deadline) {
  try {
    co_await below_->receive_exactly(header_, deadline);
  } catch (const Error& error) {
    throw closed_early(error);
  }
}

/// Once hands were shaken, an end that TLS has not announced is a cut.
Error TlsStream::closed_early(const Error& reason) const {
  if (!reason.is(Errc::closed) || !ready_) return reason;
  return Error(Errc::peer_lost, "receive from " + peer(),
               "the connection ended without TLS's closing word: the peer's process died, or "
               "somebody cut it");
}

/// What arrives is not TLS. A node that does not encrypt is told so in its own language, or has
/// said in it why it hangs up.
Task<void> TlsStream::meet_plaintext(Time deadline) {
  const std::string tried = (wanted_ ? "connect to " : "let in ") + peer();
  if (!record_.empty() || !begins_frame(header_.data()[0]))
    throw Error(Errc::corrupt, tried, "what it sent is neither TLS nor a frame of this protocol",
                "check that the port is a Hyperframes port");
  const std::optional<Reject> answer = co_await read_plaintext(deadline);
  const std::string remedy =
      context_->identity().certificates
          ? "give all nodes certificates of one authority (hyperframes cert makes them)"
          : "give both nodes the same key file";
  if (!wanted_) {
    const Reject reject{Check::authentication,
                        "this node speaks only TLS, and you do not encrypt: " + remedy};
    co_await below_->send_all(encode(reject), deadline);
  }
  throw Error(Errc::unauthenticated, tried,
              "the check 'authentication' failed: it does not encrypt, and this node speaks only "
              "TLS" +
                  (answer ? "; it says: " + answer->text : std::string()),
              remedy);
}

/// The rest of a frame that has begun in the header; what it says, if it is a Reject.
Task<std::optional<Reject>> TlsStream::read_plaintext(Time deadline) {
  Buffer bytes = Buffer::heap(FrameHeader::size);
  std::memcpy(bytes.data(), header_.data(), header_.size());
  Buffer rest = bytes.slice(header_.size(), bytes.size() - header_.size());
  co_await below_->receive_exactly(rest, deadline);
  const std::span<const std::byte, FrameHeader::size> span(bytes.data(), FrameHeader::size);
  FrameHeader header;
  const FrameFault fault = decode(span, FrameLimits(), header);
  if (fault != FrameFault::none) throw frame_error(fault, span);
  if (header.kind < FrameKind::hello) co_return std::nullopt;
  Buffer payload = Buffer::heap(header.length);
  co_await below_->receive_exactly(payload, deadline);
  if (header.kind != FrameKind::reject) co_return std::nullopt;
  co_return decode_reject(payload.bytes()).value();
}

/// An end with bytes unread is a reset, which may overtake the alert: so what the peer had on its
/// way is taken in, until it hangs up.
Task<void> TlsStream::let_it_read_why(Time deadline) {
  const Time until = std::min(deadline, after(timing().heartbeat()));
  try {
    for (int i = 0; i < last_records; ++i) {
      co_await below_->receive_exactly(header_, until);
      const std::size_t size = std::to_integer<std::size_t>(header_.data()[3]) << 8 |
                               std::to_integer<std::size_t>(header_.data()[4]);
      Buffer ignored = Buffer::heap(size);
      co_await below_->receive_exactly(ignored, until);
    }
  } catch (const Error& error) {
    if (error.is(Errc::cancelled)) throw;
  }
}

Task<void> TlsStream::receive_exactly(Buffer into, Time deadline) {
  co_await set_up(deadline);
  while (!into.empty()) {
    std::size_t size = 0;
    const TlsStep step = connection_->read(into.bytes(), size);
    into.remove_prefix(size);
    if (step == TlsStep::done) continue;
    co_await send_output(deadline);
    if (step == TlsStep::ended) throw ended_in_order();
    if (step == TlsStep::failed) throw connection_->failure();
    co_await receive_record(deadline);
  }
}

Task<void> TlsStream::send_all(Buffer bytes, Time deadline) {
  co_await set_up(deadline);
  while (!bytes.empty()) {
    while (!bytes.empty() && connection_->output_bytes() < pass_bytes) {
      const std::size_t size = std::min(bytes.size(), TlsConnection::record_bytes);
      if (!connection_->write(bytes.bytes().first(size))) throw connection_->failure();
      bytes.remove_prefix(size);
    }
    co_await send_output(deadline);
  }
}

// ---- From `start` on

void TlsStream::start(Transport::Owner& owner, std::size_t unsent_backlog_bytes) noexcept {
  owner_ = &owner;
  live_ = true;
  record_.reset();
  below_->start(*this, unsent_backlog_bytes);
  // What came with the handshake's last record, for which nothing else may ever come.
  if (connection_->has_plaintext()) later();
}

void TlsStream::stop() noexcept {
  live_ = false;
  owner_ = nullptr;
  if (std::exchange(later_.queued, false)) Shard::current()->unschedule(&later_, Group::system);
  sending_ = false;
  batch_.clear();
  if (connection_) connection_->give({});
  if (!must_part()) below_->stop();
}

TlsStream::~TlsStream() {
  stop();
  below_->stop();
  if (abandoned_ || cut_short_ || below_sends_ || !connection_ || connection_->failed()) return;
  connection_->close();
  say_last_words();
}

Task<void> wait_for(Event* event, Time deadline) { co_await event->wait(deadline); }

/// Also while the shard ends, for its peers wait longer for an end that they are not told of.
Task<void> TlsStream::part(std::unique_ptr<TlsStream> self) {
  try {
    co_await shielded(wait_for(&self->parted_, after(timing().heartbeat() / 4)));
  } catch (const Error&) {
    co_return;  // the peer takes nothing in
  }
}

// The system reads and writes ciphertext only, in buffers that it holds itself.
Segments TlsStream::abandon() noexcept {
  live_ = false;
  abandoned_ = true;
  if (std::exchange(later_.queued, false)) Shard::current()->unschedule(&later_, Group::system);
  below_->abandon();
  connection_->give({});
  sending_ = below_sends_ = false;
  return std::exchange(batch_, Segments());
}

void TlsStream::later() noexcept {
  if (std::exchange(later_.queued, true)) return;
  Shard::current()->schedule(&later_, Group::system);
}

void TlsStream::catch_up() noexcept {
  if (live_ && connection_->failed()) return end(connection_->failure());
  decrypt({});
  if (live_ && sending_ && !below_sends_) go_on_sending();
}

void TlsStream::send(Segments batch) noexcept {
  assert(!sending_ && live_);
  sending_ = true;
  batch_ = std::move(batch);
  buffer_ = offset_ = 0;
  left_ = batch_.size_bytes();
  if (left_) return go_on_sending();
  later();
}

/// The next part of the batch, or its end.
void TlsStream::go_on_sending() noexcept {
  if (left_ == 0) {
    sending_ = false;
    return owner_->on_sent(std::exchange(batch_, Segments()));
  }
  std::array<std::byte, TlsConnection::record_bytes> gathered;
  while (left_ && connection_->output_bytes() < pass_bytes)
    if (!connection_->write(next_record(gathered))) return later();
  below_sends_ = true;
  below_->send(connection_->take_output());
}

/// A large piece goes as it lies, as much as fits into a record; small ones share one.
std::span<const std::byte> TlsStream::next_record(std::span<std::byte> gathered) noexcept {
  std::size_t size = 0;
  while (left_ && size < gathered.size()) {
    const Buffer& piece = batch_[buffer_];
    const std::size_t rest = piece.size() - offset_;
    const bool large = rest >= gather_limit || (size == 0 && rest == left_);
    if (large && size) break;
    const std::size_t part = std::min(rest, gathered.size() - size);
    const std::byte* const from = piece.data() + offset_;
    left_ -= part;
    offset_ += part;
    if (offset_ == piece.size()) {
      ++buffer_;
      offset_ = 0;
    }
    if (large) return {from, part};
    if (part) std::memcpy(gathered.data() + size, from, part);
    size += part;
  }
  return gathered.first(size);
}

void TlsStream::on_sent(Segments ciphertext) noexcept {
  ciphertext.clear();  // back to the pool before more is taken out of it
  below_sends_ = false;
  if (!live_) return parted_.set();
  if (sending_) go_on_sending();
}

Buffer TlsStream::receive_target() noexcept {
  if (!live_ || owner_->receive_target().empty()) {
    arriving_.reset();
    return {};
  }
  if (arriving_.empty()) arriving_ = Buffer::heap(direct_bytes);
  return arriving_;
}

void TlsStream::decrypt(std::span<const std::byte> ciphertext) noexcept {
  if (!live_) return;
  connection_->give(ciphertext);
  TlsStep step = TlsStep::done;
  while (live_ && step == TlsStep::done) step = deliver(ciphertext.size());
  if (!live_ || step == TlsStep::wants_input) return;
  if (step == TlsStep::ended) return end(ended_in_order());
  if (!below_sends_) say_last_words();
  end(connection_->failure());
}

Buffer chunk_for(std::size_t ciphertext) noexcept {
  const std::size_t size = std::min(chunk_bytes, ciphertext + TlsConnection::record_bytes);
  auto block = Shard::current()->receive_pool().try_allocate(size);
  return block ? std::move(*block) : Buffer::heap(size);
}

/// Into one target of the owner's, or one chunk, as much as there is.
TlsStep TlsStream::deliver(std::size_t expected) noexcept {
  Buffer target = owner_->receive_target();
  const bool direct = !target.empty();
  if (!direct) target = chunk_for(expected);
  std::size_t filled = 0;
  TlsStep step = TlsStep::done;
  while (step == TlsStep::done && filled < target.size()) {
    std::size_t size = 0;
    step = connection_->read(target.bytes().subspan(filled), size);
    filled += size;
  }
  if (filled == 0) return step;
  if (direct) {
    owner_->on_filled(filled);
  } else {
    target.resize_down(filled);
    owner_->on_chunk(std::move(target));
  }
  return step;
}

void TlsStream::on_ended(Error reason) noexcept {
  if (!live_) return parted_.set();
  end(closed_early(reason));
}

/// What was changed on its way is a break, not a fault of the peer's: it can be sent again.
void TlsStream::end(Error reason) noexcept {
  live_ = false;
  if (reason.is(Errc::corrupt))
    reason = Error(Errc::peer_lost, reason.tried(), reason.found(), reason.remedy());
  owner_->on_ended(std::move(reason));
}

/// Nobody waits for them: they leave if there is room for them now.
void TlsStream::say_last_words() noexcept {
  for (const Buffer& words : connection_->take_output()) below_->send_last(words.bytes());
}

/// What a link has of it.
class TlsTransport final : public Transport {
 public:
  TlsTransport(std::unique_ptr<Transport> below, std::shared_ptr<const TlsContext> context,
               std::optional<std::string> wanted)
      : stream_(
            std::make_unique<TlsStream>(std::move(below), std::move(context), std::move(wanted))) {}
  ~TlsTransport() override {
    stream_->stop();
    if (stream_->must_part()) Shard::current()->spawn(TlsStream::part(std::move(stream_)));
  }

  std::string_view name() const noexcept override { return "tls"; }
  std::string peer() const override { return stream_->peer(); }

  Task<void> set_up(Time deadline) { return stream_->set_up(deadline); }
  Task<void> receive_exactly(Buffer into, Time deadline) override {
    return stream_->receive_exactly(std::move(into), deadline);
  }
  Task<void> send_all(Buffer bytes, Time deadline) override {
    return stream_->send_all(std::move(bytes), deadline);
  }
  void start(Owner& owner, std::size_t unsent_backlog_bytes) noexcept override {
    stream_->start(owner, unsent_backlog_bytes);
  }
  void send(Segments batch) noexcept override { stream_->send(std::move(batch)); }
  void stop() noexcept override { stream_->stop(); }
  bool can_be_abandoned() const noexcept override { return stream_->below().can_be_abandoned(); }
  Segments abandon() noexcept override { return stream_->abandon(); }
  bool is_released() const noexcept override { return stream_->below().is_released(); }

 private:
  std::unique_ptr<TlsStream> stream_;
};

// ---- Making them

void require_system(const char* tried, const Endpoint& endpoint) {
  if (Shard::current()->reactor().has_system_descriptors()) return;
  throw Error(Errc::unsupported, tried + endpoint.to_string(),
              "in the simulator a seed alone decides what happens, and TLS's secrets would too",
              "use plaintext there (Network::Options::encryption)");
}

class TlsListener final : public TransportListener {
 public:
  TlsListener(std::unique_ptr<TransportListener> below, std::shared_ptr<const TlsContext> context)
      : below_(std::move(below)), context_(std::move(context)) {}
  const Endpoint& endpoint() const noexcept override { return below_->endpoint(); }
  Task<std::unique_ptr<Transport>> accept() override {
    auto below = co_await below_->accept();
    co_return std::make_unique<TlsTransport>(std::move(below), context_, std::nullopt);
  }

 private:
  std::unique_ptr<TransportListener> below_;
  std::shared_ptr<const TlsContext> context_;
};

class TlsProvider final : public TransportProvider {
 public:
  TlsProvider(std::unique_ptr<TransportProvider> below, const Encryption& encryption,
              const std::optional<Key>& key)
      : below_(std::move(below)), context_(std::make_shared<const TlsContext>(encryption, key)) {}

  Task<std::vector<Endpoint>> resolve(Endpoint endpoint) override {
    return below_->resolve(std::move(endpoint));
  }
  bool is_local(const Endpoint& address) const noexcept override {
    return below_->is_local(address);
  }

  Task<std::unique_ptr<Transport>> connect(Endpoint address, Time deadline) override {
    require_system("connect to ", address);
    std::string wanted = address.looked_up_as.empty() ? address.host : address.looked_up_as;
    auto below = co_await below_->connect(std::move(address), deadline);
    auto transport = std::make_unique<TlsTransport>(std::move(below), context_, std::move(wanted));
    co_await transport->set_up(deadline);
    co_return std::move(transport);
  }

  std::unique_ptr<TransportListener> listen(const Endpoint& address) override {
    require_system("listen on ", address);
    return std::make_unique<TlsListener>(below_->listen(address), context_);
  }

 private:
  std::unique_ptr<TransportProvider> below_;
  std::shared_ptr<const TlsContext> context_;
};

}  // namespace

std::unique_ptr<TransportProvider> make_tls_provider(std::unique_ptr<TransportProvider> below,
                                                     const Encryption& encryption,
                                                     const std::optional<Key>& key) {
  return std::make_unique<TlsProvider>(std::move(below), encryption, key);
}

}  // namespace hyperframes::net
