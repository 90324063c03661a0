// One connection between two shards, and the frames on it: sequence, acknowledgements, lanes,
// credit and heartbeats. Session is what programs use; this is what it stands on.
//
//   Link link(owner, session, std::move(transport), settings);
//   link.start(welcome_frame);
//   if (link.try_send(message, total, lane, true) == Link::Room::none) link.wait(awaiter);
//
// Small messages are encoded straight into a staging block, and everything that gathers there in a
// turn leaves as one batch. A batch is kept until the peer has acknowledged all of it. When the
// transport breaks, the link stays as it is, queues, windows and waiting senders; once it is given
// another transport, each end says what it has, and gets the rest again under the same sequence
// numbers. Large messages go out in fragments that refer to the sender's own memory. All on one
// shard.
#pragma once

#include <cstdint>
#include <deque>
#include <hyperframes/net/flow_control.hpp>
#include <hyperframes/net/frame.hpp>
#include <hyperframes/net/message.hpp>
#include <hyperframes/net/session.hpp>
#include <hyperframes/net/transport.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <hyperframes/runtime/timer.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace hyperframes::net::detail {

inline constexpr Lane all_lanes[lane_count] = {Lane::control, Lane::normal, Lane::bulk};

/// Whether it answers an ask.
constexpr bool is_answer(MessageKind kind) noexcept {
  return kind == MessageKind::reply || kind == MessageKind::failure;
}

struct LinkSettings {
  std::uint32_t index = 0;
  std::uint64_t largest_message = 0;  ///< That the peer takes.
  std::uint64_t fragment_bytes = 0;   ///< The smaller of both ends' limits.
  std::uint32_t reply_room = 4096;    ///< What an ask reserves unless it says otherwise.
  std::size_t unsent_backlog_bytes = 0;
  bool resumable = false;      ///< The peer knows how to take up a broken link.
  bool take_loans = true;      ///< What is lent may stay where it is; else it is copied.
  std::uint32_t channels = 1;  ///< Channel numbers below this are taken.
};

/// What a link reports to. Calls come from the link's own work, never from inside a send.
class LinkOwner {
 public:
  virtual MessageHandler& handler() noexcept = 0;
  /// The link has lost its transport, and waits for another one.
  virtual void on_link_broken(Link& link) noexcept = 0;
  /// The link is over; it may be destroyed in this call. Errc::closed: both sides had drained.
  virtual void on_link_ended(Link& link, const Error& reason) noexcept = 0;

 protected:
  ~LinkOwner() = default;
};

class Link final : private Transport::Owner, private ReceiveAccount::Owner {
 public:
  /// What became of an attempt to send.
  enum class Room : std::uint8_t { taken, none };

  /// Throws Errc::exhausted if there is no memory to receive into.
  Link(LinkOwner& owner, Session& session, std::unique_ptr<Transport> transport,
       std::shared_ptr<ReceiveBudget> budget, LinkSettings settings);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Begins to move bytes; `first` (may be empty) leaves before everything else.
  void start(Buffer first);

  /// Before a link that broke, or that only the peer believes to be broken, goes on: what this side
  /// has received, the last frame's sequence. An error, and nothing is changed, if
  /// `peer_delivered`, what the peer says that it has, can't be.
  Result<std::uint64_t> prepare_resume(std::uint64_t peer_delivered);
  /// After that: goes on over `transport`, once the system has let go of the old one. `first` (may
  /// be empty) leaves before everything else.
  void resume(std::unique_ptr<Transport> transport, Buffer first, std::uint64_t peer_delivered);
  /// It can't be taken up again, for that cause.
  void give_up(const Error& cause) noexcept;
  /// An attempt to take it up failed; another one follows.
  void note_attempt(const Error& cause) noexcept;
  bool broken() const noexcept { return broken_.has_value(); }
  std::uint64_t breaks() const noexcept { return breaks_; }
  std::uint64_t delivered() const noexcept { return delivered_; }
  /// While it is broken: how long it still waits to be taken up.
  Duration window_left() const noexcept { return window_left_; }

