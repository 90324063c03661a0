#include <hyperframes/apps/tools/perf/client.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <hyperframes/apps/tools/perf/latency.hpp>
#include <hyperframes/apps/tools/perf/sizes.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/event.hpp>
#include <optional>
#include <utility>

namespace hyperframes::tools::perf {
namespace {

// However short the time is, so many count.
constexpr std::uint64_t least_count = 3;

/// When a message that has not got anywhere never will. Peers that are gone are found out sooner,
/// by their sessions.
Time patience() { return after(timing().scaled(120s)); }

double to_us(Duration span) { return std::chrono::duration<double, std::micro>(span).count(); }

/// So many are sent between two looks at the clock.
std::uint64_t burst_of(std::uint64_t size) {
  return std::clamp<std::uint64_t>((64u << 10) / size, 1, 64);
}

}  // namespace

/// One session with a server.
class Line {
 public:
  Line(net::SessionRef session, std::string uri)
      : session_(std::move(session)), uri_(std::move(uri)) {}

  Task<void> greet(Time deadline);
  Task<void> measure(Plan plan, Journal* journal);
  void close() { session_->close("the measurement is over"); }

  bool has(const net::Session& session) const noexcept { return session_.get() == &session; }
  void take(net::Message message) noexcept;
  void end(const Error& reason) noexcept;
  const Hello& peer() const noexcept { return peer_; }
  std::optional<Error> end() const { return has_ended_.load() ? ended_ : std::nullopt; }
  std::string transport() const { return session_->stats().transport; }

 private:
  struct Sent {
    std::uint64_t number = 0;
    double cpu_s = 0;  ///< Of this process, when it was sent.
  };
  Task<void> measure_size(Row* row, Plan plan, Journal* journal);
  Task<void> round_trips(Row* row, Plan plan);
  Task<void> stream(Row* row, Plan plan, Journal* journal);
  Task<std::uint64_t> send_for(const Payload* payload, std::uint64_t size, std::uint64_t sent,
                               Duration span);
  Task<Sent> send_ask(Kind kind, std::string text, net::Lane lane);
  Task<net::Message> answer_to(std::uint64_t number, Time deadline);
  Task<Mark> mark_of(Sent sent);
  void throw_if_ended() const {
    if (ended_) throw *ended_;
  }

