#include <hyperframes/runtime/reactor/sim_streams.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace hyperframes::detail {
namespace {

std::int64_t done_or(std::size_t done, int error) noexcept {
  return done ? static_cast<std::int64_t>(done) : -error;
}

}  // namespace

// ---- Bytes

std::size_t SimBytes::take(std::span<std::byte> into) noexcept {
  const std::size_t count = std::min(into.size(), size());
  std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(begin_), count, into.begin());
  drop(count);
  return count;
}

std::vector<std::byte> SimBytes::take(std::size_t count) {
  std::vector<std::byte> taken(count);
  take(std::span(taken));
  return taken;
}

// The front is cut off only once it is the larger part, so that taking costs O(1) a byte.
void SimBytes::drop(std::size_t count) noexcept {
  begin_ += count;
  if (begin_ < bytes_.size() / 2) return;
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_));
  begin_ = 0;
}

// ---- The map

bool SimStreams::reachable(const SimHost& from, const SimHost& to) const noexcept {
  return from.reachable && to.reachable &&
         (&from == &to || !cuts_.contains({from.index, to.index}));
}

Duration SimStreams::delay(const SimHost& from, const SimHost& to) {
  SimRandom& random = clockwork_.network;
  if (&from == &to) return random.between(Duration(3us), Duration(15us));
  const auto at = links.find({from.index, to.index});
  const auto& link = at == links.end() ? settings_.default_link() : at->second;
  return link.latency + random.between(Duration(0), link.jitter);
}

SimHost* SimStreams::host_of(const SimHost& from, const Address& address) const noexcept {
  for (SimHost* host : hosts) {
    if (address.is_loopback() || address.is_unspecified()
            ? host == &from
            : host->address.bytes() == address.bytes())
      return host;
  }
  return nullptr;
}

std::shared_ptr<SimListener> SimStreams::listener_at(SimHost& host, const Address& address) const {
  const auto at = listeners_.find({host.index, address.port()});
  if (at == listeners_.end()) return nullptr;
  for (const auto& listener : at->second)
    if (listener->address.is_unspecified() || address.is_unspecified() ||
        listener->address == address)
      return listener;
  return nullptr;
}

SimStream* SimStreams::find(std::uint64_t id) const noexcept {
  const auto at = streams_.find(id);
  return at == streams_.end() ? nullptr : at->second.get();
}

std::uint16_t SimStreams::ephemeral_port(SimHost& host) {
  while (true) {
    const auto port = static_cast<std::uint16_t>(clockwork_.network.between(32768, 60999));
    if (!listeners_.contains({host.index, port})) return port;
  }
}

std::shared_ptr<SimListener> SimStreams::listen(SimHost& host, const Address& address,
                                                int backlog) {
  const std::string tried = "listen on " + address.to_string();
  if (!address.is_loopback() && !address.is_unspecified() &&
      address.bytes() != host.address.bytes())
    throw Error::system(EADDRNOTAVAIL, tried, {}, "use an address of this host");
  auto listener = std::make_shared<SimListener>();
  listener->address = address;
  if (address.port() == 0) listener->address.set_port(ephemeral_port(host));
  if (listener_at(host, listener->address))
    throw Error::system(EADDRINUSE, tried, {},
                        "another process listens there; stop it or choose another port");
  listener->host = &host;
  listener->backlog = static_cast<std::size_t>(std::max(backlog, 1));
  listeners_[{host.index, listener->address.port()}].push_back(listener);
  return listener;
}

// ---- Operations begin and end

void SimStreams::start(SimReactor& reactor, Operation& operation, const SimHandle& handle) {
  using enum Operation::Kind;
  const OperationKey key = reactor.key_of(operation);
  if (operation.kind == resolve) return start_resolve(key, operation);
  if (operation.kind == connect) return start_connect(key, operation);
  if (operation.kind == accept) {
    if (!handle.listener) return SimReactor::finish(key, handle.stream ? -EINVAL : -ENOTSOCK);
    handle.listener->accepters.push_back(key);
    return match_accepts(*handle.listener);
  }
  if (!handle.stream) return SimReactor::finish(key, handle.listener ? -ENOTCONN : -ENOTSOCK);
  SimStream& stream = *handle.stream;
  switch (operation.kind) {
    case receive:
    case receive_stream: stream.receivers.push_back({key, 0}); return match_receives(stream);
    case send:
      // Taken a little later, so that memory which its owner changes too early shows.
      stream.senders.push_back({key, 0});
      return clockwork_.after(clockwork_.network.between(Duration(200ns), Duration(5us)),
                              [this, pointer = handle.stream] { pump(*pointer); });
    default:
      if (stream.broken) return SimReactor::finish(key, -ENOTCONN);
      stream.end_wanted = true;
      pump(stream);
      return SimReactor::finish(key, 0);
  }
}

