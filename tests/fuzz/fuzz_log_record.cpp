// Any bytes as a log segment: the scan ends cleanly or calls them corrupt, and what it hands out
// replays or is refused. An odd first byte puts right checksums in, so that the contents are
// reached.
#include <hyperframes/apps/ps/log_record.hpp>
#include <hyperframes/apps/ps/table_state.hpp>
#include <hyperframes/runtime/crc32c.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ps = hyperframes::ps;

namespace {

ps::TableSpec spec() {
  ps::TableSpec spec;
  spec.name = "fuzz";
  spec.width = 2;
  return spec;
}

void seal(std::span<std::byte> bytes) {
  using ps::detail::load;
  using ps::detail::store;
  if (bytes.size() < ps::segment_header_bytes) return;
  constexpr std::size_t sum_at = ps::segment_header_bytes - 4;
  store<std::uint32_t>(bytes.data() + sum_at, hyperframes::crc32c(bytes.first(sum_at)));
  for (auto rest = bytes.subspan(ps::segment_header_bytes);
       rest.size() >= ps::record_header_bytes;) {
    const auto length = load<std::uint32_t>(rest.data());
    if (length < ps::record_header_bytes || length > rest.size()) return;
    store<std::uint32_t>(rest.data() + 4, hyperframes::crc32c(rest.subspan(8, length - 8)));
    rest = rest.subspan(length);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto from = std::as_bytes(std::span(data + 1, size - 1));
  std::vector<std::byte> bytes(from.begin(), from.end());
  if (data[0] & 1) seal(bytes);
  ps::TableState state(spec(), {100, 200, 300, 400});
  try {
    ps::scan_segment(
        bytes,
        [&](std::span<const std::byte> record) {
          try {
            state.replay(record);
          } catch (const hf::Error&) {
          }
        },
        "fuzz");
  } catch (const hf::Error&) {
  }
  return 0;
}
