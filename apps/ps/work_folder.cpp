#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <hyperframes/apps/ps/work_folder.hpp>
#include <hyperframes/runtime/error.hpp>
#include <nlohmann/json.hpp>
#include <random>

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

}  // namespace

WorkFolder::WorkFolder(std::string path, const std::string& name) : path_(std::move(path)) {
  std::error_code failure;
  std::filesystem::create_directories(path_, failure);
  if (failure)
    throw Error(failure, "make the work folder '" + path_ + "'", {}, "choose another --workdir");
  lock();
  read_or_make_identity(name);
}

WorkFolder::~WorkFolder() {
  if (lock_descriptor_ >= 0) ::close(lock_descriptor_);
}

void WorkFolder::lock() {
  const std::string file = path_ + "/lock";
  lock_descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_descriptor_ < 0)
    throw Error::system(errno, "open '" + file + "'", {}, "check the folder's owner and mode");
  if (::flock(lock_descriptor_, LOCK_EX | LOCK_NB) != 0)
    throw Error(Errc::already_exists, "lock the work folder '" + path_ + "'",
                "the process " + first_line_of(lock_descriptor_) + " runs there",
                "stop it, or give this one another --workdir");
  const std::string text = std::to_string(::getpid());
  if (::ftruncate(lock_descriptor_, 0) != 0 ||
      ::pwrite(lock_descriptor_, text.data(), text.size(), 0) < 0)
    throw Error::system(errno, "write '" + file + "'");
}

void WorkFolder::read_or_make_identity(const std::string& name) {
  const std::string file = path_ + "/identity.json";
  if (std::ifstream in(file); in) {
    const auto json = nlohmann::json::parse(in, nullptr, false);
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
  identity_.node_id = random_id();
  identity_.name = name.empty() ? fmt::format("ps-{:08x}", identity_.node_id >> 32) : name;
  const std::string beside = file + ".new";
  const std::string text =
      nlohmann::json{{"name", identity_.name}, {"node_id", identity_.node_id}}.dump() + "\n";
  const int out = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const bool written =
      out >= 0 && ::write(out, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::fsync(out) == 0;
  const int failure = errno;
  if (out >= 0) ::close(out);
  if (!written || std::rename(beside.c_str(), file.c_str()) != 0)
    throw Error::system(written ? errno : failure, "write '" + file + "'");
}

}  // namespace hyperframes::ps
