#include <hyperframes/net/shm/arena.hpp>

#include <algorithm>
#include <cassert>
#include <functional>
#include <hyperframes/runtime/detail/pool.hpp>
#include <new>
#include <utility>

namespace hyperframes::net::detail {
namespace {

constexpr std::size_t page = 4096, huge_page = 2u << 20;

std::size_t bytes_of_share(std::size_t bytes, std::size_t shares) noexcept {
  const std::size_t least = (bytes + shares - 1) / shares;
  const std::size_t unit = least >= huge_page ? huge_page : page;
  return std::max<std::size_t>((least + unit - 1) / unit * unit, page);
}

std::string counted(std::size_t bytes, std::size_t loans) {
  return std::to_string(bytes) + " bytes in " + std::to_string(loans) +
         (loans == 1 ? " loan" : " loans");
}

struct Holder {
  const Lender* lender;
  const char* state;
  std::size_t count, bytes;
};

/// Those that hold most; peers decide how many there are.
std::string told(std::vector<Holder>& holders) {
  constexpr std::size_t most_told = 8;
  std::ranges::sort(holders, std::greater(), &Holder::bytes);
  std::string text;
  Holder others{};
  for (std::size_t i = 0; i < holders.size(); ++i) {
    const Holder& one = holders[i];
    if (i < most_told) {
      text += "; " + one.lender->peer + one.state + counted(one.bytes, one.count);
    } else {
      others.bytes += one.bytes;
      others.count += one.count;
    }
  }
  if (holders.size() > most_told)
    text += "; and " + std::to_string(holders.size() - most_told) + " more hold " +
            counted(others.bytes, others.count);
  return text;
}

}  // namespace

// ---- The whole

LoanArena::LoanArena(Runtime& runtime, std::size_t bytes) {
  const std::size_t share = bytes_of_share(bytes, runtime.shard_count());
  segment_ = ShmSegment::create(share * runtime.shard_count(), true, "lend to peers");
  for (unsigned i = 0; i < runtime.shard_count(); ++i)
    shares_.push_back(std::make_unique<LoanShare>(*this, runtime.shard(i), i * share, share));
}

struct LoanArena::Nudge final : hyperframes::detail::Work {
  Nudge(std::shared_ptr<LoanArena> arena, LoanShare& share)
      : Work(&Nudge::arrive), arena(std::move(arena)), share(share) {}
  static void arrive(Work* work) noexcept {
    const std::unique_ptr<Nudge> self(static_cast<Nudge*>(work));
    // One that has stopped lets others run it.
    if (Shard::current() == &self->share.home()) self->share.collect();
  }
  std::shared_ptr<LoanArena> arena;
  LoanShare& share;
};

void LoanArena::begin_wait(const LoanShare& from) {
  waiting_.fetch_add(1, std::memory_order_relaxed);
  for (const auto& share : shares_)
    if (share.get() != &from) share->home().post(new Nudge(shared_from_this(), *share));
}

LoanShare& LoanArena::here() noexcept { return *shares_[Shard::current()->index()]; }

// ---- A share

/// Keeps the arena as well.
struct LoanShare::Block final : hyperframes::detail::Block {
  std::shared_ptr<LoanArena> arena;
  LoanShare* share = nullptr;

