#include <hyperframes/apps/dataset/detail/json_text.hpp>

#include <utility>

#include <nlohmann/json.hpp>

namespace hyperframes::dataset::detail {
namespace {

std::string scalar_text(const nlohmann::json& value) {
  constexpr int no_indent = -1;
  constexpr bool ascii_only = true;
  return value.dump(no_indent, ' ', ascii_only);
}

void append(std::string& out, const nlohmann::json& value) {
  if (!value.is_structured()) {
    out += scalar_text(value);
    return;
  }
  out += value.is_object() ? '{' : '[';
  bool first = true;
  for (const auto& item : value.items()) {  // an object's keys come sorted
    if (!std::exchange(first, false)) out += ", ";
    if (value.is_object()) out += scalar_text(item.key()) + ": ";
    append(out, item.value());
  }
  out += value.is_object() ? '}' : ']';
}

}  // namespace

std::string json_text(const nlohmann::json& value) {
  std::string out;
  append(out, value);
  return out;
}

}  // namespace hyperframes::dataset::detail
