#include <hyperframes/apps/dataset/reader.hpp>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include <hyperframes/apps/ps/command_line.hpp>
#include <hyperframes/apps/tools/commands.hpp>
#include <hyperframes/apps/tools/progress.hpp>
#include <hyperframes/runtime/error.hpp>

namespace hyperframes::tools {
namespace {

using dataset::Encoding;

constexpr const char* example = R"(Example:

  hyperframes inspect data/train --rows 5 --verify
)";

std::string printable(std::string_view text) {
  constexpr std::size_t longest = 60;
  std::string out;
  for (const char c : text.substr(0, longest)) out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  return text.size() > longest ? out + "..." : out;
}

std::string array_text(const dataset::ArrayView& array) {
  std::string extents;
  for (const std::uint64_t extent : array.shape)
    extents += fmt::format("{}{}", extents.empty() ? "" : "x", extent);
  return fmt::format("{} array of {}", dataset::name(array.type), extents);
}

std::string value_text(const dataset::Sample& sample, const dataset::Column& column,
                       std::size_t number) {
  const Encoding& encoding = column.encoding;
  switch (encoding.kind) {
    case Encoding::Kind::scalar:
      return encoding.name.starts_with("float") ? fmt::format("{}", sample.real(number))
                                                : fmt::format("{}", sample.integer(number));
    case Encoding::Kind::text:
    case Encoding::Kind::decimal:
    case Encoding::Kind::json: return printable(sample.text(number));
    case Encoding::Kind::array: return array_text(sample.array(number));
    case Encoding::Kind::image: {
      const dataset::ImageView image = sample.image(number);
      return fmt::format("{} image of {}x{}", printable(image.mode), image.width, image.height);
    }
    case Encoding::Kind::image_list:
      return fmt::format("{} images", sample.image_list(number).size());
    case Encoding::Kind::bytes: break;
  }
  return bytes_text(sample.bytes(number).size());
}

struct InspectFlags {
  std::string directory;
  std::uint64_t rows = 3;
  bool verify = false;
};

void inspect(const InspectFlags& flags) {
  const dataset::Reader reader(flags.directory, {.verify_hashes = flags.verify});
  const auto& shards = reader.index().shards;
  std::uint64_t bytes = 0;
  for (const dataset::ShardInfo& shard : shards) bytes += shard.raw.bytes;
  fmt::print("{} samples in {} shard{}, {}\n", with_separators(reader.size()), shards.size(),
             shards.size() == 1 ? "" : "s", bytes_text(bytes));
  for (const dataset::Column& column : reader.columns())
    fmt::print("  {}: {}\n", column.name, column.encoding.name);
  dataset::Sample sample;
  for (std::uint64_t i = 0; i < std::min(flags.rows, reader.size()); ++i) {
    reader.read(i, sample);
    fmt::print("sample {}\n", i);
    for (std::size_t c = 0; c < reader.columns().size(); ++c)
      fmt::print("  {} = {}\n", reader.columns()[c].name,
                 value_text(sample, reader.columns()[c], c));
  }
  if (!flags.verify) return;
  std::uint64_t first = 0;
  for (const dataset::ShardInfo& shard : shards) {  // one read opens and verifies a shard
    if (shard.samples > 0) reader.read(first, sample);
    first += shard.samples;
  }
  fmt::print("every shard fits the hashes in the index\n");
}

}  // namespace

void add_inspect_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("inspect", "Shows what a data set in the MDS format holds");
  const auto flags = std::make_shared<InspectFlags>();
  command->add_option("DIR", flags->directory, "The data set's directory")->required();
  ps::take_whole(command->add_option("--rows", flags->rows, "Samples to show"))
      ->capture_default_str();
  command->add_flag("--verify", flags->verify,
                    "Compare every shard file with the hashes in the index");
  command->footer(example);
  command->callback([flags] { inspect(*flags); });
}

}  // namespace hyperframes::tools
