#include <hyperframes/net/tls/detail/context.hpp>

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/log.hpp>
#include <string_view>
#include <vector>

namespace hyperframes::net::detail {
namespace {

constexpr std::size_t largest_file = 1 << 20;
constexpr std::string_view psk_identity = "hyperframes key 1";
constexpr std::string_view psk_label = "hyperframes external psk 1";
// A key goes with SHA-256 only.
constexpr const char* suites = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
constexpr unsigned char psk_suite[] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256
constexpr unsigned char session_owner[] = {'h', 'y', 'p', 'e', 'r'};
constexpr const char* make_them = "hyperframes cert makes certificates for tests and small systems";

/// A file's bytes, which are overwritten in the end.
class Bytes {
 public:
  explicit Bytes(const std::string& path, const std::string& tried) : bytes_(largest_file + 1) {
    const auto close = [](std::FILE* file) { std::fclose(file); };
    const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "rbe"), close);
    if (!file) throw Error::system(errno, tried, {}, make_them);
    struct stat status = {};
    if (::fstat(::fileno(file.get()), &status) == 0) mode_ = status.st_mode & 0777u;
    bytes_.resize(std::fread(bytes_.data(), 1, bytes_.size(), file.get()));
    if (std::ferror(file.get())) throw Error::system(errno, tried);
    if (bytes_.size() > largest_file)
      throw Error(Errc::invalid_argument, tried, "it is longer than 1 MiB", make_them);
  }
  ~Bytes() { ::OPENSSL_cleanse(bytes_.data(), bytes_.size()); }
  Bytes(const Bytes&) = delete;

  Bio open() const {
    return Bio(::BIO_new_mem_buf(bytes_.data(), static_cast<int>(bytes_.size())));
  }
  unsigned mode() const noexcept { return mode_; }

 private:
  std::vector<char> bytes_;
  unsigned mode_ = 0;
};

/// The next certificate; null behind the last one.
Certificate next_certificate(BIO* bio) {
  Certificate certificate(::PEM_read_bio_X509(bio, nullptr, nullptr, nullptr));
  ::ERR_clear_error();
  return certificate;
}

std::vector<Certificate> read_certificates(const std::string& path, const std::string& tried) {
  const Bytes bytes(path, tried);
  const Bio bio = bytes.open();
  std::vector<Certificate> all;
  while (Certificate certificate = next_certificate(bio.get()))
    all.push_back(std::move(certificate));
  if (all.empty())
    throw Error(Errc::invalid_argument, tried, "it holds no certificate in PEM form", make_them);
  return all;
}

/// Else libcrypto would ask for one on the terminal.
int no_passphrase(char*, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return 0;
}

PrivateKey read_private_key(const std::string& path, const std::string& tried) {
  const Bytes bytes(path, tried);
  if (bytes.mode() & 077)
    log::warning("the private key '" + path + "' is open to others than its owner: chmod 600 '" +
                 path + "'");
  const Bio bio = bytes.open();
  bool asked = false;
  PrivateKey key(::PEM_read_bio_PrivateKey(bio.get(), nullptr, &no_passphrase, &asked));
  ::ERR_clear_error();
  if (key) return key;
  throw Error(
      Errc::invalid_argument, tried,
      asked ? "it is protected by a passphrase" : "it holds no private key in PEM form",
      asked ? "keep it without one, readable by its owner only: openssl pkey -in FILE" : make_them);
}

void require(bool done, const char* what) {
  if (done) return;
  char text[256] = "it does not say why";
  ::ERR_error_string_n(::ERR_get_error(), text, sizeof text);
  ::ERR_clear_error();
  throw Error(Errc::internal, what, std::string("libssl refused: ") + text,
              "check that OpenSSL's default provider is available");
}

