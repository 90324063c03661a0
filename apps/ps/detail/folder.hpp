// What a folder holds whose files carry a number in their names.
//
//   for (const auto& name : co_await detail::list_if_there(folder))
//     if (const auto lsn = detail::number_in(name, "segment-", ".log")) ...;
#pragma once

#include <cstdint>
#include <hyperframes/runtime/task.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes::ps::detail {

/// The number in "prefix<hex>suffix", or nothing: other files are not ours.
std::optional<std::uint64_t> number_in(std::string_view name, std::string_view prefix,
                                       std::string_view suffix) noexcept;

/// The names in a folder, sorted; none if it is not there. Who only reads must not make it: it may
/// be another's, by a mistake in the command line.
Task<std::vector<std::string>> list_if_there(std::string path);

}  // namespace hyperframes::ps::detail
