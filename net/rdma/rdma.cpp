#include <hyperframes/net/rdma/rdma.hpp>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <deque>
#include <hyperframes/net/detail/text.hpp>
#include <hyperframes/net/rdma/device.hpp>
#include <hyperframes/net/rdma/landing.hpp>
#include <hyperframes/net/rdma/queue.hpp>
#include <hyperframes/net/rdma/setup.hpp>
#include <hyperframes/runtime/failpoint.hpp>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/offload.hpp>
#include <hyperframes/runtime/poller.hpp>
#include <hyperframes/runtime/reactor.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <hyperframes/runtime/timer.hpp>
#include <optional>
#include <utility>

namespace hyperframes::net {
namespace {

using detail::RdmaDevice;
using detail::RdmaOffer;
using detail::RdmaQueue;
using hyperframes::detail::pass_failpoint_now;
using Word = RdmaQueue::Word;

// What one turn moves in each direction before others get theirs.
constexpr std::size_t pass_bytes = 256 << 10;
// What a piece counts for at least.
constexpr std::size_t least_cost = 256;
// From here on a buffer is written where the peer lets this end write.
constexpr std::size_t least_landed = Transport::least_payload;
// So many places go back without waiting for a turn in which nothing comes.
constexpr std::size_t many_returned = 64;

/// So long a pair may take until it is shown to work; a silent link breaks after two heartbeats.
Duration patience() noexcept { return timing().heartbeat(); }

class RdmaStream;

/// What the calls that block come back to, if it is still there. On one shard.
struct Attempt {
  RdmaStream* stream;
};
using AttemptRef = std::shared_ptr<Attempt>;

/// A pair that is not used any more: its memory may be another link's once all has come back.
Task<void> let_go(std::unique_ptr<RdmaQueue> queue) {
  queue->end();
  const Time limit = after(timing().heartbeat());
  try {
    while (!queue->is_drained() && Clock::now() < limit) co_await sleep_for(200us);
    co_await offload([queue = std::move(queue)]() mutable { queue.reset(); });
  } catch (const Error&) {
    co_return;  // the shard ends, and the pair with this frame
  }
}

void discard(std::unique_ptr<RdmaQueue> queue) {
  if (queue) Shard::current()->spawn(let_go(std::move(queue)), Group::system);
}

/// The connection and the pair, which may outlive the transport that a link had of them: until what
/// it was just sending has arrived.
class RdmaStream final : private Transport::Owner, private Poller, private Completion {
 public:
  RdmaStream(std::unique_ptr<Transport> below, std::shared_ptr<RdmaDevice> device, RdmaSide side,
             bool first_goes_below)
      : below_(std::move(below)),
        device_(std::move(device)),
        side_(side),
        first_goes_below_(first_goes_below),
        limit_(*this) {}
  ~RdmaStream();

  Transport& below() const noexcept { return *below_; }
  bool is_rdma() const noexcept { return stage_ == Stage::paired; }
  /// What is measured without a card is to be known by its name.
  std::string_view rdma_name() const noexcept {
    return device_->is_emulated() ? "soft-rdma" : "rdma";
  }
  /// Whether the peer writes into memory of this end.
  bool has_landing() const noexcept { return landed_ != nullptr; }

  void start(Transport::Owner& owner, std::size_t unsent_backlog_bytes) noexcept;
  void send(Segments batch) noexcept;
  void stop() noexcept;
  Segments abandon() noexcept;

  /// Something is on its way that the peer is to have before the end.
  bool must_part() const noexcept {
    return queue_ && stage_ == Stage::paired && !queue_->failure() && queue_->sends_in_flight();
  }
  static Task<void> part(std::unique_ptr<RdmaStream> self);

  // Of a call that blocked.
  void on_made(std::unique_ptr<RdmaQueue> queue) noexcept;
  void on_joined(std::unique_ptr<RdmaQueue> queue) noexcept;
  void on_failed(const Error& error) noexcept;
  void on_landing(std::shared_ptr<RdmaDevice::Landing> landing) noexcept;

