#include <hyperframes/actors/detail/page.hpp>

#include <hyperframes/runtime/error.hpp>

#ifdef HYPERFRAMES_HTTP

#include <httplib.h>
#include <signal.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <hyperframes/actors/detail/inspection.hpp>
#include <hyperframes/actors/detail/node_core.hpp>
#include <hyperframes/actors/detail/page_metrics.hpp>
#include <hyperframes/actors/detail/sampler.hpp>
#include <hyperframes/net/endpoint.hpp>
#include <hyperframes/runtime/address.hpp>
#include <hyperframes/runtime/exposition.hpp>
#include <thread>

namespace hyperframes::detail {
namespace {

constexpr std::size_t threads = 4;
constexpr time_t request_seconds = 2;  // so long may a client take to say what it wants
constexpr const char* tried = "serve a node's pages on ";

bool is_loopback_host(const std::string& host) {
  if (host == "localhost") return true;
  const auto address = hyperframes::Address::parse(host, 0);
  return address && address->is_loopback();
}

/// The library ignores SIGPIPE for the whole process; whose signals are no business of ours.
class KeptSignals {
 public:
  KeptSignals() {
    ::sigaction(SIGPIPE, nullptr, &action_);
    sigset_t blocked;
    ::sigemptyset(&blocked);
    ::sigaddset(&blocked, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &blocked, &mask_);  // for the threads made meanwhile
  }
  ~KeptSignals() {
    ::sigaction(SIGPIPE, &action_, nullptr);
    ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }
  KeptSignals(const KeptSignals&) = delete;

 private:
  struct sigaction action_{};
  sigset_t mask_{};
};

constexpr const char* index_text =
    "A node of Hyperframes.\n"
    "  /metrics  for Prometheus\n"
    "  /actors   what its actors do, as JSON (hyperframes actors, hyperframes top)\n"
    "  /dump     the same for people\n";

}  // namespace

class Page::Server {
 public:
  Server(NodeCore& core, const net::Endpoint& endpoint) : core_(core), sampler_(core.runtime) {
    const KeptSignals kept;
    http_ = std::make_unique<httplib::Server>();
    set_up();
    const std::string where = endpoint.host + ":" + std::to_string(endpoint.port);
    errno = 0;
    port_ = endpoint.port;
    const bool bound = port_ ? http_->bind_to_port(endpoint.host.c_str(), port_)
                             : (port_ = http_->bind_to_any_port(endpoint.host.c_str())) > 0;
    if (!bound)
      throw Error::system(errno ? errno : EADDRNOTAVAIL, tried + where, {},
                          "choose another port, or 0 for one that is free");
    thread_ = std::thread([this] {
      http_->listen_after_bind();
      ended_.store(true);
    });
    // What has not begun to listen can't be told to stop.
    while (!http_->is_running() && !ended_) std::this_thread::sleep_for(1ms);
  }
  ~Server() {
    http_->stop();
    thread_.join();
  }
  int port() const noexcept { return port_; }

 private:
  void set_up() {
    http_->new_task_queue = [] { return new httplib::ThreadPool(threads); };
    // The default shares the port with whoever else wants it.
    http_->set_socket_options([](int socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    http_->set_keep_alive_max_count(1);  // a thread for each connection: none is kept by one
    http_->set_read_timeout(request_seconds, 0);
    http_->set_write_timeout(request_seconds, 0);
    http_->set_payload_max_length(1024);
    http_->set_pre_routing_handler([](const httplib::Request& request, httplib::Response& reply) {
      return refuse_stranger(request, reply);
    });
    http_->Get("/", [](const httplib::Request&, httplib::Response& reply) {
      reply.set_content(index_text, "text/plain");
    });
    http_->Get("/metrics", [this](const httplib::Request&, httplib::Response& reply) {
      InspectOptions options;
      options.metrics = true;
      options.tasks_per_shard = 0;
      reply.set_content(metrics_text(look(options)), Exposition::type);
    });
    http_->Get("/actors", [this](const httplib::Request&, httplib::Response& reply) {
      reply.set_content(look({}).to_json(), "application/json");
    });
    http_->Get("/dump", [this](const httplib::Request&, httplib::Response& reply) {
      reply.set_content(look({}).to_string(), "text/plain; charset=utf-8");
    });
  }

  // A web page in a browser of this host must not read this under a name of its own.
  static httplib::Server::HandlerResponse refuse_stranger(const httplib::Request& request,
                                                          httplib::Response& reply) {
    std::string host = request.get_header_value("Host");
    if (const auto colon = host.rfind(':'); colon != std::string::npos && host.back() != ']')
      host.resize(colon);
    if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
    if (is_loopback_host(host)) return httplib::Server::HandlerResponse::Unhandled;
    reply.status = 403;
    reply.set_content("ask for it as localhost or 127.0.0.1, not as '" + valid_utf8(host) + "'\n",
                      "text/plain; charset=utf-8");
    return httplib::Server::HandlerResponse::Handled;
  }

  NodeReport look(const InspectOptions& options) {
    NodeReport report = Inspection::begin(core_, options)->wait();
    sampler_.add_to(report);
    return report;
  }

  NodeCore& core_;
  Sampler sampler_;
  std::unique_ptr<httplib::Server> http_;
  int port_ = 0;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

Page::Page(NodeCore& core, const std::string& address) {
  const auto endpoint = net::Endpoint::parse("tcp://" + address);
  if (address.find(':') == std::string::npos || address.ends_with(']'))
    throw Error(Errc::invalid_argument, tried + address, "it has no port",
                "give HOST:PORT; port 0 picks one");
  if (!is_loopback_host(endpoint.host))
    throw Error(Errc::unauthenticated, tried + address,
                "whoever reaches it could read it without a key, and '" + endpoint.host +
                    "' is no loopback address",
                "use 127.0.0.1, and a tunnel from elsewhere");
  server_ = std::make_unique<Server>(core, endpoint);
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  address_ =
      (v6 ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(server_->port());
}
Page::~Page() = default;

}  // namespace hyperframes::detail

#else

namespace hyperframes::detail {

class Page::Server {};

Page::Page(NodeCore&, const std::string& address) {
  throw Error(Errc::unsupported, "serve a node's pages on " + address,
              "this build has no HTTP: cpp-httplib was not found when it was configured",
              "install libcpp-httplib-dev and configure again, or leave the address empty");
}
Page::~Page() = default;

}  // namespace hyperframes::detail

#endif
