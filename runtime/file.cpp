#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/file.hpp>
#include <hyperframes/runtime/reactor.hpp>
#include <hyperframes/runtime/shard.hpp>

namespace hyperframes {
namespace {

// One call of the system moves at most this much, well below its own 2 GiB limit.
constexpr std::size_t transfer_limit = std::size_t{1} << 30;

Operation* on_path(Operation::Kind kind, std::string path) {
  Operation* operation = Operation::create(kind);
  operation->path = std::move(path);
  return operation;
}

std::string remedy_for(int failure) {
  if (failure == ENOSPC) return "free space on that file system";
  if (failure == EMFILE) return "raise the open-files limit (ulimit -n)";
  if (failure == EACCES || failure == EPERM) return "check its owner and mode";
  if (failure == EROFS) return "use a folder on a writable file system";
  return {};
}

void check(std::int64_t result, std::string tried) {
  if (result >= 0) return;
  const int failure = static_cast<int>(-result);
  throw Error::system(failure, std::move(tried), {}, remedy_for(failure));
}

Task<void> on_path_alone(Operation::Kind kind, std::string tried, std::string path) {
  const std::string text = tried + " '" + path + "'";
  detail::OperationAwaiter waiting(on_path(kind, std::move(path)));
  check(co_await waiting, text);
}

}  // namespace

File::File(int descriptor, std::string path) noexcept
    : descriptor_(descriptor),
      of_system_(Shard::current()->reactor().has_system_descriptors()),
      path_(std::move(path)) {}
File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      of_system_(other.of_system_),
      path_(std::move(other.path_)) {}
File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(of_system_, other.of_system_);
  std::swap(path_, other.path_);
  return *this;
}
File::~File() {
  if (descriptor_ < 0) return;
  if (Shard* shard = Shard::current()) {
    shard->reactor().close_now(descriptor_);
  } else if (of_system_) {
    ::close(descriptor_);
  }
}

Task<File> File::open(std::string path, Mode mode) {
  static constexpr int flags[] = {O_RDONLY, O_RDWR | O_CREAT, O_RDWR | O_CREAT | O_TRUNC,
                                  O_RDWR | O_CREAT | O_EXCL};
  Operation* operation = on_path(Operation::Kind::open, path);
  operation->flags = flags[static_cast<std::size_t>(mode)];
  detail::OperationAwaiter waiting(operation);
  const std::int64_t result = co_await waiting;
  check(result, "open '" + path + "'");
  co_return File(static_cast<int>(result), std::move(path));
}

Task<Buffer> File::read_at(std::uint64_t offset, Buffer into) {
  std::size_t done = 0;
  while (done < into.size()) {
    Operation* operation = Operation::create(Operation::Kind::read, descriptor_);
    operation->offset = offset + done;
    operation->memory.push_back(into.slice(done, std::min(into.size() - done, transfer_limit)));
    detail::OperationAwaiter waiting(operation);
    const std::int64_t result = co_await waiting;
    if (result == -EINTR || result == -EAGAIN) continue;
    check(result, "read '" + path_ + "' at " + std::to_string(offset + done));
    if (result == 0) break;
    done += static_cast<std::size_t>(result);
  }
  into.resize_down(done);
  co_return into;
}

Task<Buffer> File::read_exactly(std::uint64_t offset, std::size_t size) {
  Buffer buffer = co_await read_at(offset, Buffer::heap(size));
  if (buffer.size() != size)
    throw Error(
        Errc::corrupt,
        "read " + std::to_string(size) + " bytes of '" + path_ + "' at " + std::to_string(offset),
        "the file ends after " + std::to_string(buffer.size()) + " of them");
  co_return buffer;
}

Task<void> File::write_at(std::uint64_t offset, Segments data) {
  while (!data.empty() && data.size_bytes() > 0) {
    Operation* operation = Operation::create(Operation::Kind::write, descriptor_);
    operation->offset = offset;
    operation->memory = std::move(data);
    detail::OperationAwaiter waiting(operation);
    const std::int64_t result = co_await waiting;
    data = std::move(waiting.memory);
    if (result == -EINTR || result == -EAGAIN) continue;
    check(result, "write '" + path_ + "' at " + std::to_string(offset));
    if (result == 0) check(-ENOSPC, "write '" + path_ + "' at " + std::to_string(offset));
    offset += static_cast<std::uint64_t>(result);
    data.remove_prefix(static_cast<std::size_t>(result));
  }
}

