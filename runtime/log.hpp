// The project's log: one line an event, to standard error.
//
//   hf::log::warning(fmt::format("shard {} lost its peer {}", shard, peer));
//
// Never pass a secret. Level by HYPERFRAMES_LOG (trace, debug, info, warning, error, off); the
// default is info. Thread-safe.
#pragma once

#include <functional>
#include <string_view>

namespace hyperframes::log {

enum class Level { trace, debug, info, warning, error, off };

void write(Level level, std::string_view text);
bool enabled(Level level) noexcept;
void set_level(Level level) noexcept;
/// Sends every line to `sink` instead, until called with an empty function. For tests.
void set_sink(std::function<void(Level, std::string_view)> sink);

inline void debug(std::string_view text) { write(Level::debug, text); }
inline void info(std::string_view text) { write(Level::info, text); }
inline void warning(std::string_view text) { write(Level::warning, text); }
inline void error(std::string_view text) { write(Level::error, text); }

}  // namespace hyperframes::log
