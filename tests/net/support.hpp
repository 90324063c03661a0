// Nodes for the tests of the network: a runtime, a handler and a network each.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <hyperframes/net/network.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <hyperframes/runtime/time.hpp>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "certificates.hpp"
#include "fake_verbs.hpp"

namespace net_test {

using namespace std::chrono_literals;
namespace net = hf::net;

/// What nodes are linked by.
enum class Way : int { tcp, shm, tls_key, tls_certificates, automatic, rdma };

/// What nodes listen on unless a test says where (loopback TCP, or a name that nobody else has),
/// and by what they show who they are.
class Over {
 public:
  /// Until the end of the test case's run.
  explicit Over(Way way) : before_(std::exchange(current(), way)) {}
  explicit Over(net::Scheme scheme) : Over(scheme == net::Scheme::shm ? Way::shm : Way::tcp) {}
  ~Over() { current() = before_; }
  Over(const Over&) = delete;

  /// At first TCP, or what this process was started for (tests/net/process.hpp).
  static Way& current() {
    static Way way = [] {
      const char* const text = std::getenv("HYPERFRAMES_TEST_WAY");
      return text ? static_cast<Way>(std::atoi(text)) : Way::tcp;
    }();
    return way;
  }
  static bool is_tls() { return current() == Way::tls_key || current() == Way::tls_certificates; }
  static const char* name() {
    static constexpr const char* names[] = {
        "tcp", "shm", "tls with a key", "tls with certificates", "auto", "rdma"};
    return names[static_cast<int>(current())];
  }
  /// As a session's statistics call it.
  static const char* transport() {
    if (current() == Way::rdma && !verbs()) return std::getenv("HYPERFRAMES_TEST_VERBS");
    return is_tls() ? "tls" : current() == Way::automatic ? "shm" : name();
  }
  static std::string uri() {
    static std::atomic<int> last{0};
    if (current() == Way::automatic) return "auto://127.0.0.1:0";
    if (current() == Way::rdma) return "rdma://127.0.0.1:0";
    if (current() != Way::shm) return "tcp://127.0.0.1:0";
    return "shm://test-" + std::to_string(::getpid()) + "-" + std::to_string(++last);
  }

  /// The device that all nodes of this process have: one of tests, unless the host's is asked for,
  /// by how its transport is called ("rdma", or "soft-rdma" of one that is emulated).
  static FakeVerbs* verbs() {
    static FakeVerbs* const fake = std::getenv("HYPERFRAMES_TEST_VERBS") ? nullptr : new FakeVerbs;
    return fake;
  }

  /// With what a node has to show; what a test has given itself is left as it is.
  static net::Network::Options secured(net::Network::Options options = {}) {
    if (current() == Way::rdma && !options.rdma.verbs) options.rdma.verbs = verbs();
    // An emulated machine takes seconds to lock what is there by default.
    if (current() == Way::rdma && !verbs()) options.rdma.landing_bytes = 4u << 20;
    const bool given = options.key || options.encryption != net::Encryption{};
    if (given) return options;
    const std::string secret = "the key of all nodes of a test";
    if (current() == Way::tls_key) options.key = net::Key(std::as_bytes(std::span(secret)));
    if (current() == Way::tls_certificates) options.encryption = certificates();
    return options;
  }
  /// What a process needs that is to be linked in the same way.
  static std::vector<std::pair<std::string, std::string>> environment() {
    std::vector<std::pair<std::string, std::string>> all{
        {"HYPERFRAMES_TEST_WAY", std::to_string(static_cast<int>(current()))}};
    if (current() == Way::tls_certificates)
      all.emplace_back("HYPERFRAMES_TEST_CERTIFICATES",
                       std::filesystem::path(certificates().authority_file).parent_path());
    return all;
  }