void check_options(const Encryption& encryption) {
  const std::string tried = "use certificates";
  const std::pair<const std::string&, const char*> files[] = {
      {encryption.certificate_file, "the certificate"},
      {encryption.certificate_key_file, "the certificate's private key"},
      {encryption.authority_file, "the authority's certificate"}};
  std::string missing;
  bool any = false;
  for (const auto& [path, name] : files) {
    any |= !path.empty();
    if (path.empty()) missing += (missing.empty() ? "" : ", ") + std::string(name);
  }
  if (any && !missing.empty())
    throw Error(Errc::invalid_argument, tried, "these are not given: " + missing,
                "give all three files, or none");
  if (any && encryption.plaintext)
    throw Error(Errc::invalid_argument, tried, "it was asked for plaintext as well",
                "leave one of both out");
  if (!any && !encryption.peer_name.empty())
    throw Error(Errc::invalid_argument, "expect peers to be named '" + encryption.peer_name + "'",
                "there are no certificates that could name them", "give certificates");
}

}  // namespace

std::array<unsigned char, 32> secret_of(const Key& key) {
  std::array<unsigned char, 32> secret;
  unsigned size = 0;
  const auto bytes = key.bytes();
  const auto* done = ::HMAC(EVP_sha256(), bytes.data(), static_cast<int>(bytes.size()),
                            reinterpret_cast<const unsigned char*>(psk_label.data()),
                            psk_label.size(), secret.data(), &size);
  require(done && size == secret.size(), "derive a secret from the key");
  return secret;
}

TlsContext::TlsContext(const Encryption& encryption, const std::optional<Key>& key)
    : encryption_(encryption) {
  check_options(encryption_);
  ::ERR_clear_error();
  context_.reset(::SSL_CTX_new(::TLS_method()));
  require(context_ != nullptr, "set up TLS");
  set_rules();
  if (encryption_.has_certificates()) {
    load_certificates();
  } else if (key) {
    use_key(*key);
  } else {
    throw Error(Errc::invalid_argument, "set up TLS", "there are neither certificates nor a key",
                "give one of both");
  }
}

TlsContext::~TlsContext() { ::OPENSSL_cleanse(secret_.data(), secret_.size()); }

void TlsContext::set_rules() {
  SSL_CTX* const context = context_.get();
  const bool done = ::SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                    ::SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
                    ::SSL_CTX_set_ciphersuites(context, suites) == 1 &&
                    ::SSL_CTX_set1_groups_list(context, "X25519:P-256") == 1 &&
                    ::SSL_CTX_set_num_tickets(context, 0) == 1 &&
                    ::SSL_CTX_set_max_early_data(context, 0) == 1;
  require(done, "set TLS's rules");
  ::SSL_CTX_set_options(context,
                        SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // Of the certificates those are shown that the file has, and not the authority's as well.
  ::SSL_CTX_set_mode(context, SSL_MODE_NO_AUTO_CHAIN);
  // How a connection ends is told, not forgiven: a cut one must not look like an end.
  ::SSL_CTX_clear_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
  ::SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  // Nothing is cached, but a key is a session to libssl, which wants to know whose it is.
  require(::SSL_CTX_set_session_id_context(context, session_owner, sizeof session_owner) == 1,
          "set TLS's rules");
  ::SSL_CTX_set_security_level(context, 2);
  ::SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                       &TlsContext::verify);
  SSL_CTX_set_app_data(context, this);
}

void TlsContext::load_certificates() {
  SSL_CTX* const context = context_.get();
  const std::string tried = "read the certificate '" + encryption_.certificate_file + "'";
  const auto own = read_certificates(encryption_.certificate_file, tried);
  const std::string tried_key = "read the private key '" + encryption_.certificate_key_file + "'";
  const PrivateKey key = read_private_key(encryption_.certificate_key_file, tried_key);
  if (::X509_check_private_key(own[0].get(), key.get()) != 1) {
    ::ERR_clear_error();
    throw Error(Errc::invalid_argument, tried_key,
                "it does not belong to the certificate '" + encryption_.certificate_file + "'",
                "give the two that were made together");
  }
  if (::SSL_CTX_use_certificate(context, own[0].get()) != 1) {
    ::ERR_clear_error();
    throw Error(Errc::invalid_argument, tried,
                "its key is too weak, or of a kind that TLS 1.3 does not know", make_them);
  }
  require(::SSL_CTX_use_PrivateKey(context, key.get()) == 1, "use a private key");
  for (std::size_t i = 1; i < own.size(); ++i)
    require(::SSL_CTX_add1_chain_cert(context, own[i].get()) == 1, "use a chain of certificates");

  const std::string tried_authority =
      "read the authority's certificate '" + encryption_.authority_file + "'";
  // Whoever stands in that file is trusted, whether it signed itself or not.
  ::X509_VERIFY_PARAM_set_flags(::SSL_CTX_get0_param(context), X509_V_FLAG_PARTIAL_CHAIN);
  X509_STORE* const store = ::SSL_CTX_get_cert_store(context);
  for (const auto& authority : read_certificates(encryption_.authority_file, tried_authority))
    require(::X509_STORE_add_cert(store, authority.get()) == 1, "trust an authority");
  identity_ = {true, describe(own[0].get())};
  const int begun = ::X509_cmp_current_time(::X509_get0_notBefore(own[0].get()));
  const int ends = ::X509_cmp_current_time(::X509_get0_notAfter(own[0].get()));
  if (begun > 0 || ends < 0)
    log::warning("this node's own certificate " + identity_.description +
                 " is not valid at this time: peers will refuse it");
}

