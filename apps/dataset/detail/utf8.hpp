// Whether bytes are UTF-8 text.
#pragma once

#include <string_view>

namespace hyperframes::dataset::detail {

/// True for well-formed UTF-8: no surrogate, no overlong form, nothing above U+10FFFF.
bool is_utf8(std::string_view text) noexcept;

}  // namespace hyperframes::dataset::detail
