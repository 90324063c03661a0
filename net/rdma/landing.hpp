// Memory that a peer writes into itself: which of it is free, and what becomes of what landed.
//
//   LandingMap map(64u << 20);                                // at the end that writes
//   const auto place = map.take(16u << 10, false);            // later: map.give_back(place->offset)
//   Buffer piece = landed->lend(place->offset, place->size);  // at the end whose memory it is
//
// The end whose memory it is tells where it lies, and from then on the other one says what goes
// where. What lies side by side at one end then does so at the other: so a large segment that went
// in many requests is one piece of memory when it has arrived, and was never moved there. It is the
// peer's to write to until its last buffer has ended and the peer was told. A map is one shard's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hyperframes/net/rdma/device.hpp>
#include <hyperframes/runtime/buffer.hpp>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace hyperframes::net::detail {

/// Which of a peer's memory is in use by what this end wrote there.
class LandingMap {
 public:
  struct Place {
    std::uint32_t offset = 0, size = 0;
  };

  LandingMap() = default;
  explicit LandingMap(std::uint32_t bytes) : bytes_(bytes) { free_.emplace(0u, bytes); }

  std::uint32_t bytes() const noexcept { return bytes_; }
  std::size_t places_out() const noexcept { return out_.size(); }
  /// At most `wanted` bytes, above 0: right behind what was taken last if `goes_on` and that is
  /// free, else where most is free, on a multiple of 64. Nothing: there is too little to be worth
  /// it, which is less than `wanted` and than 4 KiB.
  std::optional<Place> take(std::uint32_t wanted, bool goes_on);
  /// False: nothing begins there that is out.
  bool give_back(std::uint32_t offset);

 private:
  Place cut(std::map<std::uint32_t, std::uint32_t>::iterator run, std::uint32_t offset,
            std::uint32_t size);

  std::uint32_t bytes_ = 0;
  std::uint32_t next_ = 0;                       ///< Behind what was taken last.
  std::map<std::uint32_t, std::uint32_t> free_;  ///< Size by offset; no two adjoin.
  std::unordered_map<std::uint32_t, std::uint32_t> out_;
};

/// What landed here, on the shard of the link, and has not gone back.
class Landed : public std::enable_shared_from_this<Landed> {
 public:
  explicit Landed(std::shared_ptr<RdmaDevice::Landing> memory) noexcept
      : memory_(std::move(memory)) {}

  const RdmaDevice::Landing& memory() const noexcept { return *memory_; }
  /// That lies within the memory. May outlive the link; keeps the memory.
  Buffer lend(std::uint32_t offset, std::uint32_t size);
  /// Offsets of what nobody has any more; taken out by who tells the peer.
  std::vector<std::uint32_t>& returned() noexcept { return returned_; }
  std::size_t lent() const noexcept { return lent_; }

 private:
  struct Loan;
  std::shared_ptr<RdmaDevice::Landing> memory_;
  std::vector<std::uint32_t> returned_;
  std::size_t lent_ = 0;
};

}  // namespace hyperframes::net::detail
