#include <hyperframes/apps/dataset/hashes.hpp>

#include <array>
#include <cstdint>
#include <new>

#include <openssl/evp.h>
#include <xxhash.h>

namespace hyperframes::dataset {
namespace {

std::string to_hex(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string hex;
  for (const std::uint8_t byte : bytes) {
    hex += digits[byte >> 4];
    hex += digits[byte & 15];
  }
  return hex;
}

// The libraries' states come from C functions that return null when memory is out.
template <class State, auto free>
struct Freed {
  void operator()(State* state) const { free(state); }
};
template <class State, auto free>
using Owned = std::unique_ptr<State, Freed<State, free>>;

template <class State, auto free>
Owned<State, free> owned(State* state) {
  if (state == nullptr) throw std::bad_alloc();
  return Owned<State, free>(state);
}

class Xxh32 final : public Hasher {
 public:
  Xxh32() : state_(owned<XXH32_state_t, XXH32_freeState>(XXH32_createState())) {
    XXH32_reset(state_.get(), 0);
  }
  void update(std::span<const std::byte> bytes) override {
    XXH32_update(state_.get(), bytes.data(), bytes.size());
  }
  std::string hex() const override {
    XXH32_canonical_t canonical;
    XXH32_canonicalFromHash(&canonical, XXH32_digest(state_.get()));
    return to_hex(canonical.digest);
  }

 private:
  Owned<XXH32_state_t, XXH32_freeState> state_;
};

class Xxh64 final : public Hasher {
 public:
  Xxh64() : state_(owned<XXH64_state_t, XXH64_freeState>(XXH64_createState())) {
    XXH64_reset(state_.get(), 0);
  }
  void update(std::span<const std::byte> bytes) override {
    XXH64_update(state_.get(), bytes.data(), bytes.size());
  }
  std::string hex() const override {
    XXH64_canonical_t canonical;
    XXH64_canonicalFromHash(&canonical, XXH64_digest(state_.get()));
    return to_hex(canonical.digest);
  }

 private:
  Owned<XXH64_state_t, XXH64_freeState> state_;
};

class Xxh3 final : public Hasher {
 public:
  explicit Xxh3(bool wide)
      : wide_(wide), state_(owned<XXH3_state_t, XXH3_freeState>(XXH3_createState())) {
    wide ? XXH3_128bits_reset(state_.get()) : XXH3_64bits_reset(state_.get());
  }
  void update(std::span<const std::byte> bytes) override {
    wide_ ? XXH3_128bits_update(state_.get(), bytes.data(), bytes.size())
          : XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
  }
  std::string hex() const override {
    if (wide_) {
      XXH128_canonical_t canonical;
      XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
      return to_hex(canonical.digest);
    }
    XXH64_canonical_t canonical;
    XXH64_canonicalFromHash(&canonical, XXH3_64bits_digest(state_.get()));
    return to_hex(canonical.digest);
  }

 private:
  bool wide_;
  Owned<XXH3_state_t, XXH3_freeState> state_;
};

class Digest final : public Hasher {
 public:
  explicit Digest(const EVP_MD* type)
      : state_(owned<EVP_MD_CTX, EVP_MD_CTX_free>(EVP_MD_CTX_new())),
        usable_(EVP_DigestInit_ex(state_.get(), type, nullptr) == 1) {}
  bool usable() const { return usable_; }
  void update(std::span<const std::byte> bytes) override {
    EVP_DigestUpdate(state_.get(), bytes.data(), bytes.size());
  }
  std::string hex() const override {
    const auto copy = owned<EVP_MD_CTX, EVP_MD_CTX_free>(EVP_MD_CTX_new());
    std::array<std::uint8_t, EVP_MAX_MD_SIZE> digest;
    unsigned length = 0;
    EVP_MD_CTX_copy_ex(copy.get(), state_.get());
    EVP_DigestFinal_ex(copy.get(), digest.data(), &length);
    return to_hex(std::span(digest).first(length));
  }

 private:
  Owned<EVP_MD_CTX, EVP_MD_CTX_free> state_;
  bool usable_;
};

// A name that the host's policy forbids, such as md5 under FIPS, can't be computed either.
std::unique_ptr<Hasher> create_digest(std::string_view name) {
  struct Type {
    std::string_view name;
    const EVP_MD* (*get)();
  };
  constexpr std::array<Type, 12> types = {{{"md5", EVP_md5},
                                           {"sha1", EVP_sha1},
                                           {"sha224", EVP_sha224},
                                           {"sha256", EVP_sha256},
                                           {"sha384", EVP_sha384},
                                           {"sha512", EVP_sha512},
                                           {"sha3_224", EVP_sha3_224},
                                           {"sha3_256", EVP_sha3_256},
                                           {"sha3_384", EVP_sha3_384},
                                           {"sha3_512", EVP_sha3_512},
                                           {"blake2b", EVP_blake2b512},
                                           {"blake2s", EVP_blake2s256}}};
  for (const Type& type : types) {
    if (type.name != name) continue;
    auto digest = std::make_unique<Digest>(type.get());
    if (digest->usable()) return digest;
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<Hasher> Hasher::create(std::string_view name) {
  if (name == "xxh32") return std::make_unique<Xxh32>();
  if (name == "xxh64") return std::make_unique<Xxh64>();
  if (name == "xxh3_64") return std::make_unique<Xxh3>(false);
  if (name == "xxh128" || name == "xxh3_128") return std::make_unique<Xxh3>(true);
  return create_digest(name);
}

}  // namespace hyperframes::dataset
