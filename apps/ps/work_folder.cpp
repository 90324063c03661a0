#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <hyperframes/apps/ps/log_record.hpp>
#include <hyperframes/apps/ps/work_folder.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/offload.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <sstream>

namespace hyperframes::ps {
namespace {

std::string first_line_of(int descriptor) {
  char text[64] = {};
  const auto size = ::pread(descriptor, text, sizeof text - 1, 0);
  return size > 0 ? std::string(text, static_cast<std::size_t>(size)) : "unknown";
}

std::uint64_t random_id() {
  std::random_device source;
  std::uint64_t id = 0;
  while (id == 0) id = std::uint64_t{source()} << 32 | source();
  return id;
}

std::uint64_t clock_now_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count());
}

void sync_folder_of(const std::string& file) {
  const std::string folder = std::filesystem::path(file).parent_path().string();
  const int descriptor =
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = descriptor >= 0 && ::fsync(descriptor) == 0;
  const int failure = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (!synced)
    throw Error::system(failure, "sync the folder of '" + file + "'", {}, "check the disk");
}

/// Empty if there is no such file. One that can't be read is not as good as none.
std::optional<std::string> read_file(const std::string& file) {
  const int in = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (in < 0 && errno == ENOENT) return std::nullopt;
  std::string text;
  char chunk[4096];
  ssize_t size = in < 0 ? -1 : 1;
  while (size > 0 && (size = ::read(in, chunk, sizeof chunk)) > 0)
    text.append(chunk, static_cast<std::size_t>(size));
  const int failure = errno;
  if (in >= 0) ::close(in);
  if (size < 0)
    throw Error::system(failure, "read '" + file + "'", {},
                        "check its owner and mode, and the disk; or choose another --workdir");
  return text;
}

/// Either the old contents or the new ones are there, whatever happens; the new ones once it
/// returns.
void replace_file(const std::string& file, const std::string& text) {
  const std::string beside = file + ".new";
  const int out = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (out >= 0) errno = ENOSPC;  // what a write that comes out short means
  const bool written =
      out >= 0 && ::write(out, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::fsync(out) == 0;
  const int failure = errno;
  if (out >= 0) ::close(out);
  if (!written || std::rename(beside.c_str(), file.c_str()) != 0)
    throw Error::system(written ? errno : failure, "write '" + file + "'", {},
                        "check the folder's owner and mode, and the space on its disk");
  sync_folder_of(file);
}

constexpr const char* incarnation_file = "incarnation";
constexpr const char* cluster_file = "cluster";
constexpr const char* shard_prefix = "shard-";

}  // namespace

WorkFolder::Lock::Lock(const std::string& path) : descriptor_(-1) {
  std::error_code failure;
  std::filesystem::create_directories(path, failure);
  if (failure)
    throw Error(failure, "make the work folder '" + path + "'", {}, "choose another --workdir");
  const std::string file = path + "/lock";
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0)
    throw Error::system(errno, "open '" + file + "'", {}, "check the folder's owner and mode");
  const bool locked = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
  const std::string text = std::to_string(::getpid());
  if (locked && ::ftruncate(descriptor, 0) == 0 &&
      ::pwrite(descriptor, text.data(), text.size(), 0) > 0) {
    descriptor_ = descriptor;
    return;
  }
  const int error = errno;
  const std::string holder = first_line_of(descriptor);
  ::close(descriptor);
  if (locked)
    throw Error::system(error, "write '" + file + "'", {},
                        "check the space on the disk, and its quota");
  throw Error(Errc::already_exists, "lock the work folder '" + path + "'",
              "the process " + holder + " runs there",
              "stop it, or give this one another --workdir");
}

WorkFolder::Lock::~Lock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

WorkFolder::WorkFolder(std::string path, const std::string& name)
    : path_(std::move(path)), lock_(path_) {
  read_or_make_identity(name);
  cluster_ = read_number(cluster_file);
  read_begun();
  // Others take the higher one for the living one, and a clock may have been set back since.
  previous_incarnation_ = read_number(incarnation_file);
  incarnation_ = std::max(previous_incarnation_ + 1, clock_now_ns());
  write_number(incarnation_file, incarnation_);
}

