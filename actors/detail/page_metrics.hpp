// A node's report as text for Prometheus.
#pragma once

#include <hyperframes/actors/report.hpp>
#include <string>

namespace hyperframes::detail {

/// All that its shards count, and its actors, mailboxes and sessions. Actors without a name have no
/// lines of their own, since they come and go; of the others the first thousand have.
std::string metrics_text(const NodeReport& report);

}  // namespace hyperframes::detail
