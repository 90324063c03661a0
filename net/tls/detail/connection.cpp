#include <hyperframes/net/tls/detail/connection.hpp>

#include <openssl/err.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <hyperframes/runtime/address.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <utility>

namespace hyperframes::net::detail {
namespace {

constexpr std::size_t block_bytes = 64 << 10;

/// Where the shard's pool has nothing the heap gives: what is owed to a peer must go out.
Buffer pooled(std::size_t size) {
  auto block = Shard::current()->send_pool().try_allocate(size);
  return block ? std::move(*block) : Buffer::heap(size);
}

/// The first reason that is libssl's own; what lies below it has others under the same numbers.
int take_reason() {
  int reason = 0;
  while (const unsigned long error = ::ERR_get_error())
    if (reason == 0 && ERR_GET_LIB(error) == ERR_LIB_SSL) reason = ERR_GET_REASON(error);
  return reason;
}

}  // namespace

TlsConnection::TlsConnection(std::shared_ptr<const TlsContext> context, const std::string* wanted,
                             std::string peer)
    : context_(std::move(context)),
      ssl_(context_->make(*this)),
      peer_(std::move(peer)),
      connects_(wanted != nullptr) {
  BIO* const bio = ::BIO_new(bio_method());
  if (!bio) throw std::bad_alloc();
  ::BIO_set_data(bio, this);
  ::BIO_set_init(bio, 1);
  ::SSL_set_bio(ssl_.get(), bio, bio);
  if (connects_) {
    ::SSL_set_connect_state(ssl_.get());
    if (context_->identity().certificates) expect_name(*wanted);
  } else {
    ::SSL_set_accept_state(ssl_.get());
  }
}

void TlsConnection::expect_name(const std::string& wanted) {
  const std::string& pinned = context_->encryption().peer_name;
  wanted_ = pinned.empty() ? wanted : pinned;
  X509_VERIFY_PARAM* const rules = ::SSL_get0_param(ssl_.get());
  ::X509_VERIFY_PARAM_set_hostflags(
      rules, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
  const bool number = Address::parse(wanted_, 0).has_value();
  const int done = number ? ::X509_VERIFY_PARAM_set1_ip_asc(rules, wanted_.c_str())
                          : ::X509_VERIFY_PARAM_set1_host(rules, wanted_.data(), wanted_.size());
  // Without a name to look for libssl would look for none.
  if (done != 1 || wanted_.empty())
    throw Error(Errc::invalid_argument, "connect to " + peer_,
                "'" + wanted_ + "' is no name that a certificate can have");
}

// ---- libssl's calls

TlsStep TlsConnection::shake_hands() {
  if (failure_) return TlsStep::failed;
  ::ERR_clear_error();
  const int result = ::SSL_do_handshake(ssl_.get());
  if (result != 1) return step_of(result);
  // A peer that did not take the key up would have had to show a certificate, and nobody looks at
  // those here.
  if (!context_->identity().certificates && ::SSL_session_reused(ssl_.get()) != 1)
    return fail({Errc::unauthenticated, "it has not shown that it has the key",
                 "give both nodes the same key file"});
  established_ = true;
  return TlsStep::done;
}

TlsStep TlsConnection::read(std::span<std::byte> into, std::size_t& size) {
  size = 0;
  if (failure_) return TlsStep::failed;
  ::ERR_clear_error();
  const int result = ::SSL_read_ex(ssl_.get(), into.data(), into.size(), &size);
  return result == 1 ? TlsStep::done : step_of(result);
}

bool TlsConnection::write(std::span<const std::byte> plaintext) {
  assert(plaintext.size() <= record_bytes);
  if (failure_) return false;
  if (plaintext.empty()) return true;
  ::ERR_clear_error();
  if (++records_ % records_per_key_ == 0) {
    ::SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);
    ++keys_used_;
  }
  std::size_t size = 0;
  const int result = ::SSL_write_ex(ssl_.get(), plaintext.data(), plaintext.size(), &size);
  if (result == 1) return true;
  step_of(result);
  return false;
}

void TlsConnection::close() noexcept {
  if (failure_ || !established_) return;
  ::ERR_clear_error();
  ::SSL_shutdown(ssl_.get());
  ::ERR_clear_error();
}

TlsStep TlsConnection::step_of(int result) {
  const int kind = ::SSL_get_error(ssl_.get(), result);
  const int reason = take_reason();
  switch (kind) {
    case SSL_ERROR_WANT_READ: return TlsStep::wants_input;
    case SSL_ERROR_ZERO_RETURN: return TlsStep::ended;
    case SSL_ERROR_SSL: break;
    default: return fail({Errc::internal, "libssl gave up (" + std::to_string(kind) + ")", {}});
  }
  if (refused_) return fail(*std::exchange(refused_, std::nullopt));
  if (reason >= SSL_AD_REASON_OFFSET)
    return fail(words_of_alert(reason - SSL_AD_REASON_OFFSET, context_->identity()));
  return fail(words_of_reason(reason, context_->identity()));
}

TlsStep TlsConnection::fail(Words words) {
  failure_.emplace(words.code, (established_ ? "use TLS with " : "shake hands with ") + peer_,
                   std::move(words.found), std::move(words.remedy));
  return TlsStep::failed;
}

void TlsConnection::on_refused(int error, const X509* certificate) noexcept {
  if (refused_) return;
  refused_ = context_->identity().certificates ? words_of_verification(error, certificate, wanted_)
                                               : words_of_unwanted_certificate(certificate);
}

// ---- Its BIO

Segments TlsConnection::take_output() noexcept {
  Segments all = std::exchange(output_, Segments());
  if (used_) {
    block_.resize_down(used_);
    all.push_back(std::move(block_));
  }
  block_.reset();
  used_ = 0;
  return all;
}

void TlsConnection::append(const std::byte* from, std::size_t size) {
  while (size) {
    if (used_ == block_.size()) {
      if (used_) output_.push_back(std::move(block_));
      block_ = pooled(established_ ? block_bytes : block_bytes / 16);
      used_ = 0;
    }
    const std::size_t part = std::min(size, block_.size() - used_);
    std::memcpy(block_.data() + used_, from, part);
    used_ += part;
    from += part;
    size -= part;
  }
}

int TlsConnection::bio_read(BIO* bio, char* into, int size) noexcept {
  auto& self = *static_cast<TlsConnection*>(::BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  if (size <= 0) return 0;
  const std::size_t part = std::min(self.input_.size(), static_cast<std::size_t>(size));
  if (part == 0) {
    BIO_set_retry_read(bio);
    return -1;
  }
  std::memcpy(into, self.input_.data(), part);
  self.input_ = self.input_.subspan(part);
  return static_cast<int>(part);
}

int TlsConnection::bio_write(BIO* bio, const char* from, int size) noexcept {
  auto& self = *static_cast<TlsConnection*>(::BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  try {
    if (size > 0)
      self.append(reinterpret_cast<const std::byte*>(from), static_cast<std::size_t>(size));
    return size;
  } catch (const std::bad_alloc&) {
    return -1;
  }
}

long TlsConnection::bio_control(BIO*, int command, long, void*) noexcept {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

// Made once, and there until the process ends.
const BIO_METHOD* TlsConnection::bio_method() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = ::BIO_meth_new(::BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "hyperframes");
    if (!made) throw std::bad_alloc();
    ::BIO_meth_set_read(made, &TlsConnection::bio_read);
    ::BIO_meth_set_write(made, &TlsConnection::bio_write);
    ::BIO_meth_set_ctrl(made, &TlsConnection::bio_control);
    return made;
  }();
  return method;
}

}  // namespace hyperframes::net::detail
