// Longer heartbeats, for slow machines, are of no use in virtual time: runs would only be longer.
#pragma once

#include <stdlib.h>

namespace sim_test {
inline const int time_is_virtual = ::setenv("HYPERFRAMES_TIME_SCALE", "1", 1);
}
