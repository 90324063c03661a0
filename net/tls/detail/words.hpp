// What TLS says in numbers, for people: alerts, and why a certificate is not taken.
//
//   const Words words = words_of_alert(alert, identity);    // "it does not know the authority ..."
//   throw Error(words.code, "shake hands with " + peer, words.found, words.remedy);
#pragma once

#include <openssl/x509.h>

#include <hyperframes/runtime/error.hpp>
#include <string>

namespace hyperframes::net::detail {

/// By what a node shows who it is.
struct TlsIdentity {
  bool certificates = false;  ///< Else a key.
  std::string description;    ///< Of its own certificate, to be read behind "its certificate".
};

/// The parts of an Error but for what was tried.
struct Words {
  Errc code = Errc::corrupt;
  std::string found, remedy;
};

/// Of an alert that the peer sent. `own`: this node.
Words words_of_alert(int alert, const TlsIdentity& own);
/// Of the reason, in libssl's numbers, why this end could not go on.
Words words_of_reason(int reason, const TlsIdentity& own);
/// Of a peer's certificate that is not taken. `error`: X509_V_ERR_...; `wanted`: the name under
/// which the peer was called, if it was.
Words words_of_verification(int error, const X509* certificate, const std::string& wanted);

/// Of one that is shown to a node with a key.
Words words_of_unwanted_certificate(const X509* certificate);

/// "'CN=a' (for localhost, 127.0.0.1; from 2026-01-01 to 2027-01-01)", whatever it holds: what no
/// terminal should get is left out.
std::string describe(const X509* certificate);

}  // namespace hyperframes::net::detail
