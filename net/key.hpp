// The secret that the nodes of one system share, and by which they prove to each other who they
// are.
//
//   auto key = hf::net::Key::from_file("/etc/hyperframes/key");   // made by: head -c 32
//   /dev/urandom | base64 hf::net::Network::Options options{.key = key};
//   // a peer without that key is refused, and learns why
//
// The key itself never travels and is never logged; it has no default.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace hyperframes::net {

class Key {
 public:
  static constexpr std::size_t least_size = 16, largest_size = 4096;

  /// Reads the file's bytes, without white space at the end. Blocks: for start-up. Throws with the
  /// path and the cause if it can't be read, is shorter than 16 bytes or longer than 4 KiB.
  static Key from_file(const std::string& path);
  explicit Key(std::span<const std::byte> bytes);
  Key(const Key&) = default;
  Key(Key&&) noexcept = default;
  Key& operator=(Key other) noexcept {
    bytes_.swap(other.bytes_);
    return *this;
  }
  ~Key();  ///< Overwrites the bytes.

  std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace hyperframes::net
