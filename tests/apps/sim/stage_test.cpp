// What a checker may conclude from silence, while faults come and go faster than it looks.
#include <hyperframes/apps/sim/detail/stage.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <string>
#include <vector>

using namespace hyperframes;
using namespace hyperframes::sim;
using namespace std::chrono_literals;

namespace {

const std::vector<std::string> names = {"a", "b"};

FaultMenu short_faults() {
  FaultMenu menu;
  menu.from = 1s;
  menu.until = 20s;
  menu.least = menu.most = 300;
  menu.dishes = {
      {.kind = FaultKind::pause, .nodes = {0, 1}, .least = 1ms, .most = 2s},
      {.kind = FaultKind::kill, .nodes = {0, 1}, .least = 1ms, .most = 2s},
      {.kind = FaultKind::partition, .nodes = {0}, .least = 1ms, .most = 2s, .any_pair = true}};
  return menu;
}

/// Two machines without a process, and by how much the longest silence of theirs was overrated, as
/// seen by looking each 100 us.
class Silent final : public sim::detail::Stage {
 public:
  explicit Silent(std::uint64_t seed)
      : Stage({.seed = seed}, {.names = names, .menu = short_faults()}) {}
  ~Silent() override { close(); }

  Duration most_overrated() {
    start();
    Duration open_at[2]{}, most{};
    while (now() < storm_end()) {
      run_for(100us);
      for (unsigned from : {0u, 1u}) {
        const unsigned to = 1 - from;
        const bool open = node(from).is_up() && !is_frozen(from) && !is_cut(from, to);
        if (open) open_at[from] = now();
        most = std::max(most, silence(from, to) - (now() - open_at[from]));
      }
    }
    return most;
  }

 private:
  void boot(unsigned) override {}
  std::string state(const Fault&) override { return ""; }
};

}  // namespace

TEST_CASE("a way that was open for a moment only is silent from then on, and not from before") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    INFO("seed " << seed);
    CHECK(Silent(seed).most_overrated() <= 100ms);
  }
}
