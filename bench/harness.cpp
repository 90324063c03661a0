#include "harness.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

namespace hyperframes::bench {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return std::nan("");
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// False if this process goes on computing while nothing is measured: a shard that polls, say,
/// would slow every row and every peer behind the one that forgot it.
bool becomes_idle() {
  using namespace std::chrono_literals;
  for (int attempt = 0; attempt < 50; ++attempt) {
    const double start = now_ns(), before = cpu_seconds();
    std::this_thread::sleep_for(20ms);
    if ((cpu_seconds() - before) * 1e9 < (now_ns() - start) / 10) return true;
  }
  return false;
}

std::string number(double value) {
  if (std::isnan(value)) return "-";
  const double size = std::abs(value);
  if (size >= 1e6) return fmt::format("{:.2f} M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:.1f} k", value / 1e3);
  if (size >= 100) return fmt::format("{:.0f}", value);
  return fmt::format("{:.2f}", value);
}

bool reached(Better better, double ratio, double goal) {
  return better == Better::lower ? ratio <= goal : ratio >= goal;
}

std::string verdict(Better better, double value, const std::optional<Rival>& rival, double other) {
  if (!rival) return "-";
  const double ratio = value / other;
  if (rival->goal == 0) return fmt::format("{:.2f} x", ratio);
  return fmt::format("{:.2f} x {} {:.2f} {}", ratio,
                     better == Better::lower ? "<=" : ">=", rival->goal,
                     reached(better, ratio, rival->goal) ? "yes" : "NO");
}

bool cannot_write(const std::string& path) {
  fmt::print(stderr, "could not write '{}': check the folder and the disk\n", path);
  return false;
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

}  // namespace

double now_ns() {
  return static_cast<double>(std::chrono::steady_clock::now().time_since_epoch().count());
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

void Runner::add(Row row) {
  const std::string full = row.group + "/" + row.name;
  if (only.empty() || full.find(only) != std::string::npos) rows_.push_back(std::move(row));
}

void Runner::add_mean(Mean mean) {
  const std::string full = mean.group + "/" + mean.name;
  if (only.empty() || full.find(only) != std::string::npos) means_.push_back(std::move(mean));
}

void Runner::leave_out(std::string what, std::string why) {
  left_out_.emplace_back(std::move(what), std::move(why));
}

Runner::Result Runner::measure(const Row& row) const {
  std::vector<double> own, peer, floor;
  const int count = row.rounds ? row.rounds : rounds;
  for (int round = -1; round < count; ++round) {  // round -1 warms up and does not count
    const double value = row.subject();
    const double peer_value = row.peer ? row.peer->measure() : 0;
    const double floor_value = row.floor ? row.floor->measure() : 0;
    if (round < 0) continue;
    own.push_back(value);
    if (row.peer) peer.push_back(peer_value);
    if (row.floor) floor.push_back(floor_value);
  }
  return {&row, median(own), median(peer), median(floor)};
}

void Runner::measure_all(std::vector<Result>& results) {
  std::size_t number = 0;
  for (const Row& row : rows_) {
    const std::string name = row.group + "/" + row.name;
    fmt::print(stderr, "\r\033[K{} ({} of {})", name, ++number, rows_.size());
    std::fflush(stderr);
    try {
      results.push_back(measure(row));
    } catch (const std::exception& error) {
      failed_.emplace_back(name, error.what());
    }
    if (row.finish) row.finish();
    if (!becomes_idle())
      failed_.emplace_back(name,
                           "what it started still takes a core, so the rows behind it tell "
                           "nothing; its finish should end that");
  }
  fmt::print(stderr, "\r\033[K");
}

void Runner::insert_mean(const Mean& mean, std::vector<Result>& results) {
  const auto is_in = [&](const Result& result) { return result.row->family == mean.family; };
  const auto count = std::ranges::count_if(results, is_in);
  if (count == 0) return;
  double logarithms = 0, peer_logarithms = 0;
  const Row* last = nullptr;
  for (const Result& result : results) {
    if (!is_in(result)) continue;
    last = result.row;
    logarithms += std::log(result.value);
    peer_logarithms += std::log(result.peer_value);
  }
  const auto mean_of = [&](double sum) { return std::exp(sum / static_cast<double>(count)); };
  Row& row = mean_rows_.emplace_back();
  row.group = mean.group;
  row.name = mean.name;
  row.unit = mean.unit;
  row.better = last->better;
  row.note = fmt::format("over {} rows", count);
  if (last->peer) row.peer = Rival{last->peer->name, {}, mean.goal};
  const auto after = std::find_if(results.rbegin(), results.rend(), is_in).base();
  results.insert(after,
                 Result{&row, mean_of(logarithms), row.peer ? mean_of(peer_logarithms) : 0, 0});
}

bool Runner::run(const std::string& json_path) {
  if (rows_.empty()) {
    fmt::print(stderr, "no figure's group/name contains '{}': --list prints them\n", only);
    return false;
  }
  if (list) {
    for (const Row& row : rows_) fmt::print("{}/{}\n", row.group, row.name);
    for (const Mean& mean : means_) fmt::print("{}/{}\n", mean.group, mean.name);
    return true;
  }
  if (!json_path.empty() && !std::ofstream(json_path, std::ios::app))
    return cannot_write(json_path);
  std::vector<Result> results;
  measure_all(results);
  for (const Mean& mean : means_) insert_mean(mean, results);
  print(results);
  return (json_path.empty() || write_json(results, json_path)) && failed_.empty();
}

void Runner::print(const std::vector<Result>& results) const {
  utsname system{};
  ::uname(&system);
  fmt::print("{}, {} cores, Linux {}; medians of {} interleaved rounds\n\n", processor(),
             std::thread::hardware_concurrency(), system.release, rounds);
  std::size_t width = 10;
  for (const auto& result : results)
    width = std::max(width, result.row->group.size() + result.row->name.size() + 1);
  fmt::print("{:{}}  {:>10} {:8} {:>10} {:24} {:>10} {:24}\n", "figure", width, "value", "unit",
             "peer", "value / peer", "floor", "value / floor");
  for (const auto& result : results) {
    const Row& row = *result.row;
    fmt::print("{:{}}  {:>10} {:8} {:>10} {:24} {:>10} {:24}\n", row.group + "/" + row.name, width,
               number(result.value), row.unit, row.peer ? number(result.peer_value) : "-",
               verdict(row.better, result.value, row.peer, result.peer_value),
               row.floor ? number(result.floor_value) : "-",
               verdict(row.better, result.value, row.floor, result.floor_value));
  }
  fmt::print("\n");
  for (const auto& result : results) {
    const Row& row = *result.row;
    if (!row.peer && !row.floor && row.note.empty()) continue;
    fmt::print("{}/{}:{}{}{}\n", row.group, row.name,
               row.peer ? " peer is " + row.peer->name + ";" : "",
               row.floor ? " floor is " + row.floor->name + ";" : "",
               row.note.empty() ? "" : " " + row.note);
  }
  for (const auto& [what, why] : left_out_) fmt::print("left out: {}: {}\n", what, why);
  for (const auto& [what, why] : failed_) fmt::print("FAILED: {}: {}\n", what, why);
}

bool Runner::write_json(const std::vector<Result>& results, const std::string& path) const {
  auto rows = nlohmann::json::array();
  for (const auto& result : results) {
    const Row& row = *result.row;
    nlohmann::json entry{{"name", row.group + "/" + row.name},
                         {"value", result.value},
                         {"unit", row.unit},
                         {"better", row.better == Better::lower ? "lower" : "higher"},
                         {"peer", nullptr},
                         {"peer_value", nullptr},
                         {"goal_peer", nullptr},
                         {"floor", nullptr},
                         {"floor_value", nullptr},
                         {"goal_floor", nullptr}};
    if (row.peer) {
      entry["peer"] = row.peer->name;
      entry["peer_value"] = result.peer_value;
      if (row.peer->goal != 0) entry["goal_peer"] = row.peer->goal;
    }
    if (row.floor) {
      entry["floor"] = row.floor->name;
      entry["floor_value"] = result.floor_value;
      if (row.floor->goal != 0) entry["goal_floor"] = row.floor->goal;
    }
    if (!row.note.empty()) entry["note"] = row.note;
    rows.push_back(std::move(entry));
  }
  const auto list_of = [](const auto& lines) {
    nlohmann::json list = nlohmann::json::array();
    for (const auto& [what, why] : lines) list.push_back({{"what", what}, {"why", why}});
    return list;
  };
  std::ofstream file(path);
  file << nlohmann::json{{"processor", processor()},
                         {"cores", std::thread::hardware_concurrency()},
                         {"compiler", __VERSION__},
                         {"rounds", rounds},
                         {"rows", rows},
                         {"left_out", list_of(left_out_)},
                         {"failed", list_of(failed_)}}
              .dump(2)
       << "\n";
  file.close();
  return file || cannot_write(path);
}

}  // namespace hyperframes::bench