  Session& session() noexcept { return session_; }
  std::uint32_t index() const noexcept { return settings_.index; }
  /// Takes no messages from the start, for that reason; what the peer sends is still taken.
  void refuse(Error reason) noexcept { refusal_ = std::move(reason); }
  /// Why nothing can be sent (any more), or null.
  const Error* refusal() const noexcept { return refusal_ ? &*refusal_ : nullptr; }
  std::uint64_t largest_message() const noexcept { return settings_.largest_message; }

  /// Queues a message of `total` bytes on the wire if there is room now and nobody waits before it.
  /// `may_wait`: also turns away what can wait while much is queued that has not left yet.
  Room try_send(Message& message, std::uint64_t total, Lane lane, bool may_wait);
  void wait(Session::SendAwaiter& awaiter) noexcept;
  /// An awaiter leaves before its message was queued.
  void leave(Session::SendAwaiter& awaiter) noexcept;

  /// Takes no new messages; sends what it has, and ends once both sides have acknowledged all.
  void begin_close(Error reason) noexcept;
  /// Ends now. Idempotent.
  void fail(Error reason) noexcept;
  /// Messages that the peer has not acknowledged, those that have not left included; of this lane
  /// and those behind it.
  std::uint64_t unacknowledged(Lane first = Lane::control) const noexcept;
  void add_stats(Session::Stats& stats) const;

 private:
  /// Whole frames in staging memory, or one large message that is cut as it leaves.
  struct Outgoing {
    Buffer owner;
    std::byte* begin = nullptr;
    std::size_t size = 0;
    std::uint32_t frames = 0;
    std::uint64_t answers = 0;  ///< Bytes of the peer's room for answers that these set free.

