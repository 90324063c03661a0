#include <hyperframes/runtime/reactor/sim_disk.hpp>

#include <fcntl.h>

#include <hyperframes/runtime/reactor/sim_file_system.hpp>

namespace hyperframes {

SimDisk::SimDisk() : files_(std::make_unique<detail::SimFileSystem>()) {}
SimDisk::~SimDisk() = default;

void SimDisk::set_capacity(std::uint64_t bytes) noexcept { files_->capacity = bytes; }
std::uint64_t SimDisk::used_bytes() const noexcept { return files_->used(); }

void SimDisk::fail_next(Operation::Kind kind, int error, std::string path_part, unsigned count) {
  planned_.push_back({kind, error, std::move(path_part), count});
}

std::optional<std::string> SimDisk::contents(std::string_view path) const {
  const auto found = files_->find(path);
  if (found.result < 0 || found.inode->folder) return std::nullopt;
  std::string text(found.inode->size(), '\0');
  found.inode->read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void SimDisk::put(std::string_view path, std::string_view contents) {
  if (const auto slash = path.rfind('/'); slash != std::string_view::npos && slash > 0)
    files_->make_directory(path.substr(0, slash));
  const auto opened = files_->open(path, O_RDWR | O_CREAT | O_TRUNC);
  if (opened.result < 0)
    throw Error::system(static_cast<int>(opened.result), "put '" + std::string(path) + "'");
  opened.inode->write(0, std::as_bytes(std::span(contents.data(), contents.size())));
  files_->make_durable();
}

void SimDisk::sync_all() { files_->make_durable(); }

}  // namespace hyperframes
