#include <cstdint>
#include <cstdlib>
#include <string>

#include "../net/wire.hpp"

// A program for a node and a peer that may say anything: what the peer sends or lends, and when,
// and what the node does meanwhile. Whatever it is, another peer's link is served as ever, what is
// received stays within the budget, each part of it begins on a line and holds the bytes that were
// said, only segments lie in the peer's memory, and in the end all memory has come home.
namespace {

using namespace net_test;
using net::FrameKind;
using net::Lane;
using net::Message;
using net::MessageKind;

void require(bool fine, const char* what) {
  if (fine) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

class Program {
 public:
  explicit Program(std::span<const std::uint8_t> input) : input_(input), node_(options(), small()) {
    node_.handler.react = [this](net::Session& session, Lane lane, Message message) {
      look_at(message);
      if (message.envelope.kind == MessageKind::ask)
        asks_.emplace_back(net::SessionRef(&session), message.envelope, lane);
      if (keeps_) kept_.push_back(std::move(message));
    };
    hostile_ = &node_.add_wire();
    hostile_->remembers = true;
    other_ = &node_.add_wire();
    node_.step([&] {
      hostile_->bring_loans();
      other_->lend(1u << 20);
      other_->hear();
    });
  }

  void run() {
    for (int count = 0; !input_.empty() && count < 200; ++count) {
      const std::uint8_t operation = byte();
      if (operation % 16 == 15) {
        node_.pass(hf::Duration(500ms));
      } else if (operation % 16 == 14 && byte() % 2) {
        connect_again();
      } else {
        node_.step([&] { step(operation % 16); });
      }
      const auto used = node_.shard().receive_pool().usage().used_bytes;
      require(used <= 2 * budget, "more is received than was lent");
    }
    finish();
  }

 private:
  static constexpr std::size_t budget = 4u << 20;
  /// The message that is being said on a lane.
  struct Lent {
    hf::Buffer memory;
    std::uint64_t message = 0;
    std::size_t offset = 0, index = 0;
  };
  struct Expected {
    Message message;
    hf::Buffer memory;
    bool holds = true;  ///< The peer has changed nothing of it since.
  };
  static constexpr std::uint64_t known_type = 0x6b6e6f776e;

  static net::Network::Options options() {
    net::Network::Options options;
    options.receive_budget_bytes = budget;
    return options;
  }
  static hf::SimNodeOptions small() {
    hf::SimNodeOptions options;
    options.shard.send_quota_bytes = 8u << 20;
    return options;
  }

  std::uint8_t byte() {
    if (input_.empty()) return 0;
    const std::uint8_t first = input_.front();
    input_ = input_.subspan(1);
    return first;
  }
  /// From nothing to more than anything may be, most of it small.
  std::uint64_t number() {
    const std::uint8_t first = byte();
    if (first < 200) return first;
    if (first < 250) return std::uint64_t{byte()} << (first - 200);
    return ~std::uint64_t{0} - byte();
  }
  Lane lane() { return static_cast<Lane>(byte() % 3); }

  void step(unsigned operation) {
    switch (operation) {
      case 0:
      case 1: return say_frame();
      case 2: return say_fragment();
      case 3: return say_message();
      case 4: return say_lent();
      case 5: return hostile_->lend(number() % (8u << 20) + 1);
      case 6: return hear();
      case 7: return say_bytes();
      case 8: return send(MessageKind::tell);
      case 9: return send(MessageKind::ask);
      case 10: return answer();
      case 11: keeps_ = byte() % 2; return kept_.clear();
      case 12: return byte() % 2 ? hostile_->stop_reading() : hostile_->read_again();
      case 13: hostile_->acknowledging = byte() % 4 != 0; return;
      default:
        if (byte() % 2) return hostile_->break_off(number());
        if (byte() % 2) return hostile_->hang_up();
        if (byte() % 2) return node_.begin_close(0);
        return node_.end_session(0);
    }
  }

  /// Takes the link up, as a peer that says what it has, or anything; whether it broke or not.
  void connect_again() {
    bool welcome = false;
    node_.step([&] {
      if (byte() % 2) {
        welcome = hostile_->connect_again().has_value();
      } else {
        (void)hostile_->connect_again(number());
      }
      if (byte() % 2) hostile_->bring_loans();
    });
    node_.step([&] {
      if (welcome) hostile_->welcomed();
    });
  }

  net::FrameHeader header() {
    net::FrameHeader header;
    header.lane = lane();
    header.message = last_ + byte() % 4;
    last_ = std::max(last_, header.message);
    return header;
  }
  /// Any frame but data: its fields as the input has them.
  void say_frame() {
    constexpr FrameKind kinds[] = {
        FrameKind::announce, FrameKind::grant,          FrameKind::refuse,    FrameKind::withdraw,
        FrameKind::credit,   FrameKind::acknowledge,    FrameKind::heartbeat, FrameKind::close,
        FrameKind::hello,    FrameKind::heartbeat_reply};
    net::FrameHeader frame = header();
    frame.kind = kinds[byte() % std::size(kinds)];
    frame.flags = byte() % 4;
    frame.total = number();
    if (frame.kind == FrameKind::grant || frame.kind == FrameKind::refuse)
      frame.message = announced_;
    if (frame.kind == FrameKind::credit || frame.kind == FrameKind::heartbeat_reply)
      frame.message = number();
    const bool has_text = frame.kind == FrameKind::refuse || frame.kind == FrameKind::close;
    hostile_->say(frame, std::vector<std::byte>(has_text ? byte() : 0));
  }
  /// A piece of a large message, as a rule the next one.
  void say_fragment() {
    net::FrameHeader frame = header();
    auto& [offset, total, message] = partly_[static_cast<std::size_t>(frame.lane)];
    if (offset >= total) {
      total = number() % (4u << 20) + 64;
      offset = 0;
      message = granted_ && byte() % 2 ? granted_ : frame.message;
    }
    frame.total = total;
    frame.message = message;
    frame.offset = offset + (byte() == 255);
    frame.flags = byte() % 16 == 0;
    const std::uint64_t size = std::min(total - offset, number() % 300'000 + 1);
    offset += size;
    hostile_->say(frame, std::vector<std::byte>(size));
  }
  void say_message() {
    Message message;
    message.envelope.kind = static_cast<MessageKind>(byte() % 10);
    const std::uint8_t room = byte();
    message.envelope.reply_room = room < 128 ? room * 100 : 4096;
    const std::size_t size = number() % 400'000;
    if (size) message.body = hf::Buffer::heap(size);
    const Lane where = lane();
    const std::uint8_t flags = byte() % 4 == 0;
    hostile_->say_message(where, ++last_, message, flags);
  }
  /// A frame of a message whose bytes are known, cut into copies and loans, as a rule the next one.
  void say_lent() {
    net::FrameHeader frame = header();
    Lent& lent = lent_[static_cast<std::size_t>(frame.lane)];
    if (lent.offset >= lent.memory.size()) begin_lent(lent, frame.message);
    frame.message = lent.message;
    frame.offset = lent.offset;
    frame.total = lent.memory.size();
    frame.length = std::min<std::uint64_t>(frame.total - frame.offset, size_of_lent());
    const hf::Buffer payload = lent.memory.slice(lent.offset, frame.length);
    lent.offset += frame.length;
    hostile_->say_header(frame, payload.bytes());
    for (std::size_t at = 0; at < payload.size();) {
      const std::uint8_t how = byte();
      std::size_t part = std::min(payload.size() - at, size_of_lent());
      if (how % 32 == 31) {  // what is said next comes in place of the rest
        expected_[lent.index].holds = false;
        return;
      }
      if (how % 32 == 30) hostile_->break_off();
      if (how % 32 == 29) spoil(lent, at);
      // Beyond the frame, and perhaps beyond the message.
      if (how % 32 == 27) part = lent.memory.size() - (lent.offset - payload.size()) - at;
      if (how % 2) {
        hostile_->feed_loan(lent.memory.slice(lent.offset - payload.size() + at, part));
      } else {
        hostile_->feed(payload.slice(at, std::min(part, payload.size() - at)).bytes());
      }
      at += part;
    }
  }
  /// Up to what a message of several loans has, as a rule as much as there is.
  std::size_t size_of_lent() {
    const std::uint64_t size = number();
    return size < 100 ? 200'000 : 1 + (size - 1) % 150'000;
  }
  hf::Buffer known_bytes(std::size_t size) {
    if (size == 0) return {};
    hf::Buffer bytes = hf::Buffer::heap(size);
    for (std::size_t i = 0; i < size; ++i)
      bytes.data()[i] = static_cast<std::byte>(expected_.size() * 31 + i * 7 + (i >> 8) * 13);
    return bytes;
  }
  void begin_lent(Lent& lent, std::uint64_t number_of_message) {
    Message message;
    message.envelope.type_id = known_type;
    message.envelope.correlation = expected_.size();
    message.metadata = known_bytes(number() % 6000);
    message.body = known_bytes(number() % 20'000);
    for (int count = byte() % 4; count > 0; --count)
      message.segments.push_back(known_bytes(number() % 90'000));
    const hf::Buffer bytes = serialised(message);
    const std::size_t shift = byte() % 4 ? 0 : byte() % 64;
    const hf::Buffer all = hf::Buffer::heap(shift + bytes.size());
    std::memcpy(all.data() + shift, bytes.data(), bytes.size());
    lent = {all.slice(shift, bytes.size()), number_of_message, 0, expected_.size()};
    expected_.push_back({std::move(message), all, true});
  }
  /// The peer writes to what it has lent, or will; not to what says which message it is.
  void spoil(const Lent& lent, std::size_t at) {
    if (lent.memory.size() == net::wire::envelope_size) return;
    expected_[lent.index].holds = false;
    at %= lent.memory.size() - net::wire::envelope_size;
    lent.memory.data()[net::wire::envelope_size + at] ^= std::byte{0xff};
  }
  void look_at(const Message& message) {
    const auto look = [&](const hf::Buffer& part, bool may_be_lent) {
      const auto address = reinterpret_cast<std::uintptr_t>(part.data());
      require(part.empty() || address % 64 == 0, "a part begins between two lines");
      for (const Expected& one : expected_)
        require(may_be_lent || part.empty() || part.data() < one.memory.data() ||
                    part.data() >= one.memory.data() + one.memory.size(),
                "what is looked at lies in the peer's memory");
    };
    look(message.metadata, false);
    look(message.body, false);
    for (const hf::Buffer& segment : message.segments) look(segment, true);
    const std::uint64_t index = message.envelope.correlation;
    if (message.envelope.type_id != known_type || index >= expected_.size()) return;
    if (!expected_[index].holds) return;
    const Message& said = expected_[index].message;
    bool same = message.metadata.text() == said.metadata.text() &&
                message.body.text() == said.body.text() &&
                message.segments.count() == said.segments.count();
    for (std::size_t i = 0; same && i < said.segments.count(); ++i)
      same = message.segments[i].text() == said.segments[i].text();
    require(same, "a message holds other bytes than were said");
  }
  void say_bytes() {
    std::vector<std::byte> bytes(std::min<std::size_t>(byte(), input_.size()));
    for (std::byte& at : bytes) at = static_cast<std::byte>(byte());
    hostile_->feed(bytes);
  }
  void hear() {
    for (const WireFrame& frame : hostile_->hear()) {
      if (frame.header.kind == FrameKind::grant) granted_ = frame.header.message;
      if (frame.header.kind == FrameKind::announce) announced_ = frame.header.message;
    }
  }

  void send(MessageKind kind) {
    const net::SessionRef session = node_.session(0);
    if (!session) return;
    Message message;
    message.envelope.kind = kind;
    message.envelope.reply_room = byte() * 400u;
    if (const std::size_t size = number() % (2u << 20)) message.body = hf::Buffer::heap(size);
    const Lane where = lane();
    if (byte() % 2) {
      (void)session->try_send(message, where);
    } else {
      hf::Shard::current()->spawn(wait_to_send(session, std::move(message), where));
    }
  }
  static hf::Task<void> wait_to_send(net::SessionRef session, Message message, Lane lane) {
    try {
      co_await session->send(std::move(message), lane, hf::after(2s));
    } catch (const hf::Error&) {
      co_return;
    }
  }
  void answer() {
    if (asks_.empty()) return;
    auto [session, envelope, lane] = std::move(asks_.back());
    asks_.pop_back();
    if (!session->up()) return;
    Message message;
    message.envelope = net::answer_to(envelope);
    if (const std::size_t size = number() % 100'000) message.body = hf::Buffer::heap(size);
    hf::Shard::current()->spawn(wait_to_send(session, std::move(message), lane));
  }

  void finish() {
    node_.step([&] {
      Message message;
      require(node_.session(1)->try_send(message).has_value(), "another peer can't be sent to");
      other_->say_message(Lane::normal, 1, Message());
    });
    node_.step([&] {
      require(other_->hear(FrameKind::data).size() == 1, "another peer is not sent to");
      node_.end_session(0);
      node_.end_session(1);
      kept_.clear();
      asks_.clear();
      for (Lent& lent : lent_) lent = {};
    });
    node_.pass(3s);
    node_.step([&] {
      for (const Expected& one : expected_) require(one.memory.unique(), "a loan is lost");
      expected_.clear();
    });
    require(node_.shard().receive_pool().usage().used_bytes == 0, "received memory is lost");
    require(node_.shard().send_pool().usage().used_bytes == 0, "sent memory is lost");
  }

  struct Partly {
    std::uint64_t offset = 0, total = 0, message = 0;
  };
  struct Asked {
    net::SessionRef session;
    net::Envelope envelope;
    Lane lane;
  };
  std::span<const std::uint8_t> input_;
  WireNode node_;
  Wire* hostile_ = nullptr;
  Wire* other_ = nullptr;
  std::vector<Asked> asks_;
  std::vector<Message> kept_;
  Partly partly_[3];
  Lent lent_[3];
  std::vector<Expected> expected_;
  std::uint64_t last_ = 0, granted_ = 0, announced_ = 0;
  bool keeps_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Program program(std::span<const std::uint8_t>(data, size));
  program.run();
  return 0;
}
