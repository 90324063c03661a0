#include <hyperframes/apps/tools/demo_options.hpp>
//
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <hyperframes/runtime/error.hpp>

namespace hyperframes::tools {
namespace {

namespace fs = std::filesystem;

/// Makes and removes a file where none is: only the system knows all that forbids it.
void require_writable_file(const fs::path& path) {
  const std::string tried = "write the result to '" + path.string() + "'";
  constexpr const char* remedy = "name a file in a folder that this user can write as --json";
  std::error_code failure;
  if (fs::is_directory(path, failure))
    throw Error(Errc::invalid_argument, tried, "it is a folder", remedy);
  const bool was_there = fs::exists(path, failure);
  errno = 0;
  const bool opened = std::ofstream(path, std::ios::app).is_open();
  const int found = errno;
  if (!opened) throw Error::system(found, tried, {}, remedy);
  if (!was_there) fs::remove(path, failure);
}

void require_new_folder(const fs::path& path) {
  const std::string tried = "use '" + path.string() + "' as the work folder";
  constexpr const char* remedy = "name another --workdir: an empty folder, or one to be made";
  std::error_code failure;
  const auto status = fs::status(path, failure);
  if (failure && status.type() != fs::file_type::not_found) throw Error(failure, tried, {}, remedy);
  const bool is_there = fs::exists(status);
  if (is_there && !fs::is_directory(status))
    throw Error(Errc::invalid_argument, tried, "it is no folder", remedy);
  if (is_there && !fs::is_empty(path, failure) && !failure)
    throw Error(Errc::invalid_argument, tried, "it is not empty", remedy);
  if (!failure || !is_there) fs::create_directories(path, failure);
  if (failure) throw Error(failure, tried, {}, remedy);
  if (::access(path.c_str(), W_OK | X_OK) != 0) throw Error::system(errno, tried, {}, remedy);
}

}  // namespace

void DemoOptions::check() const {
  const auto refuse = [](const std::string& found, const std::string& remedy) {
    throw Error(Errc::invalid_argument, "start the demo", found, remedy);
  };
  if (shards < servers)
    refuse(fmt::format("{} parameter shards are too few for {} servers", shards, servers),
           "give at least one a server");
  if (std::error_code failure;
      !ratings.empty() && !std::filesystem::is_regular_file(ratings, failure))
    refuse("there is no file " + ratings.string(), "check --ratings");
  if (!workdir.empty()) require_new_folder(workdir);
  if (!json.empty()) require_writable_file(json);
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
