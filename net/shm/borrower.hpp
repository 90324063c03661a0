// What the peer of a link has lent to this process, and how it goes back.
//
//   auto borrower = std::make_unique<Borrower>(std::move(arena), own, layout, slots, bell);
//   Buffer loan = borrower->borrow(piece, slot);      // its end gives the slot back
//   Borrower::end(std::move(borrower), std::move(own_segment));      // the link is over
//
// The buffers lie in the peer's arena, which is mapped to be read only: who writes there gets
// SIGSEGV. They may outlive the link, and the peer's process: the mapping stays as long as one of
// them does, and so does our segment, through which a peer that lives learns of their end. All on
// one shard, and only the buffers may end elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hyperframes/net/shm/loans.hpp>
#include <hyperframes/net/shm/segment.hpp>
#include <hyperframes/runtime/buffer.hpp>
#include <memory>
#include <span>

namespace hyperframes::net::detail {

class Borrower {
 public:
  /// Is told when something has gone back, to wake the peer if it wants that.
  class Bell {
   public:
    virtual void on_returned() noexcept = 0;

   protected:
    ~Bell() = default;
  };

  /// `own`: our segment, of that layout.
  Borrower(ShmSegment arena, std::byte* own, const ShmLayout& layout, std::uint32_t slots,
           Bell& bell)
      : arena_(std::move(arena)), returns_(own, layout, slots), bell_(&bell) {}
  Borrower(const Borrower&) = delete;

  std::span<const std::byte> arena() const noexcept { return {arena_.memory(), arena_.size()}; }
  const ShmReturns& returns() const noexcept { return returns_; }
  /// Bytes of the arena, by a slot that is not out.
  Buffer borrow(std::span<const std::byte> bytes, std::uint16_t slot);
  /// `bell` is not rung any more. `borrower` lives until the last of its buffers has ended.
  static void end(std::unique_ptr<Borrower> borrower, ShmSegment own) noexcept;

 private:
  struct Loan;
  void give_back(std::uint16_t slot) noexcept;

  ShmSegment arena_, own_;
  ShmReturns returns_;
  Bell* bell_;  ///< Null: the link is over.
};

}  // namespace hyperframes::net::detail