    Segments pieces;
    std::uint64_t total = 0, offset = 0, message = 0;
    std::uint32_t channel = 0;
    std::uint8_t flags = 0;
    std::size_t piece = 0, piece_offset = 0;
    bool large() const noexcept { return total != 0; }
  };
  struct LaneOut {
    std::deque<Outgoing> queue;
    /// Who waits to send: answers apart, since what they wait for must not wait for them.
    hyperframes::detail::List<Session::SendAwaiter> waiting, waiting_answers;
    std::uint64_t arrivals = 0;  ///< Of those, so far.
    std::uint64_t credit = 0, window = 0;
    std::uint64_t last_message = 0;
    std::uint64_t announced = 0;  ///< The message that waits for its grant.
    bool granted = false;         ///< It may go now.
    std::uint64_t not_begun = 0;  ///< The granted message of which nothing has left yet.
    std::uint64_t frames = 0;     ///< Queued.
    std::uint64_t staged = 0;     ///< Bytes of small messages, queued.
    std::uint64_t sent = 0, acknowledged = 0;  ///< Messages.
    bool anybody_waits() const noexcept { return !waiting.empty() || !waiting_answers.empty(); }
  };
  struct Grant final : ReceiveBudget::Waiting {
    void on_granted() noexcept override;
    Link* link = nullptr;
    Lane lane = Lane::control;
    std::uint64_t message = 0;  ///< 0: none is announced.
    std::uint64_t total = 0;
    bool granted = false;
  };
  /// A part of a message that lies in the peer's memory.
  struct Lent {
    std::uint64_t offset = 0;  ///< In the message.
    std::size_t copied = 0;    ///< Where the bytes behind it go, in a sparse LaneIn::memory.
    Buffer piece;
    std::uint64_t end() const noexcept { return offset + piece.size(); }
  };
  struct LaneIn {
    std::uint64_t last_message = 0;
    std::uint64_t message = 0, total = 0, received = 0;  ///< Of the message in progress.
    std::uint32_t channel = 0;
    std::uint8_t flags = 0;
    bool granted = false;        ///< The message in progress was.
    std::uint64_t progress = 0;  ///< Bytes of fragments since the last heartbeat.
    int idle_ticks = 0;          ///< Heartbeats in which what is granted did not come nearer.
    /// The message; its head alone where `sparse`: then what was copied follows each other there,
    /// each part as far from a multiple of 64 as in the message, and what was lent takes none of
    /// it.
    Buffer memory;
    bool sparse = false;
    std::size_t copied = 0;  ///< Of a sparse one: where the next byte goes.
    std::vector<Lent> lent;  ///< Of the message in progress, in order.
    ReceiveAccount::Charge charge = ReceiveAccount::Charge::control;
    Grant grant;
    std::uint64_t received_count = 0;
    bool active() const noexcept { return total != 0; }
  };
  struct Retained {
    std::uint64_t last_sequence;
    Segments batch;
    std::uint64_t bytes;  ///< Without those that are lent: they are no memory of the send pool's.
  };
  /// A heartbeat that was not answered yet, and the last frame before it.
  struct Probe {
    std::uint64_t message, sequence;
  };
  /// Frames that have left, each the end of a message of that lane.
  struct Left {
    std::uint64_t first, last;
    Lane lane;
  };
  struct Control {
    FrameHeader header;
    std::string text;
  };
  /// What a broken link goes on with.
  struct Next {
    std::unique_ptr<Transport> transport;
    Buffer first;
    std::uint64_t peer_delivered = 0;
  };
  template <void (Link::*function)()>
  struct Tick : Timer {
    explicit Tick(Link& link) noexcept : Timer(&Tick::run), link(link) {}
    static void run(Timer& timer) noexcept { (static_cast<Tick&>(timer).link.*function)(); }
    Link& link;
  };
  template <void (Link::*function)()>
  struct Later : hyperframes::detail::Work {
    explicit Later(Link& link) noexcept : Work(&Later::go), link(link) {}
    static void go(Work* work) noexcept {
      auto& self = static_cast<Later&>(*work);
      self.queued = false;
      (self.link.*function)();
    }
    Link& link;
    bool queued = false;
  };

  LaneOut& out(Lane lane) noexcept { return out_[static_cast<std::size_t>(lane)]; }
  LaneIn& in(Lane lane) noexcept { return in_[static_cast<std::size_t>(lane)]; }
  template <class Work>
  void later(Work& work) noexcept {
    if (work.queued) return;
    work.queued = true;
    shard_.schedule(&work, Group::system);
  }

  // link_send.cpp: into the queues.
  bool is_prepaid(const Envelope& envelope, std::uint64_t total) const noexcept;
  static std::uint64_t room_for_answer(const Envelope& envelope) noexcept;
  bool take_room(Envelope& envelope, std::uint64_t total, LaneOut& lane) noexcept;
  Session::SendAwaiter* next_to_go(LaneOut& lane) noexcept;
  std::uint32_t answer_room(const Envelope& envelope) const noexcept;
  bool promise_room(Envelope& envelope) noexcept;
  void unpromise_room(const Envelope& envelope) noexcept;
  /// The peer has not left too much unacknowledged.
  bool acknowledges() const noexcept { return retained_bytes_ < unacknowledged_limit_; }
  void queue(Message& message, std::uint64_t total, Lane lane, std::uint64_t number,
             std::uint8_t flags = 0);
  void queue_small(const Message& message, std::uint64_t total, Lane lane, std::uint64_t number,
                   std::uint8_t flags);
  void queue_large(Message& message, std::uint64_t total, Lane lane, std::uint64_t number,
                   std::uint8_t flags);
  void withdraw(Lane lane, std::uint64_t message) noexcept;
  void pump(Lane lane) noexcept;
  void pump_all() noexcept;
  void retry();
  void control(FrameKind kind, Lane lane, std::uint64_t message, std::uint64_t total,
               std::uint8_t flags = 0, std::string text = {});

