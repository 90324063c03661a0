#include <xxhash.h>

#include <hyperframes/apps/ps/batch_source.hpp>
#include <hyperframes/runtime/error.hpp>
#include <numeric>

namespace hyperframes::ps {

BatchSource::BatchSource(const std::string& folder, ModelConfig config, Options options)
    : config_(std::move(config)),
      reader_(folder),
      sampler_({.samples = reader_.size(),
                .seed = options.seed,
                .batch_size = options.batch_size,
                .unit_batches = options.unit_batches}) {
  if (reader_.size() == 0)
    throw Error(Errc::invalid_argument, "train on '" + folder + "'", "it has no samples",
                "check --data_dir");
  for (const FieldConfig& field : config_.fields) {
    fields_.push_back(find(field.name));
    if (field.separator && fields_.back().is_number)
      throw Error(Errc::invalid_argument, "read the field '" + field.name + "' of '" + folder + "'",
                  "it is a number, and the model gives it a separator",
                  "take 'separator' out of model.yaml");
  }
  label_ = reader_.column(config_.label);
}

BatchSource::Field BatchSource::find(const std::string& column) const {
  const std::size_t number = reader_.column(column);
  const dataset::Encoding& encoding = reader_.columns()[number].encoding;
  using Kind = dataset::Encoding::Kind;
  const bool is_integer =
      encoding.kind == Kind::scalar && encoding.scalar != dataset::Scalar::float16 &&
      encoding.scalar != dataset::Scalar::float32 && encoding.scalar != dataset::Scalar::float64;
  if (!is_integer && encoding.kind != Kind::text && encoding.kind != Kind::decimal)
    throw Error(Errc::invalid_argument, "use the column '" + column + "' as a category",
                "its encoding is '" + encoding.name + "'", "use columns of integers or text");
  return {number, is_integer};
}

std::uint64_t BatchSource::fingerprint() const {
  const std::string index = reader_.index().to_json();
  return ::XXH3_64bits(index.data(), index.size());
}

Batch BatchSource::batch(std::uint64_t epoch, std::uint64_t unit, std::uint64_t number) const {
  return build(sampler_.batch(epoch, unit, number));
}

Batch BatchSource::in_order(std::uint64_t first, std::uint64_t count) const {
  std::vector<std::uint64_t> samples(count);
  std::iota(samples.begin(), samples.end(), first);
  return build(samples);
}

Batch BatchSource::build(const std::vector<std::uint64_t>& samples) const {
  BatchBuilder builder(config_);
  dataset::Sample sample;
  std::vector<std::string> numbers(fields_.size());
  std::vector<std::string_view> values(fields_.size());
  for (const std::uint64_t number : samples) {
    reader_.read(number, sample);
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      if (!fields_[i].is_number) {
        values[i] = sample.text(fields_[i].column);
        continue;
      }
      numbers[i] = std::to_string(sample.integer(fields_[i].column));
      values[i] = numbers[i];
    }
    const double label = sample.real(label_);
    if (label != 0 && label != 1)
      throw Error(Errc::invalid_argument, "read the label of sample " + std::to_string(number),
                  "it is " + std::to_string(label), "publish the data with labels of 0 and 1");
    builder.add(values, static_cast<float>(label));
  }
  return builder.take();
}

}  // namespace hyperframes::ps
