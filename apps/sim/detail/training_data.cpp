#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <hyperframes/apps/dataset/writer.hpp>
#include <hyperframes/apps/sim/detail/training_data.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/reactor/sim_random.hpp>
#include <string>

namespace hyperframes::sim::detail {
namespace {

/// A folder of this process, with all that is in it.
class Folder {
 public:
  Folder() : path_((std::filesystem::temp_directory_path() / "hyperframes-sim-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr)
      throw Error::system(errno, "make a folder '" + path_ + "' for the simulated workers' data",
                          {}, "set TMPDIR to a folder that this user may write");
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

std::shared_ptr<const ps::BatchSource> make_data() {
  static const Folder folder;
  const std::string path = folder.path() + "/train";
  dataset::Writer writer(path, {{"user", "int"}, {"item", "int"}, {"label", "int"}});
  SimRandom random(1);
  for (std::uint64_t i = 0; i < TrainingShape::samples; ++i) {
    const std::uint64_t user = random.below(24), item = random.below(40);
    writer.append({static_cast<std::int64_t>(user), static_cast<std::int64_t>(item),
                   static_cast<std::int64_t>((user + item) % 3 == 0)});
  }
  writer.finish();
  return std::make_shared<const ps::BatchSource>(
      path, training_model(),
      ps::BatchSource::Options{.batch_size = TrainingShape::batch_size,
                               .unit_batches = TrainingShape::unit_batches,
                               .seed = 1});
}

}  // namespace

ps::ModelConfig training_model() {
  return ps::ModelConfig::parse(
      "model: factorization_machine\n"
      "latent: 2\n"
      "label: label\n"
      "optimizer: {kind: adagrad, learning_rate: 0.05, initial_accumulator: 0.1}\n"
      "fields:\n"
      "  - {name: user}\n"
      "  - {name: item}\n",
      "the simulator's model");
}

std::shared_ptr<const ps::BatchSource> training_data() {
  static const std::shared_ptr<const ps::BatchSource> data = make_data();
  return data;
}

}  // namespace hyperframes::sim::detail
