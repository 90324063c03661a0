// How CAF is set up as a peer. For sources that use CAF.
#pragma once

#include <caf/all.hpp>
#include <cstddef>

namespace hyperframes::bench::caf_peer {

inline caf::actor_system_config config_for(unsigned threads) {
  caf::actor_system_config config;
  config.set("scheduler.max-threads", static_cast<std::size_t>(threads));
  config.set("logger.verbosity", caf::atom("quiet"));
  return config;
}

}  // namespace hyperframes::bench::caf_peer
