#include <hyperframes/actors/inbox.hpp>

#include <hyperframes/actors/detail/cell.hpp>
#include <hyperframes/actors/detail/node_shard.hpp>
#include <hyperframes/actors/detail/watch.hpp>
#include <memory>

namespace hyperframes::detail {

InboxActor::InboxActor() noexcept : inbox_cell_(cell_being_constructed()) {
  inbox_cell_->is_inbox = true;
}

void InboxActor::hand_over(Letter* letter) noexcept {
  ReceiveAwaiter& receiver = *std::exchange(receiver_, nullptr);
  receiver.letter_ = letter;
  receiver.wake();
}

void InboxActor::hand_over(Down down) noexcept {
  ReceiveAwaiter& receiver = *std::exchange(receiver_, nullptr);
  receiver.down_ = std::move(down);
  receiver.wake();
}

bool ReceiveAwaiter::await_ready() noexcept {
  // A coroutine that finds its mailbox filled again and again lets others run now and then.
  ActorCell& cell = inbox_.cell();
  if (cell.phase != ActorCell::Phase::open || cell.stop_requested || inbox_.in_a_row_ >= 16)
    return false;
  if (!cell.control.empty()) {
    std::unique_ptr<Watch> watch(static_cast<Watch*>(cell.control.pop()));
    down_ = std::move(watch->down);
    return true;
  }
  letter_ = cell.take();
  if (!letter_) return false;
  ++inbox_.in_a_row_;
  ++cell.handled;
  cell.delivered.add();
  return true;
}

bool ReceiveAwaiter::wait(PromiseBase& promise) noexcept {
  if (!begin(promise)) return false;
  ActorCell& cell = inbox_.cell();
  inbox_.receiver_ = this;
  inbox_.in_a_row_ = 0;
  cell.busy = false;
  if (!cell.mailbox.empty() || !cell.control.empty() || cell.stop_requested) cell.schedule();
  return true;
}

InboxLetter ReceiveAwaiter::await_resume() {
  if (letter_) return InboxLetter(std::exchange(letter_, nullptr));
  if (down_) return InboxLetter(std::move(*down_));
  return {};
}

ReceiveAwaiter::~ReceiveAwaiter() {
  if (inbox_.receiver_ == this) {
    inbox_.receiver_ = nullptr;
    inbox_.cell().busy = true;
  }
  if (letter_) drop_unanswered(letter_);
}

}  // namespace hyperframes::detail
