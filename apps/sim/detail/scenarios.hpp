// The scenarios, each made in its own file.
#pragma once

#include <hyperframes/apps/sim/scenario.hpp>
#include <memory>

namespace hyperframes::sim::detail {

std::unique_ptr<const Scenario> make_parameter_server();
std::unique_ptr<const Scenario> make_power_loss();
std::unique_ptr<const Scenario> make_idle();
std::unique_ptr<const Scenario> make_sessions();
std::unique_ptr<const Scenario> make_supervision();

}  // namespace hyperframes::sim::detail
