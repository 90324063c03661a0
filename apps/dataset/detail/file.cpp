#include <hyperframes/apps/dataset/detail/file.hpp>

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hyperframes/runtime/error.hpp>

namespace hyperframes::dataset::detail {
namespace {

std::string quoted(const std::filesystem::path& path) { return "'" + path.string() + "'"; }

// Closes its descriptor, and removes the file unless it was kept.
class OutputFile {
 public:
  explicit OutputFile(std::filesystem::path path) : path_(std::move(path)) {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor_ < 0) throw Error::system(errno, "create " + quoted(path_));
  }
  ~OutputFile() {
    if (descriptor_ < 0) return;
    ::close(descriptor_);
    ::unlink(path_.c_str());
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t count = ::write(descriptor_, text.data(), text.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw Error::system(errno, "write " + quoted(path_));
      text.remove_prefix(static_cast<std::size_t>(count));
    }
  }

  void keep_as(const std::filesystem::path& path) {
    if (::fsync(descriptor_) != 0) throw Error::system(errno, "sync " + quoted(path_));
    if (::rename(path_.c_str(), path.c_str()) != 0)
      throw Error::system(errno, "rename " + quoted(path_) + " to " + quoted(path));
    ::close(std::exchange(descriptor_, -1));
  }

 private:
  std::filesystem::path path_;
  int descriptor_;
};

}  // namespace

InputFile::InputFile(const std::filesystem::path& path) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0 && errno == ENOENT)
    throw Error(Errc::not_found, "open " + quoted(path), "there is no such file",
                "check the path, and from which folder it counts");
  if (descriptor_ < 0) throw Error::system(errno, "open " + quoted(path));
  struct ::stat status{};
  const bool known = ::fstat(descriptor_, &status) == 0;
  const int error = errno;
  if (known && S_ISREG(status.st_mode)) {
    size_ = static_cast<std::uint64_t>(status.st_size);
    return;
  }
  ::close(descriptor_);
  if (!known) throw Error::system(error, "read the size of " + quoted(path));
  throw Error(Errc::invalid_argument, "open " + quoted(path), "it is no regular file");
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read_at(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error::system(errno, "read " + quoted(path_));
    if (count == 0)
      throw Error(Errc::corrupt,
                  "read " + std::to_string(out.size()) + " bytes of " + quoted(path_),
                  "it ends at byte " + std::to_string(offset));
    offset += static_cast<std::uint64_t>(count);
    out = out.subspan(static_cast<std::size_t>(count));
  }
}

std::string read_text(const std::filesystem::path& path, std::uint64_t limit_bytes) {
  const InputFile file(path);
  if (file.size() > limit_bytes)
    throw Error(Errc::too_large, "read " + quoted(path),
                "it has " + std::to_string(file.size()) + " bytes, and at most " +
                    std::to_string(limit_bytes) + " are read");
  std::string text(file.size(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_file(const std::filesystem::path& path, std::span<const std::string_view> parts) {
  OutputFile file(path.string() + ".part");
  for (const std::string_view part : parts) file.write(part);
  file.keep_as(path);
}

}  // namespace hyperframes::dataset::detail
