#include <fmt/format.h>
#include <xxhash.h>
#include <yaml-cpp/yaml.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <hyperframes/apps/ps/model.hpp>
#include <hyperframes/runtime/error.hpp>
#include <initializer_list>
#include <set>
#include <sstream>

namespace hyperframes::ps {
namespace {

using Vector = Eigen::Map<Eigen::ArrayXf>;
using ConstVector = Eigen::Map<const Eigen::ArrayXf>;

/// A YAML mapping whose keys are all known, with errors that name file and line.
class Section {
 public:
  Section(YAML::Node node, std::string file, std::string what,
          std::initializer_list<std::string_view> known)
      : node_(std::move(node)), file_(std::move(file)), what_(std::move(what)) {
    if (!node_.IsMap()) fail(node_, "is not a mapping", "write it as 'key: value' lines");
    std::set<std::string> seen;
    for (const auto& entry : node_) {
      if (!entry.first.IsScalar())
        fail(entry.first, "has a key that is " + text(entry.first), "write keys as plain words");
      const auto& key = entry.first.Scalar();
      if (!seen.insert(key).second)
        fail(entry.first, "has '" + key + "' twice", "take one of them out");
      if (std::ranges::find(known, key) != known.end()) continue;
      std::string keys;
      for (const auto name : known) keys += (keys.empty() ? "" : ", ") + std::string(name);
      fail(entry.first, "has an unknown key '" + key + "'", "known keys: " + keys);
    }
  }

  bool has(const char* key) const { return static_cast<bool>(node_[key]); }
  YAML::Node child(const char* key) const { return node_[key]; }