 private:
  /// Made once, by the first process.
  static const net::Encryption& certificates() {
    static const char* const folder = std::getenv("HYPERFRAMES_TEST_CERTIFICATES");
    static const std::unique_ptr<Certificates> made =
        folder ? nullptr : std::make_unique<Certificates>();
    static const net::Encryption encryption = [] {
      if (made) return made->node({.name = "any-node", .hosts = {"localhost", "127.0.0.1", "::1"}});
      const std::string in = folder + std::string("/");
      return net::Encryption{.certificate_file = in + "any-node.crt",
                             .certificate_key_file = in + "any-node.key",
                             .authority_file = in + "ca.crt"};
    }();
    return encryption;
  }

  Way before_;
};

/// What a node was told, and what it does about it. Thread-safe.
class Handler final : public net::MessageHandler {
 public:
  using OnMessage = std::function<void(net::Session&, net::Lane, net::Message)>;
  struct Down {
    std::uint64_t node;
    std::error_code code;
    std::string text;
  };

  /// Set before the network is used. By default the bodies are kept as text.
  OnMessage react;

  void on_message(net::Session& session, net::Lane lane, net::Message message) noexcept override {
    if (react) {
      react(session, lane, std::move(message));
    } else {
      std::scoped_lock lock(mutex_);
      bodies_.emplace_back(message.body.text());
    }
    ++count;  // whoever waits for it then looks at the rest
  }
  void on_session_up(net::Session& session) noexcept override { ++ups; }
  void on_session_down(net::Session& session, const hf::Error& reason) noexcept override {
    std::scoped_lock lock(mutex_);
    downs_.push_back({session.peer().node_id, reason.code(), reason.what()});
    ++down_count;
  }

  std::vector<std::string> bodies() const {
    std::scoped_lock lock(mutex_);
    return bodies_;
  }
  std::vector<Down> downs() const {
    std::scoped_lock lock(mutex_);
    return downs_;
  }

  std::atomic<int> count{0}, ups{0}, down_count{0};

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> bodies_;
  std::vector<Down> downs_;
};

inline hf::Runtime::Options shards(unsigned count) {
  hf::Runtime::Options options;
  options.shards = count;
  return options;
}

/// The calling shard's session with that node. Throws if there is none, as when a busy machine was
/// taken for a dead one.
inline net::SessionRef session_with(net::Network& network, std::uint64_t node) {
  net::SessionRef session = network.session(node);
  if (!session) throw hf::Error(hf::Errc::not_found, "use a session", "there is none");
  return session;
}

struct Node {
  explicit Node(unsigned shard_count = 1, net::Network::Options options = {})
      : runtime(shards(shard_count)),
        network(runtime, Over::secured(std::move(options)), handler) {}

  template <class Function>
  auto run(Function function, unsigned shard = 0) {
    return runtime.run([function](hf::Runtime&) mutable { return function(); }, shard);
  }
  net::Endpoint listen(const std::string& uri = Over::uri()) {
    return run([this, uri] { return network.listen(net::Endpoint::parse(uri)); });
  }
  /// Connects, and returns the peer's node id: a SessionRef stays on its shard.
  std::uint64_t connect(net::Endpoint endpoint, hf::Duration within = hf::timing().scaled(5s)) {
    return run([this, endpoint, within] { return connect_task(endpoint, within); });
  }
  hf::Task<std::uint64_t> connect_task(net::Endpoint endpoint, hf::Duration within) {
    auto session = co_await network.connect(endpoint, hf::after(within));
    co_return session->peer().node_id;
  }
  void send(std::uint64_t node, std::string text, net::Lane lane = net::Lane::normal,
            hf::Duration within = hf::timing().scaled(5s), unsigned shard = 0) {
    run([=, this] { return send_task(node, text, lane, within); }, shard);
  }
  hf::Task<void> send_task(std::uint64_t node, std::string text, net::Lane lane,
                           hf::Duration within) {
    auto session = session_with(network, node);
    net::Message message;
    message.body = hf::Buffer::copy_of(text);
    co_await session->send(std::move(message), lane, hf::after(within));
  }

  hf::Runtime runtime;
  Handler handler;
  net::Network network;
};

/// Looks again until `condition` holds or far too much time has passed.
template <class Condition>
bool eventually(Condition condition, std::chrono::seconds limit = 30s) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

}  // namespace net_test
