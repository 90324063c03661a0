#include <algorithm>
#include <cassert>
#include <hyperframes/net/flow_control.hpp>
#include <hyperframes/runtime/detail/pool.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <new>

namespace hyperframes::net {
namespace {

// Up to this size a message lies in one block with its header, from the shard's free lists.
constexpr std::size_t inline_limit = 1536;

/// Off the shards (a budget alone, in a test) there is nobody to wake.
void set_listening(bool& listening, bool wanted) noexcept {
  Shard* shard = Shard::current();
  if (listening == wanted || !shard) return;
  listening = wanted;
  if (wanted) {
    shard->begin_memory_wait();
  } else {
    shard->end_memory_wait();
  }
}

}  // namespace

bool ReceiveBudget::try_take(std::uint64_t bytes) noexcept {
  if (bytes > free_) return false;
  free_ -= bytes;
  return true;
}

bool ReceiveBudget::open_windows(std::uint64_t bytes) noexcept {
  if (!try_take(bytes)) return false;
  windows_ += bytes;
  return true;
}

void ReceiveBudget::close_windows(std::uint64_t bytes, std::uint64_t unused) noexcept {
  windows_ -= bytes;
  give_back(unused);
}

void ReceiveBudget::wait(Waiting& waiting) noexcept {
  waiting_.push_back(waiting);
  serve();
}

void ReceiveBudget::give_back(std::uint64_t bytes) noexcept {
  free_ += bytes;
  assert(free_ <= total_);
  serve();
}

void ReceiveBudget::forget(Waiting& waiting) noexcept {
  waiting.unlink();
  serve();
}

// What of the quarter for windows is not taken yet is kept for them: a new peer needs some at once,
// however large the messages of others are.
void ReceiveBudget::serve() noexcept {
  while (!waiting_.empty() && waiting_.front().bytes <= free_ - free_for_windows()) {
    Waiting& next = *waiting_.pop_front();
    free_ -= next.bytes;
    next.on_granted();
  }
  set_listening(listening_, !waiting_.empty());
}

/// Stands before, or beside, a received message. Its end is what returns the credit.
struct ReceiveAccount::Block : hyperframes::detail::Block {
  Reference account;
  std::uint64_t cost;
  Charge charge;
  Buffer memory;  ///< Empty if the bytes follow this header.

