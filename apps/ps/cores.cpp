#include <hyperframes/apps/ps/cores.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <hyperframes/apps/ps/command_line.hpp>
#include <hyperframes/runtime/error.hpp>
#include <set>
#include <utility>

namespace hyperframes::ps {
namespace {

[[noreturn]] void refuse(std::string_view text, std::string found, std::string remedy) {
  throw Error(Errc::invalid_argument, fmt::format("run on the cores '{}'", text), std::move(found),
              std::move(remedy));
}

unsigned parse_core(std::string_view whole, std::string_view text) {
  unsigned core = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), core);
  if (failure != std::errc() || end != text.data() + text.size())
    refuse(whole, fmt::format("'{}' is no number of a core", text),
           "give numbers and ranges, such as 0-3,8: 'lscpu -e' shows the cores");
  if (core >= CPU_SETSIZE)
    refuse(whole,
           fmt::format("there is no core {}: the largest number is {}", core, CPU_SETSIZE - 1),
           "'lscpu -e' shows the cores");
  return core;
}

std::vector<unsigned> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0)
    throw Error::system(errno, "ask for this process's cores");
  std::vector<unsigned> cores;
  for (unsigned core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

}  // namespace

void add_core_option(CLI::App& app, std::string& text) {
  const auto read = [](std::string& given) -> std::string {
    try {
      (void)parse_cores(given);
      return {};
    } catch (const Error& error) {
      return error.what();
    }
  };
  app.add_option("--cores", text,
                 "Cores of this process, such as 0-3,8: shard i is bound to the i-th of them. "
                 "'hyperframes doctor' shows the cores and their NUMA nodes (default: the system "
                 "picks, and moves shards as it likes)")
      ->check(CLI::Validator(read, ""));
}

std::vector<unsigned> parse_cores(std::string_view text) {
  std::set<unsigned> cores;
  for (std::string_view left = text;;) {
    const auto comma = left.find(',');
    const std::string_view part = left.substr(0, comma);
    const auto dash = part.find('-');
    const unsigned first = parse_core(text, part.substr(0, dash));
    const unsigned last = dash == part.npos ? first : parse_core(text, part.substr(dash + 1));
    if (last < first)
      refuse(text, fmt::format("the range {} ends before it begins", part), "turn it round");
    for (unsigned core = first; core <= last; ++core) cores.insert(core);
    if (comma == left.npos) break;
    left.remove_prefix(comma + 1);
  }
  return {cores.begin(), cores.end()};
}

bool bind_to_cores(std::string_view text, unsigned shards) {
  if (text.empty()) return false;
  const auto cores = parse_cores(text), usable = usable_cores();
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const unsigned core : cores) {
    if (std::ranges::find(usable, core) == usable.end())
      refuse(text, fmt::format("this process may use {} only", fmt::join(usable, ", ")),
             "choose among these, or let it use more (taskset, the container's --cpuset-cpus)");
    CPU_SET(core, &set);
  }
  if (cores.size() < shards)
    refuse(text, fmt::format("{} shards need a core each", shards),
           "give more cores, or fewer --threads");
  if (::sched_setaffinity(0, sizeof set, &set) != 0)
    throw Error::system(errno, fmt::format("run on the cores '{}'", text));
  return true;
}

}  // namespace hyperframes::ps
