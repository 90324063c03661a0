#include <cstdlib>
#include <hyperframes/runtime/shard.hpp>
#include <hyperframes/runtime/time.hpp>

namespace hyperframes {

Time Clock::read_system() noexcept {
  return Time(std::chrono::steady_clock::now().time_since_epoch());
}

Time Clock::now() noexcept {
  const Shard* shard = Shard::current();
  return shard ? shard->now() : read_system();
}

Time after(Duration span) noexcept {
  const Time now = Clock::now();
  return span > no_deadline - now ? no_deadline : now + span;
}

const Timing& timing() noexcept {
  static const Timing instance = [] {
    Timing result;
    if (const char* text = std::getenv("HYPERFRAMES_TIME_SCALE")) {
      const double scale = std::strtod(text, nullptr);
      if (scale >= 0.01 && scale <= 1000) result.scale = scale;
    }
    return result;
  }();
  return instance;
}

}  // namespace hyperframes
