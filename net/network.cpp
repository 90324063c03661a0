#include <cassert>
#include <hyperframes/net/network.hpp>
#include <hyperframes/net/network_core.hpp>
#include <hyperframes/net/shm/arena.hpp>
#include <hyperframes/runtime/call_on.hpp>
#include <hyperframes/runtime/sleep.hpp>

namespace hyperframes::net {

Network::Network(Runtime& runtime, Options options, MessageHandler& handler)
    : core_(std::make_shared<detail::NetworkCore>(runtime, std::move(options), handler)) {}

Network::~Network() {
  assert(!Shard::current() && "a Network is destroyed off the shards");
  auto core = core_;
  core->runtime().on_every_shard([core](Shard&) { core->stop_here(); });
}

std::uint64_t Network::node_id() const noexcept { return core_->options().node_id; }
std::uint64_t Network::incarnation() const noexcept { return core_->options().incarnation; }

Task<Endpoint> Network::listen(Endpoint endpoint) {
  auto core = core_;
  auto listen = [core, endpoint] { return core->listen(endpoint); };
  co_return co_await call_on(core->home(), listen);
}

Task<SessionRef> Network::connect(Endpoint endpoint, Time deadline) {
  auto core = core_;
  auto connect = [core, endpoint, deadline] { return core->connect(endpoint, deadline); };
  while (true) {
    const std::uint64_t node = co_await call_on(core->home(), connect);
    auto goes_on = [core, node] { return core->has_session(node); };
    // Of a session that the peer began, this shard's link may still be on its way; or the session
    // has ended again, and another one is needed.
    do {
      SessionRef session = core->here().session(node);
      if (session) co_return session;
      if (Clock::now() >= deadline)
        throw Error(Errc::deadline_exceeded, "connect to " + endpoint.to_string(),
                    "its link to shard " + std::to_string(Shard::current()->index()) +
                        " was not set up in time, or the session has ended");
      co_await sleep_for(1ms);
    } while (co_await call_on(core->home(), goes_on));
  }
}

Task<Buffer> Network::loan(std::size_t size, Time deadline) {
  auto core = core_;
  if (!core->arena())
    throw Error(Errc::unsupported, "borrow " + std::to_string(size) + " bytes to lend to peers",
                "this network has no memory for that", "set Network::Options::loan_bytes");
  const Time until = deadline == Time{} ? after(timing().default_deadline()) : deadline;
  co_return co_await core->arena()->here().loan(size, until);
}

SessionRef Network::session(std::uint64_t node_id) const noexcept {
  return core_->here().session(node_id);
}

std::vector<SessionRef> Network::sessions() const { return core_->here().sessions(); }

Task<std::uint64_t> Network::close(Duration drain) {
  auto core = core_;
  auto close = [core, drain] { return core->close(drain); };
  co_return co_await call_on(core->home(), close);
}

}  // namespace hyperframes::net