Task<void> File::sync() {
  detail::OperationAwaiter waiting(Operation::create(Operation::Kind::sync, descriptor_));
  check(co_await waiting, "sync '" + path_ + "'");
}

Task<std::uint64_t> File::size() {
  detail::OperationAwaiter waiting(Operation::create(Operation::Kind::size, descriptor_));
  const std::int64_t result = co_await waiting;
  check(result, "read the size of '" + path_ + "'");
  co_return static_cast<std::uint64_t>(result);
}

Task<void> File::truncate(std::uint64_t size) {
  Operation* operation = Operation::create(Operation::Kind::truncate, descriptor_);
  operation->offset = size;
  detail::OperationAwaiter waiting(operation);
  check(co_await waiting, "truncate '" + path_ + "' to " + std::to_string(size) + " bytes");
}

Task<void> File::close() {
  if (descriptor_ < 0) co_return;
  detail::OperationAwaiter waiting(
      Operation::create(Operation::Kind::close, std::exchange(descriptor_, -1)));
  check(co_await waiting, "close '" + path_ + "'");
}

Task<void> rename_file(std::string from, std::string to) {
  const std::string tried = "rename '" + from + "' to '" + to + "'";
  Operation* operation = on_path(Operation::Kind::rename, std::move(from));
  operation->second_path = std::move(to);
  detail::OperationAwaiter waiting(operation);
  check(co_await waiting, tried);
}

Task<void> remove_file(std::string path) {
  return on_path_alone(Operation::Kind::remove, "remove", std::move(path));
}
Task<void> make_directory(std::string path) {
  return on_path_alone(Operation::Kind::make_directory, "make the folder", std::move(path));
}
Task<void> sync_directory(std::string path) {
  return on_path_alone(Operation::Kind::sync_directory, "sync the folder", std::move(path));
}

Task<void> make_durable_directory(std::string path) {
  co_await make_directory(path);
  // All of them, whoever made them: an earlier process may have ended before it synced.
  while (true) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    const auto slash = path.rfind('/');
    const bool at_top = slash == std::string::npos || slash == 0;
    const std::string parent =
        slash == std::string::npos ? "." : path.substr(0, at_top ? 1 : slash);
    if (parent == path) co_return;
    try {
      co_await sync_directory(parent);
    } catch (const Error& error) {
      const int failure = error.code().value();
      if (error.code().category() != std::generic_category() ||
          (failure != EACCES && failure != EPERM && failure != EROFS && failure != EINVAL))
        throw;
    }
    if (at_top) co_return;
    path = parent;
  }
}

Task<std::vector<std::string>> list_directory(std::string path) {
  const std::string tried = "list the folder '" + path + "'";
  detail::OperationAwaiter waiting(on_path(Operation::Kind::list_directory, std::move(path)));
  check(co_await waiting, tried);
  co_return std::move(waiting.names);
}

Task<Buffer> read_whole_file(std::string path, std::size_t limit) {
  File file = co_await File::open(std::move(path), File::Mode::read);
  const std::uint64_t size = co_await file.size();
  if (size > limit)
    throw Error(Errc::too_large, "read '" + file.path() + "'",
                "it has " + std::to_string(size) + " bytes; the limit is " + std::to_string(limit));
  Buffer contents = co_await file.read_exactly(0, static_cast<std::size_t>(size));
  co_await file.close();
  co_return contents;
}

Task<void> write_whole_file(std::string path, Buffer contents) {
  const std::string beside = path + ".new";
  File file = co_await File::open(beside, File::Mode::create_empty);
  co_await file.write_at(0, Segments(std::move(contents)));
  co_await file.sync();
  co_await file.close();
  co_await rename_file(beside, path);
  const auto slash = path.rfind('/');
  co_await sync_directory(slash == std::string::npos ? "." : path.substr(0, slash + 1));
}

Task<bool> file_exists(std::string path) {
  Operation* operation = on_path(Operation::Kind::open, path);
  operation->flags = O_RDONLY;
  detail::OperationAwaiter waiting(operation);
  const std::int64_t result = co_await waiting;
  if (result == -ENOENT) co_return false;
  check(result, "look for '" + path + "'");
  Shard::current()->reactor().close_now(static_cast<int>(result));
  co_return true;
}

}  // namespace hyperframes
