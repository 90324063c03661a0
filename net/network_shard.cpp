#include <hyperframes/net/detail/text.hpp>
#include <hyperframes/net/network_core.hpp>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/shard.hpp>

namespace hyperframes::net::detail {

NetworkShard::NetworkShard(NetworkCore& core, Shard& shard)
    : core_(core),
      shard_(shard),
      budget_(std::make_shared<ReceiveBudget>(core.options().receive_budget_bytes)) {}

MessageHandler& NetworkShard::handler() noexcept { return core_.handler(); }

Session* NetworkShard::find(std::uint64_t number) const noexcept {
  for (const auto& [node, session] : sessions_)
    if (session->number_ == number) return session.get();
  return nullptr;
}

Result<void> NetworkShard::install(Installation& installation) {
  const std::string tried = "begin a link with " + installation.peer.address;
  if (stopped_) return Error(Errc::shutting_down, tried, "this node's network is ending");
  if (!ReceiveAccount::is_possible(*budget_)) return ReceiveAccount::no_memory(*budget_);
  SessionRef session(find(installation.session));
  const bool is_new = !session;
  if (is_new) {
    // The word that an older one has ended may travel behind this, in another group.
    if (const auto older = sessions_.find(installation.peer.node_id); older != sessions_.end())
      end_session(older->second->number_,
                  Error(Errc::peer_lost, "use a session with " + installation.peer.address,
                        "another one has begun"));
    session = SessionRef(new Session(installation.peer));
    session->number_ = installation.session;
    session->owner_ = this;
  }
  auto link = std::make_unique<Link>(*this, *session, std::move(installation.transport), budget_,
                                     installation.settings);
  // The lowest link of a shard is the one it sends through; it is set up first.
  if (!session->link_) session->link_ = link.get();
  if (is_new) sessions_[session->peer().node_id] = session;
  // Which would end the session over it, and could not say why.
  if (session->peer().takes_channels && !handler().takes_channels())
    link->refuse(Error(Errc::unsupported, "send to " + session->peer().address,
                       "no actors answer there: a Messenger does, which has channels only",
                       "connect to the address of a Node; channels are opened by a Messenger"));
  link->start(std::move(installation.first));
  links_.push_back(std::move(link));
  if (is_new) handler().on_session_up(*session);
  if (installation.closing) begin_close(installation.session, *installation.closing);
  return {};
}

Link* NetworkShard::find_link(const Session& session, std::uint32_t index) const noexcept {
  for (const auto& link : links_)
    if (&link->session() == &session && link->index() == index) return link.get();
  return nullptr;
}

Result<void> NetworkShard::resume(Resumption& resumption) {
  const std::string tried = "take up link " + std::to_string(resumption.link) + " again";
  const SessionRef session(find(resumption.session));
  Link* const link = session ? find_link(*session, resumption.link) : nullptr;
  if (!link) return Error(Errc::peer_lost, tried, "the session has ended", "connect anew");
  const bool answers_a_break = !resumption.welcome;
  if (answers_a_break && (!link->broken() || link->breaks() != resumption.breaks))
    return Error(Errc::already_exists, tried, "it goes on already", "use it");
  auto delivered = link->prepare_resume(resumption.peer_delivered);
  if (!delivered) {
    const Error& error = delivered.error();
    return Error(error.code(), tried, text_of(error), error.remedy());  // the peer is told the text
  }
  Buffer first;
  if (resumption.welcome) first = encode(Welcome{*resumption.welcome, resumption.link, *delivered});
  link->resume(std::move(resumption.transport), std::move(first), resumption.peer_delivered);
  return {};
}

void NetworkShard::attempt_failed(std::uint64_t number, std::uint32_t index, std::uint64_t breaks,
                                  const Error& cause, bool for_good) {
  const SessionRef session(find(number));
  Link* const link = session ? find_link(*session, index) : nullptr;
  if (!link || link->breaks() != breaks) return;
  if (for_good) {
    link->give_up(cause);
  } else {
    link->note_attempt(cause);
  }
}

void NetworkShard::begin_close(std::uint64_t number, const Error& reason) {
  for (const auto& link : links_)
    if (link->session().number_ == number) link->begin_close(reason);
}

void NetworkShard::end_session(std::uint64_t number, const Error& reason) {
  const SessionRef session(find(number));
  if (!session) return;
  session->last_ = std::make_unique<Session::Stats>(session->stats());
  std::uint64_t lost = 0;
  for (const auto& link : links_)
    if (&link->session() == session.get()) {
      lost += unacknowledged(*link);
      link->fail(reason);
    }
  lost_ += lost;
  // Who handed them over may never send again, and so never see the error. Who ends the network
  // without `close` waits for no acknowledgements, so that many are only late then.
  if (lost && !stopped_)
    log::warning("the session with " + session->peer().address + " ended before " +
                 std::to_string(lost) + " messages were acknowledged: " + reason.what());
  session->link_ = nullptr;
  session->owner_ = nullptr;
  session->reason_ = std::make_unique<Error>(reason);
  std::erase_if(links_, [&](const auto& link) { return &link->session() == session.get(); });
  sessions_.erase(session->peer().node_id);
  handler().on_session_down(*session, reason);
}

void NetworkShard::stop() {
  stopped_ = true;
  while (!sessions_.empty())
    end_session(sessions_.begin()->second->number_,
                Error(Errc::closed, "use a session", "this node's network has ended"));
}

void NetworkShard::on_link_broken(Link& link) noexcept {
  core_.report_link_broken(link.session().number_,
                           {link.index(), link.breaks(), link.delivered(), link.window_left()});
}

void NetworkShard::on_link_ended(Link& link, const Error& reason) noexcept {
  core_.report_link_ended(link.session().number_, reason);
}

SessionRef NetworkShard::session(std::uint64_t node_id) const {
  const auto found = sessions_.find(node_id);
  return found == sessions_.end() ? SessionRef() : found->second;
}

std::vector<SessionRef> NetworkShard::sessions() const {
  std::vector<SessionRef> all;
  for (const auto& [node, session] : sessions_) all.push_back(session);
  return all;
}

std::uint64_t NetworkShard::unacknowledged() const noexcept {
  std::uint64_t messages = lost_;
  for (const auto& link : links_) messages += unacknowledged(*link);
  return messages;
}

// What channels tell each other goes in the control lane, and no message of a program's does.
std::uint64_t NetworkShard::unacknowledged(const Link& link) const noexcept {
  return link.unacknowledged(core_.handler().takes_channels() ? Lane::normal : Lane::control);
}

void NetworkShard::close_session(Session& session, std::string why) {
  core_.request_close(session.number_, std::move(why));
}

void NetworkShard::add_stats(const Session& session, Session::Stats& stats) const {
  for (const auto& link : links_)
    if (&link->session() == &session) link->add_stats(stats);
}

}  // namespace hyperframes::net::detail
