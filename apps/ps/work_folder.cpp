#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <hyperframes/apps/ps/log_record.hpp>
#include <hyperframes/apps/ps/work_folder.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/offload.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

namespace hyperframes::ps {
namespace {

std::string first_line_of(Machine& machine, std::int64_t file) {
  char text[64] = {};
  const auto size = machine.read(file, 0, std::as_writable_bytes(std::span(text)));
  return size > 0 ? std::string(text, static_cast<std::size_t>(size)) : "unknown";
}

[[noreturn]] void throw_system(std::int64_t failure, const std::string& tried,
                               const std::string& remedy) {
  throw Error::system(static_cast<int>(-failure), tried, {}, remedy);
}

void sync_folder_of(Machine& machine, const std::string& file) {
  const std::string folder = std::filesystem::path(file).parent_path().string();
  const MachineFile opened(machine, folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY);
  const std::int64_t result = opened.number() < 0 ? opened.number() : machine.sync(opened.number());
  if (result < 0) throw_system(result, "sync the folder of '" + file + "'", "check the disk");
}

/// Makes the names of a folder and of those above it durable, whoever made them: an earlier process
/// may have ended before it did. Without that all that is synced in it could go with its name.
/// Folders of others that can't be synced were there before. 0, or a negated error number.
std::int64_t sync_folders_above(Machine& machine, const std::string& path) {
  auto folder = std::filesystem::absolute(path).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  while (folder.has_relative_path()) {
    folder = folder.parent_path();
    const MachineFile opened(machine, folder.string(), O_RDONLY | O_DIRECTORY);
    const std::int64_t result =
        opened.number() < 0 ? opened.number() : machine.sync(opened.number());
    if (result < 0 && result != -EACCES && result != -EPERM && result != -EROFS &&
        result != -EINVAL)
      return result;
  }
  return 0;
}

/// Empty if there is no such file. One that can't be read is not as good as none.
std::optional<std::string> read_file(Machine& machine, const std::string& file) {
  std::string text;
  const std::int64_t result = read_all(machine, file, text);
  if (result == -ENOENT) return std::nullopt;
  if (result < 0)
    throw_system(result, "read '" + file + "'",
                 "check its owner and mode, and the disk; or choose another --workdir");
  return text;
}

/// 0, or a negated error number.
std::int64_t write_durably(Machine& machine, const std::string& file, const std::string& text) {
  const MachineFile out(machine, file, O_WRONLY | O_CREAT | O_TRUNC);
  if (out.number() < 0) return out.number();
  const std::int64_t written =
      machine.write(out.number(), 0, std::as_bytes(std::span(text.data(), text.size())));
  if (written < 0) return written;
  if (written != static_cast<std::int64_t>(text.size())) return -ENOSPC;  // what that means
  return machine.sync(out.number());
}

/// Either the old contents or the new ones are there, whatever happens; the new ones once it
/// returns.
void replace_file(Machine& machine, const std::string& file, const std::string& text) {
  const std::string beside = file + ".new";
  std::int64_t result = write_durably(machine, beside, text);
  if (result >= 0) result = machine.rename(beside, file);
  if (result < 0)
    throw_system(result, "write '" + file + "'",
                 "check the folder's owner and mode, and the space on its disk");
  sync_folder_of(machine, file);
}

constexpr const char* incarnation_file = "incarnation";
constexpr const char* cluster_file = "cluster";
constexpr const char* shard_prefix = "shard-";

}  // namespace

WorkFolder::Lock::Lock(Machine& machine, const std::string& path) : machine_(machine) {
  std::int64_t made = machine.make_directories(path);
  if (made >= 0) made = sync_folders_above(machine, path);
  if (made < 0)
    throw Error::system(static_cast<int>(-made), "make the work folder '" + path + "'", {},
                        "choose another --workdir");
  const std::string file = path + "/lock";
  const std::int64_t opened = machine.open(file, O_RDWR | O_CREAT);
  if (opened < 0) throw_system(opened, "open '" + file + "'", "check the folder's owner and mode");
  const bool locked = machine.try_lock(opened) >= 0;
  const std::string text = machine.process_id();
  std::int64_t result = locked ? machine.truncate(opened, 0) : 0;
  if (locked && result >= 0)
    result = machine.write(opened, 0, std::as_bytes(std::span(text.data(), text.size())));
  if (locked && result > 0) {
    file_ = opened;
    return;
  }
  const std::string holder = locked ? "" : first_line_of(machine, opened);
  machine.close(opened);
  if (locked)
    throw_system(result, "write '" + file + "'", "check the space on the disk, and its quota");
  throw Error(Errc::already_exists, "lock the work folder '" + path + "'",
              "the process " + holder + " runs there",
              "stop it, or give this one another --workdir");
}

WorkFolder::Lock::~Lock() {
  if (file_ >= 0) machine_.close(file_);
}

WorkFolder::WorkFolder(std::string path, const std::string& name, Machine& machine)
    : machine_(machine), path_(std::move(path)), lock_(machine, path_) {
  read_or_make_identity(name);
  cluster_ = read_number(cluster_file);
  read_begun();
  // Others take the higher one for the living one, and a clock may have been set back since.
  previous_incarnation_ = read_number(incarnation_file);
  incarnation_ = std::max(previous_incarnation_ + 1, machine_.calendar_ns());
  write_number(incarnation_file, incarnation_);
}

void WorkFolder::read_or_make_identity(const std::string& name) {
  const std::string file = path_ + "/identity.json";
  if (const auto text = read_file(machine_, file)) {
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
  identity_.node_id = machine_.random_number();
  identity_.name = name.empty() ? fmt::format("ps-{:08x}", identity_.node_id >> 32) : name;
  replace_file(
      machine_, file,
      nlohmann::json{{"name", identity_.name}, {"node_id", identity_.node_id}}.dump() + "\n");
}

/// Whether a server has joined a cluster or begun a shard here: its identity was there before.
bool WorkFolder::holds_data() const {
  if (read_file(machine_, path_ + "/" + cluster_file) || read_file(machine_, begun_file()))
    return true;
  std::vector<std::string> names;
  if (const auto listed = machine_.list(path_, names); listed < 0)
    throw_system(listed, "look into '" + path_ + "'", "check its owner and mode");
  return std::ranges::any_of(
      names, [](const std::string& each) { return each.starts_with(shard_prefix); });
}

std::uint64_t WorkFolder::read_number(const char* name) const {
  const std::string file = path_ + "/" + name;
  const auto found = read_file(machine_, file);
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
  replace_file(machine_, path_ + "/" + name, std::to_string(number) + "\n");
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
  const auto text = read_file(machine_, begun_file());
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

/// Whether a file of so many bytes lies in that folder or below it; or a negated error number.
std::int64_t WorkFolder::has_file_of(const std::string& folder, std::uint64_t bytes) const {
  std::vector<std::string> names;
  if (const auto listed = machine_.list(folder, names); listed < 0) return listed;
  for (const auto& name : names) {
    const std::string path = folder + "/" + name;
    const std::int64_t size = machine_.size_of(path);
    const std::int64_t found =
        size == -EISDIR ? has_file_of(path, bytes)
                        : static_cast<std::int64_t>(size >= static_cast<std::int64_t>(bytes));
    if (found != 0) return found;
  }
  return 0;
}

void WorkFolder::require_files(std::span<const ShardId> shards) const {
  const std::lock_guard lock(mutex_);
  for (const ShardId shard : shards) {
    if (!begun_.contains(shard)) continue;
    // A log's header is durable before the shard counts as begun: one without is no log.
    const std::int64_t found = has_file_of(shard_folder(shard), segment_header_bytes);
    if (found > 0) continue;
    if (found < 0 && found != -ENOENT)
      throw_system(found, "look into '" + shard_folder(shard) + "'", "check its owner and mode");
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
  replace_file(machine_, begun_file(), text);
  const std::lock_guard lock(mutex_);
  begun_ = std::move(all);
}

}  // namespace hyperframes::ps
