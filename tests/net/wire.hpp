// One link of a node, and its far end in the hands of the test: it says any frame it likes, and
// sees each that comes. In virtual time, and with nothing between.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <hyperframes/net/detail/little_endian.hpp>
#include <hyperframes/net/handshake.hpp>
#include <hyperframes/net/network_core.hpp>
#include <hyperframes/runtime/reactor/sim.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support.hpp"

namespace net_test {

struct WireFrame {
  net::FrameHeader header;
  std::vector<std::byte> payload;
};

inline std::vector<WireFrame> of_kind(const std::vector<WireFrame>& frames, net::FrameKind kind) {
  std::vector<WireFrame> found;
  for (const WireFrame& frame : frames)
    if (frame.header.kind == kind) found.push_back(frame);
  return found;
}

/// As it travels, in one piece of the far end's memory.
inline hf::Buffer serialised(const net::Message& message) {
  hf::Buffer bytes = hf::Buffer::heap(net::wire::size_of(message));
  std::memset(bytes.data(), 0, bytes.size());
  net::wire::encode_head(message, std::span<std::byte, 64>(bytes.data(), 64));
  std::size_t end = 64;
  for (const hf::Buffer& segment : message.segments) {
    net::detail::store_little(bytes.data() + end, std::uint64_t{segment.size()});
    end += 8;
  }
  const auto put = [&](const hf::Buffer& part) {
    if (part.empty()) return;
    end = net::wire::align_part(end);
    std::memcpy(bytes.data() + end, part.data(), part.size());
    end += part.size();
  };
  put(message.metadata);
  put(message.body);
  for (const hf::Buffer& segment : message.segments) put(segment);
  return bytes;
}

/// What the link's transport and the test share.
struct WireState {
  net::Transport::Owner* owner = nullptr;
  std::vector<std::byte> out;  ///< Left the link, and not looked at yet.
  hf::Segments batch;          ///< Being sent.
  bool sending = false;
  bool taking = true;    ///< False: as a peer that does not read.
  bool alive = false;    ///< Started, and not ended.
  bool holding = false;  ///< As a system that is slow to let go of what it was given.
  bool abandoned = false;
  bool brings_loans = false;  ///< The peer may lend.
  std::function<bool(const hf::Buffer&)> lends = [](const hf::Buffer&) { return false; };
  std::vector<hf::Buffer> lent;  ///< What of that has left.
};

class WireTransport final : public net::Transport {
 public:
  explicit WireTransport(std::shared_ptr<WireState> state) : state_(std::move(state)) {}
  ~WireTransport() override { stop(); }
  std::string_view name() const noexcept override { return "wire"; }
  std::string peer() const override { return "the far end"; }
  hf::Task<void> receive_exactly(hf::Buffer, hf::Time) override { co_return; }
  hf::Task<void> send_all(hf::Buffer, hf::Time) override { co_return; }

  void start(Owner& owner, std::size_t) noexcept override {
    state_->owner = &owner;
    state_->alive = true;
  }
  void send(hf::Segments batch) noexcept override {
    state_->batch = std::move(batch);
    state_->sending = true;
    if (state_->taking) take();
  }
  void stop() noexcept override {
    state_->owner = nullptr;
    end();
  }
  bool can_be_abandoned() const noexcept override { return true; }
  hf::Segments abandon() noexcept override {
    hf::Segments batch = state_->sending ? state_->batch : hf::Segments();
    state_->abandoned = true;
    end();
    return batch;
  }
  bool is_released() const noexcept override { return state_->abandoned && !state_->holding; }
  bool would_lend(const hf::Buffer& piece) const noexcept override {
    return piece.size() >= least_loan && state_->lends(piece);
  }
  bool may_bring_loans() const noexcept override { return state_->brings_loans; }
  /// Moves what is being sent to the far end.
  void take() noexcept {
    if (!state_->sending || done_.queued) return;
    for (const hf::Buffer& piece : state_->batch) {
      state_->out.insert(state_->out.end(), piece.data(), piece.data() + piece.size());
      if (would_lend(piece)) state_->lent.push_back(piece);
    }
    done_.queued = true;
    hf::Shard::current()->schedule(&done_, hf::Group::system);
  }

