#include <hyperframes/apps/dataset/movielens.hpp>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hyperframes/apps/dataset/detail/movielens_script.hpp>
#include <hyperframes/runtime/error.hpp>

namespace hyperframes::dataset {
namespace {

// The script as a file, for R reads no script from memory that also takes arguments.
class ScriptFile {
 public:
  ScriptFile() : path_((std::filesystem::temp_directory_path() / "hyperframes-XXXXXX").string()) {
    const int descriptor = ::mkstemp(path_.data());
    if (descriptor < 0) throw Error::system(errno, "create '" + path_ + "'");
    const std::string_view text = detail::movielens_script;
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    const int error = written < 0 ? errno : ENOSPC;
    ::close(descriptor);
    if (written == static_cast<ssize_t>(text.size())) return;
    ::unlink(path_.c_str());
    throw Error::system(error, "write '" + path_ + "'");
  }
  ~ScriptFile() { ::unlink(path_.c_str()); }
  ScriptFile(const ScriptFile&) = delete;
  ScriptFile& operator=(const ScriptFile&) = delete;

  std::string& path() { return path_; }

 private:
  std::string path_;
};

// Runs a program of PATH to its end; returns its wait status, or nothing where there is none.
std::optional<int> run(std::span<char* const> arguments) {
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environ);
  if (error == ENOENT) return std::nullopt;
  if (error != 0) throw Error::system(error, std::string("run ") + arguments[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) throw Error::system(errno, std::string("wait for ") + arguments[0]);
  return status;
}

PublishOptions publish_options(const MovielensOptions& options, const MovielensSplit& split) {
  PublishOptions publish{.csv = options.csv, .directory = options.directory / split.name};
  for (const char* column : {"user=userId:int", "movie=movieId:int", "year:int", "genres:list",
                             "rating:float", "timestamp:int"})
    publish.columns.push_back(parse_column(column));
  publish.columns[2].missing = "0";
  publish.labels = {parse_label("label=rating>=4")};
  publish.splits = {{"training/fit", 0.72}, {"training/validation", 0.08}, {"test", 0.2}};
  if (split.name == "time") publish.order_by = "timestamp";
  publish.seed = options.seed;
  publish.writer.replace = options.replace;
  return publish;
}

}  // namespace

void export_movielens(const std::filesystem::path& csv) {
  const std::string tried = "export the MovieLens ratings to '" + csv.string() + "'";
  constexpr const char* remedy = "on Debian: apt-get install r-base-core r-cran-dslabs";
  std::error_code failure;
  if (csv.has_parent_path()) std::filesystem::create_directories(csv.parent_path(), failure);
  if (failure)
    throw Error(failure, tried, {}, "choose a directory that this user can make and write");
  ScriptFile script;
  std::string program = "Rscript", argument = csv.string();
  const std::array<char*, 4> arguments = {program.data(), script.path().data(), argument.data(),
                                          nullptr};
  const std::optional<int> status = run(arguments);
  if (!status) throw Error(Errc::unsupported, tried, "R is not installed", remedy);
  if (!WIFEXITED(*status) || WEXITSTATUS(*status) != 0)
    throw Error(Errc::unsupported, tried, "Rscript failed; what it said stands above", remedy);
}

std::vector<MovielensSplit> movielens_splits(const std::filesystem::path& directory) {
  std::vector<MovielensSplit> splits;
  for (const char* name : {"random", "time"}) {
    const std::filesystem::path at = directory / name;
    splits.push_back({.name = name,
                      .fit = at / "training" / "fit",
                      .validation = at / "training" / "validation",
                      .training = at / "training",
                      .test = at / "test"});
  }
  return splits;
}

std::vector<MovielensSplit> publish_movielens(const MovielensOptions& options) {
  std::vector<MovielensSplit> splits = movielens_splits(options.directory);
  for (std::size_t i = 0; i < splits.size(); ++i) {
    PublishOptions publish = publish_options(options, splits[i]);
    if (options.progress)
      publish.progress = [&, i](std::uint64_t done, std::uint64_t total) {
        options.progress(i * total + done, splits.size() * total);
      };
    publish_csv(publish);
  }
  return splits;
}

}  // namespace hyperframes::dataset
