// The text of movielens.R, which the build puts into the library.
#pragma once

#include <string_view>

namespace hyperframes::dataset::detail {

extern const std::string_view movielens_script;

}  // namespace hyperframes::dataset::detail
