// The channels that one core shard has with one peer, and what both have told each other: the names
// of types, and the keys of metadata.
//
//   auto peer = std::make_shared<ChannelPeer>(shard, session, options, odd);
//   ChannelRef state = peer->begin_open();
//   peer->on_message(lane, std::move(message));     // what came by the session
//
// What a peer sends is checked here. A fault ends the session with it, and nothing else. What this
// side owes in return is sent from the shard's queue, one word after the other, so that it waits
// where the session makes it wait. All on one shard.
#pragma once

#include <cstdint>
#include <deque>
#include <hyperframes/net/channel/state.hpp>
#include <hyperframes/net/session.hpp>
#include <hyperframes/runtime/detail/work.hpp>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace hyperframes::net::detail {

/// What a Messenger was told, for all of its shards.
struct ChannelOptions {
  std::vector<std::string> keys;  ///< Sorted.
  std::uint64_t window_bytes = 0;
  std::size_t max_channels = 0;
  Duration report_unmatched_after{0};
};

/// Types that one peer may name, and be told.
inline constexpr std::size_t most_types = 4096;

class ChannelPeer : public std::enable_shared_from_this<ChannelPeer> {
 public:
  /// Whom it tells of channels that the peer opened.
  class Owner {
   public:
    virtual Task<ChannelRef> open(SessionRef session, Time deadline) = 0;
    virtual bool may_open() const noexcept = 0;
    virtual void on_opened(ChannelRef channel) noexcept = 0;

   protected:
    ~Owner() = default;
  };

  /// `odd`: the numbers that this side gives are; the other side's are even.
  ChannelPeer(Owner& owner, SessionRef session, std::shared_ptr<const ChannelOptions> options,
              bool odd);
  ~ChannelPeer();
  ChannelPeer(const ChannelPeer&) = delete;

  const std::shared_ptr<const ChannelOptions>& options() const noexcept { return options_; }
  Owner& owner() const noexcept { return owner_; }

  /// A channel that will be open once the peer has accepted it.
  ChannelRef begin_open();
  void on_message(Lane lane, Message message) noexcept;
  void went_down(const Error& reason) noexcept;

  // For its channels.
  /// The keys that the peer declares; null before it has said so.
  const std::vector<std::string>* keys() const noexcept { return keys_.get(); }
  bool has_told(std::uint32_t link, Lane lane, const MessageType& type) const noexcept;
  void tell(std::uint32_t link, Lane lane, const MessageType& type);
  /// Why one more type can't be used; empty: it can.
  std::string type_fault(const MessageType& type) const;
  /// Sends soon what that channel owes, if it does.
  void owe(ChannelState& state) noexcept;

 private:
  /// A name that goes along once on each lane of each link, since only there an order holds.
  struct Told {
    std::uint64_t type;
    std::uint32_t link;
    Lane lane;
    friend bool operator==(const Told&, const Told&) = default;
  };
  struct HashOfTold {
    std::size_t operator()(const Told& told) const noexcept {
      return told.type ^
             (std::uint64_t{told.link} * lane_count + static_cast<std::size_t>(told.lane)) *
                 0x9e3779b97f4a7c15u;
    }
  };
  struct Refusal {
    std::uint32_t link, number;
    std::string text;
  };
  struct Flush : hyperframes::detail::Work {
    explicit Flush(ChannelPeer& peer) noexcept : Work(&Flush::go), peer(peer) {}
    static void go(hyperframes::detail::Work* work) noexcept;
    ChannelPeer& peer;
    bool queued = false;
  };
  static constexpr std::size_t most_refusals = 1024;

  void broken(const std::string& found, const char* remedy) noexcept;
  std::string obey(Lane lane, Message& message);
  std::string on_open(const Message& message);
  std::string on_accepted(ChannelState& state, const Message& message);
  std::string on_refused(ChannelState& state, const Message& message);
  std::string on_data(ChannelState& state, Lane lane, Message& message);
  std::string on_close(ChannelState& state, const Message& message);
  std::string read_opening(const Message& message);
  std::string read_type(TypedMessage& into, const Message& message);
  void forget(ChannelState& state) noexcept;
  void forget_if_over(ChannelState& state) noexcept;

  /// The next word that is owed to the peer; false: none.
  bool next_word(Message& word);
  void flush() noexcept;
  void schedule() noexcept;
  static Task<void> pump(std::shared_ptr<ChannelPeer> self, Message word);

  Owner& owner_;
  SessionRef session_;
  std::shared_ptr<const ChannelOptions> options_;
  const std::uint32_t parity_;
  std::uint32_t next_number_;
  bool down_ = false;
  std::unordered_map<std::uint64_t, ChannelRef> channels_;
  std::size_t opened_by_peer_ = 0;

  std::shared_ptr<const std::vector<std::string>> keys_;
  std::unordered_map<std::uint64_t, MessageType> types_;  ///< That the peer has named.
  std::unordered_set<Told, HashOfTold> told_;
  std::unordered_set<std::uint64_t> types_told_;

  hyperframes::detail::List<ChannelState::Owing> owing_;
  std::deque<Refusal> refusals_;
  Flush flush_{*this};
  bool pumping_ = false;
};

}  // namespace hyperframes::net::detail