 private:
  struct Done : hf::detail::Work {
    explicit Done(WireTransport& self) noexcept : Work(&Done::go), self(self) {}
    static void go(hf::detail::Work* work) noexcept {
      auto& done = static_cast<Done&>(*work);
      done.queued = false;
      WireState& state = *done.self.state_;
      state.sending = false;
      state.owner->on_sent(std::exchange(state.batch, hf::Segments()));
    }
    WireTransport& self;
    bool queued = false;
  };
  void end() noexcept {
    state_->alive = false;
    state_->batch.clear();  // its memory is this shard's
    state_->lent.clear();
    if (done_.queued) hf::Shard::current()->ready[0].remove(&done_);
    done_.queued = false;
  }
  std::shared_ptr<WireState> state_;
  Done done_{*this};
};

/// The far end. All of it is called on the link's shard: inside `WireNode::step`.
class Wire {
 public:
  Wire(net::detail::NetworkShard& shard, std::uint64_t number, std::uint64_t peer)
      : shard_(shard), number_(number) {
    net::detail::Installation installation;
    installation.session = number;
    installation.peer = {peer, 1, 1, "wire", "the far end"};
    installation.transport = make_transport();
    installation.settings.largest_message = std::uint64_t{1} << 30;
    installation.settings.fragment_bytes = 256 << 10;
    installation.settings.resumable = true;
    shard.install(installation).value();
  }

  /// It has a connection that works.
  bool alive() const noexcept { return state_->alive; }

  /// As a connection that was reset: only the first `arriving` bytes of what was on its way come.
  void break_off(std::size_t arriving = ~std::size_t{0}) {
    lose_all_but(arriving);
    if (alive()) state_->owner->on_ended(hf::Error::system(ECONNRESET, "receive from the far end"));
  }
  /// What has left the link and was not looked at is lost, but for so many bytes.
  void lose_all_but(std::size_t arriving) {
    state_->out.resize(std::min(arriving, state_->out.size()));
  }
  void lose_half() { lose_all_but(state_->out.size() / 2); }
  /// Connects anew, with what it has heard (or says that it has). After a turn, `hear` begins with
  /// the Welcome.
  hf::Result<void> connect_again(std::optional<std::uint64_t> delivered = std::nullopt) {
    const auto before = state_;
    WireTransport* const transport_before = transport_;
    net::detail::Resumption resumption;
    resumption.session = number_;
    resumption.peer_delivered = delivered.value_or(heard_);
    resumption.transport = make_transport();
    resumption.welcome = 7;
    arriving = ~std::size_t{0};
    auto resumed = shard_.resume(resumption);
    if (!resumed) {
      state_ = before;
      transport_ = transport_before;
    }
    return resumed;
  }
  /// The same from end to end: says again what the other side lacks.
  std::vector<WireFrame> welcomed() {
    auto frames = hear();
    if (frames.empty() || frames[0].header.kind != net::FrameKind::welcome)
      throw std::runtime_error("not welcome");
    const auto welcome = net::decode_welcome(frames[0].payload).value();
    frames.erase(frames.begin());
    for (std::uint64_t i = welcome.delivered.value(); i < said_frames_.size(); ++i)
      feed(said_frames_[i]);
    return frames;
  }
  /// Where the link wants what comes next; the system may write there until it has let go.
  hf::Buffer hold_target() noexcept {
    state_->holding = true;
    held_ = state_;
    return state_->owner->receive_target();
  }
  void let_go() {
    held_->holding = false;
    if (held_->abandoned && held_->owner) held_->owner->on_released();
  }
  bool remembers = false;  ///< What it has said, to say it again.
  std::uint64_t heard() const noexcept { return heard_; }
  bool acknowledging = true;  ///< Says so with each frame.

