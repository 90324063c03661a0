// The batches of a data set, as a model takes them.
//
//   const hf::ps::BatchSource source("data/train", config, {.batch_size = 2048, .seed = 7});
//   hf::ps::Batch batch = source.batch(epoch, unit, number);      // the same on every machine
//   batch = source.in_order(first, count);                        // for evaluation
//
// Blocks on files: call it on an offload executor. The const members may be called from several
// threads at once.
#pragma once

#include <cstdint>
#include <hyperframes/apps/dataset/reader.hpp>
#include <hyperframes/apps/dataset/sampler.hpp>
#include <hyperframes/apps/ps/model.hpp>
#include <string>
#include <vector>

namespace hyperframes::ps {

class BatchSource {
 public:
  struct Options {
    std::uint64_t batch_size = 2048;
    std::uint64_t unit_batches = 8;
    std::uint64_t seed = 0;
  };

  /// Opens the data set. Throws what Reader throws, and not_found or invalid_argument for a column
  /// of the config that is missing or holds no category.
  BatchSource(const std::string& folder, ModelConfig config, Options options);

  std::uint64_t samples() const noexcept { return reader_.size(); }
  const dataset::Sampler& sampler() const noexcept { return sampler_; }
  /// A hash of the data set's index, by which workers see whether they have the same data.
  std::uint64_t fingerprint() const;

  /// As Sampler::batch; throws what that and Reader::read do.
  Batch batch(std::uint64_t epoch, std::uint64_t unit, std::uint64_t number) const;
  /// Samples first .. first + count - 1; `invalid_argument` beyond samples().
  Batch in_order(std::uint64_t first, std::uint64_t count) const;

 private:
  struct Field {
    std::size_t column;
    bool is_number;
  };
  Field find(const std::string& column) const;
  Batch build(const std::vector<std::uint64_t>& samples) const;

  ModelConfig config_;
  dataset::Reader reader_;
  dataset::Sampler sampler_;
  std::vector<Field> fields_;
  std::size_t label_;
};

}  // namespace hyperframes::ps
