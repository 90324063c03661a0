#include <hyperframes/runtime/reactor/sim_blocking_files.hpp>

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <hyperframes/runtime/reactor/sim.hpp>
#include <hyperframes/runtime/reactor/sim_host.hpp>

namespace hyperframes {

SimBlockingFiles::SimBlockingFiles(SimNode& node)
    : host_(*node.host_), incarnation_(node.host_->incarnation) {}
SimBlockingFiles::~SimBlockingFiles() = default;

Time SimBlockingFiles::now() const noexcept { return host_.clockwork.now() + host_.clock_offset; }

bool SimBlockingFiles::alive() const noexcept {
  return host_.running && host_.incarnation == incarnation_;
}

// A crash in place of this operation comes when the caller has returned, as its stack is in use;
// until then nothing that it does has an effect.
int SimBlockingFiles::begin(Operation::Kind kind, std::string_view path) {
  if (gone_ || !alive()) return EIO;
  if (host_.crash_countdown != 0 && --host_.crash_countdown == 0) {
    gone_ = true;
    host_.clockwork.after(Duration(0), [host = &host_, incarnation = incarnation_] {
      if (host->running && host->incarnation == incarnation) host->on_crash_point();
    });
    return EIO;
  }
  ++host_.disk.operation_count_;
  return host_.fault_of(kind, std::string(path));
}

SimBlockingFiles::Open* SimBlockingFiles::find(std::int64_t file) {
  const auto found = open_.find(file);
  return found == open_.end() ? nullptr : &found->second;
}

std::int64_t SimBlockingFiles::note(Operation::Kind kind, std::int64_t result) {
  host_.clockwork.record("blocks", host_.index, 0, static_cast<std::uint64_t>(kind),
                         static_cast<std::uint64_t>(result));
  return result;
}

std::int64_t SimBlockingFiles::open(std::string_view path, int flags) {
  constexpr auto kind = Operation::Kind::open;
  if (const int fault = begin(kind, path)) return note(kind, -fault);
  auto opened = host_.disk.files_->open(path, flags);
  if (opened.result < 0) return note(kind, opened.result);
  std::int64_t number = 0;
  while (open_.contains(number)) ++number;
  open_.emplace(number, Open{std::move(opened.inode), std::string(path)});
  return note(kind, number);
}

void SimBlockingFiles::close(std::int64_t file) noexcept { open_.erase(file); }

std::int64_t SimBlockingFiles::read(std::int64_t file, std::uint64_t offset,
                                    std::span<std::byte> into) {
  constexpr auto kind = Operation::Kind::read;
  Open* const open = find(file);
  if (open == nullptr) return -EBADF;
  if (const int fault = begin(kind, open->path)) return note(kind, -fault);
  if (open->inode->folder) return note(kind, -EISDIR);
  return note(kind, static_cast<std::int64_t>(open->inode->read(offset, into)));
}

std::int64_t SimBlockingFiles::write(std::int64_t file, std::uint64_t offset,
                                     std::span<const std::byte> from) {
  constexpr auto kind = Operation::Kind::write;
  Open* const open = find(file);
  if (open == nullptr) return -EBADF;
  if (const int fault = begin(kind, open->path)) return note(kind, -fault);
  return note(kind, host_.disk.files_->write(*open->inode, offset, from));
}

std::int64_t SimBlockingFiles::truncate(std::int64_t file, std::uint64_t size) {
  constexpr auto kind = Operation::Kind::truncate;
  Open* const open = find(file);
  if (open == nullptr) return -EBADF;
  if (const int fault = begin(kind, open->path)) return note(kind, -fault);
  return note(kind, host_.disk.files_->truncate(*open->inode, size));
}

std::int64_t SimBlockingFiles::size(std::int64_t file) {
  const Open* const open = find(file);
  return open == nullptr ? -EBADF : static_cast<std::int64_t>(open->inode->size());
}

std::int64_t SimBlockingFiles::sync(std::int64_t file) {
  Open* const open = find(file);
  if (open == nullptr) return -EBADF;
  const auto kind = open->inode->folder ? Operation::Kind::sync_directory : Operation::Kind::sync;
  const int fault = begin(kind, open->path);
  if (gone_ || !alive()) return note(kind, -EIO);
  open->inode->end_sync(open->inode->begin_sync(), fault != 0);
  return note(kind, -fault);
}

std::int64_t SimBlockingFiles::rename(std::string_view from, std::string_view to) {
  constexpr auto kind = Operation::Kind::rename;
  if (const int fault = begin(kind, from)) return note(kind, -fault);
  return note(kind, host_.disk.files_->rename(from, to));
}

std::int64_t SimBlockingFiles::remove(std::string_view path) {
  constexpr auto kind = Operation::Kind::remove;
  if (const int fault = begin(kind, path)) return note(kind, -fault);
  return note(kind, host_.disk.files_->remove(path));
}

std::int64_t SimBlockingFiles::make_directory(std::string_view path) {
  constexpr auto kind = Operation::Kind::make_directory;
  if (const int fault = begin(kind, path)) return note(kind, -fault);
  return note(kind, host_.disk.files_->make_directory(path));
}

std::int64_t SimBlockingFiles::list(std::string_view path, std::vector<std::string>& names) {
  constexpr auto kind = Operation::Kind::list_directory;
  if (const int fault = begin(kind, path)) return note(kind, -fault);
  return note(kind, host_.disk.files_->list(path, names));
}

bool SimBlockingFiles::exists(std::string_view path, bool* is_folder) {
  const auto found = host_.disk.files_->find(path);
  if (found.result == 0 && is_folder != nullptr) *is_folder = found.inode->folder;
  return found.result == 0;
}

}  // namespace hyperframes
