// What all TLS connections of one node share: its certificate or key, whom it lets in, and the
// rules.
//
//   auto context = std::make_shared<TlsContext>(encryption, key);    // reads the files
//   Handle<SSL, &SSL_free> ssl = context->make();
//
// Only TLS 1.3, no tickets, no early data, no compression. With certificates both ends show one;
// else both prove to have the key, which is the external PSK, together with a Diffie-Hellman
// exchange: who learns the key later can't read what was said before. Immutable once made;
// connections of several shards share it.
#pragma once

#include <array>
#include <hyperframes/net/encryption.hpp>
#include <hyperframes/net/key.hpp>
#include <hyperframes/net/tls/detail/handles.hpp>
#include <hyperframes/net/tls/detail/words.hpp>
#include <optional>
#include <span>
#include <string>

namespace hyperframes::net::detail {

/// Told by the context, while a connection looks at its peer's certificate.
class VerificationListener {
 public:
  /// What is wrong with it, as X509_V_ERR_...; once at most.
  virtual void on_refused(int error, const X509* certificate) noexcept = 0;

 protected:
  ~VerificationListener() = default;
};

class TlsContext {
 public:
  using Ssl = Handle<SSL, &SSL_free>;

  /// Throws with the path and the cause if a file can't be read or holds something else, and
  /// Errc::invalid_argument if options are missing or contradict each other. Blocks.
  TlsContext(const Encryption& encryption, const std::optional<Key>& key);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;

  /// For one connection, of either side. `listener` outlives it.
  Ssl make(VerificationListener& listener) const;
  const TlsIdentity& identity() const noexcept { return identity_; }
  const Encryption& encryption() const noexcept { return encryption_; }

 private:
  void set_rules();
  void load_certificates();
  void use_key(const Key& key);
  static int verify(int fine, X509_STORE_CTX* store) noexcept;
  static int offer_key(SSL* ssl, const EVP_MD* digest, const unsigned char** identity,
                       std::size_t* size, SSL_SESSION** session) noexcept;
  static int find_key(SSL* ssl, const unsigned char* identity, std::size_t size,
                      SSL_SESSION** session) noexcept;
  SSL_SESSION* session_of_key(SSL* ssl) const noexcept;

  Encryption encryption_;
  TlsIdentity identity_;
  std::array<unsigned char, 32> secret_{};  ///< The external PSK.
  Handle<SSL_CTX, &SSL_CTX_free> context_;
};

/// The external PSK of a key: one that says nothing about the key's other uses.
std::array<unsigned char, 32> secret_of(const Key& key);

}  // namespace hyperframes::net::detail
