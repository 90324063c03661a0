#include <hyperframes/apps/dataset/detail/utf8.hpp>

#include <cstddef>
#include <cstdint>

namespace hyperframes::dataset::detail {
namespace {

// Bytes of the code point that starts at `text[0]`, or 0 where none does.
std::size_t code_point_length(std::string_view text) noexcept {
  const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = at(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead < 0xc2   ? 0
                             : lead < 0xe0 ? 2
                             : lead < 0xf0 ? 3
                             : lead < 0xf5 ? 4
                                           : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((at(i) & 0xc0) != 0x80) return 0;
  if (lead == 0xe0 && at(1) < 0xa0) return 0;   // overlong
  if (lead == 0xed && at(1) >= 0xa0) return 0;  // surrogate
  if (lead == 0xf0 && at(1) < 0x90) return 0;   // overlong
  if (lead == 0xf4 && at(1) >= 0x90) return 0;  // above U+10FFFF
  return length;
}

}  // namespace

bool is_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const std::size_t length = code_point_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace hyperframes::dataset::detail
