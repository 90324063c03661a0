#include <hyperframes/actors/detail/page.hpp>

#include <hyperframes/actors/detail/http_server.hpp>
#include <hyperframes/actors/detail/inspection.hpp>
#include <hyperframes/actors/detail/node_core.hpp>
#include <hyperframes/actors/detail/page_metrics.hpp>
#include <hyperframes/actors/detail/sampler.hpp>
#include <hyperframes/net/endpoint.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/exposition.hpp>
#include <mutex>
#include <optional>

namespace hyperframes::detail {
namespace {

constexpr Duration fresh = 50ms;
constexpr const char* tried = "serve a node's pages on ";

constexpr const char* index_text =
    "A node of Hyperframes.\n"
    "  /metrics  for Prometheus\n"
    "  /actors   what its actors do, as JSON (hyperframes actors, hyperframes top)\n"
    "  /events   what supervisors decided, as JSON (hyperframes events); ?after=NUMBER: since "
    "then\n"
    "  /dump     the same for people\n";

/// A text that is made anew 20 times a second at most, so that many who ask cost the shards no more
/// than a few do.
class SharedText {
 public:
  explicit SharedText(std::function<std::string()> make) : make_(std::move(make)) {}
  std::string get() {
    std::scoped_lock lock(mutex_);
    if (!made_ || Clock::read_system() - *made_ >= fresh) {
      text_ = make_();
      made_ = Clock::read_system();
    }
    return text_;
  }

 private:
  const std::function<std::string()> make_;
  std::mutex mutex_;
  std::optional<Time> made_;
  std::string text_;
};

net::Endpoint checked(const std::string& address) {
  auto endpoint = net::Endpoint::parse("tcp://" + address);
  if (address.find(':') == std::string::npos || address.ends_with(']'))
    throw Error(Errc::invalid_argument, tried + address, "it has no port",
                "give HOST:PORT; port 0 picks one");
  if (!is_loopback_host(endpoint.host))
    throw Error(Errc::unauthenticated, tried + address,
                "whoever reaches it could read it without a key, and '" + endpoint.host +
                    "' is no loopback address",
                "use 127.0.0.1, and a tunnel from elsewhere");
  return endpoint;
}

}  // namespace

class Page::Server {
 public:
  Server(NodeCore& core, const net::Endpoint& endpoint)
      : core_(core),
        sampler_(core.runtime),
        http_(endpoint.host, endpoint.port,
              {{"/", "text/plain", [](auto) { return std::string(index_text); }},
               {"/metrics", Exposition::type, [this](auto) { return metrics_.get(); }},
               {"/actors", "application/json", [this](auto) { return actors_.get(); }},
               {"/events", "application/json", [this](auto after) { return events(after); }},
               {"/dump", "text/plain; charset=utf-8", [this](auto) { return dump_.get(); }}}) {}
  int port() const noexcept { return http_.port(); }

 private:
  NodeReport look(const InspectOptions& options) {
    return Inspection::begin(core_, options)->wait();
  }
  std::string metrics() {
    InspectOptions options;
    options.metrics = true;
    options.tasks_per_shard = options.turns_per_actor = options.events = 0;
    return metrics_text(look(options));
  }
  // Only who looks at the actors' shares of their shards has them measured.
  std::string actors() {
    NodeReport report = look({});
    sampler_.add_to(report);
    return report.to_json();
  }

  // No shard is asked for them; nor the Node, which may not be whole yet.
  std::string events(std::uint64_t after) { return core_.events_since(after).to_json(); }

  NodeCore& core_;
  Sampler sampler_;
  SharedText metrics_{[this] { return metrics(); }};
  SharedText actors_{[this] { return actors(); }};
  SharedText dump_{[this] { return look({}).to_string(); }};
  HttpServer http_;  // ends before what its threads use
};

Page::Page(NodeCore& core, const std::string& address) {
  const net::Endpoint endpoint = checked(address);
  try {
    server_ = std::make_unique<Server>(core, endpoint);
  } catch (const Error& error) {
    throw Error(error.code(), tried + address, error.found(), error.remedy());
  }
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  address_ =
      (v6 ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(server_->port());
}
Page::~Page() = default;

}  // namespace hyperframes::detail
