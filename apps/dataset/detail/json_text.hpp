// JSON as the format's own library writes it: keys sorted, ", " and ": " between, ASCII only.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace hyperframes::dataset::detail {

std::string json_text(const nlohmann::json& value);

}  // namespace hyperframes::dataset::detail
