// The other end of a TLS connection, by libssl alone, on a blocking socket: what shows that the
// nodes speak what others call TLS 1.3.
//
//   RawPeer peer(endpoint);
//   RawTls tls(peer, encryption);
//   REQUIRE(tls.connect());
//   tls.send(encode(hello));
#pragma once

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <hyperframes/net/encryption.hpp>
#include <hyperframes/net/frame.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "raw_peer.hpp"

namespace net_test {

class RawTls {
 public:
  RawTls(RawPeer& peer, const hf::net::Encryption& encryption, int version = TLS1_3_VERSION) {
    context_ = ::SSL_CTX_new(::TLS_client_method());
    ::SSL_CTX_set_max_proto_version(context_, version);
    if (!encryption.certificate_file.empty()) {
      ::SSL_CTX_use_certificate_chain_file(context_, encryption.certificate_file.c_str());
      ::SSL_CTX_use_PrivateKey_file(context_, encryption.certificate_key_file.c_str(),
                                    SSL_FILETYPE_PEM);
      ::SSL_CTX_load_verify_locations(context_, encryption.authority_file.c_str(), nullptr);
      ::SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
    }
    ::SSL_CTX_set_session_cache_mode(context_, SSL_SESS_CACHE_CLIENT);
    ::SSL_CTX_sess_set_new_cb(context_, [](SSL* ssl, SSL_SESSION*) {
      ++static_cast<RawTls*>(SSL_get_app_data(ssl))->tickets_;
      return 0;
    });
    ssl_ = ::SSL_new(context_);
    SSL_set_app_data(ssl_, this);
    ::SSL_set_fd(ssl_, peer.descriptor());
  }
  RawTls(const RawTls&) = delete;
  ~RawTls() {
    ::SSL_free(ssl_);
    ::SSL_CTX_free(context_);
  }

  bool connect() {
    ::ERR_clear_error();
    const bool done = ::SSL_connect(ssl_) == 1;
    if (!done) reason_ = ERR_GET_REASON(::ERR_get_error());
    return done;
  }
  /// In libssl's numbers.
  int reason() const { return reason_; }
  int tickets() const { return tickets_; }
  SSL* ssl() const { return ssl_; }

  void send(std::span<const std::byte> bytes) {
    if (::SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size())) <= 0)
      throw std::runtime_error("SSL_write failed");
  }
  void send(const hf::Buffer& buffer) { send(buffer.bytes()); }
  std::vector<std::byte> receive(std::size_t size) {
    std::vector<std::byte> bytes(size);
    for (std::size_t have = 0; have < size;) {
      const int got = ::SSL_read(ssl_, bytes.data() + have, static_cast<int>(size - have));
      if (got <= 0) throw std::runtime_error("closed");
      have += static_cast<std::size_t>(got);
    }
    return bytes;
  }
  RawPeer::Frame receive_frame() {
    const auto bytes = receive(hf::net::FrameHeader::size);
    RawPeer::Frame frame;
    if (decode(std::span<const std::byte, 64>(bytes.data(), 64), hf::net::FrameLimits(),
               frame.header) != hf::net::FrameFault::none)
      throw std::runtime_error("bad frame");
    frame.payload = receive(frame.header.length);
    return frame;
  }
  /// As RawPeer's.
  void enter(const hf::net::Hello& hello) {
    send(encode(hello));
    receive_frame();
    send(encode(hf::net::Proof{}));
    if (receive_frame().header.kind != hf::net::FrameKind::welcome)
      throw std::runtime_error("not welcome");
  }
  /// TLS's closing word.
  void close() { ::SSL_shutdown(ssl_); }

 private:
  SSL_CTX* context_ = nullptr;
  SSL* ssl_ = nullptr;
  int reason_ = 0, tickets_ = 0;
};

}  // namespace net_test
