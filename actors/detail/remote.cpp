#include <hyperframes/actors/detail/remote.hpp>

#include <hyperframes/actors/detail/method.hpp>
#include <hyperframes/actors/detail/node_core.hpp>
#include <hyperframes/actors/detail/node_shard.hpp>
#include <hyperframes/actors/detail/stream_end.hpp>
#include <hyperframes/actors/detail/watch.hpp>
#include <hyperframes/runtime/log.hpp>
#include <utility>

#include "hyperframes_system.fbs.hpp"

namespace hyperframes::detail {
namespace {

// Of an envelope: the answer opens a stream.
constexpr std::uint8_t flag_opened = 1;
// That peers may tie to one actor.
constexpr std::size_t most_links = 1024;

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

/// In place of an answer with that envelope.
net::Message failure_with(net::Envelope envelope, const Error& error) {
  envelope.kind = net::MessageKind::failure;
  net::Message message;
  message.envelope = envelope;
  message.body = encode_failure(error);
  return message;
}
net::Message failure_to(const net::Envelope& ask, const Error& error) {
  return failure_with(net::answer_to(ask), error);
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
  while (!watchers_.empty()) end_watch(watchers_.begin()->first);
  for (auto* queues : {&requests_, &answers_})
    for (Queue& queue : *queues)
      while (Outgoing* outgoing = queue.waiting.pop_front()) delete outgoing;
}

// It travels as what is left of it.
void PeerShard::set_deadline(net::Envelope& envelope, Time deadline) const noexcept {
  if (envelope.kind != net::MessageKind::ask || deadline == no_deadline) return;
  envelope.deadline_ns = std::max<std::int64_t>(1, (deadline - home.shard.now()).count());
}

net::Message PeerShard::encode(Letter& letter, std::uint64_t target, Time deadline) {
  net::Message message;
  const bool asks = letter.kind == Letter::Kind::ask;
  message.envelope = {.type_id = letter.method->id,
                      .target = target,
                      .kind = asks ? net::MessageKind::ask : net::MessageKind::tell};
  set_deadline(message.envelope, deadline);
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

namespace {
// The answer to an opening can't be sent: the ends here that it names have nobody.
void give_up_opened(NodeShard& here, const net::Envelope& envelope, const Buffer& body) noexcept {
  if (envelope.kind == net::MessageKind::reply && (envelope.flags & flag_opened))
    abandon_opened(here, nullptr, body);
}
}  // namespace

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

  Queue& queue = requests(lane);
  if (connected() && queue.empty()) {
    auto sent = session->try_send(message, lane);
    if (sent) return asks;
    if (!sent.error().is(Errc::exhausted)) {
      waiter.failure_ = std::make_unique<Error>(sent.error());
      if (asks) waiter.wake();
      return asks;
    }
  }
  if (!asks && !waiter.begin(promise)) return false;
  auto outgoing = std::make_unique<Outgoing>(std::move(message), lane, waiter.deadline_);
  outgoing->waiter = &waiter;
  waiter.outgoing_ = outgoing.get();
  enqueue(queue, std::move(outgoing));
  return true;
}

bool PeerShard::tell_now(Letter* letter, std::uint64_t target) noexcept {
  bool sent = false;
  const net::Lane lane = lane_of(*letter->method);
  if (connected() && requests(lane).empty()) {
    try {
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

void PeerShard::answer(const net::SessionRef& to, net::Message message, net::Lane lane) noexcept {
  if (!to->up()) return;
  // Before those that wait: it may have room that its asker keeps.
  auto sent = to->try_send(message, lane);
  if (!sent && !sent.error().is(Errc::exhausted)) {
    if (!to->up()) return;
    give_up_opened(home, message.envelope, message.body);
    message = failure_with(message.envelope, sent.error());
    sent = to->try_send(message, lane);
    // A session that is being closed takes nothing more, and its end tells the asker. To try again
    // would be to spin until then.
    if (!sent && !sent.error().is(Errc::exhausted)) return;
  }
  if (sent) return;
  auto outgoing = std::make_unique<Outgoing>(std::move(message), lane, resolve({}));
  outgoing->answers = to;
  enqueue(answers(lane), std::move(outgoing));
}

void PeerShard::enqueue(Queue& queue, std::unique_ptr<Outgoing> outgoing) noexcept {
  queue.waiting.push_back(*outgoing.release());
  if (std::exchange(queue.pumping, true)) return;
  pumps_.spawn(pump(&queue), static_cast<std::uint8_t>(Group::user));
}

Result<void> PeerShard::post(net::Message message, net::Lane lane) noexcept {
  if (!connected()) return lost(peer, "there is no connection with it");
  Queue& queue = requests(lane);
  const auto sent = queue.empty() ? session->try_send(message, lane) : session->check(message);
  if (sent && queue.empty()) return {};
  if (!sent && !sent.error().is(Errc::exhausted)) return sent.error();
  if (lane == net::Lane::control && news_ >= most_news) {
    // It asks, and gives no room for the answers.
    session->close("the peer does not take what it asked for");
    return lost(peer, "it does not take what is sent to it");
  }
  auto outgoing = std::make_unique<Outgoing>(std::move(message), lane, no_deadline);
  outgoing->posted = session;
  if (lane == net::Lane::control) ++news_;
  enqueue(queue, std::move(outgoing));
  return {};
}

Result<void> PeerShard::send(StreamFrame& frame, net::Lane lane) noexcept {
  net::Message message;
  message.envelope = {.target = frame.target,
                      .source = frame.from,
                      .context = std::uint64_t{frame.messages} << 32 | frame.bytes,
                      .kind = net::MessageKind::stream,
                      .flags = static_cast<std::uint8_t>(frame.op)};
  message.body = frame.error ? encode_failure(*frame.error) : std::move(frame.body);
  return post(std::move(message), lane);
}

void forget_outgoing(Outgoing& outgoing) noexcept {
  outgoing.waiter = nullptr;
  if (!outgoing.linked()) return;  // it is being sent
  outgoing.unlink();
  delete &outgoing;
}

Task<void> PeerShard::pump(Queue* queue) {
  while (Outgoing* next = queue->waiting.pop_front()) {
    std::unique_ptr<Outgoing> outgoing(next);
    if (outgoing->posted) {
      co_await send_posted(std::move(outgoing));
    } else if (outgoing->answers) {
      co_await send_answer(std::move(outgoing));
    } else {
      co_await send_request(std::move(outgoing));
    }
  }
  queue->pumping = false;
}

Task<void> PeerShard::send_request(std::unique_ptr<Outgoing> outgoing) {
  Outgoing& sending = *outgoing;
  std::optional<Error> failure;
  try {
    co_await ensure_session(sending.deadline);
    set_deadline(sending.message.envelope, sending.deadline);
    co_await session->send(std::move(sending.message), sending.lane, sending.deadline);
  } catch (const Error& error) {
    failure = error;
  } catch (const std::exception& error) {
    failure = Error(Errc::internal, "send to the node at " + peer.address, error.what());
  }
  SendWaiter* waiter = std::exchange(sending.waiter, nullptr);
  if (!waiter) co_return;
  waiter->outgoing_ended();
  if (failure) {
    waiter->refused(std::move(*failure));
  } else if (!waiter->asks()) {
    waiter->wake();
  }
}

// Once its session is down, whoever it was for has been told.
Task<void> PeerShard::send_posted(std::unique_ptr<Outgoing> outgoing) {
  const net::SessionRef to = outgoing->posted;
  if (outgoing->lane == net::Lane::control) --news_;
  std::optional<Error> failure;
  try {
    if (to->up()) co_await to->send(std::move(outgoing->message), outgoing->lane, no_deadline);
  } catch (const Error& error) {
    failure = error;
  } catch (const std::exception& error) {
    failure = Error(Errc::internal, "send to the node at " + peer.address, error.what());
  }
  if (failure && to->up()) log::warning(std::string("a message was not sent: ") + failure->what());
}

Task<void> PeerShard::send_answer(std::unique_ptr<Outgoing> outgoing) {
  const net::SessionRef to = outgoing->answers;
  const net::Envelope envelope = outgoing->message.envelope;
  const Buffer opened = envelope.flags & flag_opened ? outgoing->message.body : Buffer();
  std::optional<Error> failure;
  try {
    if (to->up())
      co_await to->send(std::move(outgoing->message), outgoing->lane, outgoing->deadline);
  } catch (const Error& error) {
    failure = error;
  } catch (const std::exception& error) {
    failure = Error(Errc::internal, "answer the node at " + peer.address, error.what());
  }
  if (!failure) co_return;
  give_up_opened(home, envelope, opened);
  answer(to, failure_with(envelope, *failure), outgoing->lane);
}

Task<void> PeerShard::ensure_session(Time deadline) {
  if (connected()) co_return;
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
  home.fail_watches(peer, reason);
  home.fail_streams(peer, reason);
  while (!watchers_.empty()) end_watch(watchers_.begin()->first);
}

// ---- actors that the peer monitors ------------------------------------------

void PeerShard::begin_watch(std::uint64_t number, ActorCell* target,
                            std::uint64_t target_id) noexcept {
  if (watchers_.contains(number)) return;
  if (!target || watchers_.size() >= most_watchers)
    return report_end(number, {target_id,
                               {},
                               ExitReason::not_found,
                               target ? "its process has too many monitors of yours" : ""});
  auto* watch = new Watch(home);
  watch->on_behalf = this;
  watch->number = number;
  watchers_.emplace(number, watch);
  watch->begin({target, nullptr, target_id});
}

void PeerShard::end_watch(std::uint64_t number) noexcept {
  const auto found = watchers_.find(number);
  if (found == watchers_.end()) return;
  Watch* watch = found->second;
  watchers_.erase(found);
  watch->abandon();
}

void PeerShard::report_end(std::uint64_t number, const Down& down) noexcept {
  watchers_.erase(number);
  net::Message message;
  message.envelope = {.source = down.id, .correlation = number, .kind = net::MessageKind::down};
  message.body =
      hyperframes::system::Ended(
          {.name = down.name, .reason = static_cast<std::uint8_t>(down.reason), .text = down.text})
          .buffer();
  static_cast<void>(post(std::move(message), net::Lane::control));
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
    route->peer->answer(route->session, failure_to(route->ask, error), route->lane);
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
  if (method->streams && !arrival.route)
    return refuse_input(arrival, method->name,
                        Error(Errc::verification_failed, "open a stream for a peer",
                              "it was told, and not asked, to open it"));
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
  if (!letter) {
    here.late.add();
    if (envelope.kind == net::MessageKind::reply && (envelope.flags & flag_opened))
      abandon_opened(here, &arrival.peer, arrival.message.body);
    return;
  }
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

// The end of an actor of that peer, on the shard of who monitors it.
void deliver_down(Arrival& arrival) noexcept {
  const net::Envelope& envelope = arrival.message.envelope;
  Watch* watch = arrival.target.take_watch(envelope.correlation, arrival.peer);
  if (!watch) return;  // given up meanwhile
  auto ended = hyperframes::system::Ended::verified(std::move(arrival.message.body));
  if (!ended) {
    arrival.target.refused_input.add();
    return watch->lost(ended.error());
  }
  const bool known = ended->reason() <= static_cast<std::uint8_t>(ExitReason::lost);
  watch->ended({watch->target_id, std::string(ended->name()),
                known ? static_cast<ExitReason>(ended->reason()) : ExitReason::crashed,
                std::string(ended->text()), watch->link});
}

// About monitors and links of an actor of this shard.
void deliver_relation(Arrival& arrival) noexcept {
  const net::Envelope& envelope = arrival.message.envelope;
  NodeShard& here = arrival.target;
  PeerShard& part = arrival.peer.on(here.shard.index());
  ActorCell* cell = here.find(envelope.target);
  const Destination other{nullptr, &arrival.peer, envelope.source};
  switch (envelope.kind) {
    case net::MessageKind::monitor:
      return part.begin_watch(envelope.correlation, cell, envelope.target);
    case net::MessageKind::demonitor: return part.end_watch(envelope.correlation);
    case net::MessageKind::link:
      if (cell && cell->accepts() && cell->link_count() < most_links) cell->link_with(other, true);
      return;
    default:
      if (cell) cell->unlink_from(other);
  }
}

void deliver_frame(Arrival& arrival) noexcept {
  const net::Envelope& envelope = arrival.message.envelope;
  if (envelope.flags > static_cast<std::uint8_t>(last_stream_op)) {
    arrival.target.refused_input.add();
    return;
  }
  const auto op = static_cast<StreamOp>(envelope.flags);
  auto frame = std::make_unique<StreamFrame>(op, envelope.target, envelope.source);
  frame->messages = static_cast<std::uint32_t>(envelope.context >> 32);
  frame->bytes = static_cast<std::uint32_t>(envelope.context);
  if (op == StreamOp::data) {
    frame->body = std::move(arrival.message.body);
  } else if (op == StreamOp::failure || op == StreamOp::stop) {
    frame->error =
        std::make_unique<Error>(decode_failure(std::move(arrival.message.body), "a stream"));
  }
  deliver(arrival.target, std::move(frame), &arrival.peer);
}

void deliver(Arrival& arrival) noexcept {
  switch (arrival.message.envelope.kind) {
    case net::MessageKind::down: return deliver_down(arrival);
    case net::MessageKind::monitor:
    case net::MessageKind::demonitor:
    case net::MessageKind::link:
    case net::MessageKind::unlink: return deliver_relation(arrival);
    case net::MessageKind::stream: return deliver_frame(arrival);
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

namespace {
unsigned shard_for(const net::Envelope& envelope) noexcept {
  switch (envelope.kind) {
    case net::MessageKind::reply:
    case net::MessageKind::failure:
    case net::MessageKind::down: return shard_of_correlation(envelope.correlation);
    case net::MessageKind::stream: return shard_of_correlation(envelope.target);
    default: return actor_id::shard_of(envelope.target);
  }
}
}  // namespace

void receive(NodeShard& here, PeerShard& from, net::Session& session, net::Lane lane,
             net::Message message) noexcept {
  const net::Envelope envelope = message.envelope;
  const unsigned shard = shard_for(envelope);
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

namespace {
net::Message answer_in(Letter& letter, const net::Envelope& ask) {
  if (letter.content != Letter::Content::answer)
    return failure_to(ask, *letter.content_as<Error*>());
  net::Message message;
  message.envelope = net::answer_to(ask);
  message.envelope.type_id = letter.method->id;
  if (letter.method->streams) message.envelope.flags = flag_opened;
  try {
    letter.method->write(letter, message.body, message.segments);
  } catch (const Error& error) {
    return failure_to(ask, error);
  }
  return message;
}
}  // namespace

void answer_peer(Letter* letter) noexcept {
  std::unique_ptr<RemoteRoute> route(letter->route);
  if (!route->session->up()) return destroy(letter);  // with the ends of a stream that it opened
  net::Message message = answer_in(*letter, route->ask);
  destroy(letter);
  route->peer->answer(route->session, std::move(message), route->lane);
}

}  // namespace hyperframes::detail