void WorkFolder::read_or_make_identity(const std::string& name) {
  const std::string file = path_ + "/identity.json";
  if (const auto text = read_file(file)) {
    const auto json = nlohmann::json::parse(*text, nullptr, false);
    if (json.is_object() && json.contains("name") && json["name"].is_string() &&
        json.contains("node_id") && json["node_id"].is_number_unsigned()) {
      identity_ = {json["name"], json["node_id"]};
      if (!name.empty() && name != identity_.name)
        throw Error(Errc::invalid_argument, "use the work folder '" + path_ + "' as '" + name + "'",
                    "it belongs to '" + identity_.name + "'",
                    "leave --name out, or choose another --workdir");
      return;
    }
    throw Error(Errc::corrupt, "read '" + file + "'", "it holds no name and node_id",
                "restore it, or choose another --workdir");
  }
  if (holds_data())
    throw Error(Errc::not_found, "use the work folder '" + path_ + "'",
                "it holds a server's data, and 'identity.json', which says whose, is gone",
                "restore that file from a copy, or choose another --workdir");
  identity_.node_id = random_id();
  identity_.name = name.empty() ? fmt::format("ps-{:08x}", identity_.node_id >> 32) : name;
  replace_file(
      file, nlohmann::json{{"name", identity_.name}, {"node_id", identity_.node_id}}.dump() + "\n");
}

/// Whether a server has joined a cluster or begun a shard here: its identity was there before.
bool WorkFolder::holds_data() const {
  if (read_file(path_ + "/" + cluster_file) || read_file(begun_file())) return true;
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    if (entry.path().filename().string().starts_with(shard_prefix)) return true;
  return false;
}

std::uint64_t WorkFolder::read_number(const char* name) const {
  const std::string file = path_ + "/" + name;
  const auto found = read_file(file);
  if (!found) return 0;
  const std::string text = found->substr(0, found->find('\n'));
  std::uint64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size() || number == 0)
    throw Error(Errc::corrupt, "read '" + file + "'", "it holds no number",
                "restore it, or choose another --workdir");
  return number;
}

void WorkFolder::write_number(const char* name, std::uint64_t number) const {
  replace_file(path_ + "/" + name, std::to_string(number) + "\n");
}

void WorkFolder::set_cluster(std::uint64_t cluster) {
  write_number(cluster_file, cluster);
  cluster_ = cluster;
}

// ---- Parameter shards ---------------------------------------------------------------------------

std::string WorkFolder::shard_folder(ShardId shard) const {
  return fmt::format("{}/{}{:04}", path_, shard_prefix, shard);
}

// A folder of an older version has no list: its shards come onto it when they are recovered.
void WorkFolder::read_begun() {
  const auto text = read_file(begun_file());
  if (!text) return;
  std::istringstream in(*text);
  ShardId shard = 0;
  while (in >> shard) begun_.insert(shard);
  if (!in.eof())
    throw Error(
        Errc::corrupt, "read '" + begun_file() + "'", "it is no list of shard numbers",
        "restore it, or remove it if all shards' folders are there and as new as they were");
  wanted_ = begun_;
}

void WorkFolder::require_files(std::span<const ShardId> shards) const {
  const std::lock_guard lock(mutex_);
  for (const ShardId shard : shards) {
    if (!begun_.contains(shard)) continue;
    std::error_code failure;
    std::filesystem::recursive_directory_iterator file(shard_folder(shard), failure), end;
    // A log's header is durable before the shard counts as begun: one without is no log.
    const auto has_rows = [&] {
      return file->is_regular_file(failure) && file->file_size(failure) >= segment_header_bytes;
    };
    while (!failure && file != end && !has_rows()) file.increment(failure);
    if (!failure && file != end) continue;
    if (failure && failure != std::errc::no_such_file_or_directory)
      throw Error(failure, "look into '" + shard_folder(shard) + "'");
    throw Error(
        Errc::not_found, fmt::format("recover parameter shard {}", shard),
        fmt::format("'{}' is gone, or its log is empty, although this server has kept rows there",
                    shard_folder(shard)),
        "restore it, as new as it was; or, to lose its rows and begin it anew, start the server "
        "once "
        "with --accept_loss");
  }
}

Task<void> WorkFolder::begin_shard(ShardId shard) {
  {
    const std::lock_guard lock(mutex_);
    if (begun_.contains(shard)) co_return;
    wanted_.insert(shard);
  }
  co_await offload([this, shard] { write_begun(shard); });
}

void WorkFolder::write_begun(ShardId shard) {
  const std::lock_guard writing(writing_);
  std::set<ShardId> all;
  {
    const std::lock_guard lock(mutex_);
    if (begun_.contains(shard)) return;  // another call wrote it along
    all = wanted_;
  }
  std::string text;
  for (const ShardId each : all) text += fmt::format("{}\n", each);
  replace_file(begun_file(), text);
  const std::lock_guard lock(mutex_);
  begun_ = std::move(all);
}

}  // namespace hyperframes::ps
