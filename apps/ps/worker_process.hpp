// What a worker's process does, for programs that have a node of their own: what `run_worker` runs
// between its signals.
//
//   hf::ps::WorkerProcess worker(options, hf::ps::ModelConfig::load(options.model_config), node);
//   bool stopped = co_await worker.run();          // true: before all was done
//   worker.request_stop();                         // from another task of its shard
//
// Made, used and destroyed on one core shard.
#pragma once

#include <functional>
#include <hyperframes/apps/ps/batch_source.hpp>
#include <hyperframes/apps/ps/machine.hpp>
#include <hyperframes/apps/ps/model.hpp>
#include <hyperframes/apps/ps/worker.hpp>
#include <hyperframes/runtime/task.hpp>
#include <hyperframes/runtime/time.hpp>
#include <memory>

namespace hyperframes {
class Node;
}

namespace hyperframes::ps {

class Observer;

class WorkerProcess {
 public:
  struct Hooks {
    /// The data; null: what `data_dir` holds.
    std::shared_ptr<const BatchSource> source{};
    Duration think{0};             ///< Slept for each batch, as if there were more to compute.
    Observer* observer = nullptr;  ///< Of its client; outlives it.
    Machine* machine = &Machine::real();
  };

  /// `node` has a network, and outlives it.
  WorkerProcess(WorkerOptions options, ModelConfig model, Node& node, Hooks hooks);
  WorkerProcess(WorkerOptions options, ModelConfig model, Node& node)
      : WorkerProcess(std::move(options), std::move(model), node, Hooks()) {}
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  /// Until the job is done or the data scored; returns true if it was asked to stop before. Closes
  /// the node. Throws what trying again can't mend.
  Task<bool> run();
  void request_stop() noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hyperframes::ps
