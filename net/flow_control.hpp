// Who may send how much: so that receiving never stops for lack of memory.
//
//   auto budget = std::make_shared<hf::net::ReceiveBudget>(128u << 20);    // one a shard
//   auto account = hf::net::ReceiveAccount::open(budget, owner);           // one a link
//   hf::Buffer memory = account->allocate(charge, cost, size);   // its end gives the credit back
//
// For links (programs set Network::Options::receive_budget_bytes). All sizes are bytes; all of it
// is one shard's, and only buffers may end elsewhere.
//
// A receiver reserves a window for each lane and lends it to the peer as credit. A message takes
// its cost from it when it is sent, and the credit returns when the receiver has destroyed the last
// buffer that holds a part of it. A message too large for half the window is announced instead,
// and granted as a whole once the shard's budget has room for it. Answers have a reserve of
// their own: an ask takes the room of its answer from it before it leaves, so an answer never
// waits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <hyperframes/net/frame.hpp>
#include <hyperframes/net/lane.hpp>
#include <hyperframes/net/message.hpp>
#include <hyperframes/runtime/buffer.hpp>
#include <hyperframes/runtime/detail/list.hpp>
#include <memory>
#include <utility>

namespace hyperframes::net {

/// What a message of `total` bytes takes from credit and budget.
constexpr std::uint64_t credit_cost(std::uint64_t total) noexcept {
  return wire::align_part(total) + FrameHeader::size;
}

/// The bytes that one shard lends to all of its peers together. It outlives, or shares the life of,
/// the accounts and those who wait.
class ReceiveBudget {
 public:
  explicit ReceiveBudget(std::uint64_t bytes) noexcept : total_(bytes), free_(bytes) {}
  ReceiveBudget(const ReceiveBudget&) = delete;
  ReceiveBudget& operator=(const ReceiveBudget&) = delete;

  /// Waits its turn for `bytes`.
  class Waiting : public hyperframes::detail::ListNode {
   public:
    std::uint64_t bytes = 0;
    /// The bytes are taken. Runs inside whatever gave them back: keep it short.
    virtual void on_granted() noexcept = 0;

   protected:
    ~Waiting() = default;
  };

  std::uint64_t total() const noexcept { return total_; }
  std::uint64_t free() const noexcept { return free_; }
  /// At most this can be granted to one message. Windows leave three quarters for grants, unless
  /// there are very many links.
  std::uint64_t largest_grant() const noexcept { return total_ - std::max(windows_, total_ / 4); }
  /// What of the quarter for windows is left.
  std::uint64_t free_for_windows() const noexcept {
    return std::min(free_, windows_ < total_ / 4 ? total_ / 4 - windows_ : 0);
  }
  /// Takes them for a link's windows; false if so many are not free.
  bool open_windows(std::uint64_t bytes) noexcept;
  /// `unused` of their bytes are free at once, the others as they are given back.
  void close_windows(std::uint64_t bytes, std::uint64_t unused) noexcept;

  /// False, and none taken, if so many are not free. Does not look at who waits.
  [[nodiscard]] bool try_take(std::uint64_t bytes) noexcept;
  /// Somebody waits.
  bool is_contended() const noexcept { return !waiting_.empty(); }
  /// First come, first served. May grant at once.
  void wait(Waiting& waiting) noexcept;
  /// It waits no longer, and those behind it may go on.
  void forget(Waiting& waiting) noexcept;
  /// May grant what others wait for, before it returns.
  void give_back(std::uint64_t bytes) noexcept;

 private:
  void serve() noexcept;

  std::uint64_t total_, free_, windows_ = 0;
  hyperframes::detail::List<Waiting> waiting_;
  bool listening_ = false;  ///< This shard is woken for released memory.
};

/// The receiving side of one link: its windows, and what of them is in use. Outlives the link
/// while buffers of its messages exist. All on one shard.
class ReceiveAccount {
 public:
  class Owner {
   public:
    /// Enough credit has come back to be worth a frame.
    virtual void on_credit_owed() noexcept = 0;
    /// Room for answers came back.
    virtual void on_reply_room() noexcept = 0;

   protected:
    ~Owner() = default;
  };
  /// What a received message was charged to.
  enum class Charge : std::uint8_t { control, normal, bulk, granted, reply };
  /// For a message that came on the lane's own credit.
  static Charge charge_of(Lane lane) noexcept { return static_cast<Charge>(lane); }

