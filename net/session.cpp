#include <hyperframes/net/link.hpp>
#include <hyperframes/net/network_core.hpp>
#include <hyperframes/net/session.hpp>

namespace hyperframes::net {

Session::~Session() = default;

Session::SendAwaiter Session::send(Message message, Lane lane, Time deadline) {
  if (deadline == Time{}) deadline = after(timing().default_deadline());
  return SendAwaiter(*this, std::move(message), lane, deadline);
}

namespace {

Error too_large(std::uint64_t total, std::uint64_t limit) {
  return Error(Errc::too_large, "send a message of " + std::to_string(total) + " bytes",
               "the peer takes at most " + std::to_string(limit) + " at once",
               "raise the peer's receive budget or split the message");
}

}  // namespace

Result<void> Session::try_send(Message& message, Lane lane) {
  if (!link_) return *reason_;
  if (const Error* refusal = link_->refusal()) return *refusal;
  std::uint64_t total = 0;
  try {
    total = wire::size_of(message);
  } catch (const Error& error) {
    return error;
  }
  if (total > link_->largest_message()) return too_large(total, link_->largest_message());
  if (link_->try_send(message, total, lane) == detail::Link::Room::taken) return {};
  return Error(Errc::exhausted, "send a message without waiting",
               "the peer has granted no room for it on lane '" + std::string(name(lane)) + "' yet",
               "wait with send, or try again later");
}

void Session::close(std::string why) {
  if (owner_) owner_->close_session(*this, std::move(why));
}

Session::Stats Session::stats() const {
  Stats stats;
  if (owner_) owner_->add_stats(*this, stats);
  return stats;
}

Session::SendAwaiter::SendAwaiter(Session& session, Message message, Lane lane,
                                  Time deadline) noexcept
    : Waiter(deadline), session_(&session), message_(std::move(message)), lane_(lane) {}

Session::SendAwaiter::~SendAwaiter() {
  if (!promise() || outcome() == Outcome::woken) return;
  unlink();
  if (session_->link_) session_->link_->leave(*this);
}

bool Session::SendAwaiter::await_ready() {
  detail::Link* link = session_->link_;
  if (!link) throw *session_->reason_;
  if (const Error* refusal = link->refusal()) throw *refusal;
  total_ = wire::size_of(message_);
  if (total_ > link->largest_message()) throw too_large(total_, link->largest_message());
  return link->try_send(message_, total_, lane_) == detail::Link::Room::taken;
}

void Session::SendAwaiter::enqueue() noexcept { session_->link_->wait(*this); }

void Session::SendAwaiter::await_resume() {
  if (failure_) throw *failure_;
  if (promise()) throw_unless_woken("send a message");
}

}  // namespace hyperframes::net
