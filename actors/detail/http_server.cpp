#include <hyperframes/actors/detail/http_server.hpp>

#include <hyperframes/runtime/address.hpp>
#include <hyperframes/runtime/error.hpp>

#ifdef HYPERFRAMES_HTTP

#include <httplib.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <deque>
#include <hyperframes/runtime/exposition.hpp>
#include <hyperframes/runtime/time.hpp>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <type_traits>

#endif

namespace hyperframes::detail {

bool is_loopback_host(const std::string& host) {
  if (host == "localhost") return true;
  const auto address = hyperframes::Address::parse(host, 0);
  return address && address->is_loopback();
}

#ifdef HYPERFRAMES_HTTP

namespace {

constexpr std::size_t thread_count = 4;
constexpr std::size_t most_waiting = 64;  // connections that no thread has come to
constexpr std::size_t most_request_bytes = 16'384;
constexpr Duration request_span = 2s;  // from the connection to the end of what it asks
constexpr Duration answer_span = 10s;

/// Between its construction and its end, new threads take no signals, and what the library does to
/// SIGPIPE, for the whole process, is undone: whose signals are no business of ours.
class KeptSignals {
 public:
  KeptSignals() {
    ::sigaction(SIGPIPE, nullptr, &action_);
    sigset_t of_others;
    ::sigfillset(&of_others);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS})
      ::sigdelset(&of_others, fault);
    ::pthread_sigmask(SIG_BLOCK, &of_others, &mask_);
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

/// What the thread knows of the connection that it is about to serve.
struct Job {
  Time came{};
  bool refused = false;
};
thread_local Job current_job;

/// A bounded number of threads with a bounded line before them.
class Workers final : public httplib::TaskQueue {
 public:
  Workers() {
    try {
      while (threads_.size() < thread_count) threads_.emplace_back([this] { work(); });
    } catch (...) {
      shutdown();
      throw;
    }
  }
  ~Workers() override { shutdown(); }

  // Some versions of the library want to know whether it was taken.
  using Taken = decltype(std::declval<httplib::TaskQueue&>().enqueue(std::function<void()>()));
  Taken enqueue(std::function<void()> job) override {
    if (!put(job)) run(job, {.refused = true});  // closes the connection
    return static_cast<Taken>(true);
  }
  void shutdown() override {
    {
      std::scoped_lock lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    for (auto& thread : threads_)
      if (thread.joinable()) thread.join();
    for (auto& [job, came] : waiting_) run(job, {.refused = true});
    waiting_.clear();
  }

 private:
  bool put(std::function<void()>& job) {
    std::scoped_lock lock(mutex_);
    if (ending_ || waiting_.size() == most_waiting) return false;
    waiting_.emplace_back(std::move(job), Clock::read_system());
    changed_.notify_one();
    return true;
  }
  static void run(const std::function<void()>& job, const Job& as) {
    current_job = as;
    job();
  }
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
      if (ending_) return;
      auto [job, came] = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      run(job, {.came = came});
      job = {};
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::deque<std::pair<std::function<void()>, Time>> waiting_;
  std::vector<std::thread> threads_;
};

/// One connection, whose request may take so many bytes and so long, and whose answer so long.
/// Which of these functions the library declares depends on its version.
class Connection final : public httplib::Stream {
 public:
  Connection(int socket, Time came) : socket_(socket), read_until_(came + request_span) {}

  bool is_readable() const { return at_ < end_ || is_ready(POLLIN, read_until_); }
  bool wait_readable() const { return is_readable(); }
  bool is_writable() const { return is_ready(POLLOUT, Clock::read_system() + answer_span); }
  bool wait_writable() const { return is_writable(); }
  ssize_t read(char* into, std::size_t size) {
    if (at_ == end_ && !fill()) return -1;
    const std::size_t taken = std::min(size, end_ - at_);
    std::copy_n(bytes_ + at_, taken, into);
    at_ += taken;
    return static_cast<ssize_t>(taken);
  }
  ssize_t write(const char* from, std::size_t size) {
    if (write_until_ == Time{}) write_until_ = Clock::read_system() + answer_span;
    while (is_ready(POLLOUT, write_until_)) {
      const ssize_t sent = ::send(socket_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent >= 0 || errno != EAGAIN) return sent;
    }
    return -1;
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const { ip.clear(), port = 0; }
  void get_local_ip_and_port(std::string& ip, int& port) const { ip.clear(), port = 0; }
  // Asked for only to refuse what `select` could not watch, which is not used here.
  socket_t socket() const { return 0; }
  time_t duration() const { return 0; }

 private:
  bool is_ready(short events, Time until) const {
    const auto left = std::max(until - Clock::read_system(), Duration::zero());
    pollfd file = {socket_, events, 0};
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    return ::poll(&file, 1, static_cast<int>(ms)) > 0;
  }
  bool fill() {
    const std::size_t most = std::min(sizeof bytes_, most_request_bytes - read_);
    if (most == 0 || !is_ready(POLLIN, read_until_)) return false;
    const ssize_t got = ::recv(socket_, bytes_, most, MSG_DONTWAIT);
    if (got <= 0) return false;
    at_ = 0;
    end_ = static_cast<std::size_t>(got);
    read_ += end_;
    return true;
  }

  const int socket_;
  const Time read_until_;
  Time write_until_{};
  char bytes_[4096];
  std::size_t at_ = 0, end_ = 0, read_ = 0;
};

}  // namespace

class HttpServer::Server final : public httplib::Server {
 public:
  Server(const std::string& host, int port, std::vector<Page> pages) : pages_(std::move(pages)) {
    workers_ = std::make_unique<Workers>();
    new_task_queue = [this] { return workers_.release(); };
    set_up();
    bind(host, port);
    thread_ = std::thread([this] {
      listen_after_bind();
      ended_.store(true);
    });
    // What has not begun to listen can't be told to stop.
    while (!is_running() && !ended_) std::this_thread::sleep_for(1ms);
  }
  ~Server() override {
    cut();
    stop();
    thread_.join();
  }
  int port() const noexcept { return port_; }