  /// Shared ownership, counted without atomics: on its shard only.
  class Reference {
   public:
    Reference() noexcept = default;
    explicit Reference(ReceiveAccount* account) noexcept : account_(account) {
      if (account_) ++account_->references_;
    }
    Reference(Reference&& other) noexcept : account_(std::exchange(other.account_, nullptr)) {}
    Reference& operator=(Reference other) noexcept {
      std::swap(account_, other.account_);
      return *this;
    }
    ~Reference() {
      if (account_ && --account_->references_ == 0) delete account_;
    }
    ReceiveAccount* operator->() const noexcept { return account_; }

   private:
    ReceiveAccount* account_ = nullptr;
  };

  /// What the windows of one link take at least.
  static std::uint64_t least_windows() noexcept;
  /// Whether the budget has room for the windows of one more link, and the error if not.
  static bool is_possible(const ReceiveBudget& budget) noexcept;
  static Error no_memory(const ReceiveBudget& budget);
  /// Takes windows from the budget: generous while that has much, small when it has little. Throws
  /// what `no_memory` returns if it is not `is_possible`. `owner` is called until `close`.
  static Reference open(std::shared_ptr<ReceiveBudget> budget, Owner& owner);
  /// The link is gone: what is not in use returns to the budget now, the rest as it is destroyed.
  void close() noexcept;

  std::uint64_t window(Lane lane) const noexcept { return lane_of(lane).window; }
  std::uint64_t used(Lane lane) const noexcept { return lane_of(lane).used; }
  /// What is charged and not destroyed yet, of all lanes.
  std::uint64_t held() const noexcept { return held_; }

  /// A message of that cost arrives on the lane's credit. False: the peer had no such credit.
  [[nodiscard]] bool charge(Lane lane, std::uint64_t cost) noexcept;
  /// What was just charged to the lane becomes the budget's, if that has so much beside what it
  /// keeps for windows; the lane's credit goes back at once. Returns whose it is now.
  Charge move_to_budget(Lane lane, std::uint64_t cost) noexcept;
  /// Credit to be returned to the peer on that lane; 0 while it is not worth a frame, unless `all`
  /// is asked for: a peer may wait for just that little.
  std::uint64_t take_owed(Lane lane, bool all = false) noexcept;

  std::uint64_t reply_window() const noexcept { return reply_window_; }
  std::uint32_t largest_reply_room() const noexcept;
  bool has_reply_room(std::uint32_t room) const noexcept {
    return credit_cost(room) <= reply_free_;
  }
  /// Reserves the room of one answer. False: an ask has to wait.
  bool promise_reply(std::uint32_t room) noexcept;
  /// Undoes a promise whose ask did not leave.
  void unpromise_reply(std::uint32_t room) noexcept;
  /// An answer of `total` bytes begins to arrive in promised room. False: none was promised.
  bool begin_reply(std::uint64_t total) noexcept;
  /// It is complete, and says which room was its own: what it did not need is free again.
  bool finish_reply(std::uint32_t room, std::uint64_t total) noexcept;
  /// An answer came, but on the lane's credit: its room is free again.
  bool release_reply(std::uint32_t room) noexcept;
  std::uint64_t promised() const noexcept { return promised_; }

  /// Memory for a received message, on a 64-byte boundary. What is charged returns when the last
  /// buffer that shares it is destroyed, wherever that is. Never fails for lack of quota: all of it
  /// was reserved.
  Buffer allocate(Charge charge, std::uint64_t cost, std::size_t size);

 private:
  struct Block;
  struct LaneWindow {
    std::uint64_t window = 0, used = 0, owed = 0;
  };
  ReceiveAccount(std::shared_ptr<ReceiveBudget> budget, Owner& owner) noexcept
      : budget_(std::move(budget)), owner_(&owner) {}
  ~ReceiveAccount() = default;
  LaneWindow& lane_of(Lane lane) noexcept { return lanes_[static_cast<std::size_t>(lane)]; }
  const LaneWindow& lane_of(Lane lane) const noexcept {
    return lanes_[static_cast<std::size_t>(lane)];
  }
  void give_back(Charge charge, std::uint64_t cost) noexcept;
  /// Has this shard woken for released memory while much of what was lent is in use: buffers
  /// may be released on other shards, and the peer may wait for the credit.
  void listen() noexcept;

  std::shared_ptr<ReceiveBudget> budget_;
  Owner* owner_;
  LaneWindow lanes_[lane_count];
  std::uint64_t reply_window_ = 0, reply_free_ = 0, promised_ = 0, window_sum_ = 0;
  std::uint64_t held_ = 0;
  std::uint32_t references_ = 0;
  bool listening_ = false;
};

}  // namespace hyperframes::net