  // The same: out of the queues.
  static Buffer hold_here(Buffer buffer);
  std::byte* stage(std::size_t size);
  bool staging_has(std::size_t size) noexcept;
  void flush();
  void compose(Segments& batch);
  void compose_controls(Segments& batch);
  void compose_lane(LaneOut& lane, Lane name, Segments& batch);
  void emit_frame(const FrameHeader& header, std::string_view text, Segments& batch);
  void emit_run(LaneOut& lane, Outgoing& run, Segments& batch);
  bool emit_fragment(Outgoing& message, Lane lane, Segments& batch);
  std::uint64_t length_of_next(const Buffer& rest, std::uint64_t length,
                               std::uint64_t copied) const noexcept;
  bool queues_empty() const noexcept;
  void on_sent(Segments batch) noexcept override;
  void retain(Segments batch);
  void acknowledged(std::uint64_t sequence) noexcept;
  void recycle(Segments& batch) noexcept;
  std::string acknowledged_text() const;

  // link_resume.cpp: over another transport.
  void start_transport(Buffer first);
  void lose_transport(Error reason) noexcept;
  void break_off(Error reason) noexcept;
  bool count_break() noexcept;
  void forget_partial_frame() noexcept;
  void on_released() noexcept override;
  void go_on();
  bool can_resume() const noexcept;
  Duration silence() const noexcept;
  void count_window();
  void send_again();
  static Segments frames_after(const Segments& batch, std::uint64_t sequence);

  // link_receive.cpp: bytes become frames, and frames messages.
  Buffer receive_target() noexcept override;
  void on_chunk(Buffer chunk) noexcept override;
  void on_filled(std::size_t size) noexcept override;
  void consume(const std::byte* at, std::size_t size);
  bool begin_frame(const std::byte* header);
  bool begin_data();
  bool deliver_at_once(const std::byte* payload);
  void advance(std::size_t size);
  void finish_frame();
  void finish_message(LaneIn& lane);
  ReceiveAccount::Charge charge_for(std::uint64_t cost) noexcept;
  bool settle(const Envelope& envelope, std::uint64_t total, std::uint8_t flags);
  void deliver(Lane lane, Message message, std::uint64_t total, std::uint8_t flags);
  void obey();
  void obey_announce();
  void after_receive();
  bool in_bulk() const noexcept;
  void heard() noexcept {
    silent_ticks_ = 0;
    heard_ = shard_.now();
  }

  // link_loans.cpp: what is lent of a message.
  std::size_t on_loan(Buffer piece) noexcept override;
  static bool goes_on(const LaneIn& lane, const Buffer& piece) noexcept;
  void note_loan(Buffer piece);
  void copy_in(LaneIn& lane, const std::byte* at, std::size_t size);
  static std::size_t place_of(const LaneIn& lane, std::uint64_t offset) noexcept;
  void make_dense(LaneIn& lane);
  static void drop_message(LaneIn& lane) noexcept;
  Result<Message> assemble(LaneIn& lane);
  Buffer part_of(LaneIn& lane, std::uint64_t begin, std::uint64_t size, bool may_be_lent);
  Buffer gather(LaneIn& lane, std::uint64_t begin, std::uint64_t size);

  // link.cpp: beginning, heartbeats and end.
  void drop_grants() noexcept;
  void on_credit_owed() noexcept override;
  void on_reply_room() noexcept override;
  void on_ended(Error reason) noexcept override;
  void heartbeat();
  bool watch_progress() noexcept;
  void acknowledge_now();
  void pump_asks();
  void check_closed() noexcept;
  void report();
  void corrupt(std::string found);
  void fail_waiting(const Error& reason) noexcept;

  LinkOwner& owner_;
  Session& session_;
  Shard& shard_;
  std::unique_ptr<Transport> transport_;
  std::shared_ptr<ReceiveBudget> budget_;
  LinkSettings settings_;
  FrameLimits limits_;
  ReceiveAccount::Reference account_;

