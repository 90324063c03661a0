// The two directions of a shared-memory link: pieces of a byte stream, which one process writes
// and another reads.
//
//   ShmWriter to(own_memory, peer_memory, layout);
//   auto room = to.room(size);                     // memory that the peer sees
//   to.publish(room.size());                       // ... and now knows of
//   if (to.must_ring()) ring_the_doorbell();       // it sleeps
//
// Each process has one segment, which it alone can write and the peer only reads: a peer can spoil
// nothing of ours. It holds, on lines of their own, how many of the peer's pieces were taken, the
// two words that say what its owner wants to be woken for, a ring of descriptors, and the memory
// that those refer to:
//
//     0 u64 taken   64 u64 returned   128 u32 data_armed, u32 room_armed, u32 given_up,
//     u32 borrows
//     256.. descriptors   returns_at().. u16 slots   data_at().. data
//
// A descriptor is 16 bytes: u32 sequence, u32 length; u32 offset, u16 segment, u16 kind. It is
// there once its sequence, which is written last, is the number of the piece, counted from 1. Kind
// and segment are 0: the piece lies in the writer's own segment and is copied out. Kind 1 is a
// loan: the piece lies in the writer's arena, which the reader has mapped as well, and stays there
// until the reader gives it back (net/shm/loans.hpp). Its offset is in lines of 64 bytes, and in
// place of a segment it has the number of the slot that it comes back by.
//
// No wake-up is lost. Who is about to sleep stores an odd number to its armed word, passes a
// seq_cst fence, and looks for work once more. Who has published something passes a seq_cst fence
// and then looks at that word. The two fences have an order. If the sleeper's comes first, the
// other one sees the odd number and rings; if it comes second, the sleeper sees what was published.
// Each odd number is rung for once: what rings can't write the word, so it remembers the last one.
//
// Whatever the peer's memory holds is read once, into a local, and checked there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace hyperframes::net::detail {

/// The sizes of a segment.
struct ShmLayout {
  static constexpr std::uint32_t least_descriptors = 16, most_descriptors = 1 << 16;
  static constexpr std::uint32_t least_data = 4 << 10, most_data = 1 << 30;
  static constexpr std::size_t line = 64, descriptors_at = 256, descriptor_bytes = 16;
  static constexpr std::size_t return_bytes = 2;
  /// Bytes of one loan: who copies it all the same is not held up for long.
  static constexpr std::uint32_t most_loan = 16 << 20;
  /// Bytes of the lines that a loan's offset can count.
  static constexpr std::uint64_t most_arena = std::uint64_t{1} << 38;

  std::uint32_t descriptors = 1024;        ///< A power of two.
  std::uint32_t data_bytes = 2028u << 10;  ///< With the rest of it 2 MiB: one huge page.

  constexpr std::size_t returns_at() const noexcept {
    return descriptors_at + descriptors * descriptor_bytes;
  }
  constexpr std::size_t data_at() const noexcept {
    constexpr std::size_t page = 4096;
    return (returns_at() + descriptors * return_bytes + page - 1) / page * page;
  }
  constexpr std::size_t bytes() const noexcept { return data_at() + data_bytes; }
  /// Empty, or what is wrong with it.
  std::string fault() const;
  friend bool operator==(const ShmLayout&, const ShmLayout&) = default;
};

/// The words at the beginning of a segment.
struct ShmWords {
  alignas(128) std::atomic<std::uint64_t> taken;    ///< Of the peer's pieces.
  alignas(64) std::atomic<std::uint64_t> returned;  ///< Of the peer's loans.
  alignas(128) std::atomic<std::uint32_t> data_armed;
  std::atomic<std::uint32_t> room_armed;
  std::atomic<std::uint32_t> given_up;  ///< How its owner left: 0 not at all, else as `Departure`.
  std::atomic<std::uint32_t> borrows;   ///< 1 once its owner reads the peer's arena.
};
static_assert(sizeof(ShmWords) == ShmLayout::descriptors_at);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// What each end may have lent to the other at a time: so many that neither's ring of returns can
/// overflow.
constexpr std::uint32_t loan_slots(const ShmLayout& one, const ShmLayout& other) noexcept {
  return one.descriptors < other.descriptors ? one.descriptors : other.descriptors;
}

struct ShmDescriptor {
  std::atomic<std::uint64_t> ready;  ///< Length << 32 | sequence.
  std::atomic<std::uint64_t> where;  ///< Kind << 48 | segment << 32 | offset.

  static constexpr std::uint64_t copied = 0, lent = 1;  ///< Kinds.
};
static_assert(sizeof(ShmDescriptor) == ShmLayout::descriptor_bytes);

/// What a process says of the end of its socket before it makes one. One that dies, or whose
/// socket somebody cuts, says nothing.
enum class Departure : std::uint32_t {
  none = 0,
  broken_off = 1,  ///< It lives, and ends this connection only: the link goes on over another.
  ended = 2,       ///< It is done with the link.
};
void depart(std::byte* own, Departure how) noexcept;
/// `none` for what makes no sense.
Departure departure_of(const std::byte* peer) noexcept;

/// An armed word of our own.
class ShmAlarm {
 public:
  explicit ShmAlarm(std::atomic<std::uint32_t>& word) noexcept : word_(word) {}
  /// A seq_cst fence and a last look have to follow.
  void arm() noexcept {
    if (value_ % 2) return;
    word_.store(++value_, std::memory_order_relaxed);
    ++times_;
  }
  void disarm() noexcept {
    if (value_ % 2) word_.store(++value_, std::memory_order_relaxed);
  }
  /// How often the peer may have rung for it.
  std::uint64_t times() const noexcept { return times_; }

