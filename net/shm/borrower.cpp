#include <hyperframes/net/shm/borrower.hpp>

#include <hyperframes/runtime/detail/pool.hpp>
#include <hyperframes/runtime/failpoint.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <new>
#include <utility>

namespace hyperframes::net::detail {

struct Borrower::Loan final : hyperframes::detail::Block {
  Borrower* from = nullptr;
  std::uint16_t slot = 0;

  static void end(hyperframes::detail::Block* block) noexcept {
    auto* self = static_cast<Loan*>(block);
    Borrower& from = *self->from;
    const std::uint16_t slot = self->slot;
    self->~Loan();
    hyperframes::detail::pool_release(self);
    from.give_back(slot);
  }
};

// Read-only all the same: a Buffer has no other kind of pointer.
Buffer Borrower::borrow(std::span<const std::byte> bytes, std::uint16_t slot) {
  auto* loan = new (hyperframes::detail::pool_allocate(sizeof(Loan))) Loan;
  loan->home = Shard::current();
  loan->data = const_cast<std::byte*>(bytes.data());
  loan->capacity = bytes.size();
  loan->dispose = &Loan::end;
  loan->from = this;
  loan->slot = slot;
  // The peer may wait for what ends on another shard: that wakes this one.
  if (returns_.count() == 0) loan->home->begin_memory_wait();
  returns_.take(slot);
  return Buffer::adopt(loan, loan->data, bytes.size());
}

void Borrower::give_back(std::uint16_t slot) noexcept {
  returns_.give_back(slot);
  hyperframes::detail::pass_failpoint_now("shm-returned");
  const bool last = returns_.count() == 0;
  if (last) Shard::current()->end_memory_wait();
  if (bell_) return bell_->on_returned();
  if (last) delete this;
}

void Borrower::end(std::unique_ptr<Borrower> borrower, ShmSegment own) noexcept {
  borrower->bell_ = nullptr;
  borrower->own_ = std::move(own);
  if (borrower->returns_.count() != 0) (void)borrower.release();
}

}  // namespace hyperframes::net::detail