  // Sending.
  LaneOut out_[lane_count];
  std::vector<Control> controls_;
  Buffer staging_;
  std::size_t staged_ = 0;
  std::uint64_t sequence_ = 0;      ///< Of the last sequenced frame that left.
  std::uint64_t acknowledged_ = 0;  ///< By the peer.
  std::deque<Retained> retained_;
  std::deque<Left> left_;
  std::uint64_t retained_bytes_ = 0, queued_bytes_ = 0;
  const std::uint64_t unacknowledged_limit_;
  std::uint64_t acknowledged_at_tick_ = 0;
  int unacknowledged_ticks_ = 0;
  std::uint64_t peer_reply_window_ = 0;
  std::uint64_t asked_ = 0;  ///< Of that window, by asks whose answers have not left.
  std::vector<Segments> spare_;
  std::uint64_t batch_last_ = 0;
  std::uint64_t batch_lent_ = 0;  ///< Bytes of the batch that is composed, or on its way.
  bool sending_ = false;
  bool sending_new_ = false;  ///< And it is a batch of frames that are sent for the first time.
  bool owes_ack_ = false, owes_heartbeat_ = false;
  bool owes_credit_ = false, owes_all_credit_ = false;
  std::optional<std::uint64_t> echo_;
  std::optional<Probe> probe_;
  unsigned without_bulk_ = 0;

  // Receiving.
  LaneIn in_[lane_count];
  std::size_t copied_of_loans_ = 0;
  Buffer carry_;  ///< A header that arrives in pieces.
  std::size_t carried_ = 0;
  /// Large messages often follow each other, and a stream of chunks would take in much of the next
  /// one before it ends: so after one that was received directly, the next header is too.
  bool expects_large_ = false;
  FrameHeader frame_;            ///< The one whose payload arrives.
  std::uint64_t remaining_ = 0;  ///< Of its payload.
  std::string text_;
  std::uint64_t delivered_ = 0;  ///< Sequence of the last frame received as a whole.
  std::uint64_t ack_sent_ = 0;
  std::uint64_t unacked_bytes_ = 0;
  int silent_ticks_ = 0;  ///< Heartbeats since something came.
  Time heard_{};          ///< When that was.
  std::uint64_t bytes_at_tick_ = 0;
  int idle_ticks_ = 0;

  std::uint64_t bytes_sent_ = 0, bytes_received_ = 0, batches_ = 0;
  Duration round_trip_{0};
  /// It has a transport that works.
  bool started_ = false;
  bool closing_ = false, close_sent_ = false, peer_closed_ = false;

  // Over another transport.
  std::optional<Error> broken_;  ///< Why there is none at the moment.
  std::string last_attempt_;     ///< Why it could not be taken up, so far.
  Duration window_left_{0};
  Next next_;
  /// Frames after the first and up to the second have to leave once more, before any new one.
  std::uint64_t resend_next_ = 0, resend_last_ = 0;
  std::uint64_t bytes_at_start_ = 0;  ///< Received when this transport began.
  std::uint64_t breaks_ = 0, resumes_ = 0;
  /// A sequenced frame, an acknowledgement or an answered heartbeat came over this transport.
  bool carried_something_ = true;

  std::optional<Error> refusal_;  ///< Set once nothing may be sent (any more).
  std::optional<Error> end_;      ///< Set once it is over.

  Tick<&Link::heartbeat> heartbeat_timer_{*this};
  Tick<&Link::acknowledge_now> ack_timer_{*this};
  Tick<&Link::retry> retry_timer_{*this};
  Tick<&Link::count_window> resume_timer_{*this};
  Later<&Link::flush> flush_later_{*this};
  Later<&Link::report> report_later_{*this};
  Later<&Link::pump_asks> pump_later_{*this};
  Later<&Link::go_on> go_on_later_{*this};
};

}  // namespace hyperframes::net::detail
