#include <hyperframes/net/shm/ring.hpp>

#include <algorithm>
#include <bit>
#include <cassert>
#include <hyperframes/net/shm/loans.hpp>

namespace hyperframes::net::detail {
namespace {

constexpr std::size_t whole_lines(std::size_t size) noexcept {
  return (size + ShmLayout::line - 1) / ShmLayout::line * ShmLayout::line;
}

ShmWords& words_of(std::byte* segment) noexcept { return *reinterpret_cast<ShmWords*>(segment); }
const ShmWords& words_of(const std::byte* segment) noexcept {
  return *reinterpret_cast<const ShmWords*>(segment);
}

}  // namespace

static_assert(ShmLayout().bytes() == 2u << 20);

std::string ShmLayout::fault() const {
  if (!std::has_single_bit(descriptors) || descriptors < least_descriptors ||
      descriptors > most_descriptors)
    return "it has a ring of " + std::to_string(descriptors) +
           " descriptors, which must be a power of two from 16 to 65536";
  if (data_bytes < least_data || data_bytes > most_data || data_bytes % line)
    return "it has " + std::to_string(data_bytes) +
           " bytes for data, which must be whole lines of 64, from 4 KiB to 1 GiB";
  return {};
}

void depart(std::byte* own, Departure how) noexcept {
  words_of(own).given_up.store(static_cast<std::uint32_t>(how), std::memory_order_release);
}
Departure departure_of(const std::byte* peer) noexcept {
  const std::uint32_t word = words_of(peer).given_up.load(std::memory_order_acquire);
  return word <= 2 ? static_cast<Departure>(word) : Departure::none;
}

// ---- Writing

ShmWriter::ShmWriter(std::byte* own, const std::byte* peer, const ShmLayout& layout)
    : words_(words_of(peer)),
      descriptors_(reinterpret_cast<ShmDescriptor*>(own + ShmLayout::descriptors_at)),
      data_(own + layout.data_at()),
      mask_(layout.descriptors - 1),
      data_bytes_(layout.data_bytes),
      window_(layout.data_bytes),
      ends_(layout.descriptors),
      alarm_(words_of(own).room_armed),
      bell_(words_of(peer).data_armed) {}

void ShmWriter::limit(std::size_t bytes) noexcept {
  window_ = bytes == 0 ? data_bytes_ : std::min(data_bytes_, whole_lines(bytes));
}

// Acquire: the peer has read what it says it has taken, before that memory is written again.
void ShmWriter::look() noexcept {
  const std::uint64_t taken = words_.taken.load(std::memory_order_acquire);
  if (taken < taken_ || taken > count_) {
    fault_ = "it says that it has taken " + std::to_string(taken) + " pieces, after " +
             std::to_string(taken_) + " and of " + std::to_string(count_);
    return;
  }
  if (taken == taken_) return;
  taken_ = taken;
  freed_ = ends_[(taken - 1) & mask_];
}

std::span<std::byte> ShmWriter::room(std::size_t most) noexcept {
  const auto free = [&]() -> std::size_t {
    const std::size_t used = position_ - freed_;
    return count_ - taken_ > mask_ || used >= window_ ? 0 : window_ - used;
  };
  const std::size_t wanted = std::min(most, piece_bytes);
  if (free() < wanted) look();
  if (!fault_.empty()) return {};
  return {data_ + offset_, std::min({wanted, free(), data_bytes_ - offset_})};
}

// The sequence goes last, with release: who sees it sees the rest of the descriptor and the bytes.
void ShmWriter::publish_at(std::uint64_t where, std::size_t size) noexcept {
  ShmDescriptor& descriptor = descriptors_[count_ & mask_];
  ends_[count_ & mask_] = position_;
  ++count_;
  descriptor.where.store(where, std::memory_order_relaxed);
  descriptor.ready.store(std::uint64_t{size} << 32 | static_cast<std::uint32_t>(count_),
                         std::memory_order_release);
}

bool ShmWriter::has_descriptor() noexcept {
  if (count_ - taken_ > mask_) look();
  return fault_.empty() && count_ - taken_ <= mask_;
}

void ShmWriter::publish_loan(std::uint16_t slot, std::uint32_t line, std::uint32_t size) noexcept {
  publish_at(ShmDescriptor::lent << 48 | std::uint64_t{slot} << 32 | line, size);
}

void ShmWriter::publish(std::size_t size) noexcept {
  const std::size_t lines = whole_lines(size);
  position_ += lines;
  publish_at(offset_, size);
  offset_ += lines;
  assert(offset_ <= data_bytes_);
  if (offset_ == data_bytes_) offset_ = 0;
}

// ---- Reading

ShmReader::ShmReader(std::byte* own, const std::byte* peer, const ShmLayout& layout)
    : descriptors_(reinterpret_cast<const ShmDescriptor*>(peer + ShmLayout::descriptors_at)),
      data_(peer + layout.data_at()),
      mask_(layout.descriptors - 1),
      data_bytes_(layout.data_bytes),
      taken_word_(words_of(own).taken),
      borrows_word_(words_of(own).borrows),
      alarm_(words_of(own).data_armed),
      bell_(words_of(peer).room_armed) {}

/// Whether that is what stands in the next descriptor until there is a new piece.
bool ShmReader::is_idle(std::uint32_t sequence) const noexcept {
  const std::uint64_t round = mask_ + 1;
  return sequence == (taken_ < round ? 0 : static_cast<std::uint32_t>(taken_ + 1 - round));
}

bool ShmReader::has_piece() const noexcept {
  if (!piece_.empty()) return true;
  const std::uint64_t ready = descriptors_[taken_ & mask_].ready.load(std::memory_order_relaxed);
  return !is_idle(static_cast<std::uint32_t>(ready));
}

std::span<const std::byte> ShmReader::refuse(std::string what) noexcept {
  fault_ = "descriptor " + std::to_string(taken_ + 1) + " of its ring " + std::move(what);
  return {};
}

std::span<const std::byte> ShmReader::next() noexcept {
  if (!piece_.empty() || !fault_.empty()) return piece_;
  const ShmDescriptor& descriptor = descriptors_[taken_ & mask_];
  const std::uint64_t ready = descriptor.ready.load(std::memory_order_acquire);
  const auto sequence = static_cast<std::uint32_t>(ready);
  if (is_idle(sequence)) return {};
  if (sequence != static_cast<std::uint32_t>(taken_ + 1))
    return refuse("has the sequence " + std::to_string(sequence));
  const std::uint64_t where = descriptor.where.load(std::memory_order_relaxed);
  const std::size_t length = ready >> 32, offset = static_cast<std::uint32_t>(where);
  is_loan_ = returns_ && where >> 48 == ShmDescriptor::lent;
  if (is_loan_) return next_loan(where, length);
  if (where >> 32)
    return refuse("is of kind " + std::to_string(where >> 48) + " in segment " +
                  std::to_string(where >> 32 & 0xffff));
  if (length == 0 || length > data_bytes_ || offset > data_bytes_ - length)
    return refuse("names " + std::to_string(length) + " bytes at " + std::to_string(offset) +
                  " of " + std::to_string(data_bytes_));
  return piece_ = {data_ + offset, length};
}

// A slot that is out is refused too: it would come back once, and be two loans.
std::span<const std::byte> ShmReader::next_loan(std::uint64_t where, std::size_t length) noexcept {
  slot_ = static_cast<std::uint16_t>(where >> 32);
  const std::uint64_t offset = std::uint64_t{static_cast<std::uint32_t>(where)} * ShmLayout::line;
  if (length > ShmLayout::most_loan)
    return refuse("lends " + std::to_string(length) + " bytes at once, and may " +
                  std::to_string(ShmLayout::most_loan));
  if (length == 0 || length > arena_.size() || offset > arena_.size() - length)
    return refuse("lends " + std::to_string(length) + " bytes at " + std::to_string(offset) +
                  " of " + std::to_string(arena_.size()));
  if (slot_ >= returns_->slots())
    return refuse("lends by slot " + std::to_string(slot_) + " of " +
                  std::to_string(returns_->slots()));
  if (returns_->is_out(slot_))
    return refuse("lends by slot " + std::to_string(slot_) + ", which did not come back yet");
  return piece_ = arena_.subspan(offset, length);
}

void ShmReader::take(std::size_t size) noexcept {
  assert(size <= piece_.size());
  if (size == 0) return;
  piece_ = piece_.subspan(size);
  if (piece_.empty()) ++taken_;
}

// Release: what was copied is copied before the peer can write there again.
bool ShmReader::publish() noexcept {
  if (published_ == taken_) return false;
  published_ = taken_;
  taken_word_.store(taken_, std::memory_order_release);
  return true;
}

}  // namespace hyperframes::net::detail
