// The memory out of which a process lends to its peers, and who has what of it.
//
//   auto arena = std::make_shared<LoanArena>(runtime, 256u << 20);      // blocks
//   Buffer bytes = co_await arena->here().loan(1u << 20, after(5s));    // on a shard
//   arena->contains(bytes);     // a link through memory lends it instead of copying it
//
// One for a network: a memfd, allocated as a whole, of which each shard owns an equal share and
// gives it out without asking another one. It is an ordinary buffer that comes back when its last
// reference ends, of which links hold some: one for each loan, until the peer has returned it. A
// link that ends with loans out leaves its account to the shard, which keeps it until the peer has
// returned all, or its process has ended and can read nothing more.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <hyperframes/net/shm/lines.hpp>
#include <hyperframes/net/shm/loans.hpp>
#include <hyperframes/net/shm/segment.hpp>
#include <hyperframes/net/shm/setup.hpp>
#include <hyperframes/runtime/buffer.hpp>
#include <hyperframes/runtime/detail/list.hpp>
#include <hyperframes/runtime/detail/waiter.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <hyperframes/runtime/timer.hpp>
#include <memory>
#include <string>
#include <vector>

namespace hyperframes::net::detail {

class LoanArena;

/// What one link has lent. On its shard.
class Lender : public hyperframes::detail::ListNode {
 public:
  /// `peer`: who borrows, for errors. `memory`: its segment, of that layout.
  Lender(std::string peer, const std::byte* memory, const ShmLayout& layout, std::uint32_t slots,
         ShmProcess process)
      : peer(std::move(peer)), loans(memory, layout, slots), process(std::move(process)) {}

  const std::string peer;
  ShmLoans loans;
  ShmProcess process;
  ShmSegment memory;  ///< That of the peer, once the link has ended.
};

/// A shard's part of an arena. All calls on that shard.
class LoanShare {
 public:
  LoanShare(LoanArena& arena, Shard& home, std::size_t begin, std::size_t bytes);
  LoanShare(const LoanShare&) = delete;

  std::size_t bytes() const noexcept { return bytes_; }
  std::size_t free_bytes() const noexcept { return lines_.free_bytes(); }

  class Awaiter;
  /// Memory with indeterminate contents, on a 64-byte boundary. Suspends, first come first served,
  /// until there is a run of that size or `deadline` has passed (Errc::exhausted, with what peers
  /// have of it by links of this shard). Throws Errc::too_large at once if the whole share is
  /// smaller, and Errc::shutting_down from `stop` on.
  [[nodiscard]] Awaiter loan(std::size_t size, Time deadline);
  /// Until it is destroyed or left with `keep`.
  void add(Lender& lender) noexcept { lenders_.push_back(lender); }
  /// Its link has ended. It has its peer's memory with it.
  void keep(std::unique_ptr<Lender> lender);
  /// Each account that is kept costs a descriptor, and a mapping as large as its peer likes. One
  /// process can leave behind so many and then no more, however often it connects.
  static constexpr std::size_t most_ended = 16;
  /// Whether that process has left behind so many: nothing may be lent to it until some end.
  bool is_in_arrears(const ShmProcess& process) const noexcept;
  /// Takes in all that has come back to links of this shard, those that have ended among them,
  /// whosever share it is of: what other shards own goes home to them. Lets go of accounts that are
  /// settled, and looks again at those that are not until they are.
  void collect() noexcept;
  Shard& home() const noexcept { return home_; }
  /// The network ends: nothing is lent any more, so what is out need not be kept from use. Who
  /// waits, or comes later, gets Errc::shutting_down.
  void stop() noexcept;

 private:
  struct Block;
  struct Look : Timer {
    explicit Look(LoanShare& share) noexcept : Timer(&Look::run), share(share) {}
    static void run(Timer& timer) noexcept { static_cast<Look&>(timer).share.look_at_ended(); }
    LoanShare& share;
  };
  /// Empty: there is no such run now.
  Buffer take(std::size_t size);
  void give(std::byte* memory, std::size_t size) noexcept;
  void wake_waiting() noexcept;
  void look_at_ended() noexcept;
  void end_wait() noexcept;
  Error exhausted(std::size_t size);
  Error too_large(std::size_t size) const;
  Error closed(std::size_t size) const;
  std::string attempt(std::size_t size) const;
  std::string remedy() const;

  LoanArena& arena_;
  Shard& home_;
  const std::size_t begin_, bytes_;
  ShmLines lines_;
  hyperframes::detail::List<Lender> lenders_;
  std::vector<std::unique_ptr<Lender>> ended_;
  hyperframes::detail::List<Awaiter> waiting_;
  Look look_{*this};
  bool stopped_ = false;
};

class LoanShare::Awaiter : public hyperframes::detail::Waiter {
 public:
  Awaiter(LoanShare& share, std::size_t size, Time deadline) noexcept
      : Waiter(deadline, Errc::exhausted, &Awaiter::left), share_(share), size_(size) {}
  ~Awaiter() { leave(); }
  bool await_ready();
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    if (!begin(handle.promise())) return false;
    enqueue();
    return true;
  }
  Buffer await_resume();

 private:
  friend class LoanShare;
  void enqueue() noexcept;
  static void left(Waiter& self) noexcept;
  LoanShare& share_;
  std::size_t size_;
  Buffer result_;
};

class LoanArena : public std::enable_shared_from_this<LoanArena> {
 public:
  /// At least `bytes`, in equal shares of whole pages; on huge pages if there are any. Blocks while
  /// they are allocated. Throws as ShmSegment::create does.
  LoanArena(Runtime& runtime, std::size_t bytes);
  LoanArena(const LoanArena&) = delete;

  /// The calling shard's share.
  LoanShare& here() noexcept;
  bool contains(const std::byte* bytes) const noexcept {
    return bytes >= segment_.memory() && bytes < segment_.memory() + segment_.size();
  }
  const ShmSegment& segment() const noexcept { return segment_; }
  std::size_t shares() const noexcept { return shares_.size(); }

  /// On whatever shard: links that are about to sleep ask to be woken by what comes back then.
  bool anybody_waits() const noexcept { return waiting_.load(std::memory_order_relaxed) != 0; }
  /// Of a share that lacks memory, which looks itself. The links of other shards may have lent of
  /// it: posts to each of them to look as well. Until `end_wait`.
  void begin_wait(const LoanShare& share);
  void end_wait() noexcept { waiting_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  struct Nudge;
  ShmSegment segment_;
  std::vector<std::unique_ptr<LoanShare>> shares_;
  std::atomic<std::size_t> waiting_{0};
};

}  // namespace hyperframes::net::detail