 private:
  enum class Stage : std::uint8_t {
    open,    ///< It is not decided yet.
    paired,  ///< Bytes go through the pair.
    below,   ///< They go through what is below.
  };
  struct Limit final : Timer {
    explicit Limit(RdmaStream& self) noexcept : Timer(&Limit::run), self(self) {}
    static void run(Timer& timer) noexcept {
      static_cast<Limit&>(timer).self.on_failed(
          Error(Errc::deadline_exceeded, "set up RDMA", "the queue pairs did not meet in time",
                "see whether the network lets UDP port 4791 pass, and has one MTU throughout"));
    }
    RdmaStream& self;
  };

  // Setting up.
  void meet(const RdmaOffer& message) noexcept;
  void answer(const RdmaOffer& message) noexcept;
  void join(const RdmaOffer& offer) noexcept;
  void hear(Word word) noexcept;
  void begin_paired() noexcept;
  void go_on_below(const std::string& why) noexcept;
  void say(const RdmaOffer& message) noexcept;
  void say(RdmaOffer::Status status, const std::string& text) noexcept;

  // From what is below.
  bool expects_message() const noexcept {
    return side_ == RdmaSide::accepting ? stage_ == Stage::open : expects_answer_;
  }
  Buffer receive_target() noexcept override;
  void on_chunk(Buffer chunk) noexcept override { arrived(std::move(chunk)); }
  void on_filled(std::size_t size) noexcept override;
  void on_sent(Segments batch) noexcept override;
  void on_ended(Error reason) noexcept override;
  void on_released() noexcept override {
    if (released_owner_) released_owner_->on_released();
  }
  void arrived(Buffer bytes) noexcept;
  bool begins_message() const noexcept;
  void pump_below() noexcept;

  // Poller and Completion.
  void watch() noexcept;
  void unwatch() noexcept;
  std::size_t poll() noexcept override;
  void arm() noexcept override {
    queue_->arm();
    pass_failpoint_now("rdma-armed");
  }
  bool ready() const noexcept override {
    return queue_->ready() || hung_up_ || (sending_ && stage_ == Stage::paired && left_ == 0) ||
           paused_ || (owes_words() && queue_->has_room());
  }
  void disarm() noexcept override {}
  void on_complete(Operation& operation, std::int64_t result, bool more) noexcept override;
  void listen_for_events() noexcept;

  bool take(const RdmaQueue::Arrival& arrival) noexcept;
  void fail_pair() noexcept;
  void deliver(std::span<const std::byte> piece) noexcept;
  Buffer chunk();
  void push() noexcept;
  std::size_t push_some(std::span<std::byte> room) noexcept;
  bool is_large() const noexcept;
  std::size_t before_next_large() const noexcept;
  void fill(std::span<std::byte> room) noexcept;
  void make_landing() noexcept;
  bool owes_words() const noexcept {
    return answers_ask_ || (landed_ && !landed_->returned().empty());
  }
  void say_words() noexcept;
  void finish_batch() noexcept;
  bool breaks_here() noexcept;
  void halt() noexcept;
  void end(Error reason) noexcept;
  Error corrupt(std::string found) const {
    return Error(Errc::corrupt, "receive from " + below_->peer(), std::move(found),
                 "the connection was closed; run the same release on both ends");
  }

  std::unique_ptr<Transport> below_;
  std::shared_ptr<RdmaDevice> device_;
  RdmaSide side_;
  bool first_goes_below_;
  Transport::Owner* owner_ = nullptr;
  Transport::Owner* released_owner_ = nullptr;
  Stage stage_ = Stage::open;
  bool started_ = false;

  AttemptRef attempt_;
  std::unique_ptr<RdmaQueue> queue_;
  Limit limit_;
  std::size_t backlog_bytes_ = 0;
  bool expects_answer_ = false;

  std::deque<Buffer> messages_;  ///< To go below.
  bool below_sends_ = false, below_sends_batch_ = false, batch_waits_for_below_ = false;
  Buffer landing_;
  bool landing_given_ = false;
  std::array<std::byte, RdmaOffer::size> message_;
  std::size_t message_size_ = 0;

