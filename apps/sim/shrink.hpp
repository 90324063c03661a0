// Makes a failing run small: as few of its faults as still make it fail.
//
//   auto left = sim::shrink(report.plan.size(), [&](const std::vector<std::size_t>& places) {
//     return run(seed, places).violation.has_value();
//   });
//
// Delta debugging: whole stretches of the list are left out as long as the rest still fails, then
// smaller ones, down to single faults; no single one of what is left can be left out.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace hyperframes::sim {

/// Places of 0..count-1, ascending. `fails` is asked at most `most_runs` times.
std::vector<std::size_t> shrink(std::size_t count,
                                const std::function<bool(const std::vector<std::size_t>&)>& fails,
                                std::size_t most_runs = 400);

}  // namespace hyperframes::sim
