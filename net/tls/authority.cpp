#include <hyperframes/net/tls/authority.hpp>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>

#include <algorithm>
#include <hyperframes/net/tls/detail/handles.hpp>
#include <hyperframes/net/tls/detail/words.hpp>
#include <hyperframes/runtime/address.hpp>
#include <hyperframes/runtime/error.hpp>

namespace hyperframes::net {
namespace {

using detail::Bio;
using detail::Certificate;
using detail::Handle;
using detail::PrivateKey;

constexpr std::size_t longest_name = 64, longest_host = 253;

void require(bool done, const char* what) {
  if (done) return;
  char text[256] = "";
  ::ERR_error_string_n(::ERR_get_error(), text, sizeof text);
  ::ERR_clear_error();
  throw Error(Errc::internal, what, std::string("libcrypto refused: ") + text,
              "check that OpenSSL's default provider is available");
}

bool is_letter_or_digit(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

void check_name(const std::string& name) {
  const bool fine =
      !name.empty() && name.size() <= longest_name && std::ranges::all_of(name, [](char c) {
        return is_letter_or_digit(c) || c == ' ' || c == '-' || c == '_' || c == '.';
      });
  if (!fine)
    throw Error(Errc::invalid_argument, "make a certificate for '" + name + "'",
                "a name has 1 to 64 letters, digits, spaces, '-', '_' and '.'");
}

/// As it stands in a list of alternative names.
std::string alternative_name(const std::string& host) {
  if (const auto number = Address::parse(host, 0)) return "IP:" + number->host();
  const bool fine =
      !host.empty() && host.size() <= longest_host && std::ranges::all_of(host, [](char c) {
        return is_letter_or_digit(c) || c == '-' || c == '_' || c == '.';
      });
  if (!fine)
    throw Error(Errc::invalid_argument, "make a certificate for the host '" + host + "'",
                "it is neither a name nor a number of a host",
                "give one such as node-7.example.org, 10.0.0.7 or ::1, without a port");
  return "DNS:" + host;
}

std::string pem_of(BIO* bio) {
  char* text = nullptr;
  const long size = ::BIO_get_mem_data(bio, &text);
  return {text, static_cast<std::size_t>(size)};
}

Certificate read_certificate(const std::string& pem) {
  const Bio bio(::BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  Certificate certificate(::PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  ::ERR_clear_error();
  if (certificate) return certificate;
  throw Error(Errc::invalid_argument, "read a certificate", "it is no certificate in PEM form");
}

PrivateKey read_key(const std::string& pem) {
  const Bio bio(::BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  const auto none = [](char*, int, int, void*) { return 0; };
  PrivateKey key(::PEM_read_bio_PrivateKey(bio.get(), nullptr, none, nullptr));
  ::ERR_clear_error();
  if (key) return key;
  throw Error(Errc::invalid_argument, "read an authority's private key",
              "it is no private key in PEM form, or has a passphrase");
}

void add(X509* certificate, X509* issuer, int extension, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  ::X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Handle<X509_EXTENSION, &X509_EXTENSION_free> made(
      ::X509V3_EXT_conf_nid(nullptr, &context, extension, value.c_str()));
  require(made && ::X509_add_ext(certificate, made.get(), -1) == 1, "extend a certificate");
}

void set_serial(X509* certificate) {
  unsigned char bytes[16];
  require(::RAND_bytes(bytes, sizeof bytes) == 1, "get random bytes");
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7f) | 0x40);  // positive, and all 16 bytes
  const Handle<BIGNUM, &BN_free> number(::BN_bin2bn(bytes, sizeof bytes, nullptr));
  require(number && ::BN_to_ASN1_INTEGER(number.get(), ::X509_get_serialNumber(certificate)),
          "number a certificate");
}

/// Without issuer, extensions and signature.
Certificate begin(const CertificateRequest& request, EVP_PKEY* key) {
  check_name(request.name);
  Certificate made(::X509_new());
  require(made && ::X509_set_version(made.get(), X509_VERSION_3) == 1, "make a certificate");
  set_serial(made.get());
  const auto seconds = [](CalendarTime time) {
    return static_cast<time_t>(time.time_since_epoch().count());
  };
  auto* const name = ::X509_get_subject_name(made.get());
  const auto* const text = reinterpret_cast<const unsigned char*>(request.name.c_str());
  require(::ASN1_TIME_set(::X509_getm_notBefore(made.get()), seconds(request.from)) &&
              ::ASN1_TIME_set(::X509_getm_notAfter(made.get()),
                              seconds(request.from + request.lifetime)) &&
              ::X509_set_pubkey(made.get(), key) == 1 &&
              ::X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, text, -1, -1, 0) == 1,
          "fill a certificate");
  return made;
}

Issued finish(X509* certificate, EVP_PKEY* key, EVP_PKEY* signer) {
  require(::X509_sign(certificate, signer, ::EVP_sha256()) > 0, "sign a certificate");
  const Bio public_part(::BIO_new(::BIO_s_mem()));
  const Bio secret_part(::BIO_new(::BIO_s_secmem()));
  require(public_part && ::PEM_write_bio_X509(public_part.get(), certificate) == 1,
          "write a certificate");
  require(secret_part && ::PEM_write_bio_PrivateKey(secret_part.get(), key, nullptr, nullptr, 0,
                                                    nullptr, nullptr) == 1,
          "write a private key");
  return {pem_of(public_part.get()), pem_of(secret_part.get())};
}

PrivateKey make_key() {
  PrivateKey key(::EVP_EC_gen("P-256"));
  require(key != nullptr, "make a private key");
  return key;
}

std::string usages(const CertificateRequest& request) {
  std::string text = request.may_accept ? "serverAuth" : "";
  if (request.may_connect) text += text.empty() ? "clientAuth" : ",clientAuth";
  if (!text.empty()) return text;
  throw Error(Errc::invalid_argument, "make a certificate for '" + request.name + "'",
              "it would be good for neither end of a connection");
}

/// Its name is the issuer of what it signs.
void check_authority(X509* authority, EVP_PKEY* key, const X509* made) {
  const std::string tried = "issue a certificate by " + detail::describe(authority);
  if (::X509_check_ca(authority) == 0)
    throw Error(Errc::invalid_argument, tried, "it is no authority's certificate",
                "make an authority: hyperframes cert ca DIR");
  if (::X509_check_private_key(authority, key) != 1) {
    ::ERR_clear_error();
    throw Error(Errc::invalid_argument, tried, "the private key belongs to another certificate");
  }
  int days = 0, seconds = 0;
  ::ASN1_TIME_diff(&days, &seconds, ::X509_get0_notAfter(made), ::X509_get0_notAfter(authority));
  if (days < 0 || seconds < 0)
    throw Error(Errc::invalid_argument, tried, "the authority ends before the certificate would",
                "give it fewer days, or make a new authority");
}

}  // namespace

Issued make_authority(const CertificateRequest& request) {
  const PrivateKey key = make_key();
  const Certificate made = begin(request, key.get());
  X509* const self = made.get();
  require(::X509_set_issuer_name(self, ::X509_get_subject_name(self)) == 1, "name an authority");
  add(self, self, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  add(self, self, NID_key_usage, "critical,keyCertSign,cRLSign");
  add(self, self, NID_subject_key_identifier, "hash");
  return finish(self, key.get(), key.get());
}

Issued issue(const Issued& authority, const CertificateRequest& request) {
  const Certificate issuer = read_certificate(authority.certificate);
  const PrivateKey signer = read_key(authority.key);
  const PrivateKey key = make_key();
  const Certificate made = begin(request, key.get());
  X509* const self = made.get();
  check_authority(issuer.get(), signer.get(), self);
  require(::X509_set_issuer_name(self, ::X509_get_subject_name(issuer.get())) == 1,
          "name an issuer");
  std::string hosts;
  for (const auto& host : request.hosts)
    hosts += (hosts.empty() ? "" : ",") + alternative_name(host);
  add(self, issuer.get(), NID_basic_constraints, "critical,CA:FALSE");
  add(self, issuer.get(), NID_key_usage, "critical,digitalSignature");
  add(self, issuer.get(), NID_ext_key_usage, usages(request));
  if (!hosts.empty()) add(self, issuer.get(), NID_subject_alt_name, hosts);
  add(self, issuer.get(), NID_subject_key_identifier, "hash");
  add(self, issuer.get(), NID_authority_key_identifier, "keyid:always");
  return finish(self, key.get(), signer.get());
}

std::string describe_certificate(const std::string& certificate) {
  return detail::describe(read_certificate(certificate).get());
}

}  // namespace hyperframes::net