 private:
  std::atomic<std::uint32_t>& word_;
  std::uint32_t value_ = 0;
  std::uint64_t times_ = 0;
};

/// An armed word of the peer's.
class ShmBell {
 public:
  explicit ShmBell(const std::atomic<std::uint32_t>& word) noexcept : word_(word) {}
  /// After something was published: whether it has to be rung now.
  bool is_due() noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const std::uint32_t value = word_.load(std::memory_order_relaxed);
    if (value % 2 == 0 || value == rung_) return false;
    rung_ = value;
    return true;
  }
  /// It could not be rung: it is due again.
  void forget() noexcept { rung_ = 0; }

 private:
  const std::atomic<std::uint32_t>& word_;
  std::uint32_t rung_ = 0;
};

/// Our direction. `own` and `peer` outlive it; the layout is that of `own`.
class ShmWriter {
 public:
  /// The largest piece: what the peer can begin to copy while we write the next.
  static constexpr std::size_t piece_bytes = 32 << 10;

  ShmWriter(std::byte* own, const std::byte* peer, const ShmLayout& layout);

  /// So many bytes at most are on their way at a time; 0: as many as there is memory for.
  void limit(std::size_t bytes) noexcept;
  /// Contiguous memory for the next piece, of at most `most` bytes. Empty: the peer has to take
  /// something first, or it says nonsense.
  std::span<std::byte> room(std::size_t most) noexcept;
  /// Hands the first `size` bytes of that over.
  void publish(std::size_t size) noexcept;
  /// Whether there is a descriptor for a loan, which takes no room.
  bool has_descriptor() noexcept;
  /// Lends `size` bytes of the arena, from that line on.
  void publish_loan(std::uint16_t slot, std::uint32_t line, std::uint32_t size) noexcept;
  bool must_ring() noexcept { return bell_.is_due(); }
  void ring_again() noexcept { bell_.forget(); }
  /// What is wrong with what the peer says; empty: nothing.
  const std::string& fault() const noexcept { return fault_; }

  /// What `room` waits for.
  ShmAlarm& alarm() noexcept { return alarm_; }
  /// Whether the peer has taken something since `room` looked.
  bool has_progress() const noexcept {
    return words_.taken.load(std::memory_order_relaxed) != taken_;
  }
  /// Pieces so far, loans included.
  std::uint64_t count() const noexcept { return count_; }
  /// Pieces on their way, as far as is known.
  std::uint64_t in_flight() const noexcept { return count_ - taken_; }

 private:
  void look() noexcept;
  void publish_at(std::uint64_t where, std::size_t size) noexcept;

  const ShmWords& words_;  // the peer's
  ShmDescriptor* descriptors_;
  std::byte* data_;
  const std::uint64_t mask_;
  const std::size_t data_bytes_;
  std::size_t window_;
  std::uint64_t count_ = 0, taken_ = 0;     // pieces
  std::uint64_t position_ = 0, freed_ = 0;  // bytes, in whole lines
  std::size_t offset_ = 0;                  // of the next piece
  std::vector<std::uint64_t> ends_;         // position behind each piece that is on its way
  ShmAlarm alarm_;
  ShmBell bell_;
  std::string fault_;
};

class ShmReturns;

/// The peer's direction. The layout is that of `peer`.
class ShmReader {
 public:
  ShmReader(std::byte* own, const std::byte* peer, const ShmLayout& layout);

  /// From now on the peer may lend what lies in `arena`, by slots that are free in `returns`. Both
  /// outlive this.
  void take_loans(std::span<const std::byte> arena, const ShmReturns& returns) noexcept {
    arena_ = arena;
    returns_ = &returns;
    borrows_word_.store(1, std::memory_order_release);
  }
  /// What has come of the next piece and was not taken yet, in the peer's memory: it may change at
  /// any time, so copy it first. Empty: nothing, or the peer says nonsense.
  std::span<const std::byte> next() noexcept;
  /// Whether that is a loan: then it is all of it, and taken as a whole.
  bool is_loan() const noexcept { return is_loan_; }
  std::uint16_t slot() const noexcept { return slot_; }
  /// The first `size` bytes of that are copied.
  void take(std::size_t size) noexcept;
  /// Lets the peer have the memory of the pieces that were taken. False: there is none that it does
  /// not have.
  bool publish() noexcept;
  /// Pieces that were taken, and whose memory the peer does not have back.
  std::uint64_t unpublished() const noexcept { return taken_ - published_; }
  bool must_ring() noexcept { return bell_.is_due(); }
  void ring_again() noexcept { bell_.forget(); }
  const std::string& fault() const noexcept { return fault_; }

  ShmAlarm& alarm() noexcept { return alarm_; }
  /// Whether there is something to read. Only looks.
  bool has_piece() const noexcept;

 private:
  bool is_idle(std::uint32_t sequence) const noexcept;
  std::span<const std::byte> refuse(std::string what) noexcept;
  std::span<const std::byte> next_loan(std::uint64_t where, std::size_t length) noexcept;

  const ShmDescriptor* descriptors_;
  const std::byte* data_;
  const std::uint64_t mask_;
  const std::size_t data_bytes_;
  std::span<const std::byte> piece_, arena_;
  const ShmReturns* returns_ = nullptr;  ///< Null: nothing is lent.
  bool is_loan_ = false;
  std::uint16_t slot_ = 0;  ///< If it is one.
  std::uint64_t taken_ = 0, published_ = 0;
  std::atomic<std::uint64_t>& taken_word_;    // our own
  std::atomic<std::uint32_t>& borrows_word_;  // our own
  ShmAlarm alarm_;
  ShmBell bell_;
  std::string fault_;
};

}  // namespace hyperframes::net::detail