void SimStreams::cancel(const OperationKey& key) {
  if (clockwork_.network.below(2) == 0) return end_early(key);
  // The other half of the time the operation may still win.
  clockwork_.after(clockwork_.network.between(Duration(1us), Duration(60us)),
                   [this, key] { end_early(key); });
}

void SimStreams::end_early(const OperationKey& key) {
  Operation* const operation = SimReactor::find(key);
  if (!operation || operation->kind == Operation::Kind::shutdown) return;
  std::size_t done = 0;
  const SimHandle* const handle = SimReactor::handle_of(*operation);
  if (handle && handle->stream) {
    for (const auto& sender : handle->stream->senders)
      if (sender.key.id == key.id && sender.key.shard == key.shard) done = sender.done;
    for (const auto& receiver : handle->stream->receivers)
      if (receiver.key.id == key.id && receiver.key.shard == key.shard) done = receiver.done;
  }
  // What still waits in a list there is found ended, and skipped.
  SimReactor::finish(key, done_or(done, ECANCELED));
}

void SimStreams::operation_ended(const SimHandle& handle) {
  if (handle.stream) {
    SimStream& stream = *handle.stream;
    --stream.operations;
    if (stream.closed) {
      if (stream.operations == 0) finish_close(stream);
    } else {
      match_receives(stream);
      pump(stream);
    }
  } else if (handle.listener) {
    SimListener& listener = *handle.listener;
    if (--listener.operations == 0 && listener.closed) remove_listener(handle.listener);
  }
}

void SimStreams::close(const SimHandle& handle) {
  if (handle.stream) {
    handle.stream->closed = true;
    if (handle.stream->operations == 0) finish_close(*handle.stream);
  } else if (handle.listener) {
    handle.listener->closed = true;
    if (handle.listener->operations == 0) remove_listener(handle.listener);
  }
}

void SimStreams::end_accepts(SimListener& listener) {
  for (const OperationKey& key : std::exchange(listener.accepters, {}))
    SimReactor::finish(key, -EINVAL);
}

void SimStreams::remove_listener(std::shared_ptr<SimListener> listener) {
  auto& same_port = listeners_[{listener->host->index, listener->address.port()}];
  std::erase(same_port, listener);
  if (same_port.empty()) listeners_.erase({listener->host->index, listener->address.port()});
  for (const auto& stream : std::exchange(listener->waiting, {})) {
    send_reset(*stream->host, *stream->peer_host, stream->peer_id);
    break_stream(*stream, ECONNRESET);
  }
}

void SimStreams::start_resolve(const OperationKey& key, const Operation& operation) {
  const Duration span = clockwork_.network.between(Duration(50us), Duration(5ms));
  clockwork_.after(span, [this, key, name = operation.path, port = operation.address.port()] {
    Operation* const found = SimReactor::find(key);
    if (!found) return;
    for (const SimHost* host : hosts) {
      if (name != host->name && !(name == "localhost" && host == key.host)) continue;
      Address address = name == "localhost" ? Address::v4({127, 0, 0, 1}, 0) : host->address;
      address.set_port(port);
      found->addresses.push_back(address);
    }
    const auto count = static_cast<std::int64_t>(found->addresses.size());
    SimReactor::finish(key, count ? count : -ENXIO);
  });
}

// ---- Connecting

struct SimStreams::Dial {
  OperationKey key;
  SimHost* from;
  SimHost* to;
  Address target;
  Time give_up_at;
  Duration pause = 1s;
};

