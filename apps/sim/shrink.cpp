#include <algorithm>
#include <hyperframes/apps/sim/shrink.hpp>
#include <numeric>

namespace hyperframes::sim {

std::vector<std::size_t> shrink(std::size_t count,
                                const std::function<bool(const std::vector<std::size_t>&)>& fails,
                                std::size_t most_runs) {
  std::vector<std::size_t> left(count);
  std::iota(left.begin(), left.end(), std::size_t{0});
  std::size_t runs = 0;
  // Faults that come after the end of a failing run go at once, as do all, if it fails anyhow.
  for (std::size_t stretch = std::max<std::size_t>(count, 1); stretch > 0;) {
    bool smaller = false;
    // From the end: what comes last is the most likely to be of no account.
    for (std::size_t end = left.size(); end > 0 && runs < most_runs;) {
      const std::size_t begin = end > stretch ? end - stretch : 0;
      std::vector<std::size_t> without(left.begin(),
                                       left.begin() + static_cast<std::ptrdiff_t>(begin));
      without.insert(without.end(), left.begin() + static_cast<std::ptrdiff_t>(end), left.end());
      ++runs;
      if (fails(without)) {
        left = std::move(without);
        smaller = true;
      }
      end = begin;
    }
    if (runs >= most_runs) break;
    if (stretch == 1 && !smaller) break;
    if (stretch > 1) stretch = (stretch + 1) / 2;
  }
  return left;
}

}  // namespace hyperframes::sim