  bool watching_ = false, paused_ = false;
  Operation* listening_ = nullptr;
  std::optional<Error> hung_up_;
  Buffer chunk_;
  Segments batch_;
  std::size_t buffer_ = 0, offset_ = 0;  ///< Where in it the bytes are that go next.
  std::size_t left_ = 0;
  bool sending_ = false;

  // Landings: that of the peer, and the own one.
  const std::byte* landed_to_ = nullptr;  ///< The end, in this end's memory, of what landed last.
  bool copies_buffer_ = false;            ///< The buffer in turn found no place there.
  bool answers_ask_ = false;
  std::shared_ptr<RdmaDevice::Landing> answer_;
  std::shared_ptr<detail::Landed> landed_;
};

// ---- What blocks

Task<void> make_queue(AttemptRef attempt, std::shared_ptr<RdmaDevice> device) {
  std::optional<Error> failure;
  try {
    const unsigned shard = Shard::current()->index();
    auto queue = co_await offload([device, shard] { return RdmaQueue::create(device, shard); });
    if (attempt->stream) co_return attempt->stream->on_made(std::move(queue));
    co_return discard(std::move(queue));
  } catch (const Error& error) {
    failure = error;
  } catch (const std::exception& error) {
    failure = Error(Errc::internal, "make a queue pair", error.what());
  }
  if (attempt->stream) attempt->stream->on_failed(*failure);
}

/// With a queue that is there, or a new one.
Task<void> join_queue(AttemptRef attempt, std::shared_ptr<RdmaDevice> device,
                      std::unique_ptr<RdmaQueue> made, RdmaOffer peer, std::string name) {
  std::optional<Error> failure;
  auto shared = std::make_shared<std::unique_ptr<RdmaQueue>>(std::move(made));
  try {
    const unsigned shard = Shard::current()->index();
    co_await offload([device, shared, peer, name, shard] {
      if (!*shared) *shared = RdmaQueue::create(device, shard);
      (*shared)->name_peer(name);
      (*shared)->connect(peer);
    });
    if (attempt->stream) co_return attempt->stream->on_joined(std::move(*shared));
  } catch (const Error& error) {
    failure = error;
  } catch (const std::exception& error) {
    failure = Error(Errc::internal, "connect a queue pair", error.what());
  }
  discard(std::move(*shared));
  if (failure && attempt->stream) attempt->stream->on_failed(*failure);
}

/// Memory for what the peer would write here. Without any the peer sends it in pieces.
Task<void> land(AttemptRef attempt, std::shared_ptr<RdmaDevice> device) {
  std::shared_ptr<RdmaDevice::Landing> landing;
  try {
    landing = co_await offload([device] { return device->land(); });
  } catch (const Error& error) {
    if (error.is(Errc::cancelled) || error.is(Errc::shutting_down)) co_return;
    log::warning(std::string("what is sent in large segments is copied: ") + error.what());
  } catch (const std::exception& error) {
    log::warning(std::string("what is sent in large segments is copied: ") + error.what());
  }
  if (attempt->stream) attempt->stream->on_landing(std::move(landing));
}

// ---- Life

RdmaStream::~RdmaStream() {
  stop();
  below_->stop();
  discard(std::move(queue_));
}

void RdmaStream::start(Transport::Owner& owner, std::size_t unsent_backlog_bytes) noexcept {
  owner_ = &owner;
  backlog_bytes_ = unsent_backlog_bytes;
  started_ = true;
  landing_ = Buffer::heap(RdmaOffer::size);
  below_->start(*this, unsent_backlog_bytes);
  if (side_ == RdmaSide::accepting) return;
  attempt_ = std::make_shared<Attempt>(this);
  Shard::current()->start_timer(limit_, after(patience()));
  Shard::current()->spawn(make_queue(attempt_, device_), Group::system);
}

void RdmaStream::send(Segments batch) noexcept {
  assert(!sending_ && owner_);
  sending_ = true;
  batch_ = std::move(batch);
  buffer_ = offset_ = 0;
  copies_buffer_ = false;
  left_ = batch_.size_bytes();
  const bool goes_below = std::exchange(first_goes_below_, false) || stage_ == Stage::below;
  batch_waits_for_below_ = goes_below;
  if (goes_below) return pump_below();
  if (stage_ == Stage::paired) push();
}

void RdmaStream::halt() noexcept {
  owner_ = nullptr;
  limit_.stop();
  if (attempt_) std::exchange(attempt_, nullptr)->stream = nullptr;
  unwatch();
}

void RdmaStream::stop() noexcept {
  halt();
  batch_.clear();
  sending_ = batch_waits_for_below_ = false;
  messages_.clear();
  left_ = 0;
  // Else its end still tells that nobody waits for what is on its way.
  if (started_ && !must_part()) below_->stop();
  if (!must_part()) discard(std::move(queue_));
}

/// The batch stays where it is, for `abandon`.
void RdmaStream::end(Error reason) noexcept {
  Transport::Owner* const owner = owner_;
  halt();
  if (owner) released_owner_ = owner;
  if (owner) owner->on_ended(std::move(reason));
}

// The device has copies only. What is below may have the batch itself, and the last target.
Segments RdmaStream::abandon() noexcept {
  if (owner_) released_owner_ = owner_;
  halt();
  discard(std::move(queue_));
  Segments of_below = below_->abandon();
  Segments batch = below_sends_batch_ ? std::move(of_below) : std::exchange(batch_, Segments());
  batch_.clear();
  sending_ = false;
  left_ = 0;
  return batch;
}

/// Until the peer's device has acknowledged all, or the peer has ended, or for too long.
Task<void> RdmaStream::part(std::unique_ptr<RdmaStream> self) {
  const Time limit = after(timing().heartbeat());
  RdmaQueue& queue = *self->queue_;
  queue.say(Word::credit, true);  // its completion is that of all before it
  try {
    while (queue.sends_in_flight() && !queue.failure() && !self->hung_up_ && Clock::now() < limit) {
      if (const auto arrival = queue.next()) {
        queue.release(*arrival);
      } else {
        co_await sleep_for(100us);
      }
    }
  } catch (const Error&) {
    co_return;  // the shard ends
  }
}

// ---- Setting up

void RdmaStream::say(RdmaOffer::Status status, const std::string& text) noexcept {
  RdmaOffer message;
  message.status = status;
  message.text = text;
  say(message);
}

void RdmaStream::say(const RdmaOffer& message) noexcept {
  messages_.push_back(Buffer::copy_of(message.encode()));
  pump_below();
}

void RdmaStream::on_made(std::unique_ptr<RdmaQueue> queue) noexcept {
  queue_ = std::move(queue);
  expects_answer_ = true;
  say(queue_->offer());
}

/// A message of the peer's came.
void RdmaStream::meet(const RdmaOffer& message) noexcept {
  using Status = RdmaOffer::Status;
  if (side_ == RdmaSide::accepting) return answer(message);
  expects_answer_ = false;
  if (stage_ == Stage::below) return;  // it was given up meanwhile, and the peer told so
  if (message.status == Status::offer) return join(message);
  on_failed(Error(Errc::rejected, "set up RDMA", "the peer says: " + message.text));
}

void RdmaStream::answer(const RdmaOffer& message) noexcept {
  if (message.status == RdmaOffer::Status::go_on_here)
    return go_on_below("the peer says: " + message.text);
  if (attempt_) return end(corrupt("it offers a queue pair twice"));
  attempt_ = std::make_shared<Attempt>(this);
  join(message);
}

void RdmaStream::join(const RdmaOffer& offer) noexcept {
  Shard::current()->spawn(join_queue(attempt_, device_, std::move(queue_), offer, below_->peer()),
                          Group::system);
}

void RdmaStream::on_joined(std::unique_ptr<RdmaQueue> queue) noexcept {
  queue_ = std::move(queue);
  queue_->limit(backlog_bytes_);
  if (side_ == RdmaSide::accepting) say(queue_->offer());
  watch();
  if (side_ == RdmaSide::connecting) queue_->say(Word::probe);
}

// The connecting side decides, and tells the other one; which waits for that.
void RdmaStream::on_failed(const Error& error) noexcept {
  if (side_ == RdmaSide::accepting) {
    log::info("no RDMA with " + below_->peer() + ": " + error.what());
    return say(RdmaOffer::Status::refusal, detail::text_of(error));
  }
  say(RdmaOffer::Status::go_on_here, detail::text_of(error));
  go_on_below(error.what());
}

void RdmaStream::go_on_below(const std::string& why) noexcept {
  log::info("the link with " + below_->peer() + " uses " + std::string(below_->name()) +
            " and no RDMA: " + why);
  stage_ = Stage::below;
  limit_.stop();
  if (attempt_) std::exchange(attempt_, nullptr)->stream = nullptr;
  unwatch();
  discard(std::move(queue_));
  batch_waits_for_below_ = sending_;
  pump_below();
}

void RdmaStream::hear(Word word) noexcept {
  const bool accepting = side_ == RdmaSide::accepting;
  if (stage_ == Stage::open) {
    if (word == Word::probe && accepting) {
      queue_->say(Word::answer);
      return;
    }
    if (word == Word::answer && !accepting) {
      queue_->say(Word::begin);
      return begin_paired();
    }
    if (word == Word::begin && accepting) return begin_paired();
  } else if (word == Word::ask) {
    return make_landing();
  }
  end(corrupt("a word " + std::to_string(static_cast<int>(word)) +
              " comes where none is expected"));
}

void RdmaStream::begin_paired() noexcept {
  stage_ = Stage::paired;
  limit_.stop();
  attempt_ = std::make_shared<Attempt>(this);
  log::debug("the link with " + below_->peer() + " goes through a queue pair of " +
             queue_->description());
  if (sending_ && !batch_waits_for_below_) push();
}

// ---- What is below

// Messages first: what decides how the batch goes is among them.
void RdmaStream::pump_below() noexcept {
  if (below_sends_) return;
  if (!messages_.empty()) {
    below_sends_ = true;
    Buffer message = std::move(messages_.front());
    messages_.pop_front();
    return below_->send(Segments(std::move(message)));
  }
  if (!sending_ || !batch_waits_for_below_) return;
  below_sends_ = below_sends_batch_ = true;
  below_->send(std::exchange(batch_, Segments()));
}

void RdmaStream::on_sent(Segments batch) noexcept {
  below_sends_ = false;
  if (std::exchange(below_sends_batch_, false)) {
    sending_ = batch_waits_for_below_ = false;
    if (owner_) owner_->on_sent(std::move(batch));
  }
  pump_below();
}

/// What has come, as far as it has. Frames of links begin otherwise.
bool RdmaStream::begins_message() const noexcept {
  static const auto example = RdmaOffer().encode();
  return std::memcmp(message_.data(), example.data(),
                     std::min(message_size_, sizeof RdmaOffer::magic)) == 0;
}

Buffer RdmaStream::receive_target() noexcept {
  landing_given_ = stage_ != Stage::below || expects_message();
  if (!landing_given_) return owner_ ? owner_->receive_target() : Buffer();
  if (!landing_.unique()) landing_ = Buffer::heap(RdmaOffer::size);
  return landing_.slice(0, RdmaOffer::size - (expects_message() ? message_size_ : 0));
}

void RdmaStream::on_filled(std::size_t size) noexcept {
  if (landing_given_) return arrived(landing_.slice(0, size));
  if (owner_) owner_->on_filled(size);
}

void RdmaStream::arrived(Buffer bytes) noexcept {
  while (!bytes.empty() && owner_) {
    if (!expects_message()) {
      if (stage_ == Stage::below) return owner_->on_chunk(std::move(bytes));
      return end(corrupt("it sends over TCP what belongs into its queue pair"));
    }
    const std::size_t size = std::min(bytes.size(), message_.size() - message_size_);
    std::memcpy(message_.data() + message_size_, bytes.data(), size);
    message_size_ += size;
    bytes.remove_prefix(size);
    if (stage_ == Stage::below && !begins_message()) {
      // The peer was told before it had answered: that was the link's bytes.
      expects_answer_ = false;
      owner_->on_chunk(Buffer::copy_of(std::span(message_).first(std::exchange(message_size_, 0))));
      continue;
    }
    if (message_size_ < message_.size()) return;
    message_size_ = 0;
    auto message = detail::decode_rdma_offer(message_, below_->peer());
    if (!message) return end(message.error());
    meet(*message);
  }
}

// What the peer had sent before its process ended is in the pair's memory: that comes first.
void RdmaStream::on_ended(Error reason) noexcept {
  const bool in_order = reason.is(Errc::closed);
  hung_up_ = reason;
  if (owner_ && !(watching_ && stage_ == Stage::paired && in_order)) end(std::move(reason));
}

// ---- The pair

void RdmaStream::watch() noexcept {
  watching_ = true;
  Shard::current()->add_poller(*this);
  listen_for_events();
}

void RdmaStream::unwatch() noexcept {
  if (!std::exchange(watching_, false)) return;
  paused_ = false;
  Shard& shard = *Shard::current();
  shard.remove_poller(*this);
  if (!listening_) return;
  listening_->owner = nullptr;
  shard.reactor().cancel(std::exchange(listening_, nullptr));
}

void RdmaStream::listen_for_events() noexcept {
  listening_ = Operation::create(Operation::Kind::receive, queue_->descriptor());
  listening_->owner = this;
  Shard::current()->reactor().start(listening_);
}

/// There is an event, which has woken the shard: its turn polls.
void RdmaStream::on_complete(Operation&, std::int64_t result, bool) noexcept {
  listening_ = nullptr;
  const bool passing = result >= 0 || result == -EINTR || result == -EAGAIN;
  if (!passing)
    return end(
        Error::system(static_cast<int>(-result), "wait for completions from " + below_->peer()));
  queue_->take_events();
  listen_for_events();
}

std::size_t RdmaStream::poll() noexcept {
  std::size_t arrivals = 0;
  bool drained = false;
  for (std::size_t bytes = 0; watching_ && bytes < pass_bytes; ++arrivals) {
    const auto arrival = queue_->next();
    drained = !arrival;
    if (drained || breaks_here()) break;
    bytes += std::max(arrival->bytes.size(), least_cost);
    if (!take(*arrival)) break;
  }
  if (!watching_) return arrivals;
  if (queue_->failure()) {
    fail_pair();
    return arrivals + 1;
  }
  queue_->give_back();
  // What goes back one by one while much comes would be a word for each.
  const bool many = landed_ && landed_->returned().size() >= many_returned;
  if (owes_words() && (drained || answers_ask_ || many)) say_words();
  const std::size_t before = left_;
  const bool sends = sending_ && stage_ == Stage::paired && !batch_waits_for_below_;
  if (sends && left_) push();
  const bool moved = sends && (left_ == 0 || left_ != before);
  if (sends && left_ == 0) finish_batch();
  if (watching_ && hung_up_ && drained) end(*hung_up_);
  return arrivals + moved;
}

// Before it was begun the link goes on without it, as soon as the connecting side says so.
void RdmaStream::fail_pair() noexcept {
  const Error failure = *queue_->failure();
  if (stage_ == Stage::paired) return end(hung_up_ ? *hung_up_ : failure);
  if (side_ == RdmaSide::connecting) return on_failed(failure);
  unwatch();
  discard(std::move(queue_));
}

/// False: nothing more is to be taken.
bool RdmaStream::take(const RdmaQueue::Arrival& arrival) noexcept {
  if (arrival.word == Word::piece) {
    if (stage_ != Stage::paired) {
      end(corrupt("bytes come before the word that they follow"));
      return false;
    }
    if (!arrival.landed) {
      deliver(arrival.bytes);
    } else if (owner_) {
      // Its memory stays where it is; the receive may be posted again.
      const auto size = static_cast<std::uint32_t>(arrival.bytes.size());
      owner_->on_loan(landed_->lend(*arrival.landed, size));
    }
  } else {
    hear(arrival.word);
  }
  if (!queue_) return false;
  queue_->release(arrival);
  return watching_;
}

/// The way in which a test breaks a link whose ends are both well.
bool RdmaStream::breaks_here() noexcept {
  try {
    pass_failpoint_now("rdma-broken");
    return false;
  } catch (const Error& error) {
    end(error);
    return true;
  }
}

void RdmaStream::deliver(std::span<const std::byte> piece) noexcept {
  while (owner_ && !piece.empty()) {
    Buffer target = owner_->receive_target();
    const bool direct = !target.empty();
    if (!direct) target = chunk();
    const std::size_t size = std::min(piece.size(), target.size());
    std::memcpy(target.data(), piece.data(), size);
    piece = piece.subspan(size);
    if (direct) {
      owner_->on_filled(size);
    } else {
      target.resize_down(size);
      owner_->on_chunk(std::move(target));
    }
  }
}

/// The same one again and again, as long as nobody keeps it.
Buffer RdmaStream::chunk() {
  if (!chunk_.unique()) chunk_ = Buffer::heap(device_->options().piece_bytes);
  return chunk_;
}

void RdmaStream::push() noexcept {
  paused_ = false;
  for (std::size_t bytes = 0; left_;) {
    if (bytes >= pass_bytes) {
      paused_ = true;
      return;
    }
    for (; offset_ == batch_[buffer_].size(); offset_ = 0) ++buffer_;
    if (is_large() && !queue_->lands()) queue_->ask_for_landing();  // takes a place itself
    const std::span<std::byte> room = queue_->room(left_);
    if (room.empty()) return;
    bytes += push_some(room);
  }
}

/// Large buffers where the peer lets them be written, as long as there is a place; the rest, side
/// by side, in pieces.
std::size_t RdmaStream::push_some(std::span<std::byte> room) noexcept {
  if (is_large() && queue_->lands()) {
    const Buffer& from = batch_[buffer_];
    const std::byte* const at = from.data() + offset_;
    const std::size_t size = std::min(room.size(), from.size() - offset_);
    if (const auto place = queue_->place(size, at == landed_to_)) {
      landed_to_ = at + place->size;
      fill(room.first(place->size));
      queue_->publish_at(*place);
      return place->size;
    }
    copies_buffer_ = true;
  }
  const std::size_t size = std::min(room.size(), before_next_large());
  fill(room.first(size));
  queue_->publish(size);
  return size;
}

/// Of the buffer whose turn it is. The end of a large segment follows what of it has landed.
bool RdmaStream::is_large() const noexcept {
  const Buffer& from = batch_[buffer_];
  const bool goes_on = from.data() + offset_ == landed_to_;
  return !copies_buffer_ && (from.size() - offset_ >= least_landed || goes_on);
}

std::size_t RdmaStream::before_next_large() const noexcept {
  std::size_t size = batch_[buffer_].size() - offset_;
  for (std::size_t i = buffer_ + 1; i < batch_.count(); ++i) {
    const bool lands = batch_[i].size() >= least_landed || batch_[i].data() == landed_to_;
    if (lands && queue_->lands()) break;
    size += batch_[i].size();
  }
  return size;
}

// ---- Landings

void RdmaStream::make_landing() noexcept {
  Shard::current()->spawn(land(attempt_, device_), Group::system);
}

void RdmaStream::on_landing(std::shared_ptr<RdmaDevice::Landing> landing) noexcept {
  answer_ = std::move(landing);
  answers_ask_ = true;
}

void RdmaStream::say_words() noexcept {
  if (answers_ask_) {
    auto landed = answer_ ? std::make_shared<detail::Landed>(answer_) : nullptr;
    if (!queue_->answer(answer_)) return;
    answers_ask_ = false;
    answer_.reset();
    landed_ = std::move(landed);
  }
  if (landed_) queue_->give_back_places(landed_->returned());
}

void RdmaStream::fill(std::span<std::byte> room) noexcept {
  left_ -= room.size();
  while (!room.empty()) {
    const Buffer& from = batch_[buffer_];
    const std::size_t size = std::min(room.size(), from.size() - offset_);
    if (size) std::memcpy(room.data(), from.data() + offset_, size);
    room = room.subspan(size);
    offset_ += size;
    if (offset_ < from.size()) continue;
    // What is less than a line lies between segments: the next one begins on a line.
    if (from.size() < 64) landed_to_ = nullptr;
    ++buffer_;
    offset_ = 0;
    copies_buffer_ = false;
  }
}

// The owner hears of it in a turn to come, and never from inside its `send`.
void RdmaStream::finish_batch() noexcept {
  sending_ = false;
  owner_->on_sent(std::exchange(batch_, Segments()));
}

// ---- Making them

class RdmaTransport final : public Transport {
 public:
  RdmaTransport(std::unique_ptr<Transport> below, std::shared_ptr<RdmaDevice> device, RdmaSide side,
                bool first_goes_below)
      : stream_(std::make_unique<RdmaStream>(std::move(below), std::move(device), side,
                                             first_goes_below)) {}
  ~RdmaTransport() override {
    stream_->stop();
    if (stream_->must_part())
      Shard::current()->spawn(RdmaStream::part(std::move(stream_)), Group::system);
  }

