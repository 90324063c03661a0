// Receives that the links of a core shard have in common, so that memory does not grow with links
// that mostly wait.
//
//   auto receives = device->receives(shard_index);   // null: this device can't share them
//   receives->join();                                // one more link takes from them
//   receives->post(slot);                            // again, once what came was taken
//
// Each link that joins adds what it may be sent, up to a limit; from then on they rely on each
// other's silence. Should all come at once, so that nothing is posted, the senders' devices ask
// again until something is: that costs time, and no link. From any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hyperframes/net/rdma/device.hpp>
#include <memory>
#include <mutex>
#include <span>

namespace hyperframes::net::detail {

class RdmaReceives {
 public:
  /// Throws what keeps the device from having such a queue.
  explicit RdmaReceives(const std::shared_ptr<RdmaDevice>& device);
  ~RdmaReceives();
  RdmaReceives(const RdmaReceives&) = delete;

  /// May block. Throws as RdmaDevice::lease does, if nobody has joined before.
  void join();
  void leave() noexcept;
  std::shared_ptr<VerbsReceives> verbs() const noexcept { return queue_; }
  std::span<std::byte> memory(std::uint32_t slot) const noexcept;
  /// The number of the system if it is refused.
  int post(std::uint32_t slot) noexcept;
  /// How many there are; for tests.
  std::uint32_t count() const;

 private:
  bool add();

  const std::weak_ptr<RdmaDevice> device_;
  const std::uint32_t piece_bytes_, of_a_link_, most_chunks_;
  std::unique_ptr<RdmaDevice::Lease[]> chunks_;  ///< Of `of_a_link_` slots each.
  std::shared_ptr<VerbsReceives> queue_;         // gone before the memory
  mutable std::mutex mutex_;
  std::uint32_t chunk_count_ = 0, links_ = 0;
};

}  // namespace hyperframes::net::detail