  /// Sequence, acknowledgement and length are added.
  void say(net::FrameHeader header, std::vector<std::byte> payload = {}) {
    header.length = payload.size();
    if (net::is_sequenced(header.kind)) header.sequence = ++said_;
    if (acknowledging) header.acknowledgement = heard_;
    std::vector<std::byte> bytes(net::FrameHeader::size);
    header.encode(bytes.data());
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    if (remembers && header.sequence) said_frames_.push_back(bytes);
    feed(bytes);
  }
  void say(net::FrameKind kind, net::Lane lane = net::Lane::control, std::uint64_t message = 0,
           std::uint64_t total = 0, std::uint8_t flags = 0) {
    net::FrameHeader header;
    header.kind = kind;
    header.lane = lane;
    header.message = message;
    header.total = total;
    header.flags = flags;
    say(header);
  }
  static constexpr std::uint64_t reply_window = 64 << 10;
  /// Windows of so many bytes, and room for answers.
  void lend(std::uint64_t bytes) {
    for (const net::Lane lane : {net::Lane::control, net::Lane::normal, net::Lane::bulk})
      say(net::FrameKind::credit, lane, lane == net::Lane::control ? reply_window : 0, bytes,
          net::frame_flag::window);
  }
  /// A whole message in one frame.
  void say_message(net::Lane lane, std::uint64_t number, const net::Message& message,
                   std::uint8_t flags = 0) {
    net::FrameHeader header;
    header.lane = lane;
    header.message = number;
    header.flags = flags;
    auto bytes = encoded(message);
    header.total = bytes.size();
    say(header, std::move(bytes));
  }
  static std::vector<std::byte> encoded(const net::Message& message) {
    std::vector<std::byte> bytes(net::wire::size_of(message));
    net::wire::encode_head(message, std::span<std::byte, 64>(bytes.data(), 64));
    if (!message.body.empty())
      std::memcpy(bytes.data() + 64, message.body.data(), message.body.size());
    return bytes;
  }

  /// The frames that came since the last call.
  std::vector<WireFrame> hear() {
    std::vector<WireFrame> frames;
    std::size_t at = 0;
    while (state_->out.size() - at >= net::FrameHeader::size) {
      WireFrame frame;
      const auto fault = decode(std::span<const std::byte, 64>(state_->out.data() + at, 64),
                                net::FrameLimits(), frame.header);
      if (fault != net::FrameFault::none) throw std::runtime_error("bad frame");
      const std::size_t size = net::FrameHeader::size + frame.header.length;
      if (state_->out.size() - at < size) break;
      frame.payload.assign(state_->out.begin() + static_cast<std::ptrdiff_t>(at + 64),
                           state_->out.begin() + static_cast<std::ptrdiff_t>(at + size));
      if (frame.header.sequence) heard_ = frame.header.sequence;
      frames.push_back(std::move(frame));
      at += size;
    }
    state_->out.erase(state_->out.begin(), state_->out.begin() + static_cast<std::ptrdiff_t>(at));
    return frames;
  }
  /// Those of one kind.
  std::vector<WireFrame> hear(net::FrameKind kind) { return of_kind(hear(), kind); }

  void stop_reading() noexcept { state_->taking = false; }
  void read_again() noexcept {
    state_->taking = true;
    if (alive()) transport_->take();
  }
  void hang_up() { end_with(hf::Error(hf::Errc::closed, "receive", "the far end hung up")); }
  void end_with(hf::Error reason) {
    if (alive()) state_->owner->on_ended(std::move(reason));
  }
  /// At most so many bytes come at once.
  std::function<std::size_t()> cut = [] { return std::size_t{16} << 10; };
  /// Of what is said from now on only so many bytes come; until the next connection.
  std::size_t arriving = ~std::size_t{0};
  /// What the link did not want in any place of its own, and copies there.
  std::uint64_t fed_in_chunks = 0;
  /// From now on, until the next connection: as memory that two processes share.
  void bring_loans() { state_->brings_loans = true; }
  void take_loans(std::function<bool(const hf::Buffer&)> lends) {
    state_->lends = std::move(lends);
  }
  std::vector<hf::Buffer> lent() { return std::exchange(state_->lent, {}); }
  /// Bytes of the stream that lie in the far end's memory.
  void feed_loan(hf::Buffer piece) {
    if (alive()) state_->owner->on_loan(std::move(piece));
  }
  /// A frame's header, whose payload follows by other means. Said again, it comes with `payload`.
  void say_header(net::FrameHeader header, std::span<const std::byte> payload = {}) {
    header.sequence = ++said_;
    header.acknowledgement = heard_;
    std::vector<std::byte> bytes(net::FrameHeader::size);
    header.encode(bytes.data());
    if (remembers) {
      said_frames_.push_back(bytes);
      said_frames_.back().insert(said_frames_.back().end(), payload.begin(), payload.end());
    }
    feed(bytes);
  }
  /// Bytes as they are; where the link wants them, as from a socket.
  void feed(std::span<const std::byte> bytes) {
    bytes = bytes.first(std::min(bytes.size(), arriving));
    arriving -= arriving == ~std::size_t{0} ? 0 : bytes.size();
    while (!bytes.empty() && alive()) {
      hf::Buffer target = state_->owner->receive_target();
      if (target.empty()) {
        const auto part = bytes.first(std::min(bytes.size(), cut()));
        bytes = bytes.subspan(part.size());
        fed_in_chunks += part.size();
        hf::Buffer chunk = hf::Buffer::heap(part.size());
        std::memcpy(chunk.data(), part.data(), part.size());
        state_->owner->on_chunk(std::move(chunk));
      } else {
        const auto part = bytes.first(std::min({bytes.size(), target.size(), cut()}));
        bytes = bytes.subspan(part.size());
        std::memcpy(target.data(), part.data(), part.size());
        state_->owner->on_filled(part.size());
      }
    }
  }