  template <class T>
  void read(const char* key, T& into) const {
    const YAML::Node node = node_[key];
    if (!node) return;
    try {
      into = node.as<T>();
    } catch (const YAML::Exception&) {
      fail(node, "'" + std::string(key) + "' can't be '" + text(node) + "'",
           "give a value of its type");
    }
  }
  void read_number(const char* key, float& into, float low, float high) const {
    read(key, into);
    if (!(into >= low && into <= high))
      fail(node_[key], "'" + std::string(key) + "' is " + text(node_[key]),
           "give a number from " + number(low) + " to " + number(high));
  }
  void read_count(const char* key, unsigned& into, unsigned low, unsigned high) const {
    read(key, into);
    if (into < low || into > high)
      fail(node_[key], "'" + std::string(key) + "' is " + text(node_[key]),
           "give a number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  template <class T>
  void read_choice(const char* key, T& into,
                   std::initializer_list<std::pair<const char*, T>> choices) const {
    if (!has(key)) return;
    const std::string wanted = text(node_[key]);
    std::string names;
    for (const auto& [name, value] : choices) {
      if (wanted == name) {
        into = value;
        return;
      }
      names += (names.empty() ? "" : ", ") + std::string(name);
    }
    fail(node_[key], "'" + std::string(key) + "' is '" + wanted + "'", "choose one of: " + names);
  }

  [[noreturn]] void fail(const YAML::Node& at, const std::string& found,
                         const std::string& remedy) const {
    const auto mark = at.Mark();
    const std::string line = mark.line >= 0 ? ", line " + std::to_string(mark.line + 1) : "";
    throw Error(Errc::invalid_argument, "read " + file_ + line, what_ + " " + found, remedy);
  }

 private:
  static std::string text(const YAML::Node& node) {
    return node.IsScalar() ? node.Scalar() : "a list or mapping";
  }
  static std::string number(float value) {
    std::ostringstream stream;
    stream << value;
    return stream.str();
  }
  YAML::Node node_;
  std::string file_, what_;
};

FieldConfig read_field(const YAML::Node& node, const std::string& file) {
  const Section section(node, file, "a field", {"name", "separator", "combine", "l2", "l2_latent"});
  FieldConfig field;
  section.read("name", field.name);
  if (field.name.empty())
    section.fail(node, "has no name", "add 'name: COLUMN', a column of the data set");
  std::string separator;
  section.read("separator", separator);
  if (separator.size() > 1)
    section.fail(section.child("separator"), "has the separator '" + separator + "'",
                 "give a single character");
  if (!separator.empty()) field.separator = separator[0];
  section.read_choice("combine", field.combine,
                      {{"sum", FieldConfig::Combine::sum},
                       {"mean", FieldConfig::Combine::mean},
                       {"sqrt", FieldConfig::Combine::sqrt}});
  section.read_number("l2", field.l2, 0, 1e6f);
  section.read_number("l2_latent", field.l2_latent, 0, 1e6f);
  return field;
}

void read_optimizer(ModelConfig& config, const YAML::Node& node, const std::string& file) {
  const Section section(node, file, "'optimizer'",
                        {"kind", "learning_rate", "initial_accumulator"});
  section.read_choice(
      "kind", config.optimizer,
      {{"sgd", ModelConfig::Optimizer::sgd}, {"adagrad", ModelConfig::Optimizer::adagrad}});
  section.read_number("learning_rate", config.learning_rate, 1e-9f, 1e3f);
  section.read_number("initial_accumulator", config.initial_accumulator, 0, 1e6f);
}

float sigmoid(float z) noexcept { return 1.0f / (1.0f + std::exp(-z)); }

// -log p of what happened, from the score itself: exact where p rounds to 0 or 1.
double logloss(float z, float label) noexcept {
  const double signed_score = label > 0.5f ? z : -z;
  return signed_score > 0 ? std::log1p(std::exp(-signed_score))
                          : -signed_score + std::log1p(std::exp(signed_score));
}

}  // namespace

ModelConfig ModelConfig::load(const std::string& path) {
  std::ifstream file(path);
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored))
    throw Error(Errc::invalid_argument, "read the model's description '" + path + "'",
                "it is a folder", "give the YAML file as --model_config");
  if (!file)
    throw Error(Errc::not_found, "read the model's description '" + path + "'",
                "it can't be opened", "check --model_config");
  std::ostringstream text;
  text << file.rdbuf();
  return parse(text.str(), path);
}

ModelConfig ModelConfig::parse(const std::string& yaml, const std::string& name) {
  YAML::Node root;
  try {
    root = YAML::Load(yaml);
  } catch (const YAML::Exception& failure) {
    throw Error(Errc::invalid_argument,
                "read " + name + ", line " + std::to_string(failure.mark.line + 1), failure.msg,
                "mend the YAML");
  }
  const Section section(
      root, name, "the model",
      {"model", "latent", "label", "fields", "optimizer", "initial_scale", "epochs"});
  ModelConfig config;
  section.read_choice("model", config.kind,
                      {{"logistic_regression", Kind::logistic_regression},
                       {"factorization_machine", Kind::factorization_machine}});
  if (!section.has("model"))
    section.fail(root, "has no 'model'",
                 "add 'model: factorization_machine' or 'model: logistic_regression'");
  section.read_count("latent", config.latent, 1, 1024);
  if (config.kind == Kind::logistic_regression) {
    if (section.has("latent"))
      section.fail(section.child("latent"), "has 'latent' but is a logistic regression",
                   "take 'latent' out, or choose factorization_machine");
    config.latent = 0;
  }
  section.read("label", config.label);
  section.read_number("initial_scale", config.initial_scale, 0, 100);
  section.read_count("epochs", config.epochs, 1, 100'000);
  if (section.has("optimizer")) read_optimizer(config, section.child("optimizer"), name);
  const YAML::Node fields = section.child("fields");
  if (!fields || !fields.IsSequence() || fields.size() == 0)
    section.fail(fields ? fields : root, "has no list of fields",
                 "add 'fields:' with one '- name: COLUMN' a categorical column");
  for (const auto& node : fields) {
    FieldConfig field = read_field(node, name);
    for (const auto& other : config.fields)
      if (other.name == field.name)
        section.fail(node, "names the field '" + field.name + "' twice", "take one out");
    config.fields.push_back(std::move(field));
  }
  return config;
}

std::uint64_t ModelConfig::fingerprint() const {
  std::string all =
      fmt::format("{} {} {:?} {} {} {} {}", static_cast<int>(kind), latent, label,
                  static_cast<int>(optimizer), learning_rate, initial_accumulator, initial_scale);
  for (const FieldConfig& field : fields)
    all += fmt::format(" [{:?} {} {} {} {}]", field.name, static_cast<int>(field.separator),
                       static_cast<int>(field.combine), field.l2, field.l2_latent);
  return ::XXH3_64bits(all.data(), all.size());
}

std::uint64_t feature_id(std::string_view field, std::string_view value) noexcept {
  const std::uint64_t seed = ::XXH3_64bits(field.data(), field.size());
  return ::XXH3_64bits_withSeed(value.data(), value.size(), seed) >> 1;
}

std::uint64_t bias_id() noexcept { return feature_id("", "bias"); }

namespace {
void check_size(const char* tried, const char* of, std::size_t given, std::size_t wanted) {
  if (given == wanted) return;
  throw Error(Errc::invalid_argument, tried,
              fmt::format("{} {} were given where {} belong", given, of, wanted),
              "give one for each that the model's config and the batch have");
}
}  // namespace

BatchBuilder::BatchBuilder(const ModelConfig& config) : config_(config) { reset(); }

void BatchBuilder::reset() {
  batch_ = {};
  rows_.clear();
  batch_.offsets.push_back(0);
  batch_.ids.push_back(bias_id());
}

void BatchBuilder::add_feature(std::uint32_t field, std::string_view value, float share) {
  const std::uint64_t id = feature_id(config_.fields[field].name, value);
  const auto next = static_cast<std::uint32_t>(batch_.ids.size());
  const auto [found, added] = rows_.try_emplace(id, next);
  if (added) batch_.ids.push_back(id);
  batch_.features.push_back({found->second, field, share});
}

void BatchBuilder::add(std::span<const std::string_view> values, float label) {
  check_size("add a sample to a batch", "values", values.size(), config_.fields.size());
  std::vector<std::string_view> parts;
  for (std::uint32_t field = 0; field < values.size(); ++field) {
    const FieldConfig& config = config_.fields[field];
    parts.clear();
    for (std::string_view rest = values[field]; !rest.empty();) {
      const auto end = config.separator ? rest.find(config.separator) : rest.npos;
      if (end != 0) parts.push_back(rest.substr(0, end));
      rest = end == rest.npos ? std::string_view{} : rest.substr(end + 1);
    }
    const auto count = static_cast<float>(parts.size());
    float share = 1;
    if (config.combine == FieldConfig::Combine::mean) share = 1 / count;
    if (config.combine == FieldConfig::Combine::sqrt) share = 1 / std::sqrt(count);
    for (const auto part : parts) add_feature(field, part, share);
  }
  batch_.offsets.push_back(static_cast<std::uint32_t>(batch_.features.size()));
  batch_.labels.push_back(label);
}

Batch BatchBuilder::take() {
  Batch batch = std::move(batch_);
  reset();
  return batch;
}

Model::Model(ModelConfig config) : config_(std::move(config)) {}

// Leaves sum_i v_i x_i in `sums`.
float Model::score(const Batch& batch, std::size_t sample, std::span<const float> rows,
                   std::span<float> sums) const noexcept {
  const std::size_t width = config_.width();
  const auto latent = static_cast<Eigen::Index>(config_.latent);
  Vector sum(sums.data(), latent);
  sum.setZero();
  float linear = rows[0];
  float squares = 0;
  for (std::uint32_t at = batch.offsets[sample]; at < batch.offsets[sample + 1]; ++at) {
    const auto& feature = batch.features[at];
    const float* row = rows.data() + feature.row * width;
    linear += row[0] * feature.share;
    if (latent == 0) continue;
    const auto scaled = ConstVector(row + 1, latent) * feature.share;
    sum += scaled;
    squares += scaled.square().sum();
  }
  return latent == 0 ? linear : linear + 0.5f * (sum.square().sum() - squares);
}

double Model::predict(const Batch& batch, std::span<const float> rows,
                      std::span<float> predictions) const {
  check_size("predict a batch", "floats of rows", rows.size(), batch.ids.size() * config_.width());
  check_size("predict a batch", "predictions", predictions.size(), batch.samples());
  std::vector<float> sums(config_.latent);
  double loss = 0;
  for (std::size_t sample = 0; sample < batch.samples(); ++sample) {
    const float z = score(batch, sample, rows, sums);
    predictions[sample] = sigmoid(z);
    loss += logloss(z, batch.labels[sample]);
  }
  return batch.samples() ? loss / static_cast<double>(batch.samples()) : 0;
}

double Model::gradients(const Batch& batch, std::span<const float> rows, std::span<float> gradients,
                        std::span<float> predictions) const {
  constexpr const char* tried = "take the gradients of a batch";
  check_size(tried, "floats of rows", rows.size(), batch.ids.size() * config_.width());
  check_size(tried, "floats of gradients", gradients.size(), rows.size());
  check_size(tried, "predictions", predictions.size(), batch.samples());
  const std::size_t width = config_.width();
  const auto latent = static_cast<Eigen::Index>(config_.latent);
  std::ranges::fill(gradients, 0.0f);
  std::vector<float> sums(config_.latent);
  double loss = 0;
  for (std::size_t sample = 0; sample < batch.samples(); ++sample) {
    const float z = score(batch, sample, rows, sums);
    const float probability = sigmoid(z);
    const float error = probability - batch.labels[sample];
    predictions[sample] = probability;
    loss += logloss(z, batch.labels[sample]);
    gradients[0] += error;
    const ConstVector sum(sums.data(), latent);
    for (std::uint32_t at = batch.offsets[sample]; at < batch.offsets[sample + 1]; ++at) {
      const auto& feature = batch.features[at];
      const FieldConfig& field = config_.fields[feature.field];
      const float* row = rows.data() + feature.row * width;
      float* gradient = gradients.data() + feature.row * width;
      gradient[0] += error * feature.share + field.l2 * row[0];
      if (latent == 0) continue;
      const ConstVector v(row + 1, latent);
      Vector(gradient + 1, latent) +=
          error * feature.share * (sum - v * feature.share) + field.l2_latent * v;
    }
  }
  return batch.samples() ? loss / static_cast<double>(batch.samples()) : 0;
}

}  // namespace hyperframes::ps
