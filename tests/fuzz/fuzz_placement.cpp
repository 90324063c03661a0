// Any bytes as a placement map: refused, or a map that is whole and encodes to the same bytes. An
// odd first byte puts the right checksum in, so that the contents are reached.
#include <hyperframes/apps/ps/bytes.hpp>
#include <hyperframes/apps/ps/slots.hpp>
#include <hyperframes/runtime/crc32c.hpp>
#include <hyperframes/runtime/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace ps = hyperframes::ps;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto from = std::as_bytes(std::span(data + 1, size - 1));
  std::vector<std::byte> bytes(from.begin(), from.end());
  if ((data[0] & 1) && bytes.size() >= 4) {
    const std::size_t sum_at = bytes.size() - 4;
    ps::detail::store<std::uint32_t>(bytes.data() + sum_at,
                                     hyperframes::crc32c(std::span(bytes).first(sum_at)));
  }
  try {
    const ps::PlacementMap map = ps::PlacementMap::decode(bytes);
    std::size_t slots = 0;
    for (std::size_t shard = 0; shard < map.shard_count(); ++shard) {
      slots += map.slots_of(static_cast<ps::ShardId>(shard)).size();
      if (map.node_of(static_cast<ps::ShardId>(shard)) == 0) std::abort();
    }
    if (slots != ps::slot_count || map.encode() != bytes) std::abort();
  } catch (const hyperframes::Error&) {
  }
  return 0;
}
