#include <hyperframes/apps/tools/perf/sizes.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <hyperframes/apps/tools/perf/protocol.hpp>
#include <hyperframes/runtime/error.hpp>

namespace hyperframes::tools::perf {
namespace {

struct Unit {
  std::string_view name;
  unsigned shift;
};
constexpr Unit units[] = {{"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"B", 0}};

Error bad(std::string_view text, std::string found) {
  return Error(Errc::invalid_argument, fmt::format("read the size '{}'", text), std::move(found),
               fmt::format("give sizes from {} to {}, such as --sizes 8,4KiB,1MiB",
                           size_text(least_size), size_text(largest_size)));
}

std::uint64_t parse_size(std::string_view text) {
  std::string_view digits = text;
  unsigned shift = 0;
  for (const Unit& unit : units) {
    if (!digits.ends_with(unit.name)) continue;
    digits.remove_suffix(unit.name.size());
    shift = unit.shift;
    break;
  }
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  std::uint64_t number = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (failure != std::errc() || end != digits.data() + digits.size())
    throw bad(text, "it is no whole number with B, KiB or MiB, or nothing, behind it");
  if (number > largest_size || number << shift > largest_size || number << shift < least_size)
    throw bad(text, "it is out of range");
  return number << shift;
}

}  // namespace

std::string size_text(std::uint64_t bytes) {
  for (const Unit& unit : units)
    if (bytes != 0 && bytes % (std::uint64_t{1} << unit.shift) == 0)
      return fmt::format("{} {}", bytes >> unit.shift, unit.name);
  return "0 B";
}

std::vector<std::uint64_t> parse_sizes(std::string_view text) {
  std::vector<std::uint64_t> sizes;
  while (true) {
    const std::string_view first = text.substr(0, text.find(','));
    const std::uint64_t size = parse_size(first);
    if (std::ranges::find(sizes, size) != sizes.end()) throw bad(first, "it stands there twice");
    sizes.push_back(size);
    if (first.size() == text.size()) return sizes;
    text.remove_prefix(first.size() + 1);
  }
}

const std::vector<std::uint64_t>& default_sizes() {
  static const std::vector<std::uint64_t> sizes = {8,        64,        256,        1u << 10,
                                                   4u << 10, 32u << 10, 256u << 10, 1u << 20,
                                                   4u << 20, 16u << 20, 64u << 20};
  return sizes;
}

}  // namespace hyperframes::tools::perf