  static void end(hyperframes::detail::Block* block) noexcept {
    auto* self = static_cast<Block*>(block);
    const std::shared_ptr<LoanArena> arena = std::move(self->arena);
    LoanShare& share = *self->share;
    std::byte* const memory = self->data;
    const std::size_t size = self->capacity;
    self->~Block();
    hyperframes::detail::pool_release(self);
    share.give(memory, size);
  }
};

LoanShare::LoanShare(LoanArena& arena, Shard& home, std::size_t begin, std::size_t bytes)
    : arena_(arena), home_(home), begin_(begin), bytes_(bytes), lines_(bytes) {}

Buffer LoanShare::take(std::size_t size) {
  const auto offset = lines_.take(size);
  if (!offset) return {};
  auto* block = new (hyperframes::detail::pool_allocate(sizeof(Block))) Block;
  block->home = &home_;
  block->data = arena_.segment().memory() + begin_ + *offset;
  block->capacity = size;
  block->dispose = &Block::end;
  block->arena = arena_.shared_from_this();
  block->share = this;
  return Buffer::adopt(block, block->data, size);
}

void LoanShare::give(std::byte* memory, std::size_t size) noexcept {
  lines_.give(static_cast<std::size_t>(memory - arena_.segment().memory()) - begin_, size);
  wake_waiting();
}

void LoanShare::wake_waiting() noexcept {
  while (!waiting_.empty()) {
    Awaiter& first = waiting_.front();
    Buffer memory = take(first.size_);
    if (memory.empty()) return;
    first.result_ = std::move(memory);
    first.wake();
    end_wait();
  }
}

void LoanShare::end_wait() noexcept {
  home_.end_memory_wait();
  arena_.end_wait();
}

// What comes back gives memory to who waits, and calls nothing else.
void LoanShare::collect() noexcept {
  lenders_.for_each([](Lender& lender) { lender.loans.collect(); });
  look_at_ended();
}

// A process that has ended reads nothing any more. The system shows that a moment later than the
// end of its sockets, so the first look may be too early. One that has lied about what it returned
// would keep the rest until then, as nothing that it says counts; it may read what changes instead.
void LoanShare::look_at_ended() noexcept {
  std::erase_if(ended_, [](const std::unique_ptr<Lender>& lender) {
    lender->loans.collect();
    lender->loans.end_unread();
    const bool lies = !lender->loans.fault().empty();
    if (lender->loans.count() && !lies && lender->process.lives()) return false;
    lender->loans.end();
    return true;
  });
  if (!ended_.empty() && !stopped_) home_.start_timer(look_, after(timing().heartbeat() / 8));
}

bool LoanShare::is_in_arrears(const ShmProcess& process) const noexcept {
  const auto left_behind = [&](const auto& lender) { return lender->process.is_same(process); };
  return std::ranges::count_if(ended_, left_behind) >= static_cast<std::ptrdiff_t>(most_ended);
}

void LoanShare::keep(std::unique_ptr<Lender> lender) {
  lender->unlink();
  if (stopped_) return;
  ended_.push_back(std::move(lender));
  look_at_ended();
}

void LoanShare::stop() noexcept {
  stopped_ = true;
  look_.stop();
  while (!waiting_.empty()) {
    waiting_.front().wake();
    end_wait();
  }
  ended_.clear();
}

LoanShare::Awaiter LoanShare::loan(std::size_t size, Time deadline) {
  return Awaiter(*this, size, deadline);
}

// ---- What stands in the errors

std::string LoanShare::attempt(std::size_t size) const {
  return "borrow " + std::to_string(size) + " bytes that peers can read in place";
}

std::string LoanShare::remedy() const {
  return "raise Network::Options::loan_bytes, which is " + std::to_string(arena_.segment().size()) +
         " now, for " + std::to_string(arena_.shares()) +
         (arena_.shares() == 1 ? " shard" : " shards");
}

Error LoanShare::too_large(std::size_t size) const {
  return Error(
      Errc::too_large, attempt(size),
      "this shard's share of the memory for loans has " + std::to_string(bytes_) + " bytes",
      remedy() + ", or send less at a time");
}

Error LoanShare::closed(std::size_t size) const {
  return Error(Errc::shutting_down, attempt(size), "the network has ended");
}

Error LoanShare::exhausted(std::size_t size) {
  std::string found = "of this shard's " + std::to_string(bytes_) + " bytes " +
                      std::to_string(lines_.free_bytes()) + " are free, " +
                      std::to_string(lines_.longest_run()) + " of them side by side";
  std::vector<Holder> holders;
  const std::span own(arena_.segment().memory() + begin_, bytes_);
  const auto add = [&](const Lender& lender, const char* state) {
    const ShmLoans::Sum lent = lender.loans.within(own);
    if (lent.loans) holders.push_back({&lender, state, lent.loans, lent.bytes});
  };
  lenders_.for_each([&](Lender& lender) { add(lender, " holds "); });
  for (const auto& lender : ended_) add(*lender, ", whose connection has ended, holds ");
  // A link of another shard may have lent of it, which only that shard can tell.
  const char* const rest = arena_.shares() == 1
                               ? "; the rest is held here"
                               : "; the rest is held here, or lent by links of other shards";
  return Error(Errc::exhausted, attempt(size), found + told(holders) + rest,
               "destroy received segments sooner, or " + remedy());
}

// ---- Waiting

bool LoanShare::Awaiter::await_ready() {
  if (size_ == 0)
    throw Error(Errc::invalid_argument, share_.attempt(size_), "that is no memory",
                "ask for one byte or more");
  if (share_.stopped_) throw share_.closed(size_);
  if (size_ > share_.bytes_) throw share_.too_large(size_);
  if (share_.waiting_.empty()) result_ = share_.take(size_);
  if (!result_.empty()) return true;
  share_.collect();
  if (share_.waiting_.empty()) result_ = share_.take(size_);
  return !result_.empty();
}

void LoanShare::Awaiter::enqueue() noexcept {
  share_.waiting_.push_back(*this);
  share_.home_.begin_memory_wait();
  share_.arena_.begin_wait(share_);
}

Buffer LoanShare::Awaiter::await_resume() {
  if (promise() && outcome() == Outcome::timed_out) throw share_.exhausted(size_);
  if (promise()) throw_unless_woken("borrow memory that peers can read in place");
  if (result_.empty()) throw share_.closed(size_);
  return std::move(result_);
}

// Whoever stood behind it may need less.
void LoanShare::Awaiter::left(Waiter& self) noexcept {
  LoanShare& share = static_cast<Awaiter&>(self).share_;
  share.end_wait();
  share.wake_waiting();
}

}  // namespace hyperframes::net::detail
