// A few pages over HTTP, for programs of this host.
//
//   HttpServer server("127.0.0.1", 9464, {{"/metrics", "text/plain", [&](auto) { return metrics(); }}});
//   server.port();                                   // the one that was picked, if 0 was wanted
//
// Whoever asks costs others little: how many connections there are, how much they send and how
// long they take is limited, and what is over that is closed. Its threads take no signals.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace hyperframes::detail {

class HttpServer {
 public:
  struct Page {
    std::string path, type;
    /// On a thread of the server's, of which there are a few. With what the request gives as
    /// `after`: a number, or 0.
    std::function<std::string(std::uint64_t after)> text;
  };

  /// Serves until its end, which cuts connections off. `host` is a loopback address or localhost.
  /// Throws why it can't; Errc::unsupported where the build has no HTTP.
  HttpServer(const std::string& host, int port, std::vector<Page> pages);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  int port() const noexcept;

 private:
  class Server;
  std::unique_ptr<Server> server_;
};

/// Whether a name or address can only be this host's own.
bool is_loopback_host(const std::string& host);

}  // namespace hyperframes::detail
