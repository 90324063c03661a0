// What a parameter server's process does, for programs that have a runtime of their own: what
// `run_server` runs between its signals.
//
//   hf::ps::WorkFolder folder(options.workdir, options.name);
//   hf::ps::ServerProcess server(options, runtime, folder);
//   runtime.run([&](hf::Runtime&) { return server.run(); });
//
// Made and destroyed off the shards, while the runtime exists; `run` on shard 0.
#pragma once

#include <functional>
#include <hyperframes/apps/ps/server.hpp>
#include <hyperframes/net/network.hpp>
#include <hyperframes/runtime/task.hpp>
#include <memory>

namespace hyperframes {
class Runtime;
}

namespace hyperframes::ps {

class Observer;
class WorkFolder;

class ServerProcess {
 public:
  struct Hooks {
    /// Changes the network's options before they are used.
    std::function<void(net::Network::Options&)> network{};
    Observer* observer = nullptr;  ///< Of all parameter shards; outlives it.
  };

  /// `options` were checked; `folder` is the one that they name. Both that and the runtime outlive
  /// it.
  ServerProcess(ServerOptions options, Runtime& runtime, WorkFolder& folder, Hooks hooks);
  ServerProcess(ServerOptions options, Runtime& runtime, WorkFolder& folder)
      : ServerProcess(std::move(options), runtime, folder, Hooks()) {}
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  /// Until `request_stop`, in order, or what can't be mended, which it throws.
  Task<void> run();
  /// On shard 0.
  void request_stop() noexcept;
  /// From a thread that is no shard.
  void log_report() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hyperframes::ps
