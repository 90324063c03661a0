// Runs the ends of `hyperframes perf`: one of them here, or both as two processes of this host.
//
//   Setup setup{.endpoint = net::Endpoint::parse("tcp://127.0.0.1:0"), .seconds = 60};
//   Run run = measure(setup, [](const Run& so_far, bool self_loop) { print(so_far, self_loop); });
//   serve(setup, false);                                       // the other end, until SIGINT
//
// Call these before any thread is made: signals come through a thread of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <hyperframes/apps/ps/security.hpp>
#include <hyperframes/apps/tools/perf/result.hpp>
#include <hyperframes/net/endpoint.hpp>
#include <string>
#include <vector>

namespace hyperframes::tools::perf {

struct Setup {
  net::Endpoint endpoint;
  bool connect_only = false;  ///< Somebody else runs the server.
  bool self_loop = true;      ///< Over shared memory first, where the endpoint is another one.
  double seconds = 60;        ///< Of steady state in all; the self-loop takes a quarter on top.
  std::vector<std::uint64_t> sizes = {};
  bool polling = false;  ///< Shards never sleep.
  ps::SecurityOptions security = {};
};

struct Outcome {
  Run run;
  std::vector<std::string> left_out;  ///< What was not measured, and why.
  int signal = 0;                     ///< That ended it early.
};

/// Shows on standard error how far it is. `finished` is called after each half that has rows.
/// Throws if nothing could be measured; what ended it early otherwise stands in the run.
Outcome measure(const Setup& setup,
                const std::function<void(const Run& so_far, bool self_loop)>& finished);

/// Prints "listening at URI" and a line for each client; until SIGINT or SIGTERM, or with `once`
/// until the first client has left.
void serve(const Setup& setup, bool once);

}  // namespace hyperframes::tools::perf
