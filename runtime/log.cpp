#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <hyperframes/runtime/log.hpp>
#include <memory>
#include <mutex>

namespace hyperframes::log {
namespace {

struct State {
  std::shared_ptr<spdlog::logger> logger;
  std::mutex mutex;
  std::function<void(Level, std::string_view)> sink;
};

spdlog::level::level_enum translate(Level level) noexcept {
  switch (level) {
    case Level::trace: return spdlog::level::trace;
    case Level::debug: return spdlog::level::debug;
    case Level::info: return spdlog::level::info;
    case Level::warning: return spdlog::level::warn;
    case Level::error: return spdlog::level::err;
    case Level::off: return spdlog::level::off;
  }
  return spdlog::level::off;
}

/// What HYPERFRAMES_LOG says. A word that is none of the levels' changes nothing.
spdlog::level::level_enum wanted_level(spdlog::logger& logger) {
  const char* wanted = std::getenv("HYPERFRAMES_LOG");
  if (!wanted || !*wanted) return spdlog::level::info;
  const auto level = spdlog::level::from_str(wanted);
  if (level != spdlog::level::off || std::string_view(wanted) == "off") return level;
  logger.warn("HYPERFRAMES_LOG is '{}'; it must be trace, debug, info, warning, error or off",
              wanted);
  return spdlog::level::info;
}

// Never destroyed: a shard may log while the process exits.
State& state() {
  static State* instance = [] {
    auto* created = new State;
    auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
    created->logger = std::make_shared<spdlog::logger>("hyperframes", std::move(sink));
    created->logger->set_pattern("%H:%M:%S.%e %^%-7l%$ %v");
    created->logger->set_level(wanted_level(*created->logger));
    return created;
  }();
  return *instance;
}

}  // namespace

void write(Level level, std::string_view text) {
  State& log = state();
  {
    std::scoped_lock lock(log.mutex);
    if (log.sink) return log.sink(level, text);
  }
  log.logger->log(translate(level), "{}", text);
}

bool enabled(Level level) noexcept { return state().logger->should_log(translate(level)); }
void set_level(Level level) noexcept { state().logger->set_level(translate(level)); }

void set_sink(std::function<void(Level, std::string_view)> sink) {
  std::scoped_lock lock(state().mutex);
  state().sink = std::move(sink);
}

}  // namespace hyperframes::log
