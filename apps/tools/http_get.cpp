#include <hyperframes/apps/tools/http_get.hpp>

#include <hyperframes/net/endpoint.hpp>
#include <hyperframes/runtime/error.hpp>

#ifdef HYPERFRAMES_HTTP
#include <httplib.h>
#endif

namespace hyperframes::tools {

void check_address(const std::string& address) {
  const bool has_port = address.find(':') != std::string::npos && !address.ends_with(']');
  if (net::Endpoint::parse("tcp://" + address).port == 0 || !has_port)
    throw Error(Errc::invalid_argument, "ask the node at '" + address + "'", "it has no port",
                "give HOST:PORT, as the node was started with (--http_addr)");
}

#ifdef HYPERFRAMES_HTTP

std::string http_get(const std::string& address, const std::string& path) {
  constexpr int connect_seconds = 2, answer_seconds = 5;  // a node waits 2 s for a stuck shard
  const auto endpoint = net::Endpoint::parse("tcp://" + address);
  const std::string tried = "ask the node at http://" + address + path;
  httplib::Client client(endpoint.host, endpoint.port);
  client.set_connection_timeout(connect_seconds, 0);
  client.set_read_timeout(answer_seconds, 0);
  const auto result = client.Get(path.c_str());
  if (!result)
    throw Error(Errc::unreachable, tried, httplib::to_string(result.error()),
                "check that it runs, and was started with that --http_addr (or "
                "Node::Options::http_address)");
  if (result->status != 200)
    throw Error(Errc::rejected, tried,
                "it answers with status " + std::to_string(result->status) + ": " +
                    result->body.substr(0, 200),
                "check that the address is a node's HTTP page");
  return result->body;
}

#else

std::string http_get(const std::string& address, const std::string& path) {
  throw Error(Errc::unsupported, "ask the node at http://" + address + path,
              "this build has no HTTP: cpp-httplib was not found when it was configured",
              "install libcpp-httplib-dev and configure again");
}

#endif

}  // namespace hyperframes::tools
