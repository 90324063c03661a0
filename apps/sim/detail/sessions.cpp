#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <hyperframes/apps/sim/detail/scenarios.hpp>
#include <hyperframes/apps/sim/detail/stage.hpp>
#include <hyperframes/net/network.hpp>
#include <hyperframes/runtime/crc32c.hpp>
#include <hyperframes/runtime/scope.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <map>

namespace hyperframes::sim::detail {
namespace {

constexpr unsigned nodes = 5;
constexpr Duration completion_limit = 60s;
const std::vector<std::string> names = {"a", "b", "c", "d", "e"};

FaultMenu menu() {
  using enum FaultKind;
  const std::vector<unsigned> all = {0, 1, 2, 3, 4};
  FaultMenu menu;
  menu.from = 2s;
  menu.until = 58s;
  menu.early = 3;
  menu.least = 25;
  menu.most = 45;
  menu.dishes = {
      {.kind = kill, .weight = 4, .nodes = all, .least = 20ms, .most = 8s},
      {.kind = power_cut, .weight = 4, .nodes = all, .least = 20ms, .most = 12s},
      {.kind = pause, .weight = 4, .nodes = all, .least = 20ms, .most = 12s},
      {.kind = partition, .weight = 6, .nodes = all, .least = 20ms, .most = 12s, .any_pair = true},
      {.kind = one_way, .weight = 6, .nodes = all, .least = 20ms, .most = 12s, .any_pair = true},
      {.kind = isolate, .weight = 3, .nodes = all, .least = 20ms, .most = 12s},
      {.kind = reset, .weight = 8, .nodes = all, .any_pair = true},
      {.kind = reset_burst, .weight = 4, .least = 100ms, .most = 6s},
      {.kind = loss, .weight = 3, .least = 100ms, .most = 8s, .amount_least = 1, .amount_most = 30},
      {.kind = delay,
       .weight = 3,
       .least = 100ms,
       .most = 8s,
       .amount_least = 1,
       .amount_most = 30},
      {.kind = refuse, .weight = 2, .least = 1s, .most = 8s, .amount_least = 10, .amount_most = 90},
      {.kind = clock_jump, .weight = 2, .nodes = all, .least = 100ms, .most = 15s},
      {.kind = no_memory, .weight = 2, .least = 100ms, .most = 4s},
  };
  return menu;
}

/// What was sent on a session and lane, and how far that has come.
struct Stream {
  unsigned from = 0, to = 0;
  std::uint64_t sent = 0, received = 0;
  std::uint64_t receiver = 0;  ///< The incarnation that takes them; 0: none has come.
};

/// All of them, and the asks that wait.
class Talk {
 public:
  Talk(std::function<void(std::string)> violate,
       std::function<void(unsigned by, unsigned peer, const Error&)> ended)
      : violate_(std::move(violate)), ended_(std::move(ended)) {}

  std::uint64_t open_stream(unsigned from, unsigned to) {
    streams_.push_back({.from = from, .to = to});
    return streams_.size() - 1;
  }
  Stream& stream(std::uint64_t number) { return streams_[number]; }
  std::uint64_t new_ask() { return ++asks_; }
  void asked(std::uint64_t ask, std::uint64_t stream) { waiting_[ask] = stream; }
  void not_asked(std::uint64_t ask) { waiting_.erase(ask); }
  void answered(std::uint64_t ask) {
    if (waiting_.erase(ask) != 1)
      return violate_(fmt::format("the answer to ask {} comes twice, or was not asked for", ask));
    ++operations;
  }
  void taken(unsigned by, std::uint64_t incarnation, std::uint64_t from,
             const net::Envelope& envelope, std::span<const std::byte> body) {
    if (envelope.type_id == 0 || envelope.type_id > streams_.size())
      return violate_(names[by] + " takes a message that nobody sent");
    Stream& stream = streams_[envelope.type_id - 1];
    if (stream.to != by || stream.from + 1 != from)
      return violate_(fmt::format("{} takes a message from {} to {}", names[by], names[stream.from],
                                  names[stream.to]));
    if (stream.receiver == 0) stream.receiver = incarnation;
    if (stream.receiver != incarnation)
      return violate_(fmt::format("a message of {} to one process of {} is taken by the next one",
                                  names[stream.from], names[by]));
    if (envelope.context != stream.received)
      return violate_(fmt::format("{} takes message {} of {} where {} is due", names[by],
                                  envelope.context, names[stream.from], stream.received));
    ++stream.received;
    ++operations;
    std::uint32_t sum = 0;
    if (body.size() < sizeof sum) return violate_("a message has lost its body");
    std::memcpy(&sum, body.data(), sizeof sum);
    if (sum != crc32c(body.subspan(sizeof sum)))
      violate_(fmt::format("a message of {} to {} is damaged", names[stream.from], names[by]));
  }
  std::size_t asks_on(std::uint64_t stream) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(waiting_, [&](const auto& ask) { return ask.second == stream; }));
  }
  void session_ended(unsigned by, unsigned peer, const net::Session& session, const Error& reason) {
    resumes += session.stats().resumes;
    ended_(by, peer, reason);
  }

