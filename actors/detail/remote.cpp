#include <hyperframes/actors/detail/remote.hpp>

#include <hyperframes/actors/detail/method.hpp>
#include <hyperframes/actors/detail/node_core.hpp>
#include <hyperframes/actors/detail/node_shard.hpp>
#include <hyperframes/runtime/log.hpp>
#include <utility>

#include "hyperframes_system.fbs.hpp"

namespace hyperframes::detail {
namespace {

net::Lane lane_of(const MethodInfo& method) noexcept {
  return method.bulk ? net::Lane::bulk : net::Lane::normal;
}

Buffer encode_failure(const Error& error) {
  return hyperframes::system::Failure({.category = error.code().category().name(),
                                       .code = error.code().value(),
                                       .tried = error.tried(),
                                       .found = error.found(),
                                       .remedy = error.remedy()})
      .buffer();
}

Error decode_failure(Buffer body, const char* method) {
  auto failure = hyperframes::system::Failure::verified(std::move(body));
  if (!failure) return failure.error();
  const bool ours = failure->category() == error_category().name();
  const std::error_code code(failure->code(), ours ? error_category() : std::generic_category());
  std::string tried(failure->tried());
  return Error(code, tried.empty() ? std::string("ask ") + method : std::move(tried),
               std::string(failure->found()), std::string(failure->remedy()));
}

Error lost(const RemotePeer& peer, const std::string& found) {
  return Error(Errc::peer_lost, "reach the node at " + peer.address, found,
               "connect again and find the actor there; what was asked may have taken effect");
}

}  // namespace

// ---- leaving ----------------------------------------------------------------

RemotePeer::RemotePeer(NodeCore& core, const net::PeerInfo& info)
    : core(core), node_id(info.node_id), incarnation(info.incarnation), address(info.address) {
  for (unsigned shard = 0; shard < core.shard_count(); ++shard)
    shards_.push_back(std::make_unique<PeerShard>(core.at(shard), *this));
}
RemotePeer::~RemotePeer() = default;

std::optional<net::Endpoint> RemotePeer::endpoint() const {
  std::scoped_lock lock(mutex_);
  return endpoint_;
}
void RemotePeer::set_endpoint(const net::Endpoint& endpoint) {
  std::scoped_lock lock(mutex_);
  endpoint_ = endpoint;
}

PeerShard::~PeerShard() {
  while (Outgoing* outgoing = queue_.pop_front()) delete outgoing;
}

net::Message PeerShard::encode(Letter& letter, std::uint64_t target, Time deadline) {
  net::Message message;
  const bool asks = letter.kind == Letter::Kind::ask;
  message.envelope = {.type_id = letter.method->id,
                      .target = target,
                      .kind = asks ? net::MessageKind::ask : net::MessageKind::tell};
  if (asks && deadline != no_deadline)
    message.envelope.deadline_ns = std::max<std::int64_t>(1, (deadline - home.shard.now()).count());
  letter.method->write(letter, message.body, message.segments);
  return message;
}

bool SendWaiter::send_to_peer(PromiseBase& promise, Shard& shard) noexcept {
  if (shard.index() >= to_.peer->core.shard_count() ||
      &shard != &to_.peer->core.at(shard.index()).shard) {
    failure_ = std::make_unique<Error>(Errc::invalid_argument, std::string("send ") + method_name(),
                                       "the reference belongs to a node of another runtime");
    return false;
  }
  return to_.peer->on(shard.index()).send(*this, promise);
}

bool PeerShard::send(SendWaiter& waiter, PromiseBase& promise) noexcept {
  Letter& letter = *waiter.letter_;
  const bool asks = waiter.asks();
  if (asks || (promise.cancel && promise.cancel->cancelled()))
    if (!waiter.begin(promise)) return false;
  letter.origin = &home;
  letter.peer = &peer;
  const net::Lane lane = lane_of(*letter.method);
  net::Message message;
  try {
    message = encode(letter, waiter.to_.id, waiter.deadline_);
  } catch (const Error& error) {
    waiter.failure_ = std::make_unique<Error>(error);
    if (asks) waiter.wake();
    return asks;
  }
  if (asks) {
    letter.waiting = &waiter;
    message.envelope.correlation = home.add_pending(&letter);
    waiter.state_ = SendWaiter::State::waiting;
  } else {
    destroy(std::exchange(waiter.letter_, nullptr));
  }

  if (session && session->up() && queue_.empty() && !pumping_) {
    auto sent = session->try_send(message, lane);
    if (sent) return asks;
    if (!sent.error().is(Errc::exhausted)) {
      waiter.failure_ = std::make_unique<Error>(sent.error());
      if (asks) waiter.wake();
      return asks;
    }
  }
  if (!asks && !waiter.begin(promise)) return false;
  auto outgoing = std::make_unique<Outgoing>();
  outgoing->message = std::move(message);
  outgoing->lane = lane;
  outgoing->deadline = waiter.deadline_;
  outgoing->waiter = &waiter;
  waiter.outgoing_ = outgoing.get();
  enqueue(std::move(outgoing));
  return true;
}

bool PeerShard::tell_now(Letter* letter, std::uint64_t target) noexcept {
  bool sent = false;
  if (session && session->up() && queue_.empty() && !pumping_) {
    try {
      const net::Lane lane = lane_of(*letter->method);
      net::Message message = encode(*letter, target, no_deadline);
      sent = session->try_send(message, lane).has_value();
    } catch (const Error& error) {
      log::warning(std::string("a message was not sent: ") + error.what());
    }
  }
  destroy(letter);
  return sent;
}

bool tell_peer_now(RemotePeer& peer, Letter* letter, std::uint64_t target, Shard& shard) noexcept {
  return peer.on(shard.index()).tell_now(letter, target);
}

void PeerShard::answer(net::Message message, net::Lane lane) noexcept {
  if (!session || !session->up()) return;  // nobody is there to hear it
  if (queue_.empty() && !pumping_) {
    const auto sent = session->try_send(message, lane);
    if (sent || !sent.error().is(Errc::exhausted)) return;
  }
  auto outgoing = std::make_unique<Outgoing>();
  outgoing->message = std::move(message);
  outgoing->lane = lane;
  outgoing->deadline = resolve({});
  enqueue(std::move(outgoing));
}

void PeerShard::enqueue(std::unique_ptr<Outgoing> outgoing) noexcept {
  queue_.push_back(*outgoing.release());
  if (std::exchange(pumping_, true)) return;
  home.shard.spawn(pump());
}

void forget_outgoing(Outgoing& outgoing) noexcept {
  outgoing.waiter = nullptr;
  if (!outgoing.linked()) return;  // it is being sent
  outgoing.unlink();
  delete &outgoing;
}

Task<void> PeerShard::pump() {
  struct Stopped {
    bool& pumping;
    ~Stopped() { pumping = false; }
  } stopped{pumping_};
  while (Outgoing* next = queue_.pop_front()) co_await send_one(std::unique_ptr<Outgoing>(next));
}

Task<void> PeerShard::send_one(std::unique_ptr<Outgoing> outgoing) {
  Outgoing& sending = *outgoing;
  std::optional<Error> failure;
  try {
    co_await ensure_session(sending.deadline);
    co_await session->send(std::move(sending.message), sending.lane, sending.deadline);
  } catch (const Error& error) {
    failure = error;
  }
  SendWaiter* waiter = sending.waiter;
  if (!waiter) co_return;
  waiter->outgoing_ = nullptr;
  if (failure) {
    waiter->refused(std::move(*failure));
  } else if (!waiter->asks()) {
    waiter->wake();
  }
}

Task<void> PeerShard::ensure_session(Time deadline) {
  if (session && session->up()) co_return;
  const auto endpoint = peer.endpoint();
  if (!endpoint) throw lost(peer, "its connection is gone, and it is for that node to connect");
  net::SessionRef made = co_await home.core.network().connect(*endpoint, deadline);
  if (made->peer().node_id != peer.node_id || made->peer().incarnation != peer.incarnation)
    throw lost(peer, "its process was restarted");
  session = std::move(made);
}

void PeerShard::went_down(const Error& reason) noexcept {
  session = {};
  home.fail_pending(peer, reason);
}

// ---- arriving ---------------------------------------------------------------

namespace {

struct Arrival : Work {
  static void* operator new(std::size_t size) { return pool_allocate(size); }
  static void operator delete(void* memory) noexcept { pool_release(memory); }

