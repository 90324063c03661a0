// The pages of a node: what it does, over HTTP, for programs of this host.
#pragma once

#include <memory>
#include <string>

namespace hyperframes::detail {

class NodeCore;

/// Serves from its construction to its end. Its threads never run on shards: they ask them, and
/// wait for a bounded time.
class Page {
 public:
  /// Throws what stands in the way; Errc::unsupported where the build has no HTTP.
  Page(NodeCore& core, const std::string& address);
  ~Page();
  Page(const Page&) = delete;
  /// HOST:PORT.
  const std::string& address() const noexcept { return address_; }

 private:
  class Server;
  std::string address_;
  std::unique_ptr<Server> server_;
};

}  // namespace hyperframes::detail
