// A supervisor's decision as JSON: for the library's own sources.
#pragma once

#include <hyperframes/actors/supervision_event.hpp>
#include <nlohmann/json.hpp>

namespace hyperframes::detail {

nlohmann::json event_json(const SupervisionEvent& event);

}  // namespace hyperframes::detail
