#include <fmt/format.h>

#include <algorithm>
#include <hyperframes/apps/ps/job.hpp>
#include <hyperframes/runtime/error.hpp>

namespace hyperframes::ps {
namespace {

std::uint64_t divide_up(std::uint64_t value, std::uint64_t by) noexcept {
  return value / by + (value % by != 0);
}

void check_range(std::string_view what, std::uint64_t value, std::uint64_t most,
                 std::string_view remedy) {
  if (value >= 1 && value <= most) return;
  throw Error(Errc::invalid_argument, "define a training job",
              fmt::format("{} is {}, not between 1 and {}", what, value, most),
              std::string(remedy));
}

}  // namespace

void JobDefinition::check() const {
  if (name.empty() || name.size() > max_name_bytes || name.find('/') != std::string::npos)
    throw Error(Errc::invalid_argument, fmt::format("define a training job named '{}'", name),
                name.empty()                   ? "the name is empty"
                : name.size() > max_name_bytes ? fmt::format("the name has {} bytes", name.size())
                                               : "the name holds a slash",
                fmt::format("choose a name of 1 to {} bytes without a slash", max_name_bytes));
  check_range("the number of samples", samples, UINT64_MAX / 2, "give it a data set with samples");
  check_range("the batch size", batch_size, UINT32_MAX / 2, "choose another --batch_size");
  check_range("the number of batches in a unit", unit_batches, max_unit_batches,
              "choose another --unit_batches");
  check_range("the number of epochs", epochs, max_epochs, "choose another --epochs");
  check_range("the number of units in an epoch", units_per_epoch(), max_units_per_epoch,
              "choose a greater --batch_size or --unit_batches");
}

std::uint64_t JobDefinition::batches_per_epoch() const noexcept {
  return divide_up(samples, batch_size);
}
std::uint64_t JobDefinition::units_per_epoch() const noexcept {
  return divide_up(batches_per_epoch(), unit_batches);
}

UnitId JobDefinition::unit_at(std::uint64_t number) const noexcept {
  return {static_cast<std::uint32_t>(number / units_per_epoch()),
          static_cast<std::uint32_t>(number % units_per_epoch())};
}

std::uint32_t JobDefinition::batches_of(std::uint64_t number) const noexcept {
  const std::uint64_t before = (number % units_per_epoch()) * unit_batches;
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(unit_batches, batches_per_epoch() - before));
}

std::uint64_t JobDefinition::samples_before(std::uint64_t number,
                                            std::uint64_t batches) const noexcept {
  const std::uint64_t epoch = number / units_per_epoch();
  const std::uint64_t in_epoch = (number % units_per_epoch()) * unit_batches + batches;
  return epoch * samples + std::min(samples, in_epoch * batch_size);
}

std::string feature_table_name(std::string_view job_name, std::uint32_t job) {
  return fmt::format("{}@{}/features", job_name, job);
}

}  // namespace hyperframes::ps
