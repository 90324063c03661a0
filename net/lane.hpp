// The lanes of a link: what may overtake what.
//
//   co_await session->send(std::move(message), hf::net::Lane::bulk);
//   // a heartbeat or a small message in Lane::normal passes it between two of its fragments
//
// Order holds within a lane, for each pair of sender and receiver; between lanes nothing is
// promised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hyperframes::net {

/// Numbers are part of the wire protocol.
enum class Lane : std::uint8_t {
  control = 0,  ///< Supervision, heartbeats, flow control: first, and never held up by the others.
  normal = 1,   ///< Most messages.
  bulk = 2,     ///< Large data, which the other lanes overtake.
};
inline constexpr std::size_t lane_count = 3;

inline std::string_view name(Lane lane) noexcept {
  constexpr std::string_view names[lane_count] = {"control", "normal", "bulk"};
  return names[static_cast<std::size_t>(lane)];
}

}  // namespace hyperframes::net
