// One of two processes, each in a machine of its own, that talk both ways over rdma:// until
// something happens to one of the machines. tests/vm/two_hosts starts them, does that, and compares
// what they print.
//
//   vm_peer listen 10.77.0.1:6000 SEED resumed
//   vm_peer connect 10.77.0.1:6000 SEED resumed 'ip link set eth0 down'
//
// The command is run in the middle of the talk. Then, `resumed`: the link has to break and to be
// taken up again; `interrupted`: nothing has to come for a while, whether or not the link breaks;
// and all that either side says has to come. `lost`: the session has to end as lost.
#include <cstdlib>
#include <hyperframes/runtime/log.hpp>
#include <iostream>
#include <optional>
#include <set>
#include <sstream>

#include "../net/rdma_ends.hpp"
#include "../net/soak.hpp"

using namespace net_test;

namespace {

using SteadyClock = std::chrono::steady_clock;

// Taken messages: until both are in mid-transfer, until the link is in use again, and between
// lines.
constexpr std::uint64_t middle = 150, more = 150, step = 25;
// A word for the other side, which may stop talking: as much came as had to.
constexpr std::uint64_t enough = std::uint64_t{1} << 62;
// Beside how much was sent: all that the other side sent has come, and was answered.
constexpr std::uint64_t done = std::uint64_t{1} << 63;

void print(const std::string& line) { std::cout << line << std::endl; }

bool fail(const std::string& what) {
  print("FAILED: " + what);
  return false;
}

/// Looks again for as long as an emulated machine may need.
template <class Condition>
bool in_time(Condition condition) {
  return eventually(condition, std::chrono::seconds(180));
}

hf::Task<std::uint64_t> only_peer(net::Network* network) {
  const auto sessions = network->sessions();
  co_return sessions.size() == 1 ? sessions[0]->peer().node_id : 0;
}

hf::Task<std::optional<net::Session::Stats>> stats_here(net::Network* network, std::uint64_t peer) {
  const auto session = network->session(peer);
  co_return session ? std::optional(session->stats()) : std::nullopt;
}

/// What the other side says that it has, and what this one has, by lane.
void print(const net::Session::Stats& stats) {
  std::ostringstream acknowledged, received;
  for (const auto& lane : stats.lanes) {
    acknowledged << ' ' << lane.messages_acknowledged;
    received << ' ' << lane.messages_received;
  }
  print("acknowledged" + acknowledged.str());
  print("received" + received.str());
}

/// Lane, number of messages, and checksum of all of them.
std::string text_of(const Tallies& tallies) {
  std::ostringstream text;
  for (const auto& [key, tally] : tallies)
    text << ' ' << key.second << ':' << tally.messages << ':' << tally.sum;
  return text.str();
}

class Peer {
 public:
  Peer(bool listens, const std::string& address, std::uint64_t seed)
      : script_(seed),
        node_(1, options()),
        soaker_(node_, script_, listens ? 1 : 2),
        listens_(listens),
        endpoint_(net::Endpoint::parse("rdma://" + address)) {
    soaker_.begin_round(1);
    soaker_.witness = [this](bool sent, unsigned, net::Lane) {
      if (sent) return;
      const auto now = SteadyClock::now();
      longest_silence_ = std::max(longest_silence_.load(), now - last_taken_.exchange(now));
    };
  }

  /// Whatever happened, before anything ends that the node's handler refers to.
  ~Peer() {
    soaker_.stopping = true;
    if (talker_.joinable()) talker_.join();
    try {
      node_.run([this] { return node_.network.close(hf::timing().scaled(2s)); });
    } catch (const std::exception& error) {
      print(std::string("could not close the network: ") + error.what());
    }
  }

  bool run(const std::string& goal, const char* command) {
    if (!meet()) return fail("the two did not meet over RDMA");
    last_taken_ = SteadyClock::now();
    longest_silence_ = SteadyClock::duration();
    talker_ = std::thread([this] { talk(); });
    const bool acted = act(command, goal == "lost");
    const bool fine = acted && (goal == "lost" ? lose() : go_on(goal == "resumed"));
    soaker_.stopping = true;
    talker_.join();
    const bool whole = fine && (goal == "lost" ? tell_of_loss() : settle());
    print("sent" + text_of(soaker_.sent()));
    print("taken" + text_of(soaker_.taken()));
    return (soaker_.fault().empty() || fail(soaker_.fault())) && whole;
  }

 private:
  static net::Network::Options options() {
    net::Network::Options options;
    options.insecure = true;  // nobody else is on this network
    // 4 times within 2 s. Emulated machines are slow to acknowledge, and Soft-RoCE fails pairs
    // whose acknowledgements come while it sends again (a remote invalid request).
    options.rdma.timeout = 17;
    options.rdma.retries = 3;
    return options;
  }

  bool meet() {
    if (listens_) node_.listen(endpoint_.to_string());
    const bool met = in_time([this] { return (listens_ || connects()) && node_.handler.ups == 1; });
    if (!met) return false;
    peer_ = node_.run([this] { return only_peer(&node_.network); });
    const bool paired = in_time([this] { return all_are(node_, "rdma"); });
    print("linked by " + transport());
    return paired;
  }
  /// The other machine may still have to start.
  bool connects() {
    try {
      node_.connect(endpoint_, hf::timing().scaled(5s));
      return true;
    } catch (const hf::Error&) {
      std::this_thread::sleep_for(200ms);
      return false;
    }
  }
  std::string transport() {
    const auto names = transports_of(node_);
    return names.empty() ? "nothing" : *names.begin();
  }

