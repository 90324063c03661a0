#include <hyperframes/actors/detail/stream_end.hpp>

#include <algorithm>
#include <cstring>
#include <hyperframes/actors/detail/node_core.hpp>
#include <hyperframes/actors/detail/node_shard.hpp>
#include <hyperframes/actors/detail/pooled_buffer.hpp>
#include <hyperframes/actors/detail/remote.hpp>
#include <hyperframes/actors/detail/send_waiter.hpp>
#include <utility>

namespace hyperframes::detail {

// ---- frames -----------------------------------------------------------------

namespace {

void arrive(Work* work) noexcept {
  std::unique_ptr<StreamFrame> frame(static_cast<StreamFrame*>(work));
  NodeShard& here = *frame->there;
  here.arrived();
  deliver(here, std::move(frame), nullptr);
}

Buffer own_copy(const Buffer& bytes) {
  Buffer copy = pooled_buffer(bytes.size());
  if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
  return copy;
}

std::unique_ptr<Error> nobody_reads() {
  return std::make_unique<Error>(Errc::cancelled, "write to a stream", "nobody reads it any more");
}

}  // namespace

Error node_ended() { return Error(Errc::shutting_down, "use a stream", "its node has ended"); }

void deliver(NodeShard& here, std::unique_ptr<StreamFrame> frame, RemotePeer* peer) noexcept {
  StreamEnd* end = here.find_stream(frame->target);
  // Code of this process may speak for a peer that it gives up; a peer only for itself.
  const bool believed = end && (!peer || end->peer() == peer);
  if (believed && end->takes(frame->op)) return end->receive(std::move(frame));
  if (frame->op != StreamOp::data && frame->op != StreamOp::blocked) return;
  auto stop = std::make_unique<StreamFrame>(StreamOp::stop, frame->from, frame->target);
  stop->error = nobody_reads();
  static_cast<void>(send(here, std::move(stop), peer, net::Lane::control));
}

Result<void> send(NodeShard& here, std::unique_ptr<StreamFrame> frame, RemotePeer* peer,
                  net::Lane lane) noexcept {
  if (peer) return peer->on(here.shard.index()).send(*frame, lane);
  const unsigned shard = shard_of_correlation(frame->target);
  if (shard >= here.core.shard_count()) return {};
  NodeShard& there = here.core.at(shard);
  if (&there == &here) {
    deliver(here, std::move(frame), nullptr);
    return {};
  }
  if (!frame->body.empty() && !frame->body.unique()) frame->body = frame->body.proxy();
  frame->there = &there;
  frame->run = &arrive;
  here.post(there, frame.release(), Group::user);
  return {};
}

// ---- both ends --------------------------------------------------------------

StreamEnd::StreamEnd(const StreamPlace& place) : place_(place), clock_(*this) {
  number_ = home()->add_stream(*this);
  if (place_.deadline != no_deadline) home()->shard.start_timer(clock_, place_.deadline);
}

StreamEnd::~StreamEnd() {
  if (home()) home()->forget_stream(number_);
}

void StreamEnd::detach() noexcept {
  stop_clock();
  fail(node_ended());
  place_.home = nullptr;
}

void StreamEnd::Clock::run(Timer& timer) noexcept {
  StreamEnd& end = static_cast<Clock&>(timer).end;
  const Error error(Errc::deadline_exceeded, "use a stream", "its deadline passed");
  end.say(end.farewell(), std::make_unique<Error>(error));
  end.fail(error);
}

std::unique_ptr<StreamFrame> StreamEnd::frame(StreamOp op) const {
  return std::make_unique<StreamFrame>(op, other_, number_);
}

void StreamEnd::say(StreamOp op, std::unique_ptr<Error> error) noexcept {
  if (!other_ || !home()) return;
  auto saying = frame(op);
  saying->error = std::move(error);
  send(std::move(saying), lane_of(op));
}

void StreamEnd::send(std::unique_ptr<StreamFrame> frame, net::Lane lane) noexcept {
  if (!home()) return;
  const bool data = frame->op == StreamOp::data;
  const auto sent = detail::send(*home(), std::move(frame), place_.peer, lane);
  if (sent) return;
  // The other end must not take what came before for all there was.
  if (data) say(farewell(), std::make_unique<Error>(sent.error()));
  fail(sent.error());
}

void StreamEnd::give_up(const char* what) noexcept {
  if (!other_ || !home()) return;
  auto saying = frame(farewell());
  saying->error = home()->drop_reason
                      ? std::make_unique<Error>(home()->drop_reason->error())
                      : std::make_unique<Error>(Errc::cancelled, "use a stream", what);
  if (place_.owner && home()->unwound.takes())
    return home()->unwound.keep(place_.owner, std::move(saying), place_.peer, lane_of(farewell()));
  send(std::move(saying), lane_of(farewell()));
}

// What a writer says stays behind its data.
net::Lane StreamEnd::lane_of(StreamOp op) const noexcept {
  return op >= StreamOp::credit ? net::Lane::control : place_.lane;
}

// ---- the sink ---------------------------------------------------------------

StreamSink::StreamSink(const StreamPlace& place, std::uint64_t other, StreamWindow window)
    : StreamEnd(place), window_(window) {
  other_ = other;
}

StreamSink::~StreamSink() {
  if (!failure_) give_up("its writer was dropped unfinished");
  close(Error(Errc::cancelled, "write to a stream", "its writer was dropped"));
}

bool StreamSink::fits(std::size_t size) const noexcept {
  return messages_ == 0 ||
         (messages_ < window_.messages && bytes_ + size <= std::uint64_t{window_.bytes});
}

// Data takes back what the source was told of waiting writers.
void StreamSink::put(Buffer body) noexcept {
  ++messages_;
  bytes_ += body.size();
  told_blocked_ = false;
  auto data = frame(StreamOp::data);
  data->body = std::move(body);
  send(std::move(data), place_.lane);
}

bool StreamSink::try_write(Buffer& body) noexcept {
  if (failure_ || !waiting_.empty() || !fits(body.size())) return false;
  put(std::move(body));
  return !failure_;
}

// No wake is lost when a waiter in front of a smaller one gives up: each is looked at then.
void StreamSink::admit() noexcept {
  while (!waiting_.empty() && fits(waiting_.front().body_.size())) {
    WriteWaiter& first = *waiting_.pop_front();
    put(std::move(first.body_));
    if (failure_) first.failure_ = std::make_unique<Error>(*failure_);
    first.wake();
    if (failure_) return;
  }
  tell_blocked();
}

// Once for as long as it holds: the source then returns all that is read, at once.
void StreamSink::tell_blocked() noexcept {
  if (!waiting_.empty() && !std::exchange(told_blocked_, true)) say(StreamOp::blocked);
}

void StreamSink::close(Error error) noexcept {
  if (!failure_) failure_ = std::make_unique<Error>(std::move(error));
  stop_clock();
  while (WriteWaiter* waiter = waiting_.pop_front()) {
    waiter->failure_ = std::make_unique<Error>(*failure_);
    waiter->wake();
  }
}

void StreamSink::introduce() noexcept { say(StreamOp::blocked); }

void StreamSink::finish() noexcept {
  if (failure_) return;
  say(StreamOp::end);
  close(Error(Errc::closed, "write to a stream", "it was ended by its writer"));
}

void StreamSink::finish(Error error) noexcept {
  if (failure_) return;
  say(StreamOp::failure, std::make_unique<Error>(std::move(error)));
  close(Error(Errc::closed, "write to a stream", "it was ended by its writer"));
}

void StreamSink::fail(Error error) noexcept { close(std::move(error)); }

void StreamSink::receive(std::unique_ptr<StreamFrame> frame) noexcept {
  if (failure_) return;
  if (frame->op == StreamOp::stop)
    return close(frame->error ? std::move(*frame->error) : *nobody_reads());
  // A peer may return what it never had.
  messages_ -= std::min(messages_, frame->messages);
  bytes_ -= std::min<std::uint64_t>(bytes_, frame->bytes);
  admit();
}

bool WriteWaiter::start(PromiseBase& promise) noexcept {
  if (!sink_ || sink_->failure_) return false;
  if (promise.cancel && promise.cancel->cancelled()) return begin(promise);
  if (sink_->try_write(body_)) {
    written_ = true;
    if (promise.core->transfer_budget > 1) {
      --promise.core->transfer_budget;
      return false;
    }
    promise.schedule();
    return true;
  }
  if (sink_->failure_) return false;
  set_deadline(resolve(within_, promise));
  if (!begin(promise)) return false;
  sink_->waiting_.push_back(*this);
  sink_->tell_blocked();
  return true;
}

// Called when it leaves the list by its deadline, a cancellation or its destruction.
void WriteWaiter::left(Waiter& self) noexcept {
  if (StreamSink* sink = static_cast<WriteWaiter&>(self).sink_) sink->admit();
}

void WriteWaiter::await_resume() {
  if (written_) return;
  if (failure_) throw Error(std::move(*failure_));
  if (promise()) return throw_unless_woken("write to a stream");
  if (sink_) throw Error(*sink_->failure_);
  throw Error(Errc::closed, "write to a stream", "this writer was moved from, or dropped");
}

// ---- the source -------------------------------------------------------------

StreamSource::StreamSource(const StreamPlace& place, const StreamElement& element,
                           StreamWindow window)
    : StreamEnd(place), element_(element), window_(window) {}

StreamSource::~StreamSource() {
  if (!ended_ && !failure_) give_up("its reader stopped reading");
  if (reader_) {
    ReadWaiter& reader = *std::exchange(reader_, nullptr);
    reader.source_ = nullptr;
    if (std::exchange(reader.waits_, false)) reader.wake();
  }
  drop_queue();
}

void StreamSource::drop_queue() noexcept {
  while (Work* work = queue_.pop()) delete static_cast<StreamFrame*>(work);
}

void StreamSource::connect(std::uint64_t other) noexcept {
  if (!other_) other_ = other;
}

void StreamSource::wake_reader() noexcept {
  if (reader_ && std::exchange(reader_->waits_, false)) reader_->wake();
}

void StreamSource::fail(Error error) noexcept {
  if (ended_ || failure_) return;
  failure_ = std::make_unique<Error>(std::move(error));
  stop_clock();
  wake_reader();
}

void StreamSource::receive(std::unique_ptr<StreamFrame> frame) noexcept {
  connect(frame->from);
  switch (frame->op) {
    case StreamOp::data: return take_in(std::move(frame));
    case StreamOp::end:
      if (failure_) return;
      ended_ = true;
      stop_clock();
      return wake_reader();
    case StreamOp::failure:
      return fail(frame->error ? std::move(*frame->error)
                               : Error(Errc::cancelled, "read from a stream", "its writer failed"));
    default: sink_waits_ = true; return return_credit();
  }
}

void StreamSource::take_in(std::unique_ptr<StreamFrame> frame) noexcept {
  if (ended_ || failure_) return;
  std::optional<Error> refusal;
  const std::uint64_t held = held_bytes_ + frame->body.size();
  const std::size_t messages = queue_.size() + read_messages_;
  if (messages >= window_.messages || (messages > 0 && held > window_.bytes))
    refusal.emplace(Errc::corrupt, std::string("read a stream of ") + element_.name,
                    "its writer sent more than it had credit for");
  if (!refusal && place_.peer) {
    // Out of what the network lends the peer, which has others to send to.
    const bool awaited =
        reader_ && reader_->waits_ && reader_->outcome() == Waiter::Outcome::waiting;
    if (!awaited) frame->body = own_copy(frame->body);
    auto verified = element_.verify(std::move(frame->body));
    if (verified) {
      frame->body = std::move(*verified);
    } else {
      home()->refused_input.add();
      refusal = verified.error();
    }
  }
  if (refusal) {
    say(StreamOp::stop, std::make_unique<Error>(*refusal));
    return fail(std::move(*refusal));
  }
  held_bytes_ = held;
  sink_waits_ = false;
  queue_.push(frame.release());
  wake_reader();
}

// Not for each message: for half of the window, or when a writer waits, who might need all of it.
void StreamSource::return_credit() noexcept {
  const bool enough =
      std::uint64_t{read_messages_} * 2 >= window_.messages || read_bytes_ * 2 >= window_.bytes;
  if (!read_messages_ || !(enough || sink_waits_) || ended_ || failure_ || !other_) return;
  auto credit = frame(StreamOp::credit);
  credit->messages = std::exchange(read_messages_, 0);
  credit->bytes = static_cast<std::uint32_t>(read_bytes_);
  held_bytes_ -= std::exchange(read_bytes_, 0);
  send(std::move(credit), net::Lane::control);
}

std::optional<Buffer> StreamSource::next() {
  if (Work* work = queue_.pop()) {
    const std::unique_ptr<StreamFrame> frame(static_cast<StreamFrame*>(work));
    ++read_messages_;
    read_bytes_ += frame->body.size();
    return_credit();
    return std::move(frame->body);
  }
  if (failure_) throw Error(*failure_);
  return std::nullopt;
}

bool ReadWaiter::start(PromiseBase& promise) noexcept {
  if (!source_) return false;
  if (source_->reader_) {
    second_ = true;
    return false;
  }
  if (promise.cancel && promise.cancel->cancelled()) return begin(promise);
  source_->reader_ = this;
  if (source_->has_something()) {
    // A loop that finds something again and again lets others run now and then.
    if (promise.core->transfer_budget > 1) {
      --promise.core->transfer_budget;
      return false;
    }
    promise.schedule();
    return true;
  }
  const Time own = within_.deadline == Time{} ? no_deadline : within_.deadline;
  set_deadline(within_.outlasts ? own : std::min(own, promise.deadline));
  if (!begin(promise)) return false;
  waits_ = true;
  return true;
}

ReadWaiter::~ReadWaiter() {
  if (source_ && source_->reader_ == this) source_->reader_ = nullptr;
}

std::optional<Buffer> ReadWaiter::take() {
  if (second_)
    throw Error(Errc::invalid_argument, "read from a stream", "another coroutine reads it",
                "let one coroutine read at a time");
  if (!source_) throw Error(Errc::cancelled, "read from a stream", "its reader was dropped");
  if (source_->reader_ == this) source_->reader_ = nullptr;
  waits_ = false;
  // What came at the moment of a deadline or a cancellation stays for the next read.
  if (promise()) throw_unless_woken("read from a stream");
  return source_->next();
}

// ---- openings ---------------------------------------------------------------

StreamOpened::StreamOpened(StreamOpened&& other) noexcept
    : core(other.core),
      peer(other.peer),
      source(std::exchange(other.source, 0)),
      sink(std::exchange(other.sink, 0)),
      window(other.window) {}

namespace {

void give_up(NodeShard& here, RemotePeer* peer, std::uint64_t source, std::uint64_t sink) noexcept {
  const auto tell = [&](StreamOp op, std::uint64_t number) {
    if (!number) return;
    auto frame = std::make_unique<StreamFrame>(op, number, 0);
    frame->error = std::make_unique<Error>(Errc::cancelled, "use a stream",
                                           "who opened it no longer waited for that");
    static_cast<void>(send(here, std::move(frame), peer, net::Lane::normal));
  };
  tell(StreamOp::failure, source);
  tell(StreamOp::stop, sink);
}

}  // namespace

StreamOpened::~StreamOpened() {
  Shard* shard = Shard::current();
  if ((!source && !sink) || !shard || &shard->runtime() != &core->runtime) return;
  give_up(core->at(shard->index()), peer, source, sink);
}

void abandon_opened(NodeShard& here, RemotePeer* peer, const Buffer& body) noexcept {
  StreamOpened opened;
  opened.core = &here.core;
  opened.peer = peer;
  opened.read(body);
}

// ---- openings between processes ---------------------------------------------

namespace {

struct OfferOnWire {
  std::uint64_t source;
  std::int64_t deadline_ns;  ///< What remains; 0: none.
  std::uint32_t window_messages, window_bytes;
};
struct OpenedOnWire {
  std::uint64_t source, sink;
  std::uint32_t window_messages, window_bytes;
};
// What waits here to be sent to a peer is this process's memory, and not for the peer to size.
constexpr StreamWindow most_ahead{.messages = 65'536, .bytes = 64u << 20};

template <class Struct>
Buffer bytes_of(const Struct& value) {
  Buffer buffer = pooled_buffer(sizeof value);
  std::memcpy(buffer.data(), &value, sizeof value);
  return buffer;
}

StreamWindow usable(std::uint32_t messages, std::uint32_t bytes) noexcept {
  return {std::clamp(messages, 1u, most_ahead.messages), std::min(bytes, most_ahead.bytes)};
}

}  // namespace

Buffer StreamOffer::to_bytes() const {
  std::int64_t left = 0;
  if (deadline != no_deadline) left = std::max<std::int64_t>(1, (deadline - Clock::now()).count());
  return bytes_of(OfferOnWire{source, left, window.messages, window.bytes});
}

Result<StreamOffer> StreamOffer::from_bytes(const Segments& segments) {
  OfferOnWire read;
  if (segments.count() != 1 || segments[0].size() != sizeof read)
    return Error(Errc::verification_failed, "open a stream for a peer",
                 "its offer is not of the size that this version knows",
                 "check that both ends use the same version");
  std::memcpy(&read, segments[0].data(), sizeof read);
  StreamOffer offer;
  offer.source = read.source;
  offer.window = usable(read.window_messages, read.window_bytes);
  if (read.deadline_ns > 0) offer.deadline = after(std::chrono::nanoseconds(read.deadline_ns));
  return offer;
}

Buffer StreamOpened::to_bytes() && {
  Buffer bytes = bytes_of(OpenedOnWire{source, sink, window.messages, window.bytes});
  taken();
  return bytes;
}

bool StreamOpened::read(const Buffer& bytes) noexcept {
  OpenedOnWire read;
  if (bytes.size() != sizeof read) return false;
  std::memcpy(&read, bytes.data(), sizeof read);
  source = read.source;
  sink = read.sink;
  window = usable(read.window_messages, read.window_bytes);
  return true;
}

}  // namespace hyperframes::detail
