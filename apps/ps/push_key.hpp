// What makes a push the same push when it is sent again.
//
//   auto key = hf::ps::PushKey::leased(epoch, unit, batch);       // whoever works on that unit
//   auto own = hf::ps::PushKey::of_client(client, incarnation, sequence);
//
// Leased work units have frozen batch boundaries, so a worker that restarts, or another that takes
// over, uses the same keys. A client's own keys cover retries and a server's failover, but not the
// client's own restart: then it is another incarnation.
#pragma once

#include <compare>
#include <cstdint>

namespace hyperframes::ps {

struct PushKey {
  std::uint32_t epoch = 0;
  std::uint32_t unit = 0;
  std::uint32_t batch = 0;
  std::uint64_t client =
      0;  ///< 0: a leased unit's push; else the two below count, not those above.
  std::uint64_t incarnation = 0;
  std::uint64_t sequence = 0;

  static PushKey leased(std::uint32_t epoch, std::uint32_t unit, std::uint32_t batch) noexcept {
    PushKey key;
    key.epoch = epoch;
    key.unit = unit;
    key.batch = batch;
    return key;
  }
  static PushKey of_client(std::uint64_t client, std::uint64_t incarnation,
                           std::uint64_t sequence) noexcept {
    PushKey key;
    key.client = client;
    key.incarnation = incarnation;
    key.sequence = sequence;
    return key;
  }
  bool is_leased() const noexcept { return client == 0; }
  auto operator<=>(const PushKey&) const = default;
};

}  // namespace hyperframes::ps