  net::SessionRef session_;
  std::string uri_;
  Hello peer_;
  Event arrived_;
  std::optional<net::Message> echo_;
  std::deque<net::Message> answers_;
  std::optional<Error> ended_;  ///< Never changed again.
  std::atomic<bool> has_ended_ = false;
  std::uint64_t asked_ = 0;
};

const Hello& peer_of(const Line& line) noexcept { return line.peer(); }

// ---- Asking -------------------------------------------------------------------------------------

void Line::take(net::Message message) noexcept {
  const bool answer = message.envelope.kind == net::MessageKind::reply ||
                      message.envelope.kind == net::MessageKind::failure;
  if (answer)
    answers_.push_back(std::move(message));
  else
    echo_ = std::move(message);
  arrived_.set();
}

void Line::end(const Error& reason) noexcept {
  ended_ = reason;
  has_ended_ = true;
  arrived_.set();
}

Task<Line::Sent> Line::send_ask(Kind kind, std::string text, net::Lane lane) {
  net::Message ask;
  ask.envelope.kind = net::MessageKind::ask;
  ask.envelope.type_id = static_cast<std::uint64_t>(kind);
  ask.envelope.correlation = ++asked_;
  ask.body = Buffer::copy_of(text);
  const Sent sent{asked_, cpu_seconds()};
  co_await session_->send(std::move(ask), lane, patience());
  co_return sent;
}

Task<net::Message> Line::answer_to(std::uint64_t number, Time deadline) {
  while (true) {
    while (!answers_.empty()) {
      net::Message answer = std::move(answers_.front());
      answers_.pop_front();
      if (answer.envelope.correlation != number) continue;  // nobody waits for it any more
      if (answer.envelope.kind == net::MessageKind::failure)
        throw Error(Errc::rejected, "measure with " + uri_,
                    "the other end said: " + std::string(answer.body.text()));
      co_return answer;
    }
    throw_if_ended();
    arrived_.reset();
    co_await arrived_.wait(deadline);
  }
}

Task<Mark> Line::mark_of(Sent sent) {
  const net::Message answer = co_await answer_to(sent.number, patience());
  co_return read_mark(answer.body.text());
}

Task<void> Line::greet(Time deadline) {
  const Sent sent = co_await send_ask(
      Kind::hello,
      to_text(Hello{.program = HYPERFRAMES_VERSION, .host = describe_this_host().host}),
      net::Lane::normal);
  std::optional<net::Message> answer;
  try {
    answer = co_await answer_to(sent.number, deadline);
  } catch (const Error& error) {
    if (!error.is(Errc::deadline_exceeded)) throw;
  }
  if (!answer)
    throw Error(Errc::deadline_exceeded, "measure with " + uri_,
                "a node is there, but does not answer as hyperframes perf does",
                "start hyperframes perf --listen there");
  peer_ = read_hello(answer->body.text());
  if (peer_.protocol != protocol_version)
    throw Error(Errc::version_mismatch, "measure with " + uri_,
                fmt::format("this is hyperframes {} (protocol {}), over there is {} (protocol {})",
                            HYPERFRAMES_VERSION, protocol_version, peer_.program, peer_.protocol),
                "run the same release on both hosts");
  if (peer_.busy)
    throw Error(Errc::overloaded, "measure with " + uri_, "it serves another client",
                "wait until that one is done, or start another hyperframes perf --listen");
}

// ---- Measuring ----------------------------------------------------------------------------------

Task<void> Line::measure(Plan plan, Journal* journal) {
  for (const std::uint64_t size : plan.sizes) {
    Row row;
    row.self_loop = plan.self_loop;
    row.size = size;
    std::exception_ptr failure;
    try {
      co_await measure_size(&row, plan, journal);
    } catch (...) {
      failure = std::current_exception();
    }
    row.transport = transport();
    journal->note(row);
    if (failure) std::rethrow_exception(failure);
  }
  journal->end();
}

Task<void> Line::measure_size(Row* row, Plan plan, Journal* journal) {
  const std::string what = fmt::format("{} of {}", transport(), size_text(row->size));
  journal->begin(what + ", round trips", plan.warm_up + plan.steady);
  co_await round_trips(row, plan);
  row->transport = transport();
  journal->note(*row);
  journal->begin(what + ", one way", plan.warm_up + plan.steady);
  co_await stream(row, plan, journal);
}

Task<void> Line::round_trips(Row* row, Plan plan) {
  const Payload payload = co_await Payload::make(row->size);
  const net::Lane lane = lane_of(row->size);
  LatencyHistogram latencies;
  Time end = Clock::read_system() + plan.warm_up;
  bool steady = false;
  for (std::uint64_t sequence = 1; true; ++sequence) {
    net::Message message = payload.next(Kind::ping, sequence);
    spoil_at("perf-ping", message);
    echo_.reset();
    const Time start = Clock::read_system();
    co_await session_->send(std::move(message), lane, patience());
    while (!echo_) {
      throw_if_ended();
      arrived_.reset();
      co_await arrived_.wait(patience());
    }
    const Time now = Clock::read_system();
    if (steady) latencies.record(now - start);
    ++row->verified;
    if (!check(*echo_, sequence, row->size).empty()) ++row->wrong;
    if (now < end) continue;
    if (!steady) {
      steady = true;
      end = Clock::read_system() + plan.steady;
    } else if (latencies.count() >= least_count) {
      break;
    }
  }
  echo_.reset();  // it holds room that the next ones need
  row->round_trips =
      RoundTrips{to_us(latencies.at(.5)), to_us(latencies.at(.99)), to_us(latencies.at(.999)),
                 to_us(latencies.longest()), latencies.count()};
}

/// Returns how many were sent in all.
Task<std::uint64_t> Line::send_for(const Payload* payload, std::uint64_t size, std::uint64_t sent,
                                   Duration span) {
  const Time end = Clock::read_system() + span;
  const std::uint64_t least = sent + least_count;
  const std::uint64_t burst = burst_of(size);
  const net::Lane lane = lane_of(size);
  do {
    for (std::uint64_t i = 0; i < burst; ++i) {
      net::Message message = payload->next(Kind::data, ++sent);
      spoil_at("perf-data", message);
      co_await session_->send(std::move(message), lane, patience());
    }
  } while (Clock::read_system() < end || sent < least);
  co_return sent;
}

Task<void> Line::stream(Row* row, Plan plan, Journal* journal) {
  const Payload payload = co_await Payload::make(row->size);
  const net::Lane lane = lane_of(row->size);
  const Sent begun =
      co_await send_ask(Kind::begin, fmt::format(R"({{"size":{}}})", row->size), net::Lane::normal);
  co_await answer_to(begun.number, patience());

  std::uint64_t count = co_await send_for(&payload, row->size, 0, plan.warm_up);
  const Sent from = co_await send_ask(Kind::mark, "{}", lane);
  count = co_await send_for(&payload, row->size, count, plan.steady);
  const Sent to = co_await send_ask(Kind::mark, "{}", lane);
  const Mark first = co_await mark_of(from);
  const Mark last = co_await mark_of(to);

  row->verified += last.received;
  row->wrong += last.wrong + (count - std::min(count, last.received));
  if (!last.problem.empty()) journal->note_problem(last.problem);
  const auto messages = static_cast<double>(last.received - first.received);
  const double seconds = static_cast<double>(last.time_ns - first.time_ns) / 1e9;
  const double gb = messages * static_cast<double>(row->size) / 1e9;
  if (last.received < first.received || messages <= 0 || seconds <= 0)
    throw Error(Errc::corrupt, "measure with " + uri_,
                "the other end says that nothing came, or that no time passed",
                "run the same release on both hosts");
  const double cpu = last.cpu_s - first.cpu_s + to.cpu_s - from.cpu_s;
  row->stream = Stream{messages / seconds,
                       gb / seconds,
                       cpu / gb,
                       cpu / messages * 1e6,
                       (last.check_s - first.check_s) / gb,
                       last.received - first.received};
}

// ---- Client -------------------------------------------------------------------------------------

Plan Plan::over(std::vector<std::uint64_t> sizes, double seconds, bool self_loop) {
  Plan plan;
  const double each = seconds / (2 * static_cast<double>(sizes.size()));
  plan.sizes = std::move(sizes);
  plan.steady = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(each));
  plan.warm_up = std::clamp<Duration>(plan.steady / 4, 10ms, 1s);
  plan.self_loop = self_loop;
  return plan;
}