// Only SHA-256 goes with it, so a ticket's suite is fixed; the exchange of keys is not left out.
void TlsContext::use_key(const Key& key) {
  secret_ = secret_of(key);
  ::SSL_CTX_set_psk_use_session_callback(context_.get(), &TlsContext::offer_key);
  ::SSL_CTX_set_psk_find_session_callback(context_.get(), &TlsContext::find_key);
}

TlsContext::Ssl TlsContext::make(VerificationListener& listener) const {
  ::ERR_clear_error();
  Ssl ssl(::SSL_new(context_.get()));
  require(ssl != nullptr, "set up a TLS connection");
  SSL_set_app_data(ssl.get(), &listener);
  return ssl;
}

// The alert for a certificate that is not valid yet is the one for an expired one: RFC 8446 has it
// mean both, and what libssl would send says less.
int TlsContext::verify(int fine, X509_STORE_CTX* store) noexcept {
  if (fine) return 1;
  auto* const ssl = static_cast<SSL*>(
      ::X509_STORE_CTX_get_ex_data(store, ::SSL_get_ex_data_X509_STORE_CTX_idx()));
  auto* const listener = static_cast<VerificationListener*>(SSL_get_app_data(ssl));
  const int error = ::X509_STORE_CTX_get_error(store);
  listener->on_refused(error, ::X509_STORE_CTX_get_current_cert(store));
  if (error == X509_V_ERR_CERT_NOT_YET_VALID)
    ::X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_HAS_EXPIRED);
  return 0;
}

SSL_SESSION* TlsContext::session_of_key(SSL* ssl) const noexcept {
  SSL_SESSION* const session = ::SSL_SESSION_new();
  const SSL_CIPHER* const suite = ::SSL_CIPHER_find(ssl, psk_suite);
  const bool done =
      session && suite &&
      ::SSL_SESSION_set1_master_key(session, secret_.data(), secret_.size()) == 1 &&
      ::SSL_SESSION_set1_id_context(session, session_owner, sizeof session_owner) == 1 &&
      ::SSL_SESSION_set_cipher(session, suite) == 1 &&
      ::SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
  if (done) return session;
  ::SSL_SESSION_free(session);
  return nullptr;
}

int TlsContext::offer_key(SSL* ssl, const EVP_MD*, const unsigned char** identity,
                          std::size_t* size, SSL_SESSION** session) noexcept {
  const auto* const self = static_cast<TlsContext*>(SSL_CTX_get_app_data(::SSL_get_SSL_CTX(ssl)));
  *identity = reinterpret_cast<const unsigned char*>(psk_identity.data());
  *size = psk_identity.size();
  *session = self->session_of_key(ssl);
  return *session ? 1 : 0;
}

int TlsContext::find_key(SSL* ssl, const unsigned char* identity, std::size_t size,
                         SSL_SESSION** session) noexcept {
  const auto* const self = static_cast<TlsContext*>(SSL_CTX_get_app_data(::SSL_get_SSL_CTX(ssl)));
  const std::string_view name(reinterpret_cast<const char*>(identity), size);
  *session = name == psk_identity ? self->session_of_key(ssl) : nullptr;
  return name != psk_identity || *session ? 1 : 0;
}

}  // namespace hyperframes::net::detail