 private:
  std::unique_ptr<WireTransport> make_transport() {
    state_ = std::make_shared<WireState>();
    auto transport = std::make_unique<WireTransport>(state_);
    transport_ = transport.get();
    return transport;
  }

  net::detail::NetworkShard& shard_;
  std::uint64_t number_;
  std::shared_ptr<WireState> state_, held_;
  WireTransport* transport_ = nullptr;
  std::uint64_t said_ = 0, heard_ = 0;
  std::vector<std::vector<std::byte>> said_frames_;
};

/// The near end: a node with a network that has no peer but those wires.
class WireNode {
 public:
  explicit WireNode(net::Network::Options options = {}, hf::SimNodeOptions node_options = {})
      : node(world.add_node(std::move(node_options))) {
    options.node_id = 1;
    options.incarnation = 1;
    options.boot_id = "near";
    core_ = std::make_shared<net::detail::NetworkCore>(node.runtime(), options, handler);
  }
  ~WireNode() {
    step([&] { core_->stop_here(); });
    pass(1ms);
  }

  /// Runs `what` on the shard, and then whatever that has led to.
  void step(std::function<void()> what) {
    world.run(node, 0, [&what](hf::Runtime&) { return run_step(&what); });
    world.run_for(1ms);
  }
  /// Time goes by; the wires keep their links alive.
  void pass(hf::Duration span) {
    while (span > 0ns) {
      const auto part = std::min<hf::Duration>(span, 500ms);
      span -= part;
      world.run_for(part);
      step([&] {
        for (auto& wire : wires_)
          if (wire->alive()) wire->say(net::FrameKind::heartbeat);
      });
    }
  }
  /// With a node of its own behind it, unless `peer` says which.
  Wire& add_wire(std::uint64_t peer = 0) {
    step([&] {
      const std::uint64_t number = wires_.size() + 1;
      wires_.push_back(std::make_unique<Wire>(core_->here(), number, peer ? peer : 100 + number));
    });
    return *wires_.back();
  }
  /// The session behind the `index`-th wire, on the shard.
  net::SessionRef session(std::size_t index = 0) { return core_->here().session(101 + index); }
  /// As the directory does when a link has ended.
  void end_session(std::size_t index = 0) {
    core_->here().end_session(index + 1, hf::Error(hf::Errc::peer_lost, "use a session", "gone"));
  }
  void begin_close(std::size_t index = 0) {
    core_->here().begin_close(index + 1, hf::Error(hf::Errc::closed, "use a session", "done"));
  }
  /// Sends without waiting for it; `code` gets its outcome.
  void start_send(std::size_t body, net::Lane lane, hf::Duration within = 5s,
                  std::error_code* code = nullptr, std::size_t index = 0) {
    hf::Shard::current()->spawn(send(session(index), body, lane, within, code));
  }
  static hf::Task<void> send(net::SessionRef session, std::size_t body, net::Lane lane,
                             hf::Duration within, std::error_code* code) {
    net::Message message;
    if (body) message.body = hf::Buffer::heap(body);
    try {
      co_await session->send(std::move(message), lane, hf::after(within));
      if (code) *code = {};
    } catch (const hf::Error& error) {
      if (code) *code = error.code();
    }
  }
  hf::Shard& shard() { return node.runtime().shard(0); }

  Handler handler;
  hf::SimWorld world;
  hf::SimNode& node;

 private:
  static hf::Task<void> run_step(std::function<void()>* what) {
    (*what)();
    co_return;
  }
  std::shared_ptr<net::detail::NetworkCore> core_;
  std::vector<std::unique_ptr<Wire>> wires_;
};

}  // namespace net_test
