// Asks a node's HTTP page on this host.
#pragma once

#include <string>

namespace hyperframes::tools {

/// The body of `http://address/path`. Blocks for a few seconds at most. Throws what stood in the
/// way; Errc::unsupported where the build has no HTTP.
std::string http_get(const std::string& address, const std::string& path);

/// Throws Errc::invalid_argument unless it is HOST:PORT.
void check_address(const std::string& address);

}  // namespace hyperframes::tools