  static void end(hyperframes::detail::Block* block) noexcept {
    auto* self = static_cast<Block*>(block);
    const Reference account = std::move(self->account);
    const Charge charge = self->charge;
    const std::uint64_t cost = self->cost;
    self->~Block();
    hyperframes::detail::pool_release(self);
    account->give_back(charge, cost);
  }
};

namespace {

struct Share {
  std::uint64_t part, least, most;  ///< Of what is free: one part, within these bounds.
};
// The bulk window is what one link may have in flight without asking; asking costs a round trip.
constexpr Share lane_shares[lane_count] = {
    {256, 16 << 10, 128 << 10}, {32, 64 << 10, 1 << 20}, {4, 64 << 10, 16 << 20}};
constexpr Share reply_share = {32, 64 << 10, 1 << 20};

std::uint64_t size_of(const Share& share, std::uint64_t free) noexcept {
  return std::clamp(free / share.part, share.least, share.most) / wire::part_alignment *
         wire::part_alignment;
}

}  // namespace

std::uint64_t ReceiveAccount::least_windows() noexcept {
  std::uint64_t least = reply_share.least;
  for (const Share& share : lane_shares) least += share.least;
  return least;
}

bool ReceiveAccount::is_possible(const ReceiveBudget& budget) noexcept {
  return budget.free() >= least_windows();
}

Error ReceiveAccount::no_memory(const ReceiveBudget& budget) {
  return Error(
      Errc::exhausted, "reserve memory to receive from one more peer",
      std::to_string(budget.free()) + " of " + std::to_string(budget.total()) + " bytes are free",
      "raise the network's receive budget (and the shard's receive quota)");
}

ReceiveAccount::Reference ReceiveAccount::open(std::shared_ptr<ReceiveBudget> budget,
                                               Owner& owner) {
  if (!is_possible(*budget)) throw no_memory(*budget);
  const std::uint64_t free = budget->free_for_windows();
  Reference account(new ReceiveAccount(std::move(budget), owner));
  for (std::size_t i = 0; i < lane_count; ++i)
    account->lanes_[i].window = size_of(lane_shares[i], free);
  account->reply_window_ = account->reply_free_ = size_of(reply_share, free);
  account->window_sum_ = account->reply_window_;
  for (const LaneWindow& lane : account->lanes_) account->window_sum_ += lane.window;
  [[maybe_unused]] const bool taken = account->budget_->open_windows(account->window_sum_);
  assert(taken);
  return account;
}

void ReceiveAccount::close() noexcept {
  if (!owner_) return;
  owner_ = nullptr;
  std::uint64_t unused = reply_free_ + promised_;
  for (LaneWindow& lane : lanes_) {
    // What is owed was destroyed already: it was not sent back, so it is still this link's.
    unused += lane.window - (lane.used - lane.owed);
    lane = {};
  }
  reply_free_ = promised_ = 0;
  budget_->close_windows(window_sum_, unused);
  set_listening(listening_, false);
}

bool ReceiveAccount::charge(Lane lane, std::uint64_t cost) noexcept {
  LaneWindow& window = lane_of(lane);
  if (cost > window.window - window.used) return false;
  window.used += cost;
  if (!listening_ && window.used - window.owed >= window.window / 2) listen();
  return true;
}

// Before those who wait for a grant: it is little, and its lane would stop for others.
ReceiveAccount::Charge ReceiveAccount::move_to_budget(Lane lane, std::uint64_t cost) noexcept {
  const bool fits = cost + budget_->free_for_windows() <= budget_->free();
  if (!fits || !budget_->try_take(cost)) return charge_of(lane);
  LaneWindow& window = lane_of(lane);
  window.owed += cost;
  if (listening_) listen();
  if (owner_ && window.owed >= window.window / 4) owner_->on_credit_owed();
  return Charge::granted;
}

void ReceiveAccount::listen() noexcept {
  bool wanted = reply_free_ < reply_window_ / 2;
  for (const LaneWindow& lane : lanes_) wanted |= lane.used - lane.owed >= lane.window / 2;
  set_listening(listening_, wanted && owner_);
}

std::uint64_t ReceiveAccount::take_owed(Lane lane, bool all) noexcept {
  LaneWindow& window = lane_of(lane);
  if (!all && window.owed < window.window / 4) return 0;
  window.used -= window.owed;
  return std::exchange(window.owed, 0);
}

std::uint32_t ReceiveAccount::largest_reply_room() const noexcept {
  return static_cast<std::uint32_t>(reply_window_ / 2 - FrameHeader::size);
}

bool ReceiveAccount::promise_reply(std::uint32_t room) noexcept {
  const std::uint64_t cost = credit_cost(room);
  if (cost > reply_free_) return false;
  reply_free_ -= cost;
  promised_ += cost;
  return true;
}

void ReceiveAccount::unpromise_reply(std::uint32_t room) noexcept {
  promised_ -= credit_cost(room);
  reply_free_ += credit_cost(room);
}

bool ReceiveAccount::begin_reply(std::uint64_t total) noexcept {
  const std::uint64_t cost = credit_cost(total);
  if (cost > promised_) return false;
  promised_ -= cost;
  listen();
  return true;
}

bool ReceiveAccount::finish_reply(std::uint32_t room, std::uint64_t total) noexcept {
  if (total > room) return false;
  const std::uint64_t rest = credit_cost(room) - credit_cost(total);
  if (rest > promised_) return false;
  promised_ -= rest;
  reply_free_ += rest;
  if (owner_ && rest) owner_->on_reply_room();
  return true;
}

bool ReceiveAccount::release_reply(std::uint32_t room) noexcept {
  const std::uint64_t cost = credit_cost(room);
  if (cost > promised_) return false;
  promised_ -= cost;
  reply_free_ += cost;
  if (owner_) owner_->on_reply_room();
  return true;
}

Buffer ReceiveAccount::allocate(Charge charge, std::uint64_t cost, std::size_t size) {
  constexpr std::size_t alignment = wire::part_alignment;
  const bool inlined = size <= inline_limit;
  void* memory =
      hyperframes::detail::pool_allocate(sizeof(Block) + (inlined ? alignment - 1 + size : 0));
  auto* block = new (memory) Block;
  block->home = Shard::current();
  block->dispose = &Block::end;
  block->account = Reference(this);
  block->cost = cost;
  block->charge = charge;
  if (inlined) {
    auto at = reinterpret_cast<std::uintptr_t>(block + 1);
    at = (at + alignment - 1) & ~std::uintptr_t{alignment - 1};
    block->data = reinterpret_cast<std::byte*>(at);
  } else {
    auto pooled = block->home->receive_pool().try_allocate(size);
    block->memory = pooled ? std::move(*pooled) : Buffer::heap(size);
    block->data = block->memory.data();
  }
  block->capacity = size;
  held_ += cost;
  return Buffer::adopt(block, block->data, size);
}

void ReceiveAccount::give_back(Charge charge, std::uint64_t cost) noexcept {
  held_ -= cost;
  if (!owner_ || charge == Charge::granted) {
    budget_->give_back(cost);
  } else if (charge == Charge::reply) {
    reply_free_ += cost;
    listen();
    owner_->on_reply_room();
  } else {
    LaneWindow& window = lanes_[static_cast<std::size_t>(charge)];
    window.owed += cost;
    if (listening_) listen();
    if (window.owed >= window.window / 4) owner_->on_credit_owed();
  }
}

}  // namespace hyperframes::net
