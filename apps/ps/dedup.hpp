// Which pushes were applied already: what makes a push that is sent again harmless.
//
//   hf::ps::DedupWindow window(places);                    // one place a hash slot
//   auto seen = window.find(key);                          // once a push
//   if (seen.at(place) == hf::ps::DedupWindow::Verdict::fresh) window.mark(key, place);
//
// The answer is exact for every key that may still be sent, in bounded memory:
//
// Leased keys (epoch, unit, batch): a set of batches for each open unit, 64 batches to a word. The
// coordinator's watermark says which units are finished, that is, acknowledged everywhere: they are
// forgotten, and whatever still comes for them was applied. A unit is open from its first push
// until the watermark passes it, so the number of open units is what the staleness bound lets
// workers run ahead of the slowest one; beyond `max_blocks` words a push is refused before it takes
// effect. Words are kept for all places together: 8 bytes a place.
//
// Client keys (client, incarnation, sequence): a client sends sequence s only once all below
// s - 255 are acknowledged, and counts anew only with a higher incarnation. So a mark of 256 bits
// below the highest sequence seen is enough: what lies below it was applied. 48 bytes a place and
// client, at most `max_clients`; a client that is known to be gone is forgotten by name.
//
// A place's part is encoded and moves with its slot. Nothing but the watermark is common to places:
// a fuzzy snapshot takes them at different times. One thread at a time.
#pragma once

#include <hyperframes/apps/ps/bytes.hpp>
#include <hyperframes/apps/ps/push_key.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace hyperframes::ps {

/// A unit's place in the order that the coordinator's watermark follows. A lease's `forget_before`,
/// which is a unit's number in its job, becomes one by JobDefinition::unit_at.
constexpr std::uint64_t unit_order(std::uint32_t epoch, std::uint32_t unit) noexcept {
  return std::uint64_t{epoch} << 32 | unit;
}

class DedupWindow {
 public:
  static constexpr std::uint64_t client_window = 256;
  static constexpr std::size_t max_blocks = 4096;
  static constexpr std::size_t max_clients = 1024;

  enum class Verdict : std::uint8_t {
    fresh,      ///< Not applied at this place.
    duplicate,  ///< Applied.
    stale,      ///< From an incarnation of the client that a newer one has replaced: refuse it.
  };

 private:
  struct Block {  // 64 batches of a unit, a word for each place
    std::uint64_t order;
    std::uint32_t block;
    std::unique_ptr<std::uint64_t[]> words;
  };
  struct Mark {
    std::uint64_t incarnation = 0;
    std::uint64_t low = 0;                                 // sequences below were applied
    std::array<std::uint64_t, client_window / 64> seen{};  // sequence s: bit s mod 256
    friend bool operator==(const Mark&, const Mark&) = default;
  };
  struct Client {
    std::uint64_t client;
    std::vector<Mark> marks;  // by place
  };

 public:
  explicit DedupWindow(std::size_t places) : places_(places) {}

  /// What is known of one key; valid until the window changes.
  class Seen {
   public:
    Verdict at(std::size_t place) const noexcept;

   private:
    friend DedupWindow;
    Verdict everywhere_ = Verdict::fresh;
    const std::uint64_t* words_ = nullptr;
    std::uint64_t bit_ = 0;  // of a word
    std::uint64_t incarnation_ = 0, sequence_ = 0;
    const Mark* marks_ = nullptr;
  };
  Seen find(const PushKey& key) const noexcept;
  /// Throws `exhausted` if a mark of `key` would need more memory than allowed. Call it before the
  /// push takes effect; mark() then succeeds.
  void check_room(const PushKey& key) const;
  /// Notes that `key` was applied at `place`. Again, or when it is forgotten already, it changes
  /// nothing: so a replay may run over what a snapshot holds.
  void mark(const PushKey& key, std::size_t place);

  /// Every unit below `order` is finished. Only ever rises.
  void forget_units_before(std::uint64_t order) noexcept;
  std::uint64_t forgotten_before() const noexcept { return forgotten_before_; }
  void forget_client(std::uint64_t client) noexcept;

  /// A place's part. Equal parts encode to equal bytes.
  void encode(std::size_t place, Bytes& out) const;
  /// Adds a part to what is known, and returns the watermark that it was encoded with. Raise this
  /// one to it unless older records are yet to be replayed at other places: they would look
  /// applied. Throws `corrupt`, or `exhausted` beyond twice the limits.
  std::uint64_t decode(std::size_t place, std::span<const std::byte> bytes);
  void clear(std::size_t place) noexcept;

  std::size_t blocks() const noexcept { return blocks_.size(); }
  std::size_t clients() const noexcept { return clients_.size(); }
  std::size_t memory_bytes() const noexcept;

 private:
  std::size_t block_at(std::uint64_t order, std::uint32_t block) const noexcept;
  std::size_t client_at(std::uint64_t client) const noexcept;
  std::uint64_t* words_of(std::uint64_t order, std::uint32_t block);
  Mark& mark_of(std::uint64_t client, std::size_t place);
  static void check_decoded(std::size_t count, std::size_t limit);
  static void begin_incarnation(Mark& mark, std::uint64_t incarnation) noexcept;
  static void mark_sequence(Mark& mark, std::uint64_t sequence) noexcept;
  static void raise_low(Mark& mark, std::uint64_t low) noexcept;

  std::size_t places_;
  std::uint64_t forgotten_before_ = 0;
  std::vector<Block> blocks_;    // ascending by (order, block)
  std::vector<Client> clients_;  // ascending by client
};

}  // namespace hyperframes::ps
