// Sizes of messages, as they are typed and shown.
//
//   size_text(4096);                           // "4 KiB"
//   parse_sizes("8,64,4KiB,1MiB");             // bytes, in that order
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes::tools::perf {

/// With the largest unit of B, KiB, MiB and GiB that leaves a whole number.
std::string size_text(std::uint64_t bytes);
/// Numbers with or without such a unit, between commas. Throws Errc::invalid_argument for one that
/// is none or is not from `least_size` to `largest_size`, and for one that stands there twice.
std::vector<std::uint64_t> parse_sizes(std::string_view text);
/// From 8 B to 64 MiB.
const std::vector<std::uint64_t>& default_sizes();

}  // namespace hyperframes::tools::perf