void SimStreams::start_connect(const OperationKey& key, Operation& operation) {
  SimHost* const to = host_of(*key.host, operation.address);
  if (!to) return SimReactor::finish(key, -EHOSTUNREACH);
  auto dial = std::make_shared<Dial>();
  dial->key = key;
  dial->from = key.host;
  dial->to = to;
  dial->target = operation.address;
  dial->give_up_at = clockwork_.now() + settings_.limits().connect_give_up;
  knock(dial);
}

void SimStreams::knock(std::shared_ptr<Dial> dial) {
  clockwork_.after(delay(*dial->from, *dial->to), [this, dial] {
    if (!SimReactor::find(dial->key)) return;
    if (!reachable(*dial->from, *dial->to)) return knock_again(dial);
    const auto listener = listener_at(*dial->to, dial->target);
    // A full backlog drops the request without a word.
    if (listener && listener->waiting.size() >= listener->backlog) return knock_again(dial);
    const double refuse = settings_.faults().refuse;
    answer(dial, !listener || (refuse > 0 && clockwork_.network.chance(refuse)));
  });
}

void SimStreams::knock_again(std::shared_ptr<Dial> dial) {
  if (clockwork_.now() + dial->pause > dial->give_up_at) {
    clockwork_.at(dial->give_up_at, [dial] { SimReactor::finish(dial->key, -ETIMEDOUT); });
    return;
  }
  clockwork_.after(dial->pause, [this, dial] { knock(dial); });
  dial->pause *= 2;
}

void SimStreams::answer(std::shared_ptr<Dial> dial, bool refused) {
  clockwork_.after(delay(*dial->to, *dial->from), [this, dial, refused] {
    if (!SimReactor::find(dial->key)) return;
    if (!reachable(*dial->to, *dial->from)) return knock_again(dial);
    if (refused) return SimReactor::finish(dial->key, -ECONNREFUSED);
    establish(*dial);
  });
}

void SimStreams::establish(Dial& dial) {
  auto near = std::make_shared<SimStream>();
  near->id = ++stream_count_;
  near->peer_id = ++stream_count_;
  near->host = dial.from;
  near->peer_host = dial.to;
  near->local = dial.target.is_loopback() ? dial.target : dial.from->address;
  near->local.set_port(ephemeral_port(*dial.from));
  near->remote = dial.target;
  near->credit = settings_.limits().receive_window;
  SimHandle handle;
  handle.stream = near;
  const int descriptor = dial.from->add_descriptor(handle);
  if (descriptor < 0) return SimReactor::finish(dial.key, descriptor);
  streams_.emplace(near->id, near);
  SimReactor::finish(dial.key, descriptor);
  SimPiece piece;
  piece.opens = true;
  depart(*near, std::move(piece));
}

// The last step of the handshake came: the connection waits to be accepted.
void SimStreams::open_far_end(SimStream& near) {
  const auto listener = listener_at(*near.peer_host, near.remote);
  if (!listener || listener->waiting.size() >= listener->backlog)
    return send_reset(*near.peer_host, *near.host, near.id);
  auto far = std::make_shared<SimStream>();
  far->id = near.peer_id;
  far->peer_id = near.id;
  far->host = near.peer_host;
  far->peer_host = near.host;
  far->local = near.remote;
  far->remote = near.local;
  far->credit = settings_.limits().receive_window;
  far->arrived_pieces = 1;
  streams_.emplace(far->id, far);
  listener->waiting.push_back(far);
  match_accepts(*listener);
}

void SimStreams::match_accepts(SimListener& listener) {
  while (!listener.accepters.empty()) {
    const OperationKey key = listener.accepters.front();
    Operation* const operation = SimReactor::find(key);
    if (operation && listener.waiting.empty()) return;
    listener.accepters.pop_front();
    if (!operation) continue;
    const StreamPointer stream = listener.waiting.front();
    listener.waiting.pop_front();
    if (stream->broken && clockwork_.network.below(2)) {
      SimReactor::finish(key, -ECONNABORTED);
      continue;
    }
    SimHandle handle;
    handle.stream = stream;
    const int descriptor = listener.host->add_descriptor(handle);
    if (descriptor < 0) listener.waiting.push_front(stream);
    operation->address = stream->remote;
    SimReactor::finish(key, descriptor);
  }
}

// ---- Receiving