 private:
  void set_up() {
    // The default shares the port with whoever else wants it.
    set_socket_options([](int socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    set_pre_routing_handler([](const httplib::Request& request, httplib::Response& reply) {
      return refuse_others(request, reply);
    });
    for (const Page& page : pages_)
      Get(page.path.c_str(), [&page](const httplib::Request& request, httplib::Response& reply) {
        const std::optional<std::uint64_t> after = after_in(request);
        if (after) return reply.set_content(page.text(*after), page.type.c_str());
        reply.status = 400;
        reply.set_content("'after' is '" + valid_utf8(request.get_param_value("after")) +
                              "', which is no number of 64 bits: give an event's number\n",
                          "text/plain; charset=utf-8");
      });
  }

  static std::optional<std::uint64_t> after_in(const httplib::Request& request) {
    std::uint64_t after = 0;
    if (!request.has_param("after")) return after;
    const std::string wanted = request.get_param_value("after");
    const char* const end = wanted.data() + wanted.size();
    const auto [read, error] = std::from_chars(wanted.data(), end, after);
    if (error != std::errc() || read != end) return std::nullopt;
    return after;
  }

  void bind(const std::string& host, int wanted) {
    errno = 0;
    const bool bound =
        wanted ? bind_to_port(host.c_str(), wanted) : (port_ = bind_to_any_port(host.c_str())) > 0;
    if (wanted) port_ = wanted;
    if (!bound)
      throw Error::system(errno ? errno : EADDRNOTAVAIL,
                          "listen on " + host + ":" + std::to_string(wanted), {},
                          "choose another port, or 0 for one that is free");
    // With the library's backlog of five, who comes in a crowd waits for seconds.
    ::listen(svr_sock_, SOMAXCONN);
  }

  // A web page in a browser of this host must not read this under a name of its own. What comes
  // with a body is refused before that is read.
  static HandlerResponse refuse_others(const httplib::Request& request, httplib::Response& reply) {
    std::string host = request.get_header_value("Host");
    if (const auto colon = host.rfind(':'); colon != std::string::npos && host.back() != ']')
      host.resize(colon);
    if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
    const bool reads = request.method == "GET" || request.method == "HEAD";
    if (reads && is_loopback_host(host)) return HandlerResponse::Unhandled;
    reply.status = reads ? 403 : 405;
    reply.set_content(
        reads ? "ask for it as localhost or 127.0.0.1, not as '" + valid_utf8(host) + "'\n"
              : "these pages are only read: GET\n",
        "text/plain; charset=utf-8");
    return HandlerResponse::Handled;
  }

  // The library would read what a client sends without a limit.
  bool process_and_close_socket(int socket) override {
    const Job job = current_job;
    if (!job.refused && note(socket)) {
      try {
        Connection connection(socket, job.came);
        serve(*this, connection);
      } catch (...) {  // no memory for it
      }
      forget(socket);
    }
    ::shutdown(socket, SHUT_RDWR);
    ::close(socket);
    return true;
  }

  // Its parameters depend on the library's version.
  template <class Self>
  static void serve(Self& self, httplib::Stream& stream) {
    bool closed = false;
    // A client's wishes that could make an answer many times as large, or as slow to make.
    const auto plain = [](httplib::Request& request) {
      request.ranges.clear();
      request.headers.erase("Accept-Encoding");
    };
    if constexpr (requires { self.process_request(stream, true, closed, plain); }) {
      self.process_request(stream, true, closed, plain);
    } else {
      self.process_request(stream, "127.0.0.1", 0, "127.0.0.1", self.port_, true, closed, plain);
    }
  }

  bool note(int socket) {
    std::scoped_lock lock(mutex_);
    if (!cut_) sockets_.insert(socket);
    return !cut_;
  }
  void forget(int socket) {
    std::scoped_lock lock(mutex_);
    sockets_.erase(socket);
  }
  void cut() {
    std::scoped_lock lock(mutex_);
    cut_ = true;
    for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
  }

  const std::vector<Page> pages_;
  std::unique_ptr<Workers> workers_;  ///< Until it listens, which takes them over.
  int port_ = 0;
  std::atomic<bool> ended_{false};
  std::mutex mutex_;
  bool cut_ = false;
  std::set<int> sockets_;  ///< That are served now.
  std::thread thread_;
};

HttpServer::HttpServer(const std::string& host, int port, std::vector<Page> pages) {
  const KeptSignals kept;
  server_ = std::make_unique<Server>(host, port, std::move(pages));
}
HttpServer::~HttpServer() = default;
int HttpServer::port() const noexcept { return server_->port(); }

#else

class HttpServer::Server {};

HttpServer::HttpServer(const std::string& host, int port, std::vector<Page>) {
  throw Error(Errc::unsupported, "serve pages on " + host + ":" + std::to_string(port),
              "this build has no HTTP: cpp-httplib was not found when it was configured",
              "install libcpp-httplib-dev and configure again, or leave the address empty");
}
HttpServer::~HttpServer() = default;
int HttpServer::port() const noexcept { return 0; }

#endif

}  // namespace hyperframes::detail