Client::Client(Runtime& runtime, net::Network::Options options)
    : network_(runtime, std::move(options), *this) {}

Client::~Client() = default;

Line* Client::find(const net::Session& session) const noexcept {
  for (const auto& line : lines_)
    if (line->has(session)) return line.get();
  return nullptr;
}

void Client::on_message(net::Session& session, net::Lane, net::Message message) noexcept {
  if (Line* line = find(session)) line->take(std::move(message));
}

void Client::on_session_down(net::Session& session, const Error& reason) noexcept {
  if (Line* line = find(session)) line->end(reason);
}

Task<Line*> Client::connect(net::Endpoint endpoint, Time deadline) {
  const std::string uri = endpoint.to_string();
  net::SessionRef session;
  try {
    session = co_await network_.connect(endpoint, deadline);
  } catch (const Error& error) {
    // Of bytes that are no frame, it may say only what they are.
    if (std::string_view(error.what()).find(uri) != std::string_view::npos) throw;
    throw Error(error.code(), "connect to " + uri, error.tried() + ": " + error.found(),
                error.remedy());
  }
  lines_.push_back(std::make_unique<Line>(std::move(session), uri));
  Line* const line = lines_.back().get();
  co_await line->greet(deadline);
  co_return line;
}

Task<void> Client::measure(Line* line, Plan plan, Journal* journal) {
  co_await line->measure(std::move(plan), journal);
}

std::optional<Error> Client::end_of(const Line* line) const { return line->end(); }

void Client::interrupt() {
  for (const auto& line : lines_) line->close();
}

Task<void> Client::close() {
  lines_.clear();  // what they hold belongs to this shard
  co_await network_.close(timing().scaled(1s));
}

}  // namespace hyperframes::tools::perf