  void talk() {
    try {
      node_.run([this] { return soaker_.talk(peer_, &ended_); });
    } catch (const hf::Error& error) {
      failure_ = error;
    }
  }
  std::uint64_t taken() { return messages_of(soaker_.taken()); }
  bool is_down() { return node_.handler.down_count > 0; }
  bool fail_as_down() { return fail("the session ended: " + node_.handler.downs()[0].text); }

  /// With a line now and then, since a machine that dies can't tell in the end.
  template <class Condition>
  bool talks_until(Condition condition) {
    return in_time([&] {
      if (taken() >= told_ + step) {
        told_ = taken();
        if (const auto stats = node_.run([this] { return stats_here(&node_.network, peer_); }))
          print(*stats);
      }
      return condition() || is_down();
    });
  }

  bool act(const char* command, bool may_be_lost) {
    if (!talks_until([this] { return taken() >= middle; })) return fail("few messages came");
    // The other side may be there first, and act.
    if (is_down() && !may_be_lost) return fail_as_down();
    print("in the middle");
    return !command || std::system(command) == 0 || fail(std::string("could not ") + command);
  }

  bool go_on(bool over_another_connection) {
    const bool happened = talks_until([&] {
      return over_another_connection ? standing_of(node_).resumes > 0
                                     : longest_silence_.load() >= hf::timing().scaled(500ms);
    });
    if (is_down()) return fail_as_down();
    if (!happened) return fail("nothing happened to the link, or it was not taken up again");
    print("goes on, over " + transport());
    const std::uint64_t goal = taken() + more;
    if (!talks_until([&] { return taken() >= goal; })) return fail("nothing more came");
    if (is_down()) return fail_as_down();
    // Who stops before the other one has as much leaves it waiting.
    node_.run([&] { return soaker_.tell(peer_, enough); });
    if (!talks_until([this] { return soaker_.heard != 0; }))
      return fail("the other side has not got as much");
    return !is_down() || fail_as_down();
  }
  /// All comes, both ways. Nobody leaves while the other one still waits for something.
  bool settle() {
    if (failure_) return fail(std::string("a send failed: ") + failure_->what());
    const std::uint64_t word = messages_of(soaker_.sent()) + 1;
    const auto heard = [this] { return soaker_.heard & ~(done | enough); };
    node_.run([&] { return soaker_.tell(peer_, word); });
    if (!in_time([&] { return heard() && taken() == heard() - 1; }))
      return fail(std::to_string(taken()) +
                  " messages came; sent were, and one: " + std::to_string(heard()));
    if (!in_time([this] { return is_settled(); })) return fail("not all was acknowledged");
    node_.run([&] { return soaker_.tell(peer_, word | done); });
    return in_time([this] { return soaker_.heard & done || is_down(); }) ||
           fail("the other side has not all of it");
  }
  bool is_settled() {
    const Standing now = standing_of(node_);
    return now.unacknowledged + now.held == 0 && soaker_.unanswered() == 0 && soaker_.kept() == 0;
  }

  bool lose() {
    const bool down = talks_until([] { return false; });
    told_after_ = SteadyClock::now() - last_taken_.load();
    return down || fail("the session did not end");
  }
  bool tell_of_loss() {
    print(ended_);
    print(node_.handler.downs()[0].text);
    const auto seconds = [](auto span) { return std::chrono::duration<double>(span).count(); };
    std::ostringstream text;
    text << "lost " << seconds(told_after_) << " s after the last message, and down after "
         << seconds(hf::timing().down_after()) << " s";
    print(text.str());
    const bool told = failure_ && failure_->is(hf::Errc::peer_lost);
    return told || fail(failure_ ? failure_->what() : "no send failed");
  }

  const Script script_;
  Node node_;
  Soaker soaker_;
  const bool listens_;
  const net::Endpoint endpoint_;
  std::uint64_t peer_ = 0, told_ = 0;
  std::atomic<SteadyClock::time_point> last_taken_{};
  std::atomic<SteadyClock::duration> longest_silence_{};
  SteadyClock::duration told_after_{};
  std::thread talker_;
  // Of `talk`, once it has ended.
  std::optional<hf::Error> failure_;
  net::Session::Stats ended_;
};

}  // namespace

int main(int count, char** words) {
  const std::string role = count > 1 ? words[1] : "", goal = count > 4 ? words[4] : "";
  const std::set<std::string> goals = {"resumed", "interrupted", "lost"};
  if ((role != "listen" && role != "connect") || !goals.contains(goal)) {
    std::cerr
        << "usage: vm_peer listen|connect HOST:PORT SEED resumed|interrupted|lost [COMMAND]\n";
    return 2;
  }
  // An emulated machine stands still often enough to be told of it, and is slow to print that.
  hf::log::set_level(hf::log::Level::error);
  try {
    Peer peer(role == "listen", words[2], std::stoull(words[3]));
    return peer.run(goal, count > 5 ? words[5] : nullptr) ? 0 : 1;
  } catch (const std::exception& error) {
    return fail(error.what()) ? 0 : 1;
  }
}
