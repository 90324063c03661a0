#include <charconv>
#include <hyperframes/apps/ps/detail/folder.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/file.hpp>

namespace hyperframes::ps::detail {

std::optional<std::uint64_t> number_in(std::string_view name, std::string_view prefix,
                                       std::string_view suffix) noexcept {
  if (name.size() < prefix.size() + suffix.size() || !name.starts_with(prefix) ||
      !name.ends_with(suffix))
    return std::nullopt;
  name.remove_prefix(prefix.size());
  name.remove_suffix(suffix.size());
  std::uint64_t value = 0;
  const auto [end, failure] = std::from_chars(name.data(), name.data() + name.size(), value, 16);
  if (failure != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return value;
}

Task<std::vector<std::string>> list_if_there(std::string path) {
  try {
    co_return co_await list_directory(path);
  } catch (const Error& error) {
    if (error.code() != std::errc::no_such_file_or_directory) throw;
  }
  co_return std::vector<std::string>();
}

}  // namespace hyperframes::ps::detail
