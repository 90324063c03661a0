#include <hyperframes/net/shm/loans.hpp>

#include <cassert>
#include <utility>

namespace hyperframes::net::detail {

static_assert(sizeof(std::atomic<std::uint16_t>) == ShmLayout::return_bytes);
static_assert(std::atomic<std::uint16_t>::is_always_lock_free);

// ---- Lent by us

ShmLoans::ShmLoans(const std::byte* peer, const ShmLayout& layout, std::uint32_t slots)
    : peer_(peer),
      words_(*reinterpret_cast<const ShmWords*>(peer)),
      entries_(reinterpret_cast<const Entry*>(peer + layout.returns_at())),
      mask_(layout.descriptors - 1),
      pieces_(slots),
      numbers_(slots) {
  assert(slots <= layout.descriptors);
  free_.reserve(slots);
  for (std::uint32_t slot = slots; slot-- > 0;) free_.push_back(static_cast<std::uint16_t>(slot));
}

std::uint16_t ShmLoans::lend(Buffer piece, std::uint64_t number) noexcept {
  assert(!free_.empty() && !piece.empty());
  const std::uint16_t slot = free_.back();
  free_.pop_back();
  bytes_ += piece.size();
  numbers_[slot] = number;
  pieces_[slot] = std::move(piece);
  return slot;
}

// Acquire: the peer has done with the memory before it said so, and the entries are there.
std::size_t ShmLoans::collect() noexcept {
  if (!fault_.empty()) return 0;
  const std::uint64_t returned = words_.returned.load(std::memory_order_acquire);
  if (returned - collected_ > count()) {
    fault_ = "it says that it has returned " + std::to_string(returned) + " loans, after " +
             std::to_string(collected_) + " and with " + std::to_string(count()) + " out";
    return 0;
  }
  std::size_t number = 0;
  for (; collected_ != returned; ++number) {
    const std::uint16_t slot = entries_[collected_ & mask_].load(std::memory_order_relaxed);
    if (slot >= pieces_.size() || pieces_[slot].empty()) {
      fault_ = "it returns loan " + std::to_string(slot) + ", which is not out";
      return number;
    }
    ++collected_;
    free_slot(slot);
  }
  return number;
}

// Its end may wake who waits for memory: all is in order before that.
void ShmLoans::free_slot(std::size_t slot) noexcept {
  free_.push_back(static_cast<std::uint16_t>(slot));
  bytes_ -= pieces_[slot].size();
  const Buffer piece = std::exchange(pieces_[slot], Buffer());
}

// It leaves once it has said how much it took, and takes nothing after that. One that lies about it
// reads what may change.
void ShmLoans::end_unread() noexcept {
  if (departure_of(peer_) == Departure::none) return;
  const std::uint64_t taken = words_.taken.load(std::memory_order_acquire);
  for (std::size_t slot = 0; slot < pieces_.size(); ++slot)
    if (!pieces_[slot].empty() && numbers_[slot] > taken) free_slot(slot);
}

ShmLoans::Sum ShmLoans::within(std::span<const std::byte> memory) const noexcept {
  Sum sum;
  for (const Buffer& piece : pieces_) {
    const bool lies_there = !piece.empty() && piece.data() >= memory.data() &&
                            piece.data() < memory.data() + memory.size();
    if (!lies_there) continue;
    sum.bytes += piece.size();
    ++sum.loans;
  }
  return sum;
}

void ShmLoans::end() noexcept {
  for (std::size_t slot = 0; slot < pieces_.size(); ++slot)
    if (!pieces_[slot].empty()) free_slot(slot);
}

// ---- Lent by the peer

ShmReturns::ShmReturns(std::byte* own, const ShmLayout& layout, std::uint32_t slots)
    : returned_word_(reinterpret_cast<ShmWords*>(own)->returned),
      entries_(reinterpret_cast<Entry*>(own + layout.returns_at())),
      mask_(layout.descriptors - 1),
      out_(slots) {
  assert(slots <= layout.descriptors);
}

void ShmReturns::take(std::uint16_t slot) noexcept {
  assert(!out_[slot]);
  out_[slot] = true;
  ++count_;
}

// Release: what was read there is read before the peer can write there again.
void ShmReturns::give_back(std::uint16_t slot) noexcept {
  assert(out_[slot]);
  out_[slot] = false;
  --count_;
  entries_[returned_ & mask_].store(slot, std::memory_order_relaxed);
  returned_word_.store(++returned_, std::memory_order_release);
}

}  // namespace hyperframes::net::detail
