// A worker's process: what `hyperframes_worker` does, as a library.
//
//   hf::ps::WorkerOptions options{.coordinator_addr = "127.0.0.1:6000", .data_dir = "data/train"};
//   options.model_config = "model.yaml";
//   int status = hf::ps::run_worker(options);        // until the job is done, SIGINT or SIGTERM
//
// Workers of one job lease units of its data from the coordinator until all epochs are done. For
// each batch a worker pulls rows, computes gradients, pushes them under the batch's key, and counts
// its clock up once the push is acknowledged everywhere. Whatever happens to servers and
// coordinator, it goes on; given up by the coordinator, it joins anew.
#pragma once

#include <cstdint>
#include <hyperframes/apps/ps/security.hpp>
#include <hyperframes/apps/ps/transport.hpp>
#include <string>

namespace hyperframes::ps {

struct WorkerOptions {
  std::string coordinator_addr{};
  std::string data_dir{};
  std::string model_config{};
  std::string job = "default";
  std::string name{};  ///< Empty: made of the host's name and the process.
  std::string ledger{};
  bool resume = true;  ///< False: forget what was done under this job's name.
  std::uint64_t batch_size = 2048;
  std::uint64_t unit_batches = 8;
  std::uint32_t epochs = 0;  ///< 0: the model's.
  std::uint64_t seed = 1;
  bool evaluate = false;      ///< Score the data with the job's model, and train nothing.
  std::string predictions{};  ///< With `evaluate`: a file for each sample's prediction.
  bool json = false;
  std::string cores{};  ///< "0-3,8": its shard is bound to the first; empty: to none.
  SecurityOptions security{};
  TransportOptions transport{};
  std::string http_addr{};  ///< Node::Options::http_address; empty: no page.
};

/// Returns the process's exit status: 0 when the job is done, the data scored, or after SIGTERM;
/// 130 after SIGINT; 1 for an error, which goes to the log with what to do.
int run_worker(WorkerOptions options);

}  // namespace hyperframes::ps
