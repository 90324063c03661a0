// Any bytes as a worker's ledger: refused, or records that it can hold. An odd first byte puts
// right checksums in, so that the contents are reached.
#include <hyperframes/apps/ps/bytes.hpp>
#include <hyperframes/apps/ps/ledger.hpp>
#include <hyperframes/runtime/crc32c.hpp>
#include <hyperframes/runtime/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace ps = hyperframes::ps;

namespace {

void seal(std::span<std::byte> bytes) {
  const auto seal_last = [](std::span<std::byte> part) {
    const std::size_t sum_at = part.size() - 4;
    ps::detail::store<std::uint32_t>(part.data() + sum_at, hyperframes::crc32c(part.first(sum_at)));
  };
  if (bytes.size() < ps::Ledger::header_bytes) return;
  const auto header = bytes.first(ps::Ledger::header_bytes);
  seal_last(header.first(16));    // what every format begins with
  seal_last(header.subspan(16));  // the cluster
  for (auto rest = bytes.subspan(ps::Ledger::header_bytes); rest.size() >= ps::Ledger::record_bytes;
       rest = rest.subspan(ps::Ledger::record_bytes))
    seal_last(rest.first(ps::Ledger::record_bytes));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto from = std::as_bytes(std::span(data + 1, size - 1));
  std::vector<std::byte> bytes(from.begin(), from.end());
  if (data[0] & 1) seal(bytes);
  try {
    const auto contents = ps::parse_ledger(bytes, "fuzz");
    const auto& entries = contents.entries;
    if (entries.size() * ps::Ledger::record_bytes > bytes.size()) std::abort();
    ps::LedgerSummary summary;
    summary.add(entries);
    if (summary.pushes().size() > entries.size()) std::abort();
  } catch (const hyperframes::Error&) {
  }
  return 0;
}