std::size_t SimStreams::take(SimStream& stream, std::span<std::byte> into) {
  const std::size_t count = stream.received.take(into);
  stream.owed_credit += count;
  return_credit(stream);
  return count;
}

// Told once; after that the stream only has an end.
int SimStreams::take_error(SimStream& stream) noexcept { return std::exchange(stream.error, 0); }

void SimStreams::match_receives(SimStream& stream) {
  while (!stream.receivers.empty()) {
    auto& [key, done] = stream.receivers.front();
    Operation* const operation = SimReactor::find(key);
    if (!operation) {
      stream.receivers.pop_front();
      continue;
    }
    if (!stream.readable()) return;
    if (operation->kind == Operation::Kind::receive_stream) return SimReactor::notify_readable(key);
    const auto into = operation->memory[0].bytes();
    done += take(stream, into.subspan(done));
    const bool all = operation->flags & MSG_WAITALL;
    if (done < into.size() && (all || done == 0) && !stream.end_received && !stream.broken) return;
    const bool short_end = done == 0 && !into.empty();
    SimReactor::finish(key, short_end ? -take_error(stream) : static_cast<std::int64_t>(done));
    stream.receivers.pop_front();
  }
}

// Room in the window travels back with the acknowledgements, unless their way is cut.
void SimStreams::return_credit(SimStream& reader) {
  if (reader.owed_credit == 0 || !reachable(*reader.host, *reader.peer_host)) return;
  SimStream* const peer = find(reader.peer_id);
  if (!peer) return;
  peer->credit += std::exchange(reader.owed_credit, 0);
  pump(*peer);
}

// ---- Sending

void SimStreams::feed(SimStream& stream) {
  const std::size_t buffer = settings_.limits().send_buffer;
  const std::size_t limit = stream.unsent_limit ? std::min(buffer, stream.unsent_limit) : buffer;
  while (!stream.senders.empty()) {
    auto& [key, done] = stream.senders.front();
    Operation* const operation = SimReactor::find(key);
    if (!operation) {
      stream.senders.pop_front();
      continue;
    }
    if (stream.broken || stream.end_wanted) {
      // Of a send that has done a part, the next operation is told the error.
      const int error = done ? 0 : take_error(stream);
      SimReactor::finish(key, done_or(done, error ? error : EPIPE));
      stream.senders.pop_front();
      continue;
    }
    std::size_t skip = done;
    for (const Buffer& buffer : operation->memory) {
      const std::size_t begin = std::min(skip, buffer.size());
      skip -= begin;
      const std::size_t room = limit - std::min(limit, stream.queued.size());
      const auto bytes = buffer.bytes().subspan(begin);
      const auto taken = bytes.first(std::min(room, bytes.size()));
      stream.queued.append(taken);
      done += taken.size();
      if (taken.size() < bytes.size()) break;
    }
    const bool all = done == operation->memory.size_bytes();
    if (!all && (done == 0 || !clockwork_.network.chance(settings_.limits().short_send))) return;
    SimReactor::finish(key, static_cast<std::int64_t>(done));
    stream.senders.pop_front();
  }
}

void SimStreams::pump(SimStream& stream) {
  while (true) {
    feed(stream);
    if (stream.broken || stream.end_sent) return;
    if (stream.queued.empty() || stream.credit == 0) break;
    if (clockwork_.now() < stream.line_free_at) {
      if (std::exchange(stream.pump_planned, true)) return;
      return clockwork_.at(stream.line_free_at, [this, id = stream.id] {
        SimStream* const found = find(id);
        if (!found) return;
        found->pump_planned = false;
        pump(*found);
      });
    }
    std::size_t size = std::min({stream.queued.size(), stream.credit,
                                 std::max<std::size_t>(1, settings_.limits().largest_piece)});
    SimRandom& random = clockwork_.network;
    if (random.below(4) == 0) size = random.between(1, size);
    SimPiece piece;
    piece.bytes = stream.queued.take(size);
    stream.credit -= size;
    if (!depart(stream, std::move(piece))) return;
  }
  if (!stream.end_wanted || !stream.queued.empty()) return;
  stream.end_sent = true;
  SimPiece piece;
  piece.ends = true;
  depart(stream, std::move(piece));
}

