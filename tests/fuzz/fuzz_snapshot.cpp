// Any bytes as a snapshot, in pieces: it is restored or refused. An odd first byte puts right
// checksums in, so that the contents are reached; the second one gives the size of the pieces.
#include <hyperframes/apps/ps/snapshot_codec.hpp>
#include <hyperframes/apps/ps/table_state.hpp>
#include <hyperframes/runtime/crc32c.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace ps = hyperframes::ps;

namespace {

/// Makes the tables that the snapshot describes, within reason, and fills them.
class Restorer final : public ps::SnapshotVisitor {
  void header(const ps::SnapshotHeader&) override {}
  void table(const ps::TableSpec& spec, std::vector<ps::Slot> slots) override {
    state_ = std::make_unique<ps::TableState>(spec, std::move(slots));
  }
  void rows(const ps::SnapshotRows& part) override { state_->restore(part); }
  void end(const ps::SnapshotEnd&) override {
    if (state_) state_->finish_recovery();  // a snapshot may hold no table
  }
  std::unique_ptr<ps::TableState> state_;
};

void seal(std::span<std::byte> bytes) {
  using ps::detail::load;
  using ps::detail::store;
  constexpr std::size_t header = 64, head = 16;
  if (bytes.size() < header) return;
  std::uint32_t sum = hyperframes::crc32c(bytes.first(header - 4));
  store<std::uint32_t>(bytes.data() + header - 4, sum);
  std::uint32_t ordinal = 0;
  for (auto rest = bytes.subspan(header); rest.size() >= head; ++ordinal) {
    const auto length = load<std::uint32_t>(rest.data());
    if (length < head || length > rest.size()) return;
    store<std::uint32_t>(rest.data() + 8, ordinal);
    sum = hyperframes::crc32c(rest.subspan(8, length - 8), hyperframes::crc32c(rest.first(4), sum));
    store<std::uint32_t>(rest.data() + 4, sum);
    rest = rest.subspan(length);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto from = std::as_bytes(std::span(data + 2, size - 2));
  std::vector<std::byte> bytes(from.begin(), from.end());
  if (data[0] & 1) seal(bytes);
  const std::size_t piece = std::size_t{data[1]} * 8 + 1;
  Restorer restorer;
  ps::SnapshotDecoder decoder(restorer, "fuzz");
  try {
    for (std::span<const std::byte> rest(bytes); !rest.empty();) {
      const std::size_t part = std::min(piece, rest.size());
      decoder.feed(rest.first(part));
      rest = rest.subspan(part);
    }
    decoder.finish();
  } catch (const hf::Error&) {
  }
  return 0;
}
