// Asks a node's HTTP page on this host.
//
//   PageReader reader("127.0.0.1:9464");
//   const std::string json = reader.get("/actors");
//   reader.stop();                       // from another thread: whoever is in `get` gets an error
#pragma once

#include <memory>
#include <string>

namespace hyperframes::tools {

/// One `get` at a time.
class PageReader {
 public:
  /// Throws Errc::invalid_argument unless `address` is HOST:PORT, or begins as a URL of a page,
  /// http://HOST:PORT.
  explicit PageReader(const std::string& address);
  ~PageReader();
  PageReader(const PageReader&) = delete;
  PageReader& operator=(const PageReader&) = delete;

  /// The body of `http://address/path`. Blocks for some seconds at most. Throws what stood in the
  /// way; Errc::unsupported where the build has no HTTP.
  std::string get(const std::string& path);
  void stop() noexcept;

 private:
  struct Client;
  std::string address_;
  std::unique_ptr<Client> client_;
};

}  // namespace hyperframes::tools
