#include <charconv>
#include <hyperframes/net/endpoint.hpp>

namespace hyperframes::net {
namespace {

struct SchemeName {
  std::string_view text;
  Scheme scheme;
};
constexpr SchemeName schemes[] = {{"tcp", Scheme::tcp},
                                  {"shm", Scheme::shm},
                                  {"rdma", Scheme::rdma},
                                  {"auto", Scheme::automatic}};

Error bad(std::string_view uri, std::string found) {
  return Error(Errc::invalid_argument, "read the endpoint '" + std::string(uri) + "'",
               std::move(found),
               "write tcp://host:port, tcp://[ipv6]:port, rdma://host:port, auto://host:port or "
               "shm://name");
}

Result<Endpoint> parse_name(std::string_view uri, std::string_view rest) {
  if (rest.empty()) return bad(uri, "the name after shm:// is missing");
  if (rest.size() > 64) return bad(uri, "the name is longer than 64 characters");
  for (const char c : rest) {
    const bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '-' || c == '_' || c == '.';
    if (!fine)
      return bad(uri, "the name may hold letters, digits, '-', '_' and '.', not '" +
                          std::string(1, c) + "'");
  }
  return Endpoint{Scheme::shm, std::string(rest), 0};
}

/// Cuts "[host]:port" or "host:port"; `port` is empty if there is none.
Result<void> split_host(std::string_view uri, std::string_view rest, std::string_view& host,
                        std::string_view& port) {
  if (rest.starts_with('[')) {
    const auto close = rest.find(']');
    if (close == rest.npos) return bad(uri, "']' is missing after the IPv6 address");
    host = rest.substr(1, close - 1);
    rest.remove_prefix(close + 1);
    if (rest.empty()) return {};
    if (!rest.starts_with(':')) return bad(uri, "after ']' only ':port' may follow");
    port = rest.substr(1);
    if (port.empty()) return bad(uri, "the port after ':' is missing");
    return {};
  }
  const auto colon = rest.find(':');
  host = rest.substr(0, colon);
  if (colon == rest.npos) return {};
  port = rest.substr(colon + 1);
  if (port.find(':') != port.npos)
    return bad(uri, "an IPv6 address stands in brackets, as in tcp://[::1]:6000");
  if (port.empty()) return bad(uri, "the port after ':' is missing");
  return {};
}

Result<std::uint16_t> parse_port(std::string_view uri, std::string_view text) {
  unsigned value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || value > 65535)
    return bad(uri, "the port must be a number from 0 to 65535, not '" + std::string(text) + "'");
  return static_cast<std::uint16_t>(value);
}

}  // namespace

std::string_view name(Scheme scheme) noexcept {
  return schemes[static_cast<std::size_t>(scheme)].text;
}

Result<Endpoint> Endpoint::try_parse(std::string_view uri) {
  Endpoint endpoint;
  std::string_view rest = uri;
  if (const auto separator = uri.find("://"); separator != uri.npos) {
    const auto scheme = uri.substr(0, separator);
    const SchemeName* known = nullptr;
    for (const SchemeName& candidate : schemes)
      if (candidate.text == scheme) known = &candidate;
    if (!known) return bad(uri, "there is no scheme '" + std::string(scheme) + "'");
    endpoint.scheme = known->scheme;
    rest.remove_prefix(separator + 3);
  }
  if (endpoint.scheme == Scheme::shm) return parse_name(uri, rest);

  std::string_view host, port;
  if (auto split = split_host(uri, rest, host, port); !split) return split.error();
  if (host.empty()) return bad(uri, "the host is missing");
  if (host.size() > 253) return bad(uri, "the host is longer than 253 characters");
  for (const char c : host)
    if (c <= ' ' || c == '/' || c == '@' || c == '?' || c == '#' || c == 127)
      return bad(uri, "the host may not hold '" + std::string(1, c) +
                          "'; a path, user or query has no meaning here");
  endpoint.host = host;
  if (!port.empty()) {
    auto number = parse_port(uri, port);
    if (!number) return number.error();
    endpoint.port = *number;
  }
  return endpoint;
}

Endpoint Endpoint::parse(std::string_view uri) { return try_parse(uri).value(); }

std::string Endpoint::to_string() const {
  std::string text(name(scheme));
  text += "://";
  if (scheme == Scheme::shm) return text + host;
  const bool brackets = host.find(':') != host.npos;
  text += brackets ? "[" + host + "]" : host;
  return text + ":" + std::to_string(port);
}

}  // namespace hyperframes::net
