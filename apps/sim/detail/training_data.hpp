// A small data set for simulated workers: written once a process, to a folder that goes with it.
//
//   std::shared_ptr<const ps::BatchSource> source = training_data();
#pragma once

#include <hyperframes/apps/ps/batch_source.hpp>
#include <hyperframes/apps/ps/model.hpp>
#include <memory>

namespace hyperframes::sim::detail {

struct TrainingShape {
  static constexpr std::uint64_t samples = 576, batch_size = 16, unit_batches = 4;
  static constexpr std::uint32_t epochs = 4;
};

ps::ModelConfig training_model();
/// The same one at each call.
std::shared_ptr<const ps::BatchSource> training_data();

}  // namespace hyperframes::sim::detail
