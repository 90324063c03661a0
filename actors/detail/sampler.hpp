// Looks a thousand times a second which actor each shard works for, while somebody wants to know.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <hyperframes/actors/report.hpp>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

namespace hyperframes {
class Runtime;
}

namespace hyperframes::detail {

/// Counting what each handler takes would cost every message two looks at the clock; this costs
/// messages nothing. It sleeps when nobody has asked for a while.
class Sampler {
 public:
  explicit Sampler(Runtime& runtime);
  ~Sampler();
  Sampler(const Sampler&) = delete;

  /// Fills in what was seen so far, and goes on looking.
  void add_to(NodeReport& report);

 private:
  void run();
  void look();

  Runtime& runtime_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  Time asked_{};
  std::vector<std::uint64_t> samples_;  ///< By shard.
  /// By shard and owner.
  std::unordered_map<std::uint64_t, std::uint64_t> busy_;
  std::thread thread_;
};

}  // namespace hyperframes::detail
