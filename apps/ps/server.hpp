// A parameter server's process: what `hyperframes_server` does, as a library.
//
//   hf::ps::ServerOptions options{.role = hf::ps::ServerRole::parameters, .workdir = "/data/ps0"};
//   int status = hf::ps::run_server(options);        // until SIGINT or SIGTERM
//
// With a coordinator's address the server joins it, owns the parameter shards that it is given, and
// renews its lease. Without one it coordinates too. Its identity lies in the work folder, which it
// locks: so a process that is started again takes over where the killed one was.
#pragma once

#include <cstdint>
#include <hyperframes/apps/ps/security.hpp>
#include <hyperframes/apps/ps/shard_log.hpp>
#include <hyperframes/apps/ps/transport.hpp>
#include <string>

namespace hyperframes::ps {

enum class ServerRole : std::uint8_t {
  parameters,   ///< "ps": parameter shards; coordinates as well when no coordinator is given.
  coordinator,  ///< Coordinates, and owns no shards.
};

struct ServerOptions {
  ServerRole role = ServerRole::parameters;
  std::string workdir{};
  std::string checkpoint_dir{};  ///< Empty: "<workdir>/checkpoints".
  std::string coordinator_addr{};
  std::string listen = "127.0.0.1:6000";
  std::string advertise_addr{};  ///< By which others reach it; empty: as it listens.
  std::string name{};            ///< Empty: made once and kept in the work folder.
  unsigned num_shards = 0;       ///< 0: as the cluster has it, 16 in a new one.
  unsigned num_servers = 1;      ///< Servers to wait for before shards are dealt.
  unsigned staleness_bound = 3;
  unsigned heartbeat_timeout_s = 30;
  unsigned checkpoint_interval_s = 60;
  unsigned threads = 1;  ///< Core shards.
  std::string cores{};   ///< "0-3,8": a core for each shard; empty: the system picks.
  Durability durability = Durability::push;
  bool accept_loss = false;  ///< Go on with a folder that lacks what was acknowledged.
  SecurityOptions security{};
  TransportOptions transport{};
  std::string http_addr{};  ///< Node::Options::http_address; empty: no page.

  /// Throws `invalid_argument` for what can't work together, before anything is touched.
  void check() const;
};

/// Runs until a signal. Returns the process's exit status; errors go to the log with what to do.
int run_server(ServerOptions options);

}  // namespace hyperframes::ps
