#include <hyperframes/net/shm/shm.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <hyperframes/net/detail/text.hpp>
#include <hyperframes/net/shm/arena.hpp>
#include <hyperframes/net/shm/borrower.hpp>
#include <hyperframes/net/shm/ring.hpp>
#include <hyperframes/net/shm/segment.hpp>
#include <hyperframes/net/shm/setup.hpp>
#include <hyperframes/runtime/failpoint.hpp>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/offload.hpp>
#include <hyperframes/runtime/poller.hpp>
#include <hyperframes/runtime/reactor.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <optional>
#include <utility>

namespace hyperframes::net {
namespace {

using hyperframes::detail::OperationAwaiter;
using hyperframes::detail::pass_failpoint_now;

// What one turn moves in each direction before others get theirs.
constexpr std::size_t pass_bytes = 256 << 10;
// What a piece counts for at least.
constexpr std::size_t least_cost = 256;
// The memory of a piece of this size is given back at once, and not at the end of the turn's pass.
constexpr std::size_t large_piece = 4 << 10;
// The memory of so many may wait for a pass that finds nothing.
constexpr std::size_t few_pieces = 4;
// Doorbells that are read at a time.
constexpr std::size_t bell_bytes = 64;

bool is_passing(std::int64_t result) noexcept { return result == -EINTR || result == -EAGAIN; }
/// A Unix socket that the peer closed with doorbells unread in it says the latter.
bool is_hang_up(std::int64_t result) noexcept { return result == 0 || result == -ECONNRESET; }

/// Of memory or descriptors, which others may give back any time.
bool is_lack(const Error& error) noexcept {
  if (error.is(Errc::exhausted)) return true;
  const int passing[] = {ENOMEM, EMFILE, ENFILE, ENOBUFS, ETOOMANYREFS, ENOSPC};
  return error.code().category() == std::generic_category() &&
         std::ranges::find(passing, error.code().value()) != std::end(passing);
}

/// What bytes are copied into when the owner has no place of its own for them.
struct Chunk final : hyperframes::detail::Block {
  static constexpr std::size_t size = detail::ShmWriter::piece_bytes;
  static Buffer make() {
    auto* chunk = new Chunk;
    chunk->home = Shard::current();
    chunk->data = chunk->bytes;
    chunk->capacity = size;
    chunk->dispose = [](Block* block) noexcept { delete static_cast<Chunk*>(block); };
    return Buffer::adopt(chunk, chunk->data, size);
  }
  alignas(64) std::byte bytes[size];
};

/// Arms an alarm while in scope.
class Armed {
 public:
  explicit Armed(detail::ShmAlarm& alarm) noexcept : alarm_(alarm) {
    alarm_.arm();
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  ~Armed() { alarm_.disarm(); }
  Armed(const Armed&) = delete;

 private:
  detail::ShmAlarm& alarm_;
};

class ShmTransport final : public Transport,
                           private Poller,
                           private Completion,
                           private detail::Borrower::Bell {
 public:
  enum class Side : std::uint8_t { connecting, accepting };

  ShmTransport(detail::OwnDescriptor socket, Endpoint endpoint, Side side, ShmOptions options,
               std::shared_ptr<detail::LoanArena> arena)
      : socket_(std::move(socket)),
        endpoint_(std::move(endpoint)),
        side_(side),
        options_(options),
        arena_(std::move(arena)),
        bell_memory_(Buffer::heap(bell_bytes)) {}
  ~ShmTransport() override {
    stop();
    if (writer_ && socket_) depart(detail::Departure::ended);
    close();
    end_loans();
  }

  std::string_view name() const noexcept override { return "shm"; }
  std::string peer() const override {
    return endpoint_.to_string() + (side_ == Side::accepting && peer_.process
                                        ? " (process " + std::to_string(peer_.process) + ")"
                                        : "");
  }

  /// Exchanges the memory. A listener does that with the first receive, so that a peer which says
  /// nothing holds up nobody else.
  Task<void> set_up(Time deadline);
  Task<void> receive_exactly(Buffer into, Time deadline) override;
  Task<void> send_all(Buffer bytes, Time deadline) override;
  void trust_peer() noexcept override;
  Task<void> receive_trusted() override;

  void start(Owner& owner, std::size_t unsent_backlog_bytes) noexcept override {
    owner_ = &owner;
    writer_->limit(unsent_backlog_bytes);
    begin_loans();
    Shard::current()->add_poller(*this);
    if (!hung_up_) listen_for_bells();
  }
  void send(Segments batch) noexcept override {
    assert(!sending_ && owner_);
    sending_ = true;
    batch_ = std::move(batch);
    buffer_ = offset_ = 0;
    left_ = batch_.size_bytes();
    push();
  }
  void stop() noexcept override;
  bool would_lend(const Buffer& piece) const noexcept override {
    return free_slots() >= batch_pieces && is_lendable(piece);
  }
  bool may_bring_loans() const noexcept override { return borrower_ != nullptr; }
  bool can_be_abandoned() const noexcept override { return true; }
  Segments abandon() noexcept override;

 private:
  // Set-up.
  Task<void> accept_memory(Time deadline);
  Task<void> offer_memory(Time deadline);
  Task<void> make_memory();
  Task<detail::ShmOffer> receive_message(detail::ShmOffer::Status wanted, Time deadline);
  Task<void> receive_offer(Time deadline);
  void say_go_on();
  void send_offer();
  void refuse(const Error& error) noexcept;
  void begin();
  Task<void> sleep(bool for_data, Time deadline);
  std::int64_t take_bells();

  // Poller and Completion.
  std::size_t poll() noexcept override;
  void arm() noexcept override {
    give_back();
    reader_->alarm().arm();
    if (left_ || wants_returns()) writer_->alarm().arm();
    pass_failpoint_now("shm-armed");
  }
  bool ready() const noexcept override {
    return reader_->has_piece() || hung_up_ || can_go_on() ||
           (lender_ && lender_->loans.has_returns());
  }
  void disarm() noexcept override {
    reader_->alarm().disarm();
    writer_->alarm().disarm();
  }
  void on_complete(Operation& operation, std::int64_t result, bool more) noexcept override;

  /// Whether there is something to do for the batch that is being sent.
  bool can_go_on() const noexcept {
    return sending_ && (!left_ || paused_ || writer_->has_progress() || !writer_->fault().empty());
  }
  // Loans.
  void begin_loans();
  void end_loans() noexcept;
  bool is_lendable(const Buffer& piece) const noexcept;
  bool wants_returns() const noexcept {
    return lender_ && lender_->loans.count() && arena_->anybody_waits();
  }
  /// Whether the bytes that go next are lent.
  bool lends_next() const noexcept {
    return offset_ == 0 && free_slots() && is_lendable(batch_[buffer_]) &&
           batch_[buffer_].size() <= detail::ShmLayout::most_loan;
  }
  /// By which the peer takes loans now.
  std::size_t free_slots() const noexcept {
    return lender_ && lender_->loans.are_wanted() ? lender_->loans.free_slots() : 0;
  }
  void lend_next() noexcept;
  std::size_t bytes_to_copy() const noexcept;
  /// Returns how much of it the owner has copied.
  std::size_t borrow(std::span<const std::byte> piece) noexcept;
  void on_returned() noexcept override {
    if (owner_) ring(*reader_);
  }

  void push() noexcept;
  void skip_empty() noexcept;
  void fill(std::span<std::byte> room) noexcept;
  void hand_over(std::size_t size) noexcept;
  void go_on_sending() noexcept;
  void deliver(std::span<const std::byte> piece) noexcept;
  void give_back() noexcept;
  Buffer chunk();

  void listen_for_bells() noexcept;
  bool count_bells(std::int64_t result) noexcept;
  /// `End`: ShmWriter or ShmReader, after it has published something.
  template <class End>
  void ring(End& end) noexcept;
  void hang_up() noexcept;
  void end_after_hang_up(std::size_t pieces) noexcept;
  /// How it was meant; nothing as long as that is not known.
  std::optional<Error> reason_of_hang_up() const;
  bool breaks_here() noexcept;

  Error peer_closed() const {
    return Error(Errc::closed, "receive from " + peer(), "the peer closed the connection");
  }
  Error corrupt(const std::string& found) const {
    return Error(Errc::corrupt, "use the memory of " + peer(), found,
                 "the connection was closed; run the same release on both ends");
  }
  void halt() noexcept;
  void end(Error reason) noexcept;
  /// What was taken is said before: what was lent and not taken is the peer's again.
  void depart(detail::Departure how) noexcept {
    reader_->publish();
    detail::depart(own_.memory(), how);
  }
  void close() noexcept {
    if (socket_) Shard::current()->reactor().close_now(socket_.release());
  }

  detail::OwnDescriptor socket_;
  Endpoint endpoint_;
  Side side_;
  ShmOptions options_;
  detail::ShmPeer peer_;
  detail::Passed passed_;  ///< With the last message of the set-up, or with doorbells.
  detail::ShmSegment own_, others_, arena_of_others_;
  std::uint64_t arena_bytes_of_others_ = 0;
  bool awaits_arena_ = false;  ///< It comes with a doorbell, if it comes.
  detail::ShmLayout layout_of_others_;
  std::shared_ptr<detail::LoanArena> arena_;  ///< Ours; null: it lends nothing.
  std::unique_ptr<detail::Lender> lender_;
  std::unique_ptr<detail::Borrower> borrower_;
  std::optional<Error> failure_;  ///< Of the set-up.
  std::optional<detail::ShmWriter> writer_;
  std::optional<detail::ShmReader> reader_;
  Buffer bell_memory_, chunk_;
  std::uint64_t bells_ = 0;
  bool hung_up_ = false;
  std::size_t last_pieces_ = 0;  ///< May still come after that.
  detail::ShmProcess process_;   ///< From then on.
  Time in_doubt_until_{};

  Owner* owner_ = nullptr;
  Operation* listening_ = nullptr;
  Segments batch_;
  std::size_t buffer_ = 0, offset_ = 0;  ///< Where in it the bytes are that go next.
  std::size_t left_ = 0;
  bool sending_ = false, paused_ = false;
};

// ---- Set-up

// Once it has failed, it fails at once: whoever goes on with a word of regret does not wait again.
Task<void> ShmTransport::set_up(Time deadline) {
  if (reader_) co_return;
  if (failure_) throw *failure_;
  try {
    peer_ = detail::peer_of(socket_.get());
    if (side_ == Side::accepting) {
      co_await accept_memory(deadline);
    } else {
      co_await offer_memory(deadline);
    }
    begin();
  } catch (const Error& error) {
    failure_ = error;
    throw;
  }
}

Task<void> ShmTransport::accept_memory(Time deadline) {
  try {
    if (const std::string objection = peer_.objection(); !objection.empty())
      throw Error(Errc::rejected, "let in a peer at " + endpoint_.to_string(), objection,
                  "run both as one user");
    say_go_on();
    co_await receive_offer(deadline);
    co_await make_memory();
    send_offer();
  } catch (const Error& error) {
    refuse(error);
    throw;
  }
}

Task<void> ShmTransport::offer_memory(Time deadline) {
  if (const std::string objection = peer_.objection(); !objection.empty())
    throw Error(Errc::rejected, "connect to " + endpoint_.to_string(),
                "the name is taken by somebody else: " + objection,
                "run both as one user, or choose another name");
  // One that is stopped accepts nothing, and would pin what was passed to it until it goes on.
  co_await receive_message(detail::ShmOffer::Status::go_on, deadline);
  co_await make_memory();
  send_offer();
  co_await receive_offer(deadline);
}

Task<void> ShmTransport::make_memory() {
  const detail::ShmLayout layout{options_.descriptors, options_.data_bytes};
  const bool huge = options_.huge_pages;
  own_ = co_await offload([layout, huge] { return detail::ShmSegment::create(layout, huge); });
}

/// Its descriptors are in `passed_`. A refusal becomes its error.
Task<detail::ShmOffer> ShmTransport::receive_message(detail::ShmOffer::Status wanted,
                                                     Time deadline) {
  std::int64_t result = -EAGAIN;
  while (is_passing(result)) {
    Operation* operation = Operation::create(Operation::Kind::receive, socket_.get());
    operation->memory.push_back(bell_memory_.slice(0, 1));
    operation->flags = MSG_PEEK;  // descriptors go only to who asks for them with the bytes
    OperationAwaiter waiting(operation, deadline);
    result = co_await waiting;
  }
  if (is_hang_up(result)) throw peer_closed();
  if (result < 0) throw Error::system(static_cast<int>(-result), "receive from " + peer());

  const std::string tried = "exchange memory with " + peer();
  passed_ = detail::receive_passed(socket_.get(), detail::ShmOffer::size);
  detail::ShmOffer message = detail::decode_offer(passed_.bytes, peer()).value();
  if (message.status == detail::ShmOffer::Status::lack)
    throw Error(Errc::exhausted, tried, "it refused for now: " + message.text,
                "try again once it has more");
  if (message.refuses())
    throw Error(Errc::rejected, tried, "it refused: " + message.text, "see its log");
  if (message.status != wanted)
    throw Error(Errc::corrupt, tried, "its messages come in another order",
                "run the same release on both ends");
  co_return message;
}

/// Attaches what the peer offers.
Task<void> ShmTransport::receive_offer(Time deadline) {
  const detail::ShmOffer offer =
      co_await receive_message(detail::ShmOffer::Status::offer, deadline);
  const std::string tried = "exchange memory with " + peer();
  if (offer.boot_id != detail::system_boot_id())
    throw Error(Errc::rejected, tried,
                "it runs under another kernel: its boot id is '" + offer.boot_id +
                    "', here it is '" + detail::system_boot_id() + "'",
                "use tcp:// between hosts");
  layout_of_others_ = offer.layout;
  arena_bytes_of_others_ = offer.arena_bytes;
  awaits_arena_ = offer.arena_bytes != 0;
  auto attach = [layout = offer.layout, tried,
                 descriptor = detail::only_descriptor(passed_, tried)]() mutable {
    return detail::ShmSegment::attach(std::move(descriptor), layout, tried);
  };
  passed_ = {};
  others_ = co_await offload(std::move(attach));
  pass_failpoint_now("shm-attached");
}

void ShmTransport::say_go_on() {
  detail::ShmOffer message;
  message.status = detail::ShmOffer::Status::go_on;
  if (detail::pass(socket_.get(), message.encode(), -1) != 0) throw peer_closed();
}

// A peer that is gone may have left word of why: that is received next.
void ShmTransport::send_offer() {
  detail::ShmOffer offer;
  offer.layout = {options_.descriptors, options_.data_bytes};
  offer.arena_bytes = arena_ ? arena_->segment().size() : 0;
  offer.boot_id = detail::system_boot_id();
  pass_failpoint_now("shm-before-offer");
  const int failure = detail::pass(socket_.get(), offer.encode(), own_.descriptor());
  own_.close_descriptor();
  const bool gone = failure == EPIPE || failure == ECONNRESET;
  if (gone && side_ == Side::accepting) throw peer_closed();
  if (failure && !gone)
    throw Error::system(failure, "pass memory to " + peer(), {},
                        failure == ETOOMANYREFS ? "raise the open-files limit (ulimit -n)" : "");
  pass_failpoint_now("shm-after-offer");
}

void ShmTransport::refuse(const Error& error) noexcept {
  detail::ShmOffer refusal;
  refusal.status =
      is_lack(error) ? detail::ShmOffer::Status::lack : detail::ShmOffer::Status::refusal;
  refusal.text = detail::text_of(error);
  (void)detail::pass(socket_.get(), refusal.encode(), -1);
}

void ShmTransport::begin() {
  writer_.emplace(own_.memory(), others_.memory(),
                  detail::ShmLayout{options_.descriptors, options_.data_bytes});
  reader_.emplace(own_.memory(), others_.memory(), layout_of_others_);
  if (log::enabled(log::Level::debug))
    log::debug("shares memory with " + peer() + ": " + std::to_string(own_.size() >> 10) +
               " KiB there on " + (own_.on_huge_pages() ? "huge" : "4 KiB") + " pages, " +
               std::to_string(others_.size() >> 10) + " KiB back on " +
               (others_.on_huge_pages() ? "huge" : "4 KiB") + " pages");
}

// ---- Before `start`: without a poller, so each wait is a sleep

Task<void> ShmTransport::receive_exactly(Buffer into, Time deadline) {
  co_await set_up(deadline);
  while (!into.empty()) {
    const std::span<const std::byte> piece = reader_->next();
    if (!reader_->fault().empty()) throw corrupt(reader_->fault());
    if (piece.empty()) {
      if (hung_up_) throw peer_closed();
      co_await sleep(true, deadline);
      continue;
    }
    const std::size_t size = std::min(piece.size(), into.size());
    std::memcpy(into.data(), piece.data(), size);
    pass_failpoint_now("shm-copied");
    into.remove_prefix(size);
    reader_->take(size);
    give_back();
  }
}

Task<void> ShmTransport::send_all(Buffer bytes, Time deadline) {
  co_await set_up(deadline);
  while (!bytes.empty()) {
    const std::span<std::byte> room = writer_->room(bytes.size());
    if (!writer_->fault().empty()) throw corrupt(writer_->fault());
    if (room.empty()) {
      if (hung_up_) throw peer_closed();
      co_await sleep(false, deadline);
      continue;
    }
    std::memcpy(room.data(), bytes.data(), room.size());
    bytes.remove_prefix(room.size());
    hand_over(room.size());
  }
}

/// Returns when the peer has rung, or need not.
Task<void> ShmTransport::sleep(bool for_data, Time deadline) {
  const Armed armed(for_data ? reader_->alarm() : writer_->alarm());
  if (for_data ? reader_->has_piece() : writer_->has_progress()) co_return;
  Operation* operation = Operation::create(Operation::Kind::receive, socket_.get());
  operation->memory.push_back(bell_memory_);
  operation->flags = awaits_arena_ ? MSG_PEEK : 0;
  OperationAwaiter waiting(operation, deadline);
  std::int64_t result = co_await waiting;
  if (awaits_arena_ && result > 0) result = take_bells();
  if (is_hang_up(result)) {
    hang_up();
  } else if (result < 0 && !is_passing(result)) {
    throw Error::system(static_cast<int>(-result), "receive from " + peer());
  } else if (!count_bells(result)) {
    throw corrupt("it rings without end");
  }
}

/// What is there of doorbells, as a receive would say it, and what comes with them.
std::int64_t ShmTransport::take_bells() {
  detail::Passed now;
  try {
    now = detail::receive_passed(socket_.get(), bell_bytes);
  } catch (const Error& error) {
    return -error.code().value();
  }
  for (auto& descriptor : now.descriptors) passed_.descriptors.push_back(std::move(descriptor));
  passed_.too_many |= now.too_many;
  if (passed_.descriptors.size() > 1) throw corrupt("it passed more descriptors than it has");
  return static_cast<std::int64_t>(now.bytes.size());
}

// ---- What only trusted peers have

// All that is lent lies there, other peers' too.
void ShmTransport::trust_peer() noexcept {
  if (!arena_) return;
  const std::byte bell{1};
  const int failure =
      detail::pass(socket_.get(), std::span(&bell, 1), arena_->segment().descriptor());
  if (failure == 0) return;
  log::info(peer() + " is lent no memory, and gets copies: what it lies in could not be passed: " +
            std::error_code(failure, std::generic_category()).message());
  arena_.reset();
}

// It was passed before whatever the peer has said since. None came if it could not be passed.
Task<void> ShmTransport::receive_trusted() {
  if (!awaits_arena_) co_return;
  while (passed_.descriptors.empty() && !passed_.too_many) {
    const std::int64_t result = take_bells();
    if (result <= 0) break;
    if (!count_bells(result)) throw corrupt("it rings without end");
  }
  awaits_arena_ = false;
  detail::Passed passed = std::exchange(passed_, detail::Passed());
  if (passed.descriptors.empty() && !passed.too_many) co_return;
  const std::string tried = "borrow memory from " + peer();
  try {
    auto attach = [bytes = arena_bytes_of_others_, tried,
                   descriptor = detail::only_descriptor(passed, tried)]() mutable {
      return detail::ShmSegment::attach(std::move(descriptor), bytes, tried);
    };
    arena_of_others_ = co_await offload(std::move(attach));
  } catch (const Error& error) {
    if (!is_lack(error)) throw;
    log::info(peer() + " can lend nothing here, and sends copies: " + detail::text_of(error));
  }
}

// ---- From `start` on

void ShmTransport::halt() noexcept {
  if (!std::exchange(owner_, nullptr)) return;
  Shard& shard = *Shard::current();
  shard.remove_poller(*this);
  if (!listening_) return;
  listening_->owner = nullptr;
  shard.reactor().cancel(std::exchange(listening_, nullptr));
}

void ShmTransport::stop() noexcept {
  halt();
  batch_.clear();
  sending_ = false;
  left_ = 0;
}

// All that the system still has is a place for doorbells: the link can go on at once.
Segments ShmTransport::abandon() noexcept {
  halt();
  Segments batch = std::exchange(batch_, Segments());
  sending_ = false;
  left_ = 0;
  depart(detail::Departure::broken_off);
  close();
  end_loans();
  return batch;
}

/// The batch stays where it is, for `abandon`.
void ShmTransport::end(Error reason) noexcept {
  Owner* const owner = owner_;
  halt();
  if (owner) owner->on_ended(std::move(reason));
}

std::size_t ShmTransport::poll() noexcept {
  std::size_t pieces = 0;
  for (std::size_t bytes = 0; owner_ && bytes < pass_bytes; ++pieces) {
    const std::span<const std::byte> piece = reader_->next();
    if (piece.empty()) break;
    if (breaks_here()) return pieces + 1;
    if (reader_->is_loan()) {
      bytes += std::max(borrow(piece), least_cost);
      continue;
    }
    // Neither one that is huge nor many that are tiny may hold up the shard.
    const std::size_t size = std::min(piece.size(), pass_bytes - bytes);
    bytes += std::max(size, least_cost);
    deliver(piece.first(size));
  }
  if (!owner_) return pieces;
  if (!reader_->fault().empty()) {
    end(corrupt(reader_->fault()));
    return pieces + 1;
  }
  // An answer to a few shall not wait for their return. Nor shall a sender that has a piece in each
  // pass walk through all of its memory meanwhile.
  if (pieces == 0 || reader_->unpublished() > few_pieces) give_back();
  if (lender_ && lender_->loans.has_returns()) {
    pieces += lender_->loans.collect();
    if (const std::string& fault = lender_->loans.fault(); !fault.empty()) {
      end(corrupt(fault));
      return pieces + 1;
    }
  }
  const bool goes_on = can_go_on();
  if (goes_on) go_on_sending();
  if (owner_ && hung_up_) end_after_hang_up(pieces);
  return pieces + goes_on;
}

// What the peer had written before it ended comes first: no more than its ring holds. One that only
// closed its socket could go on for ever.
void ShmTransport::end_after_hang_up(std::size_t pieces) noexcept {
  last_pieces_ -= std::min(last_pieces_, pieces);
  if (reader_->has_piece() && last_pieces_ != 0) return;
  auto reason = reason_of_hang_up();
  if (!reason) last_pieces_ = layout_of_others_.descriptors;
  // Some may have come between the last look at the ring and the one at the process.
  if (reason && (!reader_->has_piece() || last_pieces_ == 0)) end(std::move(*reason));
}

// A process that dies says nothing, and is gone in a moment, which a poller can wait for.
std::optional<Error> ShmTransport::reason_of_hang_up() const {
  const auto broke = [this](const char* found) {
    return Error::system(ECONNRESET, "receive from " + peer(), found);
  };
  switch (detail::departure_of(others_.memory())) {
    case detail::Departure::broken_off: return broke("the peer has given it up");
    case detail::Departure::ended: return peer_closed();
    case detail::Departure::none: break;
  }
  if (!process_.lives()) return peer_closed();
  if (!process_.is_this_one() && Clock::now() < in_doubt_until_) return std::nullopt;
  return broke("the socket ended, and the peer's process lives");
}

/// The way in which a test breaks a link whose ends are both well.
bool ShmTransport::breaks_here() noexcept {
  try {
    pass_failpoint_now("shm-broken");
    return false;
  } catch (const Error& error) {
    end(error);
    return true;
  }
}

void ShmTransport::deliver(std::span<const std::byte> piece) noexcept {
  const bool large = piece.size() >= large_piece;
  while (owner_ && !piece.empty()) {
    Buffer target = owner_->receive_target();
    const bool direct = !target.empty();
    if (!direct) target = chunk();
    const std::size_t size = std::min(piece.size(), target.size());
    std::memcpy(target.data(), piece.data(), size);
    pass_failpoint_now("shm-copied");
    piece = piece.subspan(size);
    reader_->take(size);
    if (large && piece.empty()) give_back();
    if (direct) {
      owner_->on_filled(size);
    } else {
      target.resize_down(size);
      owner_->on_chunk(std::move(target));
    }
  }
}

/// The same one again and again, as long as nobody keeps it.
Buffer ShmTransport::chunk() {
  if (!chunk_.unique()) chunk_ = Chunk::make();
  return chunk_;
}

void ShmTransport::give_back() noexcept {
  if (!reader_->publish()) return;
  pass_failpoint_now("shm-given-back");
  ring(*reader_);
}

void ShmTransport::push() noexcept {
  paused_ = false;
  for (std::size_t bytes = 0; left_;) {
    if (bytes >= pass_bytes) {
      paused_ = true;
      return;
    }
    skip_empty();
    if (lends_next()) {
      if (!writer_->has_descriptor()) return;
      lend_next();
      bytes += least_cost;
      continue;
    }
    const std::span<std::byte> room = writer_->room(bytes_to_copy());
    if (room.empty()) return;
    fill(room);
    bytes += room.size();
    hand_over(room.size());
  }
}

void ShmTransport::hand_over(std::size_t size) noexcept {
  pass_failpoint_now("shm-before-publish");
  writer_->publish(size);
  pass_failpoint_now("shm-before-ring");
  ring(*writer_);
}

/// So that the next bytes are those at the place where it is.
void ShmTransport::skip_empty() noexcept {
  while (offset_ == batch_[buffer_].size()) {
    ++buffer_;
    offset_ = 0;
  }
}

void ShmTransport::fill(std::span<std::byte> room) noexcept {
  left_ -= room.size();
  while (!room.empty()) {
    const Buffer& from = batch_[buffer_];
    const std::size_t size = std::min(room.size(), from.size() - offset_);
    if (size) std::memcpy(room.data(), from.data() + offset_, size);
    room = room.subspan(size);
    offset_ += size;
    if (offset_ < from.size()) continue;
    ++buffer_;
    offset_ = 0;
  }
}

// The owner hears of it in a turn to come, and never from inside its `send`.
void ShmTransport::go_on_sending() noexcept {
  if (left_) push();
  if (!writer_->fault().empty()) return end(corrupt(writer_->fault()));
  if (left_) return;
  sending_ = false;
  owner_->on_sent(std::exchange(batch_, Segments()));
}

// ---- Loans

/// Before that, in the handshake, nothing is lent.
void ShmTransport::begin_loans() {
  const detail::ShmLayout layout{options_.descriptors, options_.data_bytes};
  const std::uint32_t slots = detail::loan_slots(layout, layout_of_others_);
  if (arena_of_others_.memory()) {
    detail::Borrower::Bell& bell = *this;
    borrower_ = std::make_unique<detail::Borrower>(std::move(arena_of_others_), own_.memory(),
                                                   layout, slots, bell);
    reader_->take_loans(borrower_->arena(), borrower_->returns());
  }
  if (!arena_) return;
  // What it has when it dies comes back only if that is seen.
  detail::ShmProcess process(socket_.get(), peer_.process);
  if (!process.is_known())
    return log::info(peer() + " is lent no memory, and gets copies: " + process.why_unknown());
  if (arena_->here().is_in_arrears(process))
    return log::info(peer() +
                     " is lent no memory, and gets copies: it has not returned what it has of " +
                     std::to_string(detail::LoanShare::most_ended) +
                     " connections that have ended; see whether it destroys received segments");
  lender_ = std::make_unique<detail::Lender>(peer(), others_.memory(), layout_of_others_, slots,
                                             std::move(process));
  arena_->here().add(*lender_);
}

/// What is out on either side stays so.
void ShmTransport::end_loans() noexcept {
  if (borrower_) detail::Borrower::end(std::move(borrower_), std::move(own_));
  if (!lender_) return;
  lender_->memory = std::move(others_);
  arena_->here().keep(std::move(lender_));
}

bool ShmTransport::is_lendable(const Buffer& piece) const noexcept {
  if (piece.size() < least_loan) return false;
  const std::byte* const arena = arena_->segment().memory();
  return arena_->contains(piece.data()) &&
         static_cast<std::size_t>(piece.data() - arena) % detail::ShmLayout::line == 0;
}

void ShmTransport::lend_next() noexcept {
  const Buffer& piece = batch_[buffer_];
  const auto offset = static_cast<std::size_t>(piece.data() - arena_->segment().memory());
  const std::uint16_t slot = lender_->loans.lend(piece, writer_->count() + 1);
  writer_->publish_loan(slot, static_cast<std::uint32_t>(offset / detail::ShmLayout::line),
                        static_cast<std::uint32_t>(piece.size()));
  pass_failpoint_now("shm-lent");
  left_ -= piece.size();
  ++buffer_;
  ring(*writer_);
}

/// From the place where it is to the next loan, if that is soon.
std::size_t ShmTransport::bytes_to_copy() const noexcept {
  if (!free_slots()) return left_;
  std::size_t bytes = batch_[buffer_].size() - offset_;
  for (std::size_t i = buffer_ + 1;
       i < batch_.count() && bytes < detail::ShmWriter::piece_bytes && !is_lendable(batch_[i]); ++i)
    bytes += batch_[i].size();
  return bytes;
}

std::size_t ShmTransport::borrow(std::span<const std::byte> piece) noexcept {
  Buffer loan = borrower_->borrow(piece, reader_->slot());
  reader_->take(piece.size());
  pass_failpoint_now("shm-borrowed");
  return owner_->on_loan(std::move(loan));
}

// ---- Doorbells

void ShmTransport::listen_for_bells() noexcept {
  listening_ = Operation::create(Operation::Kind::receive, socket_.get());
  listening_->memory.push_back(bell_memory_);
  listening_->owner = this;
  Shard::current()->reactor().start(listening_);
}

void ShmTransport::on_complete(Operation&, std::int64_t result, bool) noexcept {
  listening_ = nullptr;
  if (is_hang_up(result)) return hang_up();
  if (result < 0 && !is_passing(result))
    return end(Error::system(static_cast<int>(-result), "receive from " + peer()));
  if (!count_bells(result)) return end(corrupt("it rings without end"));
  listen_for_bells();
}

/// False: more have come than the peer was asked for. It may pass its arena with one of its own.
bool ShmTransport::count_bells(std::int64_t result) noexcept {
  if (result > 0) bells_ += static_cast<std::uint64_t>(result);
  const std::uint64_t own = arena_bytes_of_others_ ? 1 : 0;
  return bells_ <= reader_->alarm().times() + writer_->alarm().times() + own;
}

void ShmTransport::hang_up() noexcept {
  hung_up_ = true;
  last_pieces_ = layout_of_others_.descriptors;
  process_ = detail::ShmProcess(peer_.process);
  in_doubt_until_ = after(timing().heartbeat() / 4);
}

// A socket that is full of doorbells wakes the peer as well as one more would. Where the system has
// no memory for one, the next one is due again; heartbeats see to it that there is a next.
template <class End>
void ShmTransport::ring(End& end) noexcept {
  if (!end.must_ring()) return;
  const std::byte bell{1};
  ssize_t sent;
  do {
    sent = ::send(socket_.get(), &bell, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0 && (errno == ENOBUFS || errno == ENOMEM)) end.ring_again();
}

// ---- Making them

void require_system(const char* tried, const Endpoint& endpoint) {
  if (Shard::current()->reactor().has_system_descriptors()) return;
  throw Error(Errc::unsupported, tried + endpoint.to_string(),
              "the simulator has no memory that processes share", "use tcp:// there");
}

class ShmListener final : public TransportListener {
 public:
  ShmListener(const Endpoint& endpoint, ShmOptions options,
              std::shared_ptr<detail::LoanArena> arena)
      : descriptor_(
            detail::listen_at(endpoint.host, Shard::current()->reactor().listening_flags())),
        endpoint_(endpoint),
        options_(options),
        arena_(std::move(arena)) {}
  // Closing alone would leave it listening for as long as an accept holds the file.
  ~ShmListener() override {
    if (Shard* shard = Shard::current()) {
      shard->reactor().close_listener(descriptor_.release());
    } else {
      ::shutdown(descriptor_.get(), SHUT_RDWR);
    }
  }
  const Endpoint& endpoint() const noexcept override { return endpoint_; }

  Task<std::unique_ptr<Transport>> accept() override {
    while (true) {
      OperationAwaiter waiting(Operation::create(Operation::Kind::accept, descriptor_.get()));
      const std::int64_t result = co_await waiting;
      if (result == -ECONNABORTED || is_passing(result)) continue;
      if (result < 0)
        throw Error::system(static_cast<int>(-result), "accept on " + endpoint_.to_string(), {},
                            result == -EMFILE ? "raise the open-files limit (ulimit -n)" : "");
      co_return std::make_unique<ShmTransport>(detail::OwnDescriptor(static_cast<int>(result)),
                                               endpoint_, ShmTransport::Side::accepting, options_,
                                               arena_);
    }
  }

 private:
  detail::OwnDescriptor descriptor_;
  Endpoint endpoint_;
  ShmOptions options_;
  std::shared_ptr<detail::LoanArena> arena_;
};

class ShmProvider final : public TransportProvider {
 public:
  ShmProvider(ShmOptions options, std::shared_ptr<detail::LoanArena> arena)
      : options_(options), arena_(std::move(arena)) {
    (void)detail::system_boot_id();  // while there are descriptors to read it with
    const detail::ShmLayout layout{options.descriptors, options.data_bytes};
    if (auto fault = layout.fault(); !fault.empty())
      throw Error(Errc::invalid_argument, "use shared memory", std::move(fault));
  }

  Task<std::vector<Endpoint>> resolve(Endpoint endpoint) override {
    detail::check_shm_name(endpoint.host);
    co_return std::vector<Endpoint>{endpoint};
  }
  bool is_local(const Endpoint&) const noexcept override { return true; }

  Task<std::unique_ptr<Transport>> connect(Endpoint address, Time deadline) override {
    require_system("connect to ", address);
    detail::OwnDescriptor socket = detail::try_connect_to(address.host);
    while (!socket) {
      if (Clock::now() >= deadline)
        throw Error(Errc::deadline_exceeded, "connect to " + address.to_string(),
                    "more connections wait there already than it takes",
                    "see whether that process is stuck");
      co_await sleep_for(1ms);
      socket = detail::try_connect_to(address.host);
    }
    auto transport = std::make_unique<ShmTransport>(
        std::move(socket), std::move(address), ShmTransport::Side::connecting, options_, arena_);
    pass_failpoint_now("shm-connected");
    co_await transport->set_up(deadline);
    co_return std::move(transport);
  }

  std::unique_ptr<TransportListener> listen(const Endpoint& address) override {
    require_system("listen on ", address);
    return std::make_unique<ShmListener>(address, options_, arena_);
  }

 private:
  ShmOptions options_;
  std::shared_ptr<detail::LoanArena> arena_;
};

}  // namespace

std::unique_ptr<TransportProvider> make_shm_provider(ShmOptions options,
                                                     std::shared_ptr<detail::LoanArena> arena) {
  return std::make_unique<ShmProvider>(options, std::move(arena));
}

}  // namespace hyperframes::net