  Arrival(NodeShard& target, NodeShard& origin, RemotePeer& peer, net::Message message) noexcept
      : Work(nullptr), target(target), origin(origin), peer(peer), message(std::move(message)) {}
  NodeShard& target;
  NodeShard& origin;
  RemotePeer& peer;
  net::Message message;
  std::unique_ptr<RemoteRoute> route;  ///< Of an ask; belongs to `origin`.
};

/// Brings a refusal back to the shard that the ask came in on.
struct Refusal : Work {
  Refusal(NodeShard& origin, std::unique_ptr<RemoteRoute> route, Error error) noexcept
      : Work(nullptr), origin(origin), route(std::move(route)), error(std::move(error)) {}
  void send() noexcept {
    net::Message message;
    message.envelope = net::answer_to(route->ask, net::MessageKind::failure);
    message.body = encode_failure(error);
    route->peer->answer(std::move(message), route->lane);
  }
  NodeShard& origin;
  std::unique_ptr<RemoteRoute> route;
  Error error;
};

void refuse(Arrival& arrival, Error error) noexcept {
  if (!arrival.route) return;
  auto refusal =
      std::make_unique<Refusal>(arrival.origin, std::move(arrival.route), std::move(error));
  if (&arrival.origin == &arrival.target) return refusal->send();
  refusal->run = [](Work* work) noexcept {
    std::unique_ptr<Refusal> self(static_cast<Refusal*>(work));
    self->origin.arrived();
    self->send();
  };
  NodeShard& origin = arrival.origin;
  arrival.target.post(origin, refusal.release(), Group::user);
}

void refuse_input(Arrival& arrival, const char* what, Error error) noexcept {
  arrival.target.refused_input.add();
  log::warning(std::string("refused ") + what + " from " + arrival.peer.address + ": " +
               error.what());
  refuse(arrival, std::move(error));
}

// A request, on its actor's shard.
void deliver_request(Arrival& arrival) noexcept {
  NodeShard& here = arrival.target;
  const net::Envelope& envelope = arrival.message.envelope;
  ActorCell* cell = here.find(envelope.target);
  const ServiceInfo* service = cell ? cell->service() : nullptr;
  if (!service) {
    here.note_dead(envelope.target);
    return refuse(arrival, Error(Errc::actor_down, "deliver a message", "the actor has ended",
                                 "find or start it again"));
  }
  const MethodInfo* method = service->find(envelope.type_id);
  if (!method)
    return refuse_input(arrival, "a message of unknown type",
                        Error(Errc::unknown_type, "deliver a message",
                              "actor '" + cell->name() + "' of service " + service->name +
                                  " knows no method " + std::to_string(envelope.type_id),
                              "check that both ends use compatible versions of its schema"));
  // A struct is copied out of what was received, whose end is what its sender gets credit for.
  Buffer received = arrival.message.body;
  auto letter =
      method->read_request(std::move(arrival.message.body), std::move(arrival.message.segments));
  if (!letter) return refuse_input(arrival, method->name, letter.error());
  Letter* made = *letter;
  made->cell = cell;
  made->generation = actor_id::generation_of(envelope.target);
  made->system = actor_id::group_of(envelope.target) == Group::system;
  made->origin = &arrival.origin;
  if (envelope.deadline_ns > 0)
    made->deadline = after(std::chrono::nanoseconds(envelope.deadline_ns));
  if (arrival.route) {
    made->kind = Letter::Kind::remote_ask;
    made->route = arrival.route.release();
  }
  if (cell->arrive(made)) hold_credit(*made, std::move(received));
}

// An answer, on the shard that asked.
void deliver_answer(Arrival& arrival) noexcept {
  NodeShard& here = arrival.target;
  const net::Envelope& envelope = arrival.message.envelope;
  Letter* letter = here.take_pending(envelope.correlation, arrival.peer);
  if (!letter) return here.late.add();
  if (envelope.kind == net::MessageKind::failure) {
    set_failure(*letter, decode_failure(std::move(arrival.message.body), letter->method->name));
  } else {
    auto read = letter->method->read_answer(*letter, std::move(arrival.message.body),
                                            std::move(arrival.message.segments));
    if (!read) {
      here.refused_input.add();
      log::warning(std::string("refused an answer to ") + letter->method->name + " from " +
                   arrival.peer.address + ": " + read.error().what());
      set_failure(*letter, read.error());
    }
  }
  letter->waiting->came_back(letter);
}

void deliver(Arrival& arrival) noexcept {
  switch (arrival.message.envelope.kind) {
    case net::MessageKind::tell:
    case net::MessageKind::ask: return deliver_request(arrival);
    case net::MessageKind::reply:
    case net::MessageKind::failure: return deliver_answer(arrival);
    default:
      arrival.target.refused_input.add();
      log::warning("refused a message of a kind that this version does not know from " +
                   arrival.peer.address);
  }
}

}  // namespace

void hold_credit(Letter& letter, Buffer received) noexcept {
  if (letter.kind == Letter::Kind::remote_ask) {
    letter.route->credit = std::move(received);
  } else {
    letter.credit = new Buffer(std::move(received));
  }
  letter.holds_credit = true;
}

void release_credit(Letter& letter) noexcept {
  letter.holds_credit = false;
  if (letter.kind == Letter::Kind::remote_ask) return letter.route->credit.reset();
  delete std::exchange(letter.credit, nullptr);
}

void receive(NodeShard& here, PeerShard& from, net::Session& session, net::Lane lane,
             net::Message message) noexcept {
  const net::Envelope envelope = message.envelope;
  const bool answer =
      envelope.kind == net::MessageKind::reply || envelope.kind == net::MessageKind::failure;
  const unsigned shard =
      answer ? shard_of_correlation(envelope.correlation) : actor_id::shard_of(envelope.target);
  // A peer may name any shard; what does not exist has no actors.
  NodeShard& target = shard < here.core.shard_count() ? here.core.at(shard) : here;
  auto arrival = std::make_unique<Arrival>(target, here, from.peer, std::move(message));
  if (envelope.kind == net::MessageKind::ask) {
    arrival->route = std::make_unique<RemoteRoute>();
    arrival->route->session = net::SessionRef(&session);
    arrival->route->peer = &from;
    arrival->route->ask = envelope;
    arrival->route->lane = lane;
  }
  if (&target == &here) return deliver(*arrival);
  net::make_movable(arrival->message);
  arrival->run = [](Work* work) noexcept {
    std::unique_ptr<Arrival> self(static_cast<Arrival*>(work));
    self->target.arrived();
    deliver(*self);
  };
  here.post(target, arrival.release(), actor_id::group_of(envelope.target));
}

void answer_peer(Letter* letter) noexcept {
  std::unique_ptr<RemoteRoute> route(letter->route);
  net::Message message;
  try {
    if (letter->content == Letter::Content::answer) {
      message.envelope = net::answer_to(route->ask);
      message.envelope.type_id = letter->method->id;
      letter->method->write(*letter, message.body, message.segments);
    } else {
      message.envelope = net::answer_to(route->ask, net::MessageKind::failure);
      message.body = encode_failure(*letter->content_as<Error*>());
    }
  } catch (const Error& error) {
    log::warning(std::string("an answer to ") + letter->method->name +
                 " was not sent: " + error.what());
  }
  destroy(letter);
  // To the session that asked, or to nobody: a newer one belongs to who did not ask.
  if (route->peer->session == route->session) route->peer->answer(std::move(message), route->lane);
}

}  // namespace hyperframes::detail
