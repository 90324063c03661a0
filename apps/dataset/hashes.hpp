// The hashes that an index keeps of its shard files.
//
//   auto hasher = dataset::Hasher::create("xxh64");
//   hasher->update(bytes);
//   const std::string hex = hasher->hex();
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace hyperframes::dataset {

class Hasher {
 public:
  virtual ~Hasher() = default;
  virtual void update(std::span<const std::byte> bytes) = 0;
  /// The hash of all bytes so far, in lowercase hex.
  virtual std::string hex() const = 0;

  /// The names are xxh32, xxh64, xxh128, xxh3_64, xxh3_128, md5, sha1, sha224, sha256, sha384,
  /// sha512, sha3_224, sha3_256, sha3_384, sha3_512, blake2b and blake2s. Null for another, and for
  /// one that the host's policy forbids.
  static std::unique_ptr<Hasher> create(std::string_view name);
};

}  // namespace hyperframes::dataset
