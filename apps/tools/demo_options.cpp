#include <hyperframes/apps/tools/demo_options.hpp>
//
#include <fmt/format.h>

#include <hyperframes/runtime/error.hpp>

namespace hyperframes::tools {

void DemoOptions::check() const {
  const auto refuse = [](const std::string& found, const std::string& remedy) {
    throw Error(Errc::invalid_argument, "start the demo", found, remedy);
  };
  if (shards < servers)
    refuse(fmt::format("{} parameter shards are too few for {} servers", shards, servers),
           "give at least one a server");
  if (!ratings.empty() && !std::filesystem::is_regular_file(ratings))
    refuse("there is no file " + ratings.string(), "check --ratings");
  if (!workdir.empty() && std::filesystem::exists(workdir) &&
      !(std::filesystem::is_directory(workdir) && std::filesystem::is_empty(workdir)))
    refuse(workdir.string() + " is there and not an empty folder",
           "name another --workdir, or empty it");
}

const std::vector<DemoSplit>& demo_splits() {
  static const std::vector<DemoSplit> splits = {{"random", .005, false}, {"time", 0, true}};
  return splits;
}

std::vector<double> kill_fractions(unsigned kills, unsigned runs, unsigned run) {
  const unsigned here = kills / runs + (run < kills % runs ? 1 : 0);
  std::vector<double> fractions;
  for (unsigned i = 1; i <= here; ++i) fractions.push_back(i / (here + 1.0));
  return fractions;
}

}  // namespace hyperframes::tools