  std::string_view name() const noexcept override {
    return stream_->is_rdma() ? stream_->rdma_name() : stream_->below().name();
  }
  std::string peer() const override {
    const std::string text = stream_->below().peer();
    const auto separator = text.find("://");
    return stream_->is_rdma() && separator != text.npos ? "rdma" + text.substr(separator) : text;
  }

  Task<void> receive_exactly(Buffer into, Time deadline) override {
    return stream_->below().receive_exactly(std::move(into), deadline);
  }
  Task<void> send_all(Buffer bytes, Time deadline) override {
    return stream_->below().send_all(std::move(bytes), deadline);
  }
  void start(Owner& owner, std::size_t unsent_backlog_bytes) noexcept override {
    stream_->start(owner, unsent_backlog_bytes);
  }
  void send(Segments batch) noexcept override { stream_->send(std::move(batch)); }
  void stop() noexcept override { stream_->stop(); }
  bool may_bring_loans() const noexcept override { return stream_->has_landing(); }
  bool can_be_abandoned() const noexcept override { return stream_->below().can_be_abandoned(); }
  Segments abandon() noexcept override { return stream_->abandon(); }
  bool is_released() const noexcept override { return stream_->below().is_released(); }

 private:
  std::unique_ptr<RdmaStream> stream_;
};

class RdmaListener final : public TransportListener {
 public:
  RdmaListener(std::unique_ptr<TransportListener> below, std::shared_ptr<RdmaDevice> device)
      : below_(std::move(below)), device_(std::move(device)) {}
  const Endpoint& endpoint() const noexcept override { return below_->endpoint(); }
  Task<std::unique_ptr<Transport>> accept() override {
    auto transport = co_await below_->accept();
    co_return make_rdma_transport(std::move(transport), device_, RdmaSide::accepting);
  }

