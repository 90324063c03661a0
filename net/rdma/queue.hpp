// One end of a link's queue pair: the memory that pieces lie in, and the accounts of it.
//
//   auto queue = RdmaQueue::create(device);              // blocks; then `offer` goes to the peer
//   queue->connect(peers_offer);                         // blocks
//   if (auto room = queue->room(1000); !room.empty()) { fill(room); queue->publish(room.size()); }
//   while (const auto piece = queue->next()) { use(piece->bytes); queue->release(*piece); }
//
// There are three accounts, and each can be used up alone:
//  - the send queue: every request has a place in it, words too, until the device has completed it.
//    Only some are signalled; the completion of one is that of all before it.
//  - what the peer has posted: a piece takes one of its receives, and the peer gives that back with
//    the next thing that it sends, or by a word of its own once half of them are owed.
//  - how many bytes may be on their way, so that what is queued later can overtake what waits.
// A word without bytes needs no credit: there are a few receives more than pieces, and never more
// such words under way than that. What is written into the peer's landing (net/rdma/landing.hpp)
// counts as a piece in all of them. One shard's, from `connect` on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <hyperframes/net/rdma/device.hpp>
#include <hyperframes/net/rdma/landing.hpp>
#include <hyperframes/net/rdma/receives.hpp>
#include <hyperframes/net/rdma/setup.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/time.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace hyperframes::net::detail {

class RdmaQueue {
 public:
  /// What a message is, beside the bytes. Numbers are part of the wire protocol.
  enum class Word : std::uint8_t {
    piece = 1,   ///< The next bytes of the link.
    credit = 2,  ///< Nothing but what is given back.
    probe = 3,   ///< Whether messages get through.
    answer = 4,  ///< They do.
    begin = 5,   ///< The link's bytes follow.
    // With bytes, but for the first; these count as pieces.
    ask = 6,       ///< Whether there is a landing.
    landing = 7,   ///< Where it is, and how large; 0 bytes: there is none.
    returned = 8,  ///< The offsets there of what the peer has done with.
  };
  struct Arrival {
    Word word;
    std::span<const std::byte> bytes;
    std::uint32_t slot;
    /// Where in the landing they are, if they are there.
    std::optional<std::uint32_t> landed = {};
  };

  /// What the number of a request to receive has beside its slot.
  static constexpr std::uint64_t receive_bit = std::uint64_t{1} << 63;

  /// For a link of that core shard. Throws what keeps the device from having one more pair, with
  /// the limit that it ran into.
  static std::unique_ptr<RdmaQueue> create(std::shared_ptr<RdmaDevice> device, unsigned shard = 0);
  /// The device has let go of all memory when this returns.
  ~RdmaQueue();
  RdmaQueue(const RdmaQueue&) = delete;

  RdmaOffer offer() const;
  /// Throws if the peer's pair can't be reached from this port, and the system's error.
  void connect(const RdmaOffer& peer);
  const std::string& peer_name() const noexcept { return peer_; }
  void name_peer(std::string peer) { peer_ = std::move(peer); }
  std::string description() const { return device_->to_string(); }

  /// Most bytes of pieces that are on their way; 0: as many as there is memory for.
  void limit(std::size_t bytes) noexcept { limit_ = bytes; }
  /// Where the next bytes go, at most a piece; empty if an account is used up, or it has failed.
  std::span<std::byte> room(std::size_t wanted) noexcept;
  bool has_room() const noexcept { return !failure_ && joined_ && can_send_piece(); }
  /// Sends so many bytes of the room given last.
  void publish(std::size_t size) noexcept { publish(Word::piece, size); }

  /// Whether the peer has a landing.
  bool lands() const noexcept { return map_.bytes() != 0; }
  /// A place there for the first bytes of the room given last; it is to be used.
  std::optional<LandingMap::Place> place(std::size_t wanted, bool goes_on) {
    return map_.take(static_cast<std::uint32_t>(wanted), goes_on);
  }
  /// Writes that many bytes of the room there.
  void publish_at(const LandingMap::Place& place) noexcept;
  /// Asks for a landing, unless that was done and is not to be tried again yet.
  void ask_for_landing() noexcept;
  /// The answer; null: there is none. False: there is no room for it at the moment.
  bool answer(std::shared_ptr<RdmaDevice::Landing> landing) noexcept;
  /// Tells the peer what may be written over again, as much of it as there is room for.
  void give_back_places(std::vector<std::uint32_t>& offsets) noexcept;
  /// False: it has failed, or there is no place for it in the send queue at the moment.
  bool say(Word word, bool signalled = false) noexcept;

