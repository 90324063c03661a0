#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <hyperframes/apps/tools/doctor/checks.hpp>
#include <hyperframes/apps/tools/doctor/kernel_version.hpp>
#include <limits>
#include <optional>
#include <utility>

namespace hyperframes::tools::doctor {
namespace {

constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

struct Limit {
  std::uint64_t soft = unlimited, hard = unlimited;
};

std::uint64_t read_limit(const std::string& word) {
  return static_cast<std::uint64_t>(read_whole(word).value_or(-1));  // "unlimited"
}

/// Of this process, as each program that is started from the same shell gets it.
std::optional<Limit> limit_of(const Host& host, std::string_view name) {
  for (const std::string& line : host.files.lines("proc/self/limits")) {
    if (!line.starts_with(name)) continue;
    const auto words = words_of(std::string_view(line).substr(name.size()));
    if (words.size() >= 2) return Limit{read_limit(words[0]), read_limit(words[1])};
  }
  return std::nullopt;
}

std::string size_or_unlimited(std::uint64_t value) {
  return value == unlimited ? "unlimited" : binary_text(value);
}

/// CAP_IPC_LOCK.
bool exempt_from_locking(const Host& host) {
  constexpr unsigned ipc_lock = 14;
  const std::string text = host.files.field("proc/self/status", "CapEff").value_or("");
  std::uint64_t capabilities = 0;
  std::from_chars(text.data(), text.data() + text.size(), capabilities, 16);
  return (capabilities >> ipc_lock & 1) != 0;
}

Check unreadable(const char* name) {
  return {.group = "system",
          .name = name,
          .status = Status::none,
          .measured = "/proc/self/limits does not say"};
}

// Rings count towards it before Linux 5.12, RDMA's registered memory always.
Check lockable_memory(const Host& host) {
  const auto limit = limit_of(host, "Max locked memory");
  if (!limit) return unreadable("memlock");
  Check check{.group = "system", .name = "memlock", .measured = size_or_unlimited(limit->soft)};
  const bool rdma = !host.files.list("sys/class/infiniband").empty();
  const bool rings = kernel_version(host.files) < KernelVersion{5, 12};
  const std::uint64_t least = rdma ? unlimited : rings ? 64u << 20 : 0;
  check.needed = rdma    ? "unlimited: RDMA locks the memory that it moves"
                 : rings ? "64 MiB or more: before Linux 5.12 rings count towards it"
                         : "";
  if (exempt_from_locking(host)) {
    check.measured += ", and this user is exempt (CAP_IPC_LOCK)";
  } else if (limit->soft < least) {
    const std::string value = rdma ? "unlimited" : "65536";
    check.status = Status::warn;
    check.remedy = fmt::format(
        "ulimit -l {}; for good: '* - memlock {}' in /etc/security/limits.conf, or LimitMEMLOCK={} "
        "in the service's unit",
        value, value, rdma ? "infinity" : "64M");
  } else if (!rdma && !rings) {
    check.measured += "; rings don't count towards it";
  }
  return check;
}

// hyperframes_server raises the soft limit to the hard one by itself.
Check open_files(const Host& host) {
  constexpr std::uint64_t enough = 4096, least = 96;
  const auto limit = limit_of(host, "Max open files");
  if (!limit) return unreadable("open files");
  const auto text = [](std::uint64_t value) {
    return value == unlimited ? std::string("unlimited") : fmt::format("{}", value);
  };
  Check check{.group = "system", .name = "open files"};
  check.measured = text(limit->soft);
  if (limit->hard != limit->soft)
    check.measured += fmt::format(", and servers raise it to {}", text(limit->hard));
  check.needed = fmt::format("{} or more: 2 a parameter shard, 1 a connection", enough);
  if (limit->hard >= enough) return check;
  check.status = limit->hard < least ? Status::fail : Status::warn;
  check.remedy =
      "as root: ulimit -n 65536; for good: '* - nofile 65536' in /etc/security/limits.conf, or "
      "LimitNOFILE=65536 in the service's unit";
  return check;
}

}  // namespace

Checks check_limits(const Host& host) { return {lockable_memory(host), open_files(host)}; }

}  // namespace hyperframes::tools::doctor
