#include <fmt/format.h>

#include <algorithm>
#include <hyperframes/apps/tools/doctor/checks.hpp>
#include <iterator>
#include <string>
#include <string_view>

namespace hyperframes::tools::doctor {
namespace {

/// Those that are read by a device or a system call. What is not known is taken to be fine.
bool is_slow(std::string_view source) {
  static constexpr std::string_view slow[] = {"hpet", "acpi_pm", "jiffies", "refined-jiffies",
                                              "pit",  "xen"};
  return std::ranges::find(slow, source) != std::end(slow);
}

Check source(const Host& host) {
  const std::string folder = "sys/devices/system/clocksource/clocksource0/";
  Check check{.group = "system", .name = "clock source"};
  const auto name = host.files.read(folder + "current_clocksource");
  if (!name) {
    check.status = Status::none;
    check.measured = "the kernel does not say";
    return check;
  }
  check.measured = fmt::format("{}, {:.0f} ns a reading", *name, host.probes.clock_read_ns());
  check.needed = "one that is read without a system call, such as tsc";
  if (!is_slow(*name)) return check;
  const auto others = words_of(host.files.read(folder + "available_clocksource").value_or(""));
  const bool has_tsc = std::ranges::find(others, "tsc") != others.end();
  check.status = Status::warn;
  check.remedy = has_tsc ? "echo tsc > /" + folder + "current_clocksource"
                         : "'dmesg | grep -i tsc' says why there is no better one; tsc=reliable on "
                           "the kernel's command line overrules it";
  return check;
}

// Leases and deadlines count by the monotonic clock; certificates, logs and people don't.
Check agreement(const Host& host) {
  constexpr std::uint64_t most_us = 100'000;
  Check check{.group = "system", .name = "clock"};
  const auto state = host.probes.clock_state();
  if (!state) {
    check.status = Status::none;
    check.measured = "the kernel does not tell this user";
    return check;
  }
  check.needed = "synchronised, within 100 ms";
  check.measured = state->synchronised ? fmt::format("synchronised, within {:.1f} ms",
                                                     double(state->error_us) / 1e3)
                                       : "not synchronised, as far as the kernel knows";
  if (state->synchronised && state->error_us <= most_us) return check;
  check.status = Status::warn;
  check.remedy =
      "apt-get install chrony && systemctl enable --now chrony; in a container: on its host";
  return check;
}

}  // namespace

Checks check_clock(const Host& host) { return {source(host), agreement(host)}; }

}  // namespace hyperframes::tools::doctor