  /// The next piece or word that came; nothing if there is none, or it has failed. What is no more
  /// than credit is taken in here.
  std::optional<Arrival> next() noexcept;
  /// Its memory may be used again.
  void release(const Arrival& arrival) noexcept;
  /// Tells the peer what it may send again, if that is much. True: it was told.
  bool give_back() noexcept;

  // How a shard sleeps on it; see runtime/poller.hpp.
  int descriptor() const noexcept { return completions_->descriptor(); }
  /// Has the next completion make an event, then looks whether one came before that.
  void arm() noexcept;
  bool ready() const noexcept { return stash_at_ < stash_count_ || failure_.has_value(); }
  void take_events() noexcept {
    completions_->take_events();
    armed_ = false;
  }

  /// Why it moves nothing any more; it stays so.
  const std::optional<Error>& failure() const noexcept { return failure_; }
  /// Sent and not completed, as far as that is known.
  std::uint32_t sends_in_flight() const noexcept {
    return static_cast<std::uint32_t>(sent_ - completed_);
  }
  /// From here on nothing is sent, and all that is posted comes back.
  void end() noexcept;
  /// After `end`: takes in what came back. True: all has.
  bool is_drained() noexcept;

 private:
  static constexpr std::uint32_t inline_wanted = 220;

  explicit RdmaQueue(std::shared_ptr<RdmaDevice> device);
  std::span<std::byte> send_slot(std::uint64_t number) const noexcept;
  std::span<std::byte> receive_slot(std::uint32_t slot) const noexcept;
  bool can_send_piece() const noexcept;
  bool must_signal(std::size_t size, bool is_piece) const noexcept;
  void publish(Word word, std::size_t size) noexcept;
  bool post(std::uint32_t immediate, std::size_t size, bool signalled,
            std::optional<VerbsTarget> into) noexcept;
  std::uint32_t take_owed(Word word) noexcept {
    return static_cast<std::uint32_t>(word) | std::exchange(owed_, 0) << 16;
  }
  void post_receive(std::uint32_t slot) noexcept;
  void return_shared(std::uint32_t slot) noexcept;
  void fill_stash() noexcept;
  void count_sent(std::uint64_t number) noexcept;
  std::optional<Arrival> take_in(const VerbsCompletion& completion) noexcept;
  std::optional<Arrival> take_received(const VerbsCompletion& completion,
                                       std::uint32_t slot) noexcept;
  std::optional<Arrival> take_landed(const VerbsCompletion& completion,
                                     std::uint32_t slot) noexcept;
  void take_landing(std::span<const std::byte> bytes) noexcept;
  void take_returned(std::span<const std::byte> bytes) noexcept;
  bool take_credit(std::uint32_t immediate) noexcept;
  void note_failure(const VerbsCompletion& completion) noexcept;
  void corrupt(std::string found) noexcept;
  void fail(Error error) noexcept {
    if (!failure_) failure_ = std::move(error);
  }

  std::shared_ptr<RdmaDevice> device_;
  RdmaDevice::Lease memory_;          ///< To send from.
  RdmaDevice::Lease receive_memory_;  ///< Empty if its receives are shared.
  std::shared_ptr<RdmaReceives> shared_;
  std::shared_ptr<VerbsCompletions> completions_;
  std::unique_ptr<VerbsPair> pair_;
  std::string peer_;
  std::uint32_t sequence_ = 0;  ///< Of its first packet.
  std::uint32_t piece_bytes_;   ///< Here; of what is sent, the smaller of both ends'.
  std::uint32_t requests_;      ///< Of each queue.
  std::size_t limit_ = 0;
  bool joined_ = false;

  // Sending. Requests are numbered from 0; those below `completed_` are.
  std::uint64_t sent_ = 0, completed_ = 0;
  std::vector<std::uint32_t> sizes_;
  std::size_t bytes_in_flight_ = 0, unsignalled_bytes_ = 0;
  std::uint32_t unsignalled_ = 0;
  std::uint32_t send_bytes_ = 0;
  std::uint32_t credit_ = 0, most_credit_ = 0;
  LandingMap map_;
  VerbsTarget peer_landing_;
  bool asked_ = false;
  Time ask_again_{};

  // Receiving.
  std::uint32_t posted_ = 0;  ///< Of its own.
  unsigned empty_looks_ = 0;  ///< Since it was ended.
  std::uint32_t owed_ = 0;    ///< Pieces taken of which the peer was not told.
  std::shared_ptr<RdmaDevice::Landing> landing_;
  bool was_asked_ = false;
  std::array<VerbsCompletion, 32> stash_;
  std::size_t stash_at_ = 0, stash_count_ = 0;
  bool armed_ = false;
  std::optional<Error> failure_;
};

}  // namespace hyperframes::net::detail
