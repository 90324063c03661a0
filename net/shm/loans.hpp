// What is lent over a link and comes back by it: both ends' account of it.
//
//   std::uint16_t slot = loans.lend(std::move(piece));    // the lender keeps it ...
//   returns.take(slot);  ...  returns.give_back(slot);    // ... until the borrower has done this
//   loans.collect();                                      // and it has looked
//
// Each loan has a slot, which the lender picks, and keeps a reference to its memory there. The
// borrower writes the numbers of slots that it has done with into a ring in its own segment, in
// whatever order, and counts them in `returned`. Both ends have as many slots as the smaller of
// their rings has entries: so the lender has seen each entry before there can be another one in its
// place, and the borrower never has to wait.
//
// As everywhere in this memory: what the peer has written is read once, into a local, and checked.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <hyperframes/net/shm/ring.hpp>
#include <hyperframes/runtime/buffer.hpp>
#include <span>
#include <string>
#include <vector>

namespace hyperframes::net::detail {

/// Our loans to the peer. `peer` is its segment, of that layout, and outlives this.
class ShmLoans {
 public:
  ShmLoans(const std::byte* peer, const ShmLayout& layout, std::uint32_t slots);

  /// Whether the peer reads our arena: before that nothing may be lent.
  bool are_wanted() const noexcept { return words_.borrows.load(std::memory_order_acquire) == 1; }
  std::size_t free_slots() const noexcept { return free_.size(); }
  /// Bytes that are out.
  std::size_t bytes() const noexcept { return bytes_; }
  std::size_t count() const noexcept { return pieces_.size() - free_.size(); }
  struct Sum {
    std::size_t bytes = 0, loans = 0;
  };
  /// Of what is out, what lies in that memory.
  Sum within(std::span<const std::byte> memory) const noexcept;
  /// There is a free slot. Keeps the piece until that comes back. `number`: of its descriptor,
  /// from 1.
  std::uint16_t lend(Buffer piece, std::uint64_t number) noexcept;
  /// Whether something has come back since `collect` looked. Only looks. True for ever after a
  /// fault.
  bool has_returns() const noexcept {
    return words_.returned.load(std::memory_order_relaxed) != collected_;
  }
  /// Lets go of what came back. Returns how many loans did: from a fault on, none.
  std::size_t collect() noexcept;
  /// Lets go of what the peer has never taken, if it has said that it reads our ring no more.
  /// Nothing is lent after that.
  void end_unread() noexcept;
  /// Lets go of all: the peer can't read it any more.
  void end() noexcept;
  /// What is wrong with what the peer says; empty: nothing.
  const std::string& fault() const noexcept { return fault_; }

 private:
  using Entry = std::atomic<std::uint16_t>;
  void free_slot(std::size_t slot) noexcept;
  const std::byte* const peer_;
  const ShmWords& words_;  // the peer's
  const Entry* entries_;
  const std::uint64_t mask_;
  std::uint64_t collected_ = 0;
  std::size_t bytes_ = 0;
  std::vector<Buffer> pieces_;          ///< By slot; empty: it is free.
  std::vector<std::uint64_t> numbers_;  ///< Of their descriptors, by slot.
  std::vector<std::uint16_t> free_;
  std::string fault_;
};

/// The peer's loans to us. `own` is our segment, of that layout, and outlives this.
class ShmReturns {
 public:
  ShmReturns(std::byte* own, const ShmLayout& layout, std::uint32_t slots);

  std::uint32_t slots() const noexcept { return static_cast<std::uint32_t>(out_.size()); }
  bool is_out(std::uint16_t slot) const noexcept { return out_[slot]; }
  /// Slots that are out.
  std::size_t count() const noexcept { return count_; }
  /// One that is not out.
  void take(std::uint16_t slot) noexcept;
  /// One that is.
  void give_back(std::uint16_t slot) noexcept;

 private:
  using Entry = std::atomic<std::uint16_t>;
  std::atomic<std::uint64_t>& returned_word_;
  Entry* entries_;
  const std::uint64_t mask_;
  std::uint64_t returned_ = 0;
  std::size_t count_ = 0;
  std::vector<bool> out_;
};

}  // namespace hyperframes::net::detail
