// Ratings that people with tastes of their own might have given, for tests that need something to
// learn and have no R.
//
//   write_synthetic_ratings("ratings.csv", 12'000, 1);    // the same file for the same seed
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <vector>

namespace hyperframes::tools {

/// A user likes some genres and dislikes others, which no sum of a user's and a film's bias tells.
inline void write_synthetic_ratings(const std::filesystem::path& path, std::size_t count,
                                    std::uint64_t seed) {
  constexpr std::array<const char*, 4> genres = {"Comedy", "Drama", "Horror", "War"};
  constexpr std::size_t users = 150;
  constexpr std::size_t films = 80;
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  std::vector<std::array<double, genres.size()>> tastes(users);
  for (auto& taste : tastes)
    for (double& value : taste) value = below(2) == 0 ? -1.0 : 1.0;
  std::ofstream file(path);
  file << "userId,movieId,title,year,genres,rating,timestamp\n";
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t user = below(users);
    const std::size_t film = below(films);
    const std::size_t first = film % genres.size();
    const std::size_t second = (film / genres.size() + 1 + first) % genres.size();
    double liking = tastes[user][first];
    if (second != first) liking = (liking + tastes[user][second]) / std::sqrt(2.0);
    const double noise = static_cast<double>(below(1000)) / 500.0 - 1;
    const double rating = std::round(2 * std::clamp(3.7 + 1.2 * liking + noise, .5, 5.0)) / 2;
    file << user + 1 << ',' << film + 1 << ",\"Film " << film + 1 << "\"," << 1980 + film % 30
         << ",\"" << genres[first];
    if (second != first) file << '|' << genres[second];
    file << "\"," << rating << ',' << 1'000'000 + i << '\n';
  }
}

}  // namespace hyperframes::tools
