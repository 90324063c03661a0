// The models that a worker trains: logistic regression and factorization machine over categorical
// fields, as a `model.yaml` describes them.
//
//   auto config = hf::ps::ModelConfig::load("model.yaml");
//   hf::ps::Model model(config);
//   double loss = model.gradients(batch, rows, gradients, predictions);   // rows as pulled
//
// A feature is a value of a field, such as (movie, 318); its row on the servers holds its weight
// w and, in a factorization machine, its latent vector v of k floats. With x the feature's
// share of its field (1, or less where a field holds several values), a sample's score is
//
//   z = w0 + sum_i w_i x_i + 1/2 sum_f ((sum_i v_if x_i)^2 - sum_i (v_if x_i)^2)        p = 1 / (1
//   + e^-z)
//
// after Rendle, "Factorization Machines" (2010). Gradients are summed over the batch. L2 is counted
// once for each occurrence of a feature, so that frequent features are held as the loss holds them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace hyperframes::ps {

struct FieldConfig {
  /// How the values of a multi-valued field share their field: x = 1, 1/n or 1/sqrt(n).
  enum class Combine : std::uint8_t { sum, mean, sqrt };
  std::string name;    ///< The column of the data set.
  char separator = 0;  ///< 0: one value; else the column is text with several values.
  Combine combine = Combine::sqrt;
  float l2 = 0;         ///< Of the weight.
  float l2_latent = 0;  ///< Of the latent vector.
};

struct ModelConfig {
  enum class Kind : std::uint8_t { logistic_regression, factorization_machine };
  enum class Optimizer : std::uint8_t { sgd, adagrad };

  Kind kind = Kind::factorization_machine;
  unsigned latent = 16;  ///< k; 0 for logistic regression.
  std::string label = "label";
  std::vector<FieldConfig> fields;
  Optimizer optimizer = Optimizer::adagrad;
  float learning_rate = 0.09f;
  float initial_accumulator = 0.1f;
  float initial_scale = 0.025f;  ///< Standard deviation of a latent vector's first values.
  unsigned epochs = 10;

  /// Floats of a row: the weight, then the latent vector.
  std::size_t width() const noexcept { return 1 + latent; }

  /// The same for models that make the same rows and gradients of a batch: all counts but the
  /// epochs. Workers with different ones must not share a job, or a batch that is sent again by
  /// another worker would be another batch under the same push key.
  std::uint64_t fingerprint() const;

  /// Throws invalid_argument with file, line, what stands there and what may stand there.
  static ModelConfig load(const std::string& path);
  static ModelConfig parse(const std::string& yaml, const std::string& name = "model.yaml");
};

/// The id of a feature's row: stable over processes and runs, top bit clear. Never change it: it
/// stands in snapshots and logs.
std::uint64_t feature_id(std::string_view field, std::string_view value) noexcept;
/// The id of the row that holds w0.
std::uint64_t bias_id() noexcept;

/// Samples, with each distinct feature once in `ids`; `ids[0]` is the bias.
struct Batch {
  struct Feature {
    std::uint32_t row;    ///< Index into `ids`.
    std::uint32_t field;  ///< Index into the config's fields.
    float share;          ///< x above.
  };
  std::vector<std::uint64_t> ids;
  std::vector<Feature> features;       ///< Sample by sample.
  std::vector<std::uint32_t> offsets;  ///< samples + 1 positions in `features`.
  std::vector<float> labels;           ///< 0 or 1.

  std::size_t samples() const noexcept { return labels.size(); }
};

/// Makes a batch, sample by sample. The config outlives it.
class BatchBuilder {
 public:
  explicit BatchBuilder(const ModelConfig& config);
  /// `values`: one for each field, in the config's order; decimal text for a number. An empty value
  /// is no feature. `label` is 0 or 1. Throws `invalid_argument` for another number of values.
  void add(std::span<const std::string_view> values, float label);
  std::size_t samples() const noexcept { return batch_.samples(); }
  /// The batch so far; the builder is empty again.
  Batch take();

 private:
  void add_feature(std::uint32_t field, std::string_view value, float share);
  void reset();

  const ModelConfig& config_;
  Batch batch_;
  std::unordered_map<std::uint64_t, std::uint32_t> rows_;
};

class Model {
 public:
  explicit Model(ModelConfig config);
  const ModelConfig& config() const noexcept { return config_; }

  /// `rows`: width() floats for each of `batch.ids`. Fills `predictions` (one a sample) with p, and
  /// returns the mean logloss. Throws `invalid_argument`, as the next one, for spans of other
  /// sizes.
  double predict(const Batch& batch, std::span<const float> rows,
                 std::span<float> predictions) const;
  /// The same, and fills `gradients` (like `rows`) with the gradient of the summed loss and L2.
  /// The order of the arithmetic is fixed.
  double gradients(const Batch& batch, std::span<const float> rows, std::span<float> gradients,
                   std::span<float> predictions) const;

 private:
  float score(const Batch& batch, std::size_t sample, std::span<const float> rows,
              std::span<float> sums) const noexcept;
  ModelConfig config_;
};

}  // namespace hyperframes::ps
