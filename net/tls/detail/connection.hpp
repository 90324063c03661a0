// One TLS connection as a machine: bytes of the wire go in, bytes for the wire come out, and it
// waits for nothing.
//
//   connection.give(chunk);                              // what arrived; it must stay until read
//   while (connection.read(target, size) == TlsStep::done) use(target.first(size));
//   connection.write(plaintext);
//   Segments batch = connection.take_output();           // to be sent, in pooled buffers
//
// libssl stands between two memory BIOs, which are not libssl's own: the one that it reads lends it
// the chunk that arrived, and the one that it writes puts records straight into pooled buffers. On
// one thread at a time.
#pragma once

#include <cstdint>
#include <hyperframes/net/tls/detail/context.hpp>
#include <hyperframes/runtime/buffer.hpp>
#include <hyperframes/runtime/error.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace hyperframes::net::detail {

enum class TlsStep : std::uint8_t {
  done,
  wants_input,  ///< Nothing more can be done with what was given.
  ended,        ///< The peer has ended the connection in order.
  failed,       ///< `failure` says why; `take_output` may have the alert that tells the peer.
};

class TlsConnection final : private VerificationListener {
 public:
  /// Plaintext of one record.
  static constexpr std::size_t record_bytes = SSL3_RT_MAX_PLAIN_LENGTH;
  /// Head and tail of a record.
  static constexpr std::size_t header_bytes = SSL3_RT_HEADER_LENGTH;
  static constexpr std::size_t largest_payload = SSL3_RT_MAX_ENCRYPTED_LENGTH;
  /// `wanted`: the name or number that the peer's certificate must be for, on the connecting side;
  /// null on the accepting one. `peer`: for errors.
  TlsConnection(std::shared_ptr<const TlsContext> context, const std::string* wanted,
                std::string peer);
  TlsConnection(const TlsConnection&) = delete;

  TlsStep shake_hands();
  /// Fills `into`, or a part of it, from one record.
  TlsStep read(std::span<std::byte> into, std::size_t& size);
  /// One record at most. False: it has failed.
  bool write(std::span<const std::byte> plaintext);
  /// Writes that nothing follows.
  void close() noexcept;

  /// What arrived, behind what was given before and is used up.
  void give(std::span<const std::byte> bytes) noexcept { input_ = bytes; }
  std::size_t output_bytes() const noexcept { return output_.size_bytes() + used_; }
  Segments take_output() noexcept;
  /// Plaintext waits that was not read yet.
  bool has_plaintext() const noexcept { return ::SSL_has_pending(ssl_.get()) == 1; }
  const Error& failure() const noexcept { return *failure_; }
  bool failed() const noexcept { return failure_.has_value(); }

  /// For tests: how many keys it has sent with, and when it takes the next.
  std::uint64_t keys_used() const noexcept { return keys_used_; }
  void take_key_after(std::uint64_t records) noexcept { records_per_key_ = records; }

 private:
  void expect_name(const std::string& wanted);
  TlsStep step_of(int result);
  TlsStep fail(Words words);
  void on_refused(int error, const X509* certificate) noexcept override;

  static const BIO_METHOD* bio_method();
  static int bio_read(BIO* bio, char* into, int size) noexcept;
  static int bio_write(BIO* bio, const char* from, int size) noexcept;
  static long bio_control(BIO* bio, int command, long number, void* pointer) noexcept;
  void append(const std::byte* from, std::size_t size);

  std::shared_ptr<const TlsContext> context_;
  TlsContext::Ssl ssl_;
  std::string peer_, wanted_;
  bool connects_;
  bool established_ = false;
  /// Less than a quarter of what a key of AES-GCM is good for.
  std::uint64_t records_per_key_ = std::uint64_t{1} << 22;
  std::uint64_t records_ = 0, keys_used_ = 1;
  std::optional<Words> refused_;
  std::optional<Error> failure_;

  std::span<const std::byte> input_;
  Segments output_;  ///< Full buffers.
  Buffer block_;     ///< The one that is being filled.
  std::size_t used_ = 0;
};

}  // namespace hyperframes::net::detail
