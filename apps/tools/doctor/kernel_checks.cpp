#include <fmt/format.h>

#include <cerrno>
#include <hyperframes/apps/tools/doctor/checks.hpp>
#include <hyperframes/apps/tools/doctor/kernel_version.hpp>
#include <utility>

namespace hyperframes::tools::doctor {
namespace {

Check version(const Host& host) {
  const auto text = host.files.read("proc/sys/kernel/osrelease");
  const auto found = kernel_version(host.files);
  Check check{.group = "system", .name = "kernel", .measured = text.value_or("unknown")};
  check.needed = "Linux 6.0 or newer";
  if (!found) {
    check.status = Status::none;
  } else if (*found < KernelVersion{6, 0}) {
    check.status = Status::warn;
    check.remedy = "install a newer kernel: Debian 12 has 6.1 (apt-get install linux-image-amd64)";
  }
  return check;
}

/// What to do about a refusal depends on who refuses.
void explain_refusal(const Host& host, const UringRefusal& refusal, Check& check) {
  const std::string setting = host.files.read("proc/sys/kernel/io_uring_disabled").value_or("0");
  const bool filtered = host.files.field("proc/self/status", "Seccomp") == "2";
  const bool forbidden = refusal.error_number == EPERM || refusal.error_number == EACCES;
  if (forbidden && setting != "0") {
    const bool for_some = setting == "1";
    check.measured = fmt::format("refused: kernel.io_uring_disabled is {}, which forbids it to {}",
                                 setting, for_some ? "users outside a group" : "everybody");
    check.needed = "kernel.io_uring_disabled = 0";
    check.remedy = "sysctl -w kernel.io_uring_disabled=0";
  } else if (forbidden || (refusal.error_number == ENOSYS && filtered)) {
    check.measured = filtered ? "refused by a seccomp filter, as containers have one"
                              : "refused by a security module (kernel.io_uring_disabled is 0)";
    check.needed = "io_uring_setup, io_uring_enter and io_uring_register are allowed";
    check.remedy = filtered ? "allow the three calls in the container's profile, such as with "
                              "docker run --security-opt seccomp=profile.json"
                            : "allow it in the policy of AppArmor or SELinux: see 'journalctl -k'";
  } else {
    check.measured = "refused: " + refusal.error.found();
    if (refusal.error.found().empty())
      check.measured = "refused: " + refusal.error.code().message();
    check.needed = "a ring for each shard";
    check.remedy = refusal.error.remedy();
    if (check.remedy.empty()) check.remedy = "see io_uring_setup(2)";
  }
}

// Really tried: settings and filters tell only a part of what may stand in its way.
Check io_uring(const Host& host) {
  Check check{.group = "system", .name = "io_uring"};
  const auto refusal = host.probes.try_io_uring();
  if (!refusal) {
    check.measured = "allowed: a ring was set up as a shard does it";
    return check;
  }
  explain_refusal(host, *refusal, check);
  check.status = host.probes.has_asio ? Status::warn : Status::fail;
  check.measured += host.probes.has_asio
                        ? "; programs run on the slower asio driver"
                        : "; no program starts, since this build has no asio driver either";
  return check;
}

}  // namespace

Checks check_kernel(const Host& host) { return {version(host), io_uring(host)}; }

}  // namespace hyperframes::tools::doctor
