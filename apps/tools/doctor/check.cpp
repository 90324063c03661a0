#include <hyperframes/apps/tools/doctor/check.hpp>

#include <algorithm>
#include <iterator>

namespace hyperframes::tools::doctor {

std::string_view name(Status status) noexcept {
  switch (status) {
    case Status::pass: return "pass";
    case Status::warn: return "warn";
    case Status::fail: return "fail";
    case Status::none: return "none";
  }
  return "none";
}

std::size_t count(const Checks& checks, Status status) noexcept {
  return static_cast<std::size_t>(std::ranges::count(checks, status, &Check::status));
}

void append(Checks& all, Checks checks) { std::ranges::move(checks, std::back_inserter(all)); }

}  // namespace hyperframes::tools::doctor
