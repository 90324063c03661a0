// The project's log: one line an event, to standard error.
//
//   hf::log::warning("lost peer " + name + ", trying again");
//   hf::log::set_level(hf::log::Level::warning);
//   hf::log::set_sink([&](hf::log::Level level, std::string_view line) { keep(level, line); });
//
// Never pass a secret. Level by HYPERFRAMES_LOG (trace, debug, info, warning, error, off), which is
// read once; the default is info, and an unknown word turns it off. On any thread. A line is
// written before the call returns: to a slow terminal it holds up the shard.
#pragma once

#include <functional>
#include <string_view>

namespace hyperframes::log {

enum class Level { trace, debug, info, warning, error, off };

void write(Level level, std::string_view text);
/// Whether lines of that level are written: ask before making an expensive one.
bool enabled(Level level) noexcept;
/// The least level that is written, for the whole process.
void set_level(Level level) noexcept;
/// Sends every line, of any level, to `sink` instead, until called with an empty function. One line
/// at a time, on the thread that logs, under a lock: `sink` must not log. For tests.
void set_sink(std::function<void(Level, std::string_view)> sink);

inline void debug(std::string_view text) { write(Level::debug, text); }
inline void info(std::string_view text) { write(Level::info, text); }
inline void warning(std::string_view text) { write(Level::warning, text); }
inline void error(std::string_view text) { write(Level::error, text); }

}  // namespace hyperframes::log