  std::uint64_t operations = 0;
  std::uint64_t resumes = 0;  ///< Of sessions that have ended.

 private:
  std::function<void(std::string)> violate_;
  std::function<void(unsigned, unsigned, const Error&)> ended_;
  std::vector<Stream> streams_;
  std::map<std::uint64_t, std::uint64_t> waiting_;  // asks, by number: their streams
  std::uint64_t asks_ = 0;
};

Buffer make_body(SimRandom& random) {
  std::size_t size = random.below(std::uint64_t{1} << random.below(12));
  if (random.below(20) == 0) size = random.below(300'000);
  Buffer body = Buffer::heap(size + sizeof(std::uint32_t));
  const auto rest = body.bytes().subspan(sizeof(std::uint32_t));
  std::uint64_t word = random.next();
  for (std::byte& byte : rest) {
    byte = static_cast<std::byte>(word);
    word = word * 6364136223846793005u + 1442695040888963407u;
  }
  const std::uint32_t sum = crc32c(rest);
  std::memcpy(body.data(), &sum, sizeof sum);
  return body;
}

/// A process: it keeps a session with each other node, and talks on it.
class Talker final : public net::MessageHandler {
 public:
  Talker(SimNode& node, std::uint64_t seed, Talk& talk)
      : index_(node.index()),
        incarnation_(node.incarnation()),
        random_(SimRandom::mix(seed + node.index() * 100 + node.incarnation())),
        talk_(talk),
        own_(node.address().host()),
        network_(node.runtime(), options(node), *this) {}

  Task<void> run(std::vector<std::string> hosts) {
    co_await network_.listen({net::Scheme::tcp, own_, 6000});
    Scope scope;
    for (unsigned peer = 0; peer < nodes; ++peer) {
      if (peer == index_) continue;
      scope.spawn(keep_connected(peer, hosts[peer]));
      scope.spawn(talk_to(peer));
    }
    co_await scope.join();
  }
  /// Sessions that are up with that node, of all its incarnations.
  int sessions_with(unsigned peer) const { return up_[peer]; }
  bool quiet = false;  ///< Nothing more is begun.

  /// Streams whose sessions are up: what was sent on them has to arrive.
  std::vector<std::uint64_t> open_streams() const {
    std::vector<std::uint64_t> all;
    for (const auto& [peer, speech] : speeches_)
      if (speech.session && speech.session->up())
        all.insert(all.end(), std::begin(speech.streams), std::end(speech.streams));
    return all;
  }
  bool is_sending() const noexcept { return sending_ != 0; }

 private:
  struct Speech {
    net::SessionRef session;
    std::uint64_t streams[net::lane_count] = {};
  };

  net::Network::Options options(SimNode& node) {
    net::Network::Options options;
    options.node_id = node.index() + 1;
    options.incarnation = node.incarnation();
    options.boot_id = node.name();
    options.insecure = true;
    options.receive_budget_bytes = 8u << 20;
    options.random = [this](std::span<std::byte> into) {
      for (auto& byte : into) byte = static_cast<std::byte>(random_.next());
    };
    return options;
  }

  Task<void> keep_connected(unsigned peer, std::string host) {
    while (true) {
      try {
        if (!network_.session(peer + 1))
          co_await network_.connect({net::Scheme::tcp, host, 6000}, hyperframes::after(3s));
      } catch (const Error&) {
        // Down, or behind a broken network: it is tried again.
      }
      co_await sleep_for(random_.between(Duration(100ms), Duration(500ms)));
    }
  }

  Task<void> talk_to(unsigned peer) {
    while (true) {
      co_await sleep_for(random_.between(Duration(50ms), Duration(1200ms)));
      if (quiet) continue;
      net::SessionRef session = network_.session(peer + 1);
      if (!session) continue;
      Speech& speech = speeches_[peer];
      if (!(speech.session == session)) begin(speech, session, peer);
      try {
        ++sending_;
        co_await say(session, speech, static_cast<unsigned>(random_.below(net::lane_count)));
      } catch (const Error&) {
        // The session has ended, or had no room for long: what was not sent has no number.
      }
      --sending_;
    }
  }
  void begin(Speech& speech, net::SessionRef session, unsigned peer) {
    speech.session = std::move(session);
    for (auto& stream : speech.streams) stream = talk_.open_stream(index_, peer);
  }

  Task<void> say(net::SessionRef session, Speech& speech, unsigned lane) {
    const std::uint64_t number = speech.streams[lane];
    net::Message message;
    message.envelope.type_id = number + 1;
    message.envelope.context = talk_.stream(number).sent;
    if (random_.below(3) == 0) {
      message.envelope.kind = net::MessageKind::ask;
      message.envelope.correlation = talk_.new_ask();
      message.envelope.reply_room = 4096;
    }
    const bool ask = message.envelope.kind == net::MessageKind::ask;
    const std::uint64_t correlation = message.envelope.correlation;
    message.body = make_body(random_);
    if (ask) talk_.asked(correlation, number);
    try {
      co_await session->send(std::move(message), static_cast<net::Lane>(lane),
                             hyperframes::after(20s));
    } catch (const Error&) {
      if (ask) talk_.not_asked(correlation);
      throw;
    }
    ++talk_.stream(number).sent;
  }

  void on_message(net::Session& session, net::Lane lane, net::Message message) noexcept override {
    if (message.envelope.kind == net::MessageKind::reply)
      return talk_.answered(message.envelope.correlation);
    talk_.taken(index_, incarnation_, session.peer().node_id, message.envelope,
                message.body.bytes());
    if (message.envelope.kind != net::MessageKind::ask) return;
    Shard::current()->spawn(
        answer(net::SessionRef(&session), lane, net::answer_to(message.envelope)));
  }
  static Task<void> answer(net::SessionRef session, net::Lane lane, net::Envelope envelope) {
    net::Message message;
    message.envelope = envelope;
    try {
      co_await session->send(std::move(message), lane, hyperframes::after(60s));
    } catch (const Error&) {
      co_return;  // the session has ended, and with it the asker's wait
    }
  }
  void on_session_up(net::Session& session) noexcept override { ++up_[session.peer().node_id - 1]; }
  void on_session_down(net::Session& session, const Error& reason) noexcept override {
    const auto peer = static_cast<unsigned>(session.peer().node_id - 1);
    --up_[peer];
    talk_.session_ended(index_, peer, session, reason);
  }

  unsigned index_;
  std::uint64_t incarnation_;
  SimRandom random_;
  Talk& talk_;
  std::string own_;
  std::array<int, nodes> up_{};
  std::map<unsigned, Speech> speeches_;
  unsigned sending_ = 0;
  net::Network network_;
};

class Storm final : public Stage {
 public:
  explicit Storm(const RunOptions& options)
      : Stage(options, {.names = names, .menu = menu()}),
        talk_([this](std::string text) { violate(std::move(text)); },
              [this](unsigned by, unsigned peer, const Error& reason) {
                check_end(by, peer, reason);
              }),
        talkers_(nodes, nullptr) {}
  ~Storm() override { close(); }

  void play() {
    start();
    run_for(storm_end());
    mend();
    const auto all_linked = [this] { return links() == nodes * (nodes - 1); };
    if (!run_until(all_linked, completion_limit, "a session of each with each")) return;
    run_for(2s);
    for (Talker* talker : talkers_) talker->quiet = true;
    run_until([this] { return all_arrived(); }, completion_limit,
              "messages on sessions that are up");
  }
  RunReport finish() {
    report().operations = talk_.operations;
    report().counts["links taken up again"] = talk_.resumes;
    return take_report();
  }

 private:
  void boot(unsigned index) override {
    auto& talker = node(index).emplace<Talker>(node(index), world().seed(), talk_);
    talkers_[index] = &talker;
    std::vector<std::string> hosts;
    for (unsigned each = 0; each < nodes; ++each) hosts.push_back(node(each).address().host());
    world().start(node(index), 0, [&talker, hosts](Runtime&) { return talker.run(hosts); });
  }

  int links() {
    int count = 0;
    for (unsigned index = 0; index < nodes; ++index)
      for (unsigned peer = 0; peer < nodes; ++peer)
        if (peer != index && node(index).is_up()) count += talkers_[index]->sessions_with(peer) > 0;
    return count;
  }
  bool all_arrived() {
    for (const Talker* talker : talkers_) {
      if (talker->is_sending()) return false;
      for (const std::uint64_t number : talker->open_streams()) {
        const Stream& stream = talk_.stream(number);
        if (stream.sent != stream.received || talk_.asks_on(number) != 0) return false;
      }
    }
    return true;
  }

  /// After that long a change between two nodes is noticed, whatever it was.
  static Duration notice_limit() { return timing().down_after() + timing().heartbeat() * 5 / 2; }

  /// A connection that breaks ends no session. Nobody closes one, but for a process that ends.
  void check_end(unsigned by, unsigned peer, const Error& reason) {
    if (reason.is(Errc::closed) || reason.is(Errc::shutting_down)) return;
    if (calm(by, peer) > notice_limit())
      violate(fmt::format("{} gives {} up, though nothing has been between them for {:.1f} s: {}",
                          names[by], names[peer],
                          std::chrono::duration<double>(calm(by, peer)).count(), reason.what()));
  }

  /// A peer that nothing was heard of for longer than it takes to notice must be down.
  void watch() override {
    const Duration limit = notice_limit();
    for (unsigned from = 0; from < nodes; ++from)
      for (unsigned to = 0; to < nodes; ++to)
        if (silence(from, to) > limit && talkers_[to]->sessions_with(from) > 0)
          violate(fmt::format("{} has heard nothing of {} for {:.1f} s, and takes it for alive",
                              names[to], names[from],
                              std::chrono::duration<double>(silence(from, to)).count()));
  }

  std::string state(const Fault&) override {
    unsigned down = 0, frozen = 0, cuts = 0;
    for (unsigned index = 0; index < nodes; ++index) {
      down += !node(index).is_up();
      frozen += is_frozen(index);
      for (unsigned other = 0; other < nodes; ++other) cuts += is_cut(index, other);
    }
    if (cuts != 0) return "parted";
    if (down != 0) return "node down";
    if (frozen != 0) return "node frozen";
    return links() == nodes * (nodes - 1) ? "all linked" : "linking";
  }

  Talk talk_;
  std::vector<Talker*> talkers_;
};

class Sessions final : public Scenario {
  std::string name() const override { return "sessions"; }
  std::string summary() const override {
    return "5 nodes that all talk to each other, while networks and processes fail";
  }
  std::vector<std::string> invariants() const override {
    return {
        "of a session and lane the messages come in order, none twice and none missing",
        "each goes to the process that it was sent to, and is whole",
        "an ask is answered at most once",
        "a peer of which nothing is heard is down after 5.5 heartbeats",
        "a connection that breaks ends no session",
        "60 s after the last fault all are linked, and all that was sent on a session that is up "
        "has come"};
  }
  std::vector<FaultKind> kinds() const override { return kinds_of(menu()); }
  std::vector<std::string> states() const override {
    return {"all linked", "linking", "parted", "node down", "node frozen"};
  }
  RunReport run(const RunOptions& options) const override {
    Storm storm(options);
    storm.play();
    return storm.finish();
  }
};

}  // namespace

std::unique_ptr<const Scenario> make_sessions() { return std::make_unique<Sessions>(); }

}  // namespace hyperframes::sim::detail
