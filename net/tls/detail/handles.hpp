// What libssl and libcrypto give out, released by its owner.
//
//   Handle<X509, &X509_free> certificate(PEM_read_bio_X509(file.get(), nullptr, nullptr, nullptr));
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>

namespace hyperframes::net::detail {

template <class T, void (*release)(T*)>
struct Release {
  void operator()(T* object) const noexcept { release(object); }
};
template <class T, void (*release)(T*)>
using Handle = std::unique_ptr<T, Release<T, release>>;

using Certificate = Handle<X509, &X509_free>;
using PrivateKey = Handle<EVP_PKEY, &EVP_PKEY_free>;

inline void free_bio(BIO* bio) { ::BIO_free(bio); }
using Bio = Handle<BIO, &free_bio>;

}  // namespace hyperframes::net::detail
