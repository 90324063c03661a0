// What the doctor looks at: a function for each concept, which reads a Host and changes nothing.
//
//   const Host host = this_host();
//   Checks checks = check_kernel(host);
//   append(checks, check_cards(host));
//
// Each gives its lines in the order in which they are printed, and none throws for what it finds.
#pragma once

#include <hyperframes/apps/tools/doctor/check.hpp>
#include <hyperframes/apps/tools/doctor/host.hpp>

namespace hyperframes::tools::doctor {

/// The kernel's version, and whether io_uring may be used; if not, why not.
Checks check_kernel(const Host& host);
/// Lockable memory and open files.
Checks check_limits(const Host& host);
/// Memory and its limit, huge pages, shared memory between processes, /dev/shm.
Checks check_memory(const Host& host);
/// Which clock is read, what that costs, and whether it agrees with other hosts'.
Checks check_clock(const Host& host);
/// Cores that may be used, their quota, and the NUMA nodes that they lie on.
Checks check_cores(const Host& host);
/// Of each network card: link, MTU, queues, rings, place; and TCP's buffers.
Checks check_cards(const Host& host);
/// Of each RDMA port: state, addresses (GIDs), flow control; and whether this user may use it.
Checks check_rdma(const Host& host);
/// Of each GPU: driver, place, link, BAR, way to the nearest card; and how cards reach its memory.
Checks check_gpus(const Host& host);

}  // namespace hyperframes::tools::doctor
