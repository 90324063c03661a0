#include <hyperframes/net/link.hpp>
#include <hyperframes/net/network_core.hpp>
#include <hyperframes/net/session.hpp>

namespace hyperframes::net {

Session::~Session() = default;

namespace {

Error too_large(std::uint64_t total, std::uint64_t limit) {
  return Error(Errc::too_large, "send a message of " + std::to_string(total) + " bytes",
               "the peer takes at most " + std::to_string(limit) + " at once",
               "raise the peer's receive budget or split the message");
}

}  // namespace

// An answer goes back by the link of its ask, and a channel stays on its link: with a peer of more
// shards, one shard has several.
detail::Link* Session::link_for(Envelope& envelope) const noexcept {
  const bool pinned = detail::is_answer(envelope.kind) || envelope.channel;
  if (!link_ || !pinned || envelope.link == link_->index()) return link_;
  if (detail::Link* link = owner_->find_link(*this, envelope.link)) return link;
  envelope.reply_room = 0;  // kept for it elsewhere
  return link_;
}

namespace {

/// Its bytes on the wire, if that link can take so many.
Result<std::uint64_t> measure(const Message& message, const detail::Link& link) {
  if (const Error* refusal = link.refusal()) return *refusal;
  std::uint64_t total = 0;
  try {
    total = wire::size_of(message);
  } catch (const Error& error) {
    return error;
  }
  if (total > link.largest_message()) return too_large(total, link.largest_message());
  return total;
}

}  // namespace

Result<void> Session::check(const Message& message) const {
  if (!link_) return *reason_;
  const auto total = measure(message, *link_);
  if (!total) return total.error();
  return {};
}

Result<void> Session::try_send(Message& message, Lane lane) {
  detail::Link* const link = link_for(message.envelope);
  if (!link) return *reason_;
  auto total = measure(message, *link);
  if (!total) return total.error();
  if (link->try_send(message, *total, lane, false) == detail::Link::Room::taken) return {};
  return Error(Errc::exhausted, "send a message without waiting",
               "the peer has granted no room for it on lane '" + std::string(name(lane)) + "' yet",
               "wait with send, or try again later");
}

std::uint32_t Session::link() const noexcept { return link_ ? link_->index() : 0; }

void Session::close(std::string why) {
  if (owner_) owner_->close_session(*this, std::move(why));
}

Session::Stats Session::stats() const {
  if (last_) return *last_;
  Stats stats;
  if (owner_) owner_->add_stats(*this, stats);
  return stats;
}

void Session::SendAwaiter::set_default_deadline() noexcept {
  set_deadline(after(timing().default_deadline()));
}

void Session::SendAwaiter::leave_unsent() noexcept {
  unlink();
  if (session_->link_) link_->leave(*this);  // links live as long as their session
}

bool Session::SendAwaiter::await_ready() {
  link_ = session_->link_for(message_.envelope);
  if (!link_) throw *session_->reason_;
  if (const Error* refusal = link_->refusal()) throw *refusal;
  total_ = wire::size_of(message_);
  if (total_ > link_->largest_message()) throw too_large(total_, link_->largest_message());
  return link_->try_send(message_, total_, lane_, true) == detail::Link::Room::taken;
}

void Session::SendAwaiter::enqueue() noexcept { link_->wait(*this); }

void Session::SendAwaiter::throw_unless_sent() const {
  if (failure_) throw *failure_;
  if (promise()) throw_unless_woken("send a message");
}

}  // namespace hyperframes::net
