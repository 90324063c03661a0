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
//     0 u64 taken   128 u32 data_armed, u32 room_armed, u32 given_up
//     256.. descriptors   data_at().. data
//
// A descriptor is 16 bytes: u32 sequence, u32 length; u32 offset, u16 segment, u16 kind. It is
// there once its sequence, which is written last, is the number of the piece, counted from 1. Kind
// and segment are 0: the piece lies in the writer's own segment and is copied out. Memory that is
// lent instead of copied will have other numbers, and come back out of order; it passes through
// this ring all the same.
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

  std::uint32_t descriptors = 1024;        ///< A power of two.
  std::uint32_t data_bytes = 2028u << 10;  ///< With the rest of it 2 MiB: one huge page.

  constexpr std::size_t data_at() const noexcept {
    constexpr std::size_t page = 4096;
    return (descriptors_at + descriptors * descriptor_bytes + page - 1) / page * page;
  }
  constexpr std::size_t bytes() const noexcept { return data_at() + data_bytes; }
  /// Empty, or what is wrong with it.
  std::string fault() const;
  friend bool operator==(const ShmLayout&, const ShmLayout&) = default;
};

/// The words at the beginning of a segment.
struct ShmWords {
  alignas(128) std::atomic<std::uint64_t> taken;  ///< Of the peer's pieces.
  alignas(128) std::atomic<std::uint32_t> data_armed;
  std::atomic<std::uint32_t> room_armed;
  std::atomic<std::uint32_t> given_up;  ///< How its owner left: 0 not at all, else as `Departure`.
};
static_assert(sizeof(ShmWords) == ShmLayout::descriptors_at);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

struct ShmDescriptor {
  std::atomic<std::uint64_t> ready;  ///< Length << 32 | sequence.
  std::atomic<std::uint64_t> where;  ///< Kind << 48 | segment << 32 | offset.
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
  /// Pieces on their way, as far as is known.
  std::uint64_t in_flight() const noexcept { return count_ - taken_; }

 private:
  void look() noexcept;

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

/// The peer's direction. The layout is that of `peer`.
class ShmReader {
 public:
  ShmReader(std::byte* own, const std::byte* peer, const ShmLayout& layout);

  /// What has come of the next piece and was not taken yet, in the peer's memory: it may change at
  /// any time, so copy it first. Empty: nothing, or the peer says nonsense.
  std::span<const std::byte> next() noexcept;
  /// The first `size` bytes of that are copied.
  void take(std::size_t size) noexcept;
  /// Lets the peer have the memory of the pieces that were taken. False: there is none that it does
  /// not have.
  bool publish() noexcept;
  bool must_ring() noexcept { return bell_.is_due(); }
  void ring_again() noexcept { bell_.forget(); }
  const std::string& fault() const noexcept { return fault_; }

  ShmAlarm& alarm() noexcept { return alarm_; }
  /// Whether there is something to read. Only looks.
  bool has_piece() const noexcept;

 private:
  bool is_idle(std::uint32_t sequence) const noexcept;
  std::span<const std::byte> refuse(std::string what) noexcept;

  const ShmDescriptor* descriptors_;
  const std::byte* data_;
  const std::uint64_t mask_;
  const std::size_t data_bytes_;
  std::span<const std::byte> piece_;
  std::uint64_t taken_ = 0, published_ = 0;
  std::atomic<std::uint64_t>& taken_word_;  // our own
  ShmAlarm alarm_;
  ShmBell bell_;
  std::string fault_;
};

}  // namespace hyperframes::net::detail
