// What waits for messages of other processes, under numbers that go with the messages.
//
//   SlotTable<Letter> asks;
//   const std::uint64_t number = asks.add(letter);
//   if (Letter* letter = asks.find(number)) asks.remove(letter_slot);
//
// A number is a slot and how often it was taken before, so one that comes late finds nothing rather
// than another's entry. It never comes back: a slot whose numbers are used up is taken no more. At
// ten million a second that is 16 bytes every 1.7 s, and the slots last for years.
#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

namespace hyperframes::detail {

template <class Entry, int generation_bits = 24>
class SlotTable {
 public:
  static constexpr int slot_bits = 28, bits = slot_bits + generation_bits;

  /// Never 0. `entry` outlives its place here.
  std::uint64_t add(Entry& entry) {
    if (free_.empty()) {
      assert(places_.size() < (std::size_t{1} << slot_bits));
      places_.emplace_back();
      free_.push_back(static_cast<std::uint32_t>(places_.size() - 1));
    }
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    places_[slot].entry = &entry;
    ++size_;
    return std::uint64_t{places_[slot].generation} << slot_bits | slot;
  }

  /// Null if there is none, or not any more. What lies above the number's bits is ignored.
  Entry* find(std::uint64_t number) const noexcept {
    const std::uint32_t slot = slot_of(number);
    const auto generation = static_cast<std::uint32_t>(number >> slot_bits) & last_generation;
    if (slot >= places_.size() || places_[slot].generation != generation) return nullptr;
    return places_[slot].entry;
  }

  void remove(std::uint32_t slot) noexcept {
    Place& place = places_[slot];
    assert(place.entry);
    place.entry = nullptr;
    --size_;
    if (place.generation++ < last_generation) free_.push_back(slot);
  }

  static std::uint32_t slot_of(std::uint64_t number) noexcept {
    return static_cast<std::uint32_t>(number & ((1u << slot_bits) - 1));
  }

  std::size_t size() const noexcept { return size_; }
  /// `visit(entry)` may remove it, and add others.
  template <class Visit>
  void for_each(Visit&& visit) {
    for (std::size_t slot = 0; slot < places_.size(); ++slot)
      if (places_[slot].entry) visit(*places_[slot].entry);
  }

 private:
  static constexpr std::uint32_t last_generation = (1u << generation_bits) - 1;
  struct Place {
    Entry* entry = nullptr;
    std::uint32_t generation = 1;
  };
  std::vector<Place> places_;
  std::vector<std::uint32_t> free_;  ///< The one that was left last goes first.
  std::size_t size_ = 0;
};

}  // namespace hyperframes::detail
