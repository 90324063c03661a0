#include <hyperframes/apps/tools/page_reader.hpp>

#include <hyperframes/net/endpoint.hpp>
#include <hyperframes/runtime/error.hpp>

#ifdef HYPERFRAMES_HTTP
#include <httplib.h>
#include <signal.h>

#include <hyperframes/runtime/time.hpp>
#include <string_view>
#endif

namespace hyperframes::tools {
namespace {

/// People paste what stands in a browser.
std::string without_url(std::string address) {
  if (const auto scheme = address.find("://"); scheme != std::string::npos) {
    if (address.substr(0, scheme) != "http")
      throw Error(Errc::invalid_argument, "ask the node at '" + address + "'",
                  "a node's page is plain HTTP, not '" + address.substr(0, scheme) + "'",
                  "give HOST:PORT, or http://HOST:PORT");
    address.erase(0, scheme + 3);
  }
  if (const auto path = address.find('/'); path != std::string::npos) address.erase(path);
  return address;
}

net::Endpoint checked(const std::string& address) {
  const bool has_port = address.find(':') != std::string::npos && !address.ends_with(']');
  auto endpoint = net::Endpoint::parse("tcp://" + address);
  if (endpoint.port == 0 || !has_port)
    throw Error(Errc::invalid_argument, "ask the node at '" + address + "'", "it has no port",
                "give HOST:PORT, as the node was started with (--http_addr)");
  return endpoint;
}

}  // namespace

#ifdef HYPERFRAMES_HTTP

namespace {

/// The library's writes to a connection that the other end has closed raise SIGPIPE, which would
/// end the program.
class WithoutBrokenPipes {
 public:
  WithoutBrokenPipes() {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutBrokenPipes() {
    const timespec at_once{};
    if (!::sigismember(&before_, SIGPIPE))
      while (::sigtimedwait(&pipe_, nullptr, &at_once) == SIGPIPE) continue;
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutBrokenPipes(const WithoutBrokenPipes&) = delete;

 private:
  sigset_t pipe_{}, before_{};
};

std::string text_of(httplib::Error error) {
  switch (error) {
    case httplib::Error::Connection: return "nobody answers there, or there is no such host";
    case httplib::Error::Read: return "the answer did not come in time, or broke off";
    case httplib::Error::Canceled: return "the answer is too large, or takes too long";
    default: return httplib::to_string(error);
  }
}

constexpr std::size_t most_bytes = std::size_t{256} << 20;
constexpr Duration answer_span = 15s;

}  // namespace

struct PageReader::Client : httplib::Client {
  using httplib::Client::Client;
};

PageReader::PageReader(const std::string& address) : address_(without_url(address)) {
  constexpr int connect_seconds = 2, answer_seconds = 5;  // a node waits 2 s for a stuck shard
  const net::Endpoint endpoint = checked(address_);
  client_ = std::make_unique<Client>(endpoint.host, endpoint.port);
  client_->set_connection_timeout(connect_seconds, 0);
  client_->set_read_timeout(answer_seconds, 0);
}

std::string PageReader::get(const std::string& path) {
  const WithoutBrokenPipes guard;
  const std::string tried = "ask the node at http://" + address_ + path;
  std::string body;
  const Time until = Clock::read_system() + answer_span;
  const auto result = client_->Get(path.c_str(), [&](const char* bytes, std::size_t size) {
    if (body.size() + size > most_bytes || Clock::read_system() > until) return false;
    body.append(bytes, size);
    return true;
  });
  if (!result)
    throw Error(Errc::unreachable, tried, text_of(result.error()),
                "check that it runs, and was started with that --http_addr (or "
                "Node::Options::http_address)");
  if (result->status != 200)
    throw Error(
        Errc::rejected, tried,
        "it answers with status " + std::to_string(result->status) + ": " + body.substr(0, 200),
        "check that the address is a node's HTTP page");
  return body;
}

void PageReader::stop() noexcept { client_->stop(); }

#else

struct PageReader::Client {};

PageReader::PageReader(const std::string& address) : address_(without_url(address)) {
  checked(address_);
}

std::string PageReader::get(const std::string& path) {
  throw Error(Errc::unsupported, "ask the node at http://" + address_ + path,
              "this build has no HTTP: cpp-httplib was not found when it was configured",
              "install libcpp-httplib-dev and configure again");
}

void PageReader::stop() noexcept {}

#endif

PageReader::~PageReader() = default;

}  // namespace hyperframes::tools