 private:
  std::unique_ptr<TransportListener> below_;
  std::shared_ptr<RdmaDevice> device_;
};

class RdmaProvider final : public TransportProvider {
 public:
  RdmaProvider(std::unique_ptr<TransportProvider> below, std::shared_ptr<RdmaDevice> device)
      : below_(std::move(below)), device_(std::move(device)) {}
  Task<std::vector<Endpoint>> resolve(Endpoint endpoint) override {
    return below_->resolve(std::move(endpoint));
  }
  bool is_local(const Endpoint& address) const noexcept override {
    return below_->is_local(address);
  }
  Task<std::unique_ptr<Transport>> connect(Endpoint address, Time deadline) override {
    auto transport = co_await below_->connect(std::move(address), deadline);
    co_return make_rdma_transport(std::move(transport), device_, RdmaSide::connecting);
  }
  std::unique_ptr<TransportListener> listen(const Endpoint& address) override {
    return std::make_unique<RdmaListener>(below_->listen(address), device_);
  }

 private:
  std::unique_ptr<TransportProvider> below_;
  std::shared_ptr<RdmaDevice> device_;
};

}  // namespace

std::unique_ptr<Transport> make_rdma_transport(std::unique_ptr<Transport> below,
                                               std::shared_ptr<detail::RdmaDevice> device,
                                               RdmaSide side, bool first_goes_below) {
  return std::make_unique<RdmaTransport>(std::move(below), std::move(device), side,
                                         first_goes_below);
}

std::unique_ptr<TransportProvider> make_rdma_provider(std::unique_ptr<TransportProvider> below,
                                                      std::shared_ptr<detail::RdmaDevice> device) {
  return std::make_unique<RdmaProvider>(std::move(below), std::move(device));
}

}  // namespace hyperframes::net
