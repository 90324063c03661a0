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

/// Two machines without a process, and by how much a silence between them was most in error, as
/// seen by looking each 100 us.
class Silent final : public sim::detail::Stage {
 public:
  explicit Silent(std::uint64_t seed)
      : Stage({.seed = seed}, {.names = names, .menu = short_faults()}) {}
  ~Silent() override { close(); }

  Duration largest_error() {
    start();
    Duration since[2]{}, largest{};
    bool was_cut = false;
    while (now() < 24s) {
      run_for(100us);
      const bool cut = is_cut(0, 1);
      for (unsigned from : {0u, 1u}) {
        const unsigned to = 1 - from;
        const bool open = is_awake(from) && !cut;
        if (open || !is_awake(to) || (was_cut && !cut)) since[from] = now();
        const Duration error = silence(from, to) - (now() - since[from]);
        largest = std::max(largest, std::max(error, -error));
      }
      was_cut = cut;
    }
    return largest;
  }

 private:
  bool is_awake(unsigned index) { return node(index).is_up() && !is_frozen(index); }
  void boot(unsigned) override {}
  std::string state(const Fault&) override { return ""; }
};

}  // namespace

TEST_CASE("a way that was open for a moment only is silent from then on, and not from before") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    INFO("seed " << seed);
    CHECK(Silent(seed).largest_error() <= 100ms);
  }
}
