#include <hyperframes/net/tls/detail/words.hpp>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/sslerr.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <hyperframes/net/tls/detail/handles.hpp>
#include <hyperframes/runtime/address.hpp>

namespace hyperframes::net::detail {
namespace {

constexpr std::size_t longest_name = 200;
constexpr int most_names = 8;

constexpr const char* same_key = "give both nodes the same key file";
constexpr const char* same_authority =
    "give all nodes certificates of one authority: hyperframes cert makes them";
constexpr const char* renew =
    "renew it (hyperframes cert node), and see that the clocks of both hosts are right";

/// It comes from the other end, and ends up in logs and on terminals.
std::string printable(std::string_view text) {
  std::string clean(text.substr(0, longest_name));
  std::ranges::replace_if(clean, [](unsigned char c) { return c < ' ' || c >= 127; }, '?');
  return clean;
}

std::string printable(const ASN1_STRING* text) {
  return printable({reinterpret_cast<const char*>(::ASN1_STRING_get0_data(text)),
                    static_cast<std::size_t>(::ASN1_STRING_length(text))});
}

std::string text_of(const X509_NAME* name) {
  const Bio bio(::BIO_new(::BIO_s_mem()));
  if (!bio || ::X509_NAME_print_ex(bio.get(), name, 0, XN_FLAG_RFC2253) < 0) return "?";
  char* text = nullptr;
  const long size = ::BIO_get_mem_data(bio.get(), &text);
  return printable({text, static_cast<std::size_t>(size)});
}

std::string text_of(const ASN1_TIME* time) {
  std::tm parts{};
  char text[32] = "?";
  if (time && ::ASN1_TIME_to_tm(time, &parts) == 1)
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

std::string text_of_ip(const ASN1_OCTET_STRING* bytes) {
  const auto* data = ::ASN1_STRING_get0_data(bytes);
  const int size = ::ASN1_STRING_length(bytes);
  if (size == 4) return Address::v4({data[0], data[1], data[2], data[3]}, 0).host();
  if (size != 16) return "?";
  std::array<std::uint8_t, 16> v6;
  std::copy_n(data, 16, v6.begin());
  return Address::v6(v6, 0).host();
}

/// The names that a certificate is for, separated by commas.
std::string names_of(const X509* certificate) {
  auto* names = static_cast<GENERAL_NAMES*>(
      ::X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  if (!names) return "no name at all";
  std::string text;
  const int count = sk_GENERAL_NAME_num(names);
  for (int i = 0; i < std::min(count, most_names); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
    std::string one = "?";
    if (name->type == GEN_DNS) one = printable(name->d.dNSName);
    if (name->type == GEN_IPADD) one = text_of_ip(name->d.iPAddress);
    text += (text.empty() ? "" : ", ") + one;
  }
  if (count > most_names) text += ", ...";
  ::GENERAL_NAMES_free(names);
  return text;
}

Words refused(std::string found, std::string remedy) {
  return {Errc::unauthenticated, std::move(found), std::move(remedy)};
}

/// What the peer says of this node's certificate.
Words refused_own(const TlsIdentity& own, const std::string& why, const char* remedy) {
  const std::string of = own.description.empty() ? "" : " " + own.description;
  return refused("it refused this node's certificate" + of + ": " + why, remedy);
}

Words nothing_in_common(const TlsIdentity& own) {
  return refused(std::string("it refused: there is nothing that both ends can show each other; "
                             "this node has ") +
                     (own.certificates ? "certificates" : "a key file") +
                     ", the other one perhaps not",
                 "give both nodes the same key file, or both certificates of one authority");
}

}  // namespace

std::string describe(const X509* certificate) {
  // It looks at the extensions once, and keeps what it saw with the certificate.
  const bool authority = ::X509_check_ca(const_cast<X509*>(certificate)) > 0;
  return "'" + text_of(::X509_get_subject_name(certificate)) + "' (" +
         (authority ? "an authority's" : "for " + names_of(certificate)) + "; from " +
         text_of(::X509_get0_notBefore(certificate)) + " to " +
         text_of(::X509_get0_notAfter(certificate)) + ")";
}

Words words_of_alert(int alert, const TlsIdentity& own) {
  switch (alert) {
    case SSL_AD_HANDSHAKE_FAILURE: return nothing_in_common(own);
    case SSL_AD_ILLEGAL_PARAMETER:
    case SSL_AD_DECRYPT_ERROR:
    case SSL_AD_UNKNOWN_PSK_IDENTITY:
      if (!own.certificates)
        return refused("it refused: the check 'authentication' failed: it has another key",
                       same_key);
      break;
    case SSL_AD_BAD_CERTIFICATE:
      return refused_own(own,
                         "it is damaged, or not made for the name by which this node was called",
                         "make it for every name and number by which others connect (hyperframes "
                         "cert node --host)");
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
      return refused_own(own, "it may not be used for that",
                         "it needs the extended key usages serverAuth and clientAuth, as "
                         "hyperframes cert makes it");
    case SSL_AD_CERTIFICATE_REVOKED: return refused_own(own, "it was revoked", renew);
    case SSL_AD_CERTIFICATE_EXPIRED:
      return refused_own(own, "by its clock it has expired, or is not valid yet", renew);
    case SSL_AD_CERTIFICATE_UNKNOWN:
      return refused_own(own, "it does not say why", "see the log of the other node");
    case SSL_AD_UNKNOWN_CA:
      return refused_own(own, "it does not know the authority that issued it", same_authority);
    case SSL_AD_CERTIFICATE_REQUIRED:
      return refused("it refused: it wants a certificate, and this node showed none",
                     same_authority);
    case SSL_AD_PROTOCOL_VERSION:
      return {Errc::version_mismatch, "it does not speak TLS 1.3",
              "check that the port is a Hyperframes port"};
    case SSL_AD_BAD_RECORD_MAC:
      return {Errc::corrupt, "what this node sent arrived changed (TLS alert bad_record_mac)", {}};
    default: break;
  }
  const char* name = ::SSL_alert_desc_string_long(alert);
  return {Errc::corrupt,
          "it broke TLS off: " + std::string(name ? name : "unknown") + " (alert " +
              std::to_string(alert) + ")",
          "see the log of the other node"};
}

Words words_of_reason(int reason, const TlsIdentity& own) {
  switch (reason) {
    case SSL_R_BINDER_DOES_NOT_VERIFY:
      return refused("the check 'authentication' failed: it has another key", same_key);
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_NO_SHARED_GROUPS:
    case SSL_R_NO_SUITABLE_KEY_SHARE: {
      Words words = nothing_in_common(own);
      words.found =
          "the check 'authentication' failed: there is nothing that both ends can show "
          "each other; this node has " +
          std::string(own.certificates ? "certificates" : "a key file") + ", and it does not";
      return words;
    }
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return refused("the check 'authentication' failed: it showed no certificate", same_authority);
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_WRONG_SSL_VERSION:
    case SSL_R_VERSION_TOO_LOW:
      return {Errc::version_mismatch, "it does not speak TLS 1.3",
              "check that what calls this port is a Hyperframes node"};
    case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC:
    case SSL_R_BAD_RECORD_TYPE:
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_ENCRYPTED_LENGTH_TOO_LONG:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_LENGTH_TOO_SHORT:
      return {Errc::corrupt, "what it sent was changed on its way, or is no TLS",
              "find out who stands between the two hosts"};
    default: break;
  }
  const char* text = ::ERR_reason_error_string(ERR_PACK(ERR_LIB_SSL, 0, reason));
  return {Errc::corrupt, "it breaks the rules of TLS: " + std::string(text ? text : "unknown"),
          "check that the port is a Hyperframes port"};
}

Words words_of_verification(int error, const X509* certificate, const std::string& wanted) {
  const std::string which = certificate ? describe(certificate) : std::string("it has none");
  const std::string begin = "the check 'authentication' failed: its certificate " + which + " ";
  switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED: return refused(begin + "has expired", renew);
    case X509_V_ERR_CERT_NOT_YET_VALID: return refused(begin + "is not valid yet", renew);
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return refused(begin + "is not for '" + wanted + "'",
                     "connect to a name that it has, make it for this one (hyperframes cert node "
                     "--host), or name the peer that is meant (peer_name)");
    case X509_V_ERR_INVALID_PURPOSE:
      return refused(begin + "may not be used for this end of a connection",
                     "it needs the extended key usages serverAuth and clientAuth, as hyperframes "
                     "cert makes it");
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
    case X509_V_ERR_CERT_UNTRUSTED: {
      const std::string issuer =
          certificate ? text_of(::X509_get_issuer_name(certificate)) : std::string("?");
      return refused(
          begin + "was issued by '" + issuer + "', an authority that this node does not know",
          same_authority);
    }
    default:
      return refused(begin + "is not taken: " + ::X509_verify_cert_error_string(error),
                     same_authority);
  }
}

Words words_of_unwanted_certificate(const X509* certificate) {
  return refused("the check 'authentication' failed: it shows a certificate, " +
                     (certificate ? describe(certificate) : std::string("an empty one")) +
                     ", and this node has a key file",
                 "give both nodes the same key file, or both certificates of one authority");
}

}  // namespace hyperframes::net::detail
