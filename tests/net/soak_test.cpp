// Soaks: random messages for as long as wanted, between processes whose connections break all the
// time, and between processes that are killed. What was decided follows from the seed; when it
// happens is up to the system.
#include <sys/mman.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <hyperframes/net/shm/setup.hpp>
#include <hyperframes/runtime/log.hpp>
#include <iostream>

#include "process.hpp"
#include "proxy.hpp"
#include "soak.hpp"
#include "transports.hpp"

using namespace net_test;
using net::Lane;

namespace {

constexpr unsigned shard_count = 2;

std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text ? text : "";
}

hf::Task<std::uint64_t> only_peer(net::Network* network) {
  const auto sessions = network->sessions();
  co_return sessions.size() == 1 ? sessions[0]->peer().node_id : 0;
}

/// Waits until a condition holds, for as long as a busy machine may need.
template <class Condition>
bool in_time(Condition condition) {
  return eventually(condition, std::chrono::seconds(120));
}

/// The talk of all shards, until `stopping` or the end of the session.
class Talk {
 public:
  Talk(Node& node, Soaker& soaker, std::uint64_t to) {
    for (unsigned shard = 0; shard < shard_count; ++shard)
      threads_.emplace_back([this, &node, &soaker, to, shard] {
        try {
          node.run([&] { return soaker.talk(to, &ended[shard]); }, shard);
        } catch (const hf::Error& error) {
          codes[shard] = error.code();
        }
      });
  }
  ~Talk() { join(); }
  void join() {
    for (auto& thread : threads_)
      if (thread.joinable()) thread.join();
  }
  net::Session::Stats ended[shard_count];  ///< How the session stood at its end, if it ended.
  std::error_code codes[shard_count];

 private:
  std::vector<std::thread> threads_;
};

/// All that this side has sent has come, and was answered; nothing that it got is kept.
bool is_settled(Node& node, Soaker& soaker) {
  const Standing now = standing_of(node);
  return now.resuming + now.unacknowledged + now.held == 0 && soaker.unanswered() == 0 &&
         soaker.kept() == 0;
}

// ---- Through a proxy that breaks connections

/// The words of a phase's end, for the other side, each with the phase's number added: it stops to
/// talk; all that was sent to it is there; it goes on.
constexpr std::uint64_t stop_talking = 1000, report_now = 2000, go_on = 3000;

/// For ever: who says it ends this process, too.
void wait_for_word(const Soaker& soaker, std::uint64_t word) {
  while (soaker.heard != word) std::this_thread::sleep_for(5ms);
}

std::string text_of(const Tallies& tallies) {
  std::ostringstream text;
  for (const auto& [key, tally] : tallies)
    text << key.first << ' ' << key.second << ' ' << tally.messages << ' ' << tally.sum << ' ';
  return text.str();
}
Tallies tallies_of(const std::string& text) {
  Tallies tallies;
  std::istringstream words(text);
  std::pair<std::uint64_t, int> key;
  Tally tally;
  while (words >> key.first >> key.second >> tally.messages >> tally.sum) tallies[key] = tally;
  return tallies;
}

}  // namespace

TEST_CASE("peer process: soaks with another", "[.][peer]") {
  if (report_descriptor() < 0) return;
  hf::log::set_level(hf::log::Level::error);  // each break is a line
  const Script script(std::stoull(variable("HYPERFRAMES_TEST_SEED")));
  Node node(shard_count);
  Soaker soaker(node, script, 2);
  report(node.listen("tcp://127.0.0.1:0").to_string());
  if (!in_time([&] { return node.handler.ups == static_cast<int>(shard_count); })) return;
  const std::uint64_t host = node.run([&] { return only_peer(&node.network); });
  std::optional<Usage> first;
  for (std::uint64_t phase = 1;; ++phase) {
    soaker.begin_round(phase);
    node.run([&] { return soaker.tell(host, phase); });
    {
      Talk talk(node, soaker, host);
      wait_for_word(soaker, stop_talking + phase);
      soaker.stopping = true;
    }
    wait_for_word(soaker, report_now + phase);
    const bool settled = in_time([&] { return is_settled(node, soaker); });
    if (!first) first = Usage::of(node);
    in_time([&] { return Usage::of(node).same_handles(*first); });
    const Usage last = Usage::of(node);
    report(text_of(soaker.sent()));
    report(text_of(soaker.taken()));
    std::ostringstream figures;
    figures << settled << ' ' << node.handler.down_count << ' ' << soaker.answered() << ' '
            << standing_of(node).resumes << ' ' << last.descriptors << ' ' << last.in_dev_shm << ' '
            << last.mappings << ' ' << last.heap_bytes;
    report(figures.str());
    report(soaker.fault());
    wait_for_word(soaker, go_on + phase);
  }
}