// False if the connection broke instead.
bool SimStreams::depart(SimStream& stream, SimPiece piece) {
  const SimNetwork::Faults& faults = settings_.faults();
  SimRandom& random = clockwork_.network;
  Duration extra{0};
  if (stream.host != stream.peer_host) {
    if (faults.reset > 0 && random.chance(faults.reset)) {
      send_reset(*stream.host, *stream.peer_host, stream.peer_id);
      break_stream(stream, ECONNRESET);
      return false;
    }
    if (faults.loss > 0 && random.chance(faults.loss))
      extra = random.between(faults.retransmit, 2 * faults.retransmit);
    if (faults.spike > 0 && random.chance(faults.spike))
      extra += random.between(Duration(0), faults.spike_max);
  }
  const auto link = links.find({stream.host->index, stream.peer_host->index});
  const std::uint64_t rate =
      (link == links.end() ? settings_.default_link() : link->second).bytes_per_second;
  stream.line_free_at = clockwork_.now();
  if (rate)
    stream.line_free_at +=
        Duration(static_cast<std::int64_t>(piece.bytes.size() * 1'000'000'000 / rate));
  stream.last_arrival = std::max(
      stream.last_arrival, stream.line_free_at + extra + delay(*stream.host, *stream.peer_host));
  piece.number = ++stream.sent_pieces;
  clockwork_.at(stream.last_arrival,
                [this, from = stream.id, to = stream.peer_id, from_host = stream.host,
                 to_host = stream.peer_host, piece = std::move(piece)]() mutable {
                  arrive(from, to, *from_host, *to_host, std::move(piece));
                });
  return true;
}

void SimStreams::arrive(std::uint64_t from, std::uint64_t to, SimHost& from_host, SimHost& to_host,
                        SimPiece piece) {
  SimStream* const sender = find(from);
  if (!reachable(from_host, to_host) || (sender && !sender->held.empty())) {
    if (sender) hold(*sender, std::move(piece));
    return;
  }
  arrive_now(sender, from, to, from_host, to_host, std::move(piece));
}

void SimStreams::arrive_now(SimStream* sender, std::uint64_t from, std::uint64_t to,
                            SimHost& from_host, SimHost& to_host, SimPiece piece) {
  if (sender) ++sender->progress;
  if (piece.opens) {
    if (sender) open_far_end(*sender);
    return;
  }
  SimStream* const target = find(to);
  const bool ends = piece.ends;
  if (target) {
    // A gap: its sender died before it could send the missing piece again.
    if (piece.number != target->arrived_pieces + 1) return;
    deliver(*target, std::move(piece));
  } else if (!ends) {
    return send_reset(to_host, from_host, from);
  }
  if (!ends) return;
  if (SimStream* const again = find(from)) {
    again->end_arrived = true;
    forget_if_done(*again);
  }
}

void SimStreams::deliver(SimStream& target, SimPiece piece) {
  ++target.arrived_pieces;
  if (target.closed && target.operations == 0 && !piece.bytes.empty()) {
    // Nobody will read it.
    send_reset(*target.host, *target.peer_host, target.peer_id);
    return break_stream(target, ECONNRESET);
  }
  target.received.append(piece.bytes);
  target.end_received |= piece.ends;
  match_receives(target);
}

// ---- What can't arrive now

void SimStreams::hold(SimStream& from, SimPiece piece) {
  from.held.push_back(std::move(piece));
  plan_retry(from);
  watch_progress(from);
}

void SimStreams::plan_retry(SimStream& from) {
  if (from.held.empty() || from.retry_planned || !reachable(*from.host, *from.peer_host)) return;
  from.retry_planned = true;
  const Duration span = clockwork_.network.between(
      Duration(1ms), std::max(Duration(1ms), settings_.faults().retransmit));
  clockwork_.after(span, [this, id = from.id] { retry(id); });
}

void SimStreams::retry(std::uint64_t id) {
  if (SimStream* const stream = find(id)) stream->retry_planned = false;
  while (SimStream* const stream = find(id)) {
    if (stream->held.empty() || !reachable(*stream->host, *stream->peer_host)) return;
    SimPiece piece = std::move(stream->held.front());
    stream->held.pop_front();
    arrive_now(stream, id, stream->peer_id, *stream->host, *stream->peer_host, std::move(piece));
  }
}

void SimStreams::watch_progress(SimStream& stream) {
  if (std::exchange(stream.watched, true)) return;
  clockwork_.after(settings_.limits().give_up, [this, id = stream.id, before = stream.progress] {
    SimStream* const found = find(id);
    if (!found) return;
    found->watched = false;
    if (found->held.empty()) return;
    if (found->progress == before) return break_stream(*found, ETIMEDOUT);
    watch_progress(*found);
  });
}

void SimStreams::retry_all() {
  std::vector<std::uint64_t> ids;
  for (const auto& [id, stream] : streams_) ids.push_back(id);
  for (const std::uint64_t id : ids) {
    if (SimStream* const stream = find(id)) return_credit(*stream);
    if (SimStream* const stream = find(id)) plan_retry(*stream);
  }
}

// ---- Endings

// A reset is sent once: if it can't arrive, the other end learns of it by its next piece.
void SimStreams::send_reset(SimHost& from, SimHost& to, std::uint64_t to_id) {
  clockwork_.after(delay(from, to), [this, &from, &to, to_id] {
    if (!reachable(from, to)) return;
    if (SimStream* const stream = find(to_id)) break_stream(*stream, ECONNRESET);
  });
}

void SimStreams::break_stream(SimStream& stream, int error) {
  if (stream.broken) return;
  const auto node = streams_.extract(stream.id);  // keeps it alive until here ends
  stream.broken = true;
  stream.error = error;
  stream.queued.clear();
  stream.held.clear();
  clockwork_.record("breaks", stream.host->index, 0, stream.id, static_cast<std::uint64_t>(error));
  // Whoever waits for it hears of it first, a reader or a writer: as it happens.
  if (clockwork_.network.below(2)) {
    match_receives(stream);
    feed(stream);
  } else {
    feed(stream);
    match_receives(stream);
  }
}

void SimStreams::reset(SimStream& stream) {
  if (stream.broken) return;
  send_reset(*stream.host, *stream.peer_host, stream.peer_id);
  break_stream(stream, ECONNRESET);
}

void SimStreams::finish_close(SimStream& stream) {
  if (stream.broken) return;
  if (!stream.received.empty()) return reset(stream);
  stream.end_wanted = true;
  pump(stream);
  forget_if_done(stream);
}

void SimStreams::forget_if_done(SimStream& stream) {
  if (stream.closed && stream.operations == 0 && stream.end_arrived) streams_.erase(stream.id);
}

void SimStreams::host_gone(SimHost& host, bool silently) {
  for (auto at = listeners_.lower_bound({host.index, 0});
       at != listeners_.end() && at->first.first == host.index;)
    at = listeners_.erase(at);
  std::vector<StreamPointer> mine;
  for (const auto& [id, stream] : streams_)
    if (stream->host == &host) mine.push_back(stream);
  for (const auto& stream : mine) {
    stream->closed = true;
    stream->operations = 0;
    stream->senders.clear();
    stream->receivers.clear();
    if (silently) {
      stream->broken = true;
      streams_.erase(stream->id);
    } else if (clockwork_.network.below(2)) {
      send_reset(host, *stream->peer_host, stream->peer_id);
      break_stream(*stream, ECONNRESET);
    } else {
      finish_close(*stream);  // as a kernel closes what a killed process had open
    }
  }
}

std::size_t SimStreams::reset_between(unsigned a, unsigned b) {
  std::vector<StreamPointer> matching;
  for (const auto& [id, stream] : streams_) {
    const unsigned from = stream->host->index, to = stream->peer_host->index;
    if ((from == a && to == b) || (from == b && to == a)) matching.push_back(stream);
  }
  for (const auto& stream : matching) break_stream(*stream, ECONNRESET);
  return (matching.size() + 1) / 2;
}

bool SimStreams::reset_any() {
  std::vector<StreamPointer> all;
  for (const auto& [id, stream] : streams_)
    if (stream->host != stream->peer_host) all.push_back(stream);
  if (all.empty()) return false;
  const StreamPointer chosen = all[clockwork_.network.below(all.size())];
  send_reset(*chosen->host, *chosen->peer_host, chosen->peer_id);
  break_stream(*chosen, ECONNRESET);
  return true;
}

}  // namespace hyperframes::detail
