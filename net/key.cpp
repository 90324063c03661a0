#include <openssl/crypto.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <hyperframes/net/key.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/log.hpp>
#include <memory>

namespace hyperframes::net {
namespace {

bool is_space(std::byte byte) noexcept {
  const auto c = static_cast<char>(byte);
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

constexpr const char* recipe =
    "make one with: head -c 32 /dev/urandom | base64 > FILE; chmod 600 FILE";

/// Who can read it can join, so the owner alone should. It is a warning, for groups may be meant.
void warn_if_others_read(std::FILE* file, const std::string& path) {
  struct stat status = {};
  if (::fstat(::fileno(file), &status) != 0 || (status.st_mode & 077) == 0) return;
  char mode[8];
  std::snprintf(mode, sizeof mode, "%03o", status.st_mode & 0777u);
  log::warning("the key file '" + path + "' is open to others than its owner (mode " + mode +
               "): chmod 600 '" + path + "'");
}

}  // namespace

Key Key::from_file(const std::string& path) {
  const std::string tried = "read the key file '" + path + "'";
  const auto close = [](std::FILE* file) { std::fclose(file); };
  std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "rbe"), close);
  if (!file) throw Error::system(errno, tried, {}, recipe);
  struct stat status = {};
  if (::fstat(::fileno(file.get()), &status) == 0 && S_ISDIR(status.st_mode))
    throw Error::system(EISDIR, tried, {}, std::string("name a file; ") + recipe);
  warn_if_others_read(file.get(), path);
  std::vector<std::byte> bytes(largest_size + 2);
  std::size_t size = std::fread(bytes.data(), 1, bytes.size(), file.get());
  const bool failed = std::ferror(file.get()) != 0;
  const int failure = errno;
  while (size && is_space(bytes[size - 1])) --size;
  std::string problem;
  if (size < least_size)
    problem = "it holds " + std::to_string(size) + " bytes, a key has at least " +
              std::to_string(least_size);
  if (size > largest_size) problem = "it is longer than " + std::to_string(largest_size) + " bytes";
  if (failed || !problem.empty()) {
    ::OPENSSL_cleanse(bytes.data(), bytes.size());
    if (failed) throw Error::system(failure, tried);
    throw Error(Errc::invalid_argument, tried, problem, recipe);
  }
  Key key = Key(std::span(bytes).first(size));
  ::OPENSSL_cleanse(bytes.data(), bytes.size());
  return key;
}

Key::Key(std::span<const std::byte> bytes) : bytes_(bytes.begin(), bytes.end()) {
  if (bytes.size() < least_size || bytes.size() > largest_size)
    throw Error(Errc::invalid_argument, "use a key of " + std::to_string(bytes.size()) + " bytes",
                "a key has from 16 to 4096 bytes", recipe);
}

Key::~Key() {
  if (!bytes_.empty()) ::OPENSSL_cleanse(bytes_.data(), bytes_.size());
}

}  // namespace hyperframes::net
