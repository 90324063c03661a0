// The secret that the nodes of one system share, and by which they prove to each other who they
// are.
//
//   // head -c 32 /dev/urandom | base64 > /etc/hyperframes/key; chmod 600 /etc/hyperframes/key
//   hf::net::Network::Options options{.key = hf::net::Key::from_file("/etc/hyperframes/key")};
//   // a peer without that key is refused (Errc::unauthenticated), and learns why
//
// The key itself never travels and is never logged; it has no default. It proves who peers are, and
// what they then say over TCP is encrypted (net/encryption.hpp). A plain value, for any thread.
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
  /// path and the cause if it can't be read (the system's error), is shorter than 16 bytes or
  /// longer than 4 KiB (Errc::invalid_argument). Warns in the log if others than its owner can read
  /// it.
  static Key from_file(const std::string& path);
  /// A copy of them; Errc::invalid_argument for a wrong length.
  explicit Key(std::span<const std::byte> bytes);
  Key(const Key&) = default;
  /// What was moved from is empty, and for nothing but assignment.
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
