#include <catch2/catch_test_macros.hpp>
#include <hyperframes/apps/ps/job.hpp>
#include <hyperframes/runtime/error.hpp>

using namespace hyperframes;
using namespace hyperframes::ps;

TEST_CASE("units cover each epoch's batches without a gap or an overlap") {
  for (const std::uint64_t samples : {1u, 7u, 8u, 9u, 63u, 64u, 65u, 1000u}) {
    for (const std::uint32_t batch_size : {1u, 3u, 8u, 2000u}) {
      for (const std::uint32_t unit_batches : {1u, 2u, 8u}) {
        const JobDefinition job{.name = "j",
                                .samples = samples,
                                .batch_size = batch_size,
                                .unit_batches = unit_batches,
                                .epochs = 3};
        CAPTURE(samples, batch_size, unit_batches);
        std::uint64_t batches = 0;
        for (std::uint64_t number = 0; number < job.units(); ++number) {
          const auto of_unit = job.batches_of(number);
          CHECK(of_unit >= 1);
          CHECK(of_unit <= unit_batches);
          CHECK(job.number_of(job.unit_at(number)) == number);
          // Each batch but an epoch's last is full.
          const auto unit_samples = job.samples_before(number + 1) - job.samples_before(number);
          CHECK(unit_samples <= std::uint64_t{of_unit} * batch_size);
          CHECK(unit_samples > std::uint64_t{of_unit - 1} * batch_size);
          CHECK(job.samples_before(number, of_unit) == job.samples_before(number + 1));
          batches += of_unit;
        }
        CHECK(batches == 3 * job.batches_per_epoch());
        CHECK(job.samples_before(job.units()) == 3 * samples);
      }
    }
  }
}

TEST_CASE("a job that can't be cut says which value to change") {
  const JobDefinition good{.name = "j", .samples = 10, .batch_size = 2};
  CHECK_NOTHROW(good.check());
  const auto refused = [](JobDefinition job) {
    try {
      job.check();
    } catch (const Error& error) {
      return error.is(Errc::invalid_argument) && !error.remedy().empty();
    }
    return false;
  };
  JobDefinition job = good;
  job.name = "";
  CHECK(refused(job));
  job.name = "a/b";
  CHECK(refused(job));
  job.name = std::string(JobDefinition::max_name_bytes + 1, 'x');
  CHECK(refused(job));
  job = good;
  job.samples = 0;
  CHECK(refused(job));
  job = good;
  job.batch_size = 0;
  CHECK(refused(job));
  job = good;
  job.unit_batches = 0;
  CHECK(refused(job));
  job.unit_batches = JobDefinition::max_unit_batches + 1;
  CHECK(refused(job));
  job = good;
  job.epochs = 0;
  CHECK(refused(job));
  job.epochs = JobDefinition::max_epochs + 1;
  CHECK(refused(job));
  job = good;
  job.samples = std::uint64_t{1} << 40;
  CHECK(refused(job));  // too many units
}

TEST_CASE("a job that is begun anew has a table of its own") {
  CHECK(feature_table_name("movies", 1) != feature_table_name("movies", 2));
  CHECK(feature_table_name("movies", 1) != feature_table_name("songs", 1));
}
