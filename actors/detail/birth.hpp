// What a supervisor is told of a child's beginning, by whoever makes it.
#pragma once

#include <hyperframes/actors/detail/cell.hpp>
#include <memory>
#include <utility>

namespace hyperframes::detail {

struct Child;

/// Travels with the request for a child, to its shard, and sends word from there exactly once: who
/// it is, before it starts, or that there is none. So its supervisor can end it, and wait for it,
/// when whoever asked for it is gone.
class Birth {
 public:
  Birth() noexcept = default;
  Birth(Address parent, std::weak_ptr<Child> place) noexcept
      : parent_(parent), place_(std::move(place)) {}
  Birth(Birth&& other) noexcept { *this = std::move(other); }
  Birth& operator=(Birth&& other) noexcept {
    std::swap(parent_, other.parent_);
    place_.swap(other.place_);
    return *this;
  }
  /// If there was no word yet: that there will be no child.
  ~Birth();
  /// On the child's shard. What is told of it later comes after this.
  void announce(Address child) noexcept;

 private:
  void tell(NodeShard& from, Address child) noexcept;
  Address parent_{};
  std::weak_ptr<Child> place_;  ///< Of the parent's shard; read nowhere else.
};

}  // namespace hyperframes::detail