namespace {

/// What the other process reports at the end of a phase.
struct Figures {
  Tallies sent, taken;
  bool settled = false;
  int downs = 0;
  std::uint64_t answered = 0, resumes = 0;
  Usage usage;
  std::string fault;

  static Figures read(Process& peer) {
    Figures figures;
    figures.sent = tallies_of(peer.line());
    figures.taken = tallies_of(peer.line());
    std::istringstream words(peer.line());
    words >> figures.settled >> figures.downs >> figures.answered >> figures.resumes >>
        figures.usage.descriptors >> figures.usage.in_dev_shm >> figures.usage.mappings >>
        figures.usage.heap_bytes;
    figures.fault = peer.line();
    return figures;
  }
};

/// Breaks connections in all the ways there are, as the seed says.
class Breaker {
 public:
  Breaker(Proxy& proxy, Node& node, std::uint64_t seed)
      : proxy_(proxy), node_(node), random_(seed) {}

  /// Until `until`: connections that end at some byte, several in a row (which breaks what takes
  /// links up, too), or all at once. False if a link was not taken up again.
  bool cut_and_reset(std::chrono::steady_clock::time_point until) {
    bool recovered = true;
    while (recovered && std::chrono::steady_clock::now() < until) {
      if (random_() % 8 == 0) {
        proxy_.reset_all();
        ++resets;
      }
      for (std::uint64_t count = 1 + random_() % 4; count > 0; --count) {
        const std::uint64_t most = std::uint64_t{1} << (random_() % 22);
        proxy_.cut_after(static_cast<std::int64_t>(1 + random_() % most));
        ++cuts;
        std::this_thread::sleep_for(std::chrono::microseconds(random_() % 30'000));
      }
      proxy_.cut_after(0);
      recovered = in_time([&] { return standing_of(node_).resuming == 0; });
      std::this_thread::sleep_for(std::chrono::microseconds(random_() % 100'000));
    }
    return recovered;
  }
  /// Both connections carry nothing from now on; new ones do.
  bool black_hole() {
    const std::uint64_t before = standing_of(node_).resumes;
    proxy_.freeze();
    ++holes;
    const bool recovered = in_time([&] {
      const Standing now = standing_of(node_);
      return now.resumes >= before + shard_count && now.resuming == 0;
    });
    proxy_.bury();
    return recovered;
  }
  int cuts = 0, resets = 0, holes = 0;

 private:
  Proxy& proxy_;
  Node& node_;
  std::mt19937_64 random_;
};

/// What all phases came to.
struct Sums {
  std::uint64_t messages = 0, streams = 0, unequal = 0, lost = 0;
  std::string fault;

  void add(const Tallies& sent, const Tallies& taken) {
    messages += messages_of(sent);
    for (const auto& [key, tally] : sent) {
      ++streams;
      const auto found = taken.find(key);
      const Tally got = found == taken.end() ? Tally() : found->second;
      lost += tally.messages - std::min(tally.messages, got.messages);
      unequal += got == tally ? 0 : 1;
    }
    for (const auto& [key, tally] : taken) unequal += sent.contains(key) ? 0 : 1;
  }
  void add_fault(const std::string& who, const std::string& what) {
    if (fault.empty() && !what.empty()) fault = who + ": " + what;
  }
};

}  // namespace

// In a process of its own, so that the time scale holds for both ends.
TEST_CASE("peer process: soaks through a proxy", "[.][peer]") {
  if (report_descriptor() < 0) return;
  hf::log::set_level(hf::log::Level::error);
  const std::uint64_t seed = std::stoull(variable("HYPERFRAMES_TEST_SEED"));
  const int seconds = std::stoi(variable("HYPERFRAMES_TEST_SECONDS"));
  const std::uint64_t phases = seconds < 120 ? 3 : 12;
  const Script script(seed);
  Node node(shard_count);
  Soaker soaker(node, script, 1);
  soaker.begin_round(1);  // the other side talks as soon as it is there
  Process peer("peer process: soaks with another");
  Proxy proxy(peer.endpoint());
  const std::uint64_t to = node.connect(proxy.endpoint());
  Breaker breaker(proxy, node, seed + 1);
  Sums sums;
  Verdict verdict;
  std::optional<Usage> first, first_of_peer;
  Usage last, last_of_peer;
  bool recovered = true, settled = true;
  std::uint64_t answered = 0, resumes = 0;
  for (std::uint64_t phase = 1; phase <= phases && recovered && settled; ++phase) {
    const auto tell = [&](std::uint64_t word) {
      node.run([&] { return soaker.tell(to, word + phase); });
    };
    const auto now = std::chrono::steady_clock::now();
    const auto span = std::chrono::milliseconds(1000 * seconds) / static_cast<int>(phases);
    settled = in_time([&] { return soaker.heard == phase; });
    {
      Talk talk(node, soaker, to);
      recovered = breaker.cut_and_reset(now + span / 2) && breaker.black_hole() &&
                  breaker.cut_and_reset(now + span);
      soaker.stopping = true;
    }
    tell(stop_talking);
    settled = settled && in_time([&] { return is_settled(node, soaker); });
    if (!recovered || !settled) break;
    tell(report_now);
    const Figures figures = Figures::read(peer);
    settled = figures.settled && in_time([&] { return is_settled(node, soaker); });
    sums.add(soaker.sent(), figures.taken);
    sums.add(figures.sent, soaker.taken());
    sums.add_fault("here", soaker.fault());
    sums.add_fault("there", figures.fault);
    sums.lost += static_cast<std::uint64_t>(figures.downs);
    answered = soaker.answered() + figures.answered;
    resumes = standing_of(node).resumes + figures.resumes;
    last_of_peer = figures.usage;
    if (!first) first = Usage::of(node), first_of_peer = last_of_peer;
    in_time([&] { return Usage::of(node).same_handles(*first); });
    last = Usage::of(node);
    soaker.begin_round(phase + 1);
    tell(go_on);
  }
  verdict.row(recovered, "each broken link was taken up",
              std::to_string(breaker.cuts) + " cuts, " + std::to_string(breaker.resets) +
                  " times all reset, " + std::to_string(breaker.holes) + " black holes; " +
                  std::to_string(resumes) + " times taken up by either side");
  verdict.row(settled, "all was acknowledged and answered in the end",
              std::to_string(answered) + " answers");
  verdict.row(sums.lost == 0 && node.handler.down_count == 0 && sums.messages > 100,
              "every message came", std::to_string(sums.messages) + " sent");
  verdict.row(sums.fault.empty(), "once, in order, as it was sent",
              sums.fault.empty() ? "no fault" : sums.fault);
  verdict.row(sums.unequal == 0, "checksums of streams at both ends",
              std::to_string(sums.streams - sums.unequal) + " of " + std::to_string(sums.streams));
  verdict.row(first.has_value(), "phases", std::to_string(phases));
  if (first) verdict.grew("this process", *first, last);
  if (first) verdict.grew("the other process", *first_of_peer, last_of_peer);
  for (const auto& down : node.handler.downs()) verdict.row(false, "a session ended", down.text);
  report(verdict.text("soak over tcp, " + std::to_string(seconds) + " s, seed " +
                      std::to_string(seed)) +
         "end");
  node.run([&] { return node.network.close(0s); });
}

namespace {

void soak_through_proxy(int seconds) {
  const std::uint64_t seed = std::random_device()();
  // Twice as slow, so that a busy machine does not make a dead peer of a living one.
  const double scale = std::max(2.0, hf::timing().scale);
  Process host("peer process: soaks through a proxy",
               {{"HYPERFRAMES_TEST_SEED", std::to_string(seed)},
                {"HYPERFRAMES_TEST_SECONDS", std::to_string(seconds)},
                {"HYPERFRAMES_TIME_SCALE", std::to_string(scale)}});
  std::string text, line;
  while (!(line = host.line()).empty() && line != "end") text += line + "\n";
  std::cout << text << std::flush;
  INFO("seed " << seed << "\n" << text);
  CHECK(line == "end");
  CHECK(text.find("verdict: whole") != std::string::npos);
}

}  // namespace

TEST_CASE("while connections are cut, reset and swallowed every message comes once, in order") {
  soak_through_proxy(30);
}
TEST_CASE("for ten minutes of cut, reset and swallowed connections no message is lost, none twice",
          "[long]") {
  soak_through_proxy(600);
}

// ---- With processes that are killed

namespace {

/// What a process has sent and taken, where it can be read after its death.
struct Counts {
  std::atomic<std::uint64_t> sent[shard_count][net::lane_count];
  std::atomic<std::uint64_t> taken[net::lane_count];  ///< By all shards, answers too.
};

/// A mapping of Counts that a child of this process finds by `path`.
class SharedCounts {
 public:
  SharedCounts() : descriptor_(::memfd_create("counts", MFD_CLOEXEC)) {
    REQUIRE(::ftruncate(descriptor_, sizeof(Counts)) == 0);
    counts_ = map(descriptor_);
  }
  SharedCounts(const SharedCounts&) = delete;
  ~SharedCounts() {
    ::munmap(counts_, sizeof(Counts));
    ::close(descriptor_);
  }
  std::string path() const {
    return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(descriptor_);
  }
  Counts& operator*() const { return *counts_; }
  static Counts* map(int descriptor) {
    void* const memory =
        ::mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    REQUIRE(memory != MAP_FAILED);
    return static_cast<Counts*>(memory);
  }

 private:
  int descriptor_;
  Counts* counts_ = nullptr;
};

}  // namespace

TEST_CASE("peer process: soaks until it is killed", "[.][peer]") {
  if (report_descriptor() < 0) return;
  hf::log::set_level(hf::log::Level::error);
  const Script script(std::stoull(variable("HYPERFRAMES_TEST_SEED")));
  const std::int64_t last = std::stoll(variable("HYPERFRAMES_TEST_KILL_AFTER"));
  const int shared = ::open(variable("HYPERFRAMES_TEST_COUNTS").c_str(), O_RDWR | O_CLOEXEC);
  Counts& counts = *SharedCounts::map(shared);
  std::atomic<std::int64_t> events{0};
  Node node(shard_count);
  Soaker soaker(node, script, static_cast<unsigned>(std::stoul(variable("HYPERFRAMES_TEST_SIDE"))));
  soaker.begin_round(std::stoull(variable("HYPERFRAMES_TEST_ROUND")));
  soaker.witness = [&](bool sent, unsigned shard, Lane lane) {
    const auto index = static_cast<std::size_t>(lane);
    ++(sent ? counts.sent[shard][index] : counts.taken[index]);
    if (++events == last) ::kill(::getpid(), SIGKILL);
  };
  const std::string uri = variable("HYPERFRAMES_TEST_URI");
  if (variable("HYPERFRAMES_TEST_ROLE") == "listens") {
    report(node.listen(uri).to_string());
  } else {
    node.connect(net::Endpoint::parse(uri), 20s);
    report("connected");
  }
  if (!in_time([&] { return node.handler.ups == static_cast<int>(shard_count); })) return;
  Talk talk(node, soaker, node.run([&] { return only_peer(&node.network); }));
  talk.join();
}

namespace {

/// A process that dies after so many messages, or at a failpoint.
struct Victim {
  std::uint64_t seed, round;
  unsigned side;
  bool listens;
  std::string uri;
  std::uint64_t kill_after;  ///< Messages that it has sent or taken.
  std::string failpoint = {};

  Process::Environment environment(const SharedCounts& counts) const {
    Process::Environment variables = {{"HYPERFRAMES_TEST_SEED", std::to_string(seed)},
                                      {"HYPERFRAMES_TEST_ROUND", std::to_string(round)},
                                      {"HYPERFRAMES_TEST_SIDE", std::to_string(side)},
                                      {"HYPERFRAMES_TEST_ROLE", listens ? "listens" : "connects"},
                                      {"HYPERFRAMES_TEST_URI", uri},
                                      {"HYPERFRAMES_TEST_KILL_AFTER", std::to_string(kill_after)},
                                      {"HYPERFRAMES_TEST_COUNTS", counts.path()}};
    if (!failpoint.empty()) variables.push_back({"HYPERFRAMES_FAILPOINT", failpoint});
    return variables;
  }
};

/// Rounds of deaths, and what they came to.
class Killer {
 public:
  Killer(Way way, std::uint64_t seed)
      : over_(way),
        seed_(seed),
        random_(seed + 2),
        script_(seed),
        node_(shard_count),
        soaker_(node_, script_, 1),
        endpoint_(node_.listen()) {}

  void run(std::chrono::seconds span, int least_rounds) {
    const auto until = std::chrono::steady_clock::now() + span;
    while (rounds_ < least_rounds || std::chrono::steady_clock::now() < until) {
      if (rounds_ % 5 == 4) {
        kill_both();
      } else {
        kill_one();
      }
      ++rounds_;
      look_at_usage();
      if (!fault_.empty()) break;
    }
    node_.run([&] { return node_.network.close(0s); });
  }
  Verdict verdict() const {
    Verdict verdict;
    verdict.row(fault_.empty(), "deaths, and what the others have is a clean prefix",
                fault_.empty() ? std::to_string(kills_) + " in " + std::to_string(rounds_) +
                                     " rounds, " + std::to_string(messages_) + " messages came"
                               : fault_);
    verdict.row(messages_ > 0, "the processes talked before they died",
                std::to_string(messages_) + " messages");
    if (first_) verdict.grew("who survived", *first_, last_);
    return verdict;
  }

 private:
  static constexpr int warm_up = 5;  ///< Rounds before the usage is compared.
  static constexpr std::uint64_t most_messages = sanitized ? 500 : 4000;  ///< Of a life.

  std::string failpoint() {
    // They stand where an end has done one half of something.
    constexpr const char* names[] = {"shm-before-publish", "shm-before-ring", "shm-copied",
                                     "shm-given-back", "shm-armed"};
    const std::string name = names[random_() % std::size(names)];
    const std::string passage = std::to_string(20 + random_() % 1000);
    return Over::current() == Way::shm && random_() % 3 == 0 ? name + "=kill:" + passage : "";
  }
  Victim victim(unsigned side, bool listens, const std::string& uri) {
    Victim victim{seed_, static_cast<std::uint64_t>(rounds_), side, listens,
                  uri,   1 + random_() % most_messages};
    victim.failpoint = failpoint();
    return victim;
  }
  void note(const std::string& what) {
    if (fault_.empty()) fault_ = "round " + std::to_string(rounds_) + ": " + what;
  }
  void check(bool fine, const std::string& what) {
    if (!fine) note(what);
  }

  /// One of two that talk dies; this process is the other one.
  void kill_one() {
    const SharedCounts counts;
    const bool listens = random_() % 2;
    const Victim victim = this->victim(2, listens, listens ? Over::uri() : endpoint_.to_string());
    const int ups = node_.handler.ups, downs = node_.handler.down_count;
    soaker_.begin_round(victim.round);
    Process process("peer process: soaks until it is killed", victim.environment(counts));
    const std::string line = process.line();
    if (listens) {
      try {
        node_.connect(net::Endpoint::parse(line), 20s);
      } catch (const hf::Error& error) {
        if (victim.failpoint.empty()) note(error.what());
      }
    }
    const bool met =
        in_time([&] { return node_.handler.ups == ups + int{shard_count} || process.ended(); });
    check(met, "they did not meet");
    const std::uint64_t id = node_.run([&] { return only_peer(&node_.network); });
    if (id) {
      Talk talk(node_, soaker_, id);
      talk.join();
      for (unsigned shard = 0; shard < shard_count; ++shard) {
        const auto code = talk.codes[shard];
        check(code == hf::Errc::peer_lost || code == hf::Errc::not_found,
              "a sender was told: " + code.message());
      }
      check_acknowledged(talk, *counts);
    }
    check(in_time([&] { return node_.handler.ups - ups == node_.handler.down_count - downs; }),
          "a session outlives its peer");
    const int status = process.wait();
    check(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "it was not killed");
    ++kills_;
    check_taken(*counts);
    check(in_time([&] { return soaker_.kept() == 0; }), "messages are kept");
  }
  /// What came is what was sent, in order, and once; perhaps not all of it.
  void check_taken(const Counts& counts) {
    check(soaker_.fault().empty(), soaker_.fault());
    for (const auto& [key, tally] : soaker_.taken()) {
      messages_ += tally.messages;
      const unsigned shard = key.first % 16;
      const std::uint64_t sent =
          shard < shard_count ? counts.sent[shard][static_cast<std::size_t>(key.second)].load() : 0;
      check(tally.messages <= sent, "more came than was sent: " + std::to_string(tally.messages) +
                                        " of " + std::to_string(sent));
    }
  }
  /// What was acknowledged had come.
  void check_acknowledged(const Talk& talk, const Counts& counts) {
    for (std::size_t lane = 0; lane < net::lane_count; ++lane) {
      std::uint64_t acknowledged = 0;
      for (const auto& ended : talk.ended) acknowledged += ended.lanes[lane].messages_acknowledged;
      const std::uint64_t taken = counts.taken[lane];
      check(acknowledged <= taken, "it acknowledged " + std::to_string(acknowledged) +
                                       " messages on a lane, and had " + std::to_string(taken));
    }
  }

  /// Two that talk die, first one and then, at once, the other.
  void kill_both() {
    const SharedCounts counts, others;
    const Victim listens = victim(3, true, Over::uri());
    Process first("peer process: soaks until it is killed", listens.environment(counts));
    const std::string uri = first.line();
    if (uri.empty()) return note("it did not listen");
    const Victim connects = victim(4, false, uri);
    Process second("peer process: soaks until it is killed", connects.environment(others));
    const bool died = in_time([&] { return first.ended() || second.ended(); });
    check(died, "neither died");
    first.signal(SIGKILL);
    second.signal(SIGKILL);
    first.wait();
    second.wait();
    kills_ += 2;
    if (Over::current() != Way::shm) return;
    // The system takes a moment to end what a process had begun.
    const auto is_free = [name = net::Endpoint::parse(uri).host] {
      try {
        net::detail::listen_at(name);
        return true;
      } catch (const hf::Error&) {
        return false;
      }
    };
    check(in_time(is_free), "the name of the dead is still taken");
  }

  void look_at_usage() {
    if (first_) in_time([&] { return Usage::of(node_).same_handles(*first_); });
    last_ = Usage::of(node_);
    if (rounds_ == warm_up) first_ = last_;
  }

  const Over over_;
  const std::uint64_t seed_;
  std::mt19937_64 random_;
  const Script script_;
  Node node_;
  Soaker soaker_;
  net::Endpoint endpoint_;
  int rounds_ = 0, kills_ = 0;
  std::uint64_t messages_ = 0;
  std::string fault_;
  std::optional<Usage> first_;
  Usage last_;
};

void soak_with_kills(Way way, std::chrono::seconds span) {
  const std::uint64_t seed = std::random_device()();
  Killer killer(way, seed);
  killer.run(span, 7);
  const Verdict verdict = killer.verdict();
  const std::string text =
      verdict.text("soak with kills over " + std::string(way == Way::shm ? "shm" : "tcp") + ", " +
                   std::to_string(span.count()) + " s, seed " + std::to_string(seed));
  std::cout << text << std::flush;
  INFO(text);
  CHECK(verdict.whole());
}

}  // namespace

TEST_CASE("of processes killed as they talk over TCP a clean prefix is there, and nothing else") {
  soak_with_kills(Way::tcp, 15s);
}
TEST_CASE(
    "of processes killed as they talk over memory a clean prefix is there, and nothing else") {
  soak_with_kills(Way::shm, 15s);
}
TEST_CASE("for minutes of killed processes what is there is a clean prefix, and nothing else",
          "[long]") {
  soak_with_kills(GENERATE(bare_transports()), 150s);
}
