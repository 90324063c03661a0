#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <hyperframes/apps/tools/commands.hpp>
#include <hyperframes/apps/tools/doctor/checks.hpp>
#include <hyperframes/apps/tools/doctor/peer.hpp>
#include <hyperframes/apps/tools/doctor/report.hpp>
#include <hyperframes/apps/tools/progress.hpp>
#include <hyperframes/runtime/error.hpp>
#include <memory>
#include <string>
#include <vector>

namespace hyperframes::tools {
namespace {

using doctor::Checks;
using doctor::Host;
using doctor::Report;
using doctor::Status;

constexpr const char* footer =
    R"(Run it as the user, in the container and with the limits that the programs will have: it sees what
they would see. It changes nothing on this host.

Each line is one of
  PASS  as it should be
  WARN  works, but slower than it could, or without something that could be had
  FAIL  programs don't start, or end, or don't reach the peer
  none  there is no such thing here, or this user can't see it
and below those that WARN or FAIL stands what is needed, and the command that mends it.

With --peer it also looks up that host, connects to the port if there is one, and sends it packets
that show the hops between and how large a packet gets through. That takes some seconds.

docs/reference/doctor.md explains each line: what is measured, why it matters, how it is mended.
Exit status: 0 nothing fails, 1 something does, 2 for a command line that is not understood.

Example:

  hyperframes doctor
  hyperframes doctor --json

Before a job over several hosts, on each of them, with another one as the peer:

  hyperframes doctor --peer node7:6000 --peer node8:6000
)";

struct DoctorFlags {
  std::vector<std::string> peers;
  bool json = false;
};

Checks check_all(const Host& host, const DoctorFlags& flags) {
  Checks all;
  for (const auto check :
       {doctor::check_kernel, doctor::check_limits, doctor::check_memory, doctor::check_clock,
        doctor::check_cores, doctor::check_cards, doctor::check_rdma, doctor::check_gpus})
    append(all, check(host));
  for (const std::string& text : flags.peers) {
    const doctor::Peer peer = doctor::parse_peer(text);
    append(all, doctor::check_peer(peer, doctor::measure_peer(peer)));
  }
  return all;
}

void print(const Report& report, bool as_json) {
  constexpr std::size_t file_columns = 100;
  const Screen screen({.file = STDOUT_FILENO});
  const std::size_t columns = screen.terminal() ? screen.width() : file_columns;
  const std::string text = as_json ? report_json(report) : report_text(report, screen, columns);
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
    throw Error::system(errno, "write to standard output", {}, "have it go where there is room");
}

void perform(const DoctorFlags& flags) {
  const Host host = doctor::this_host();
  Report report{.host = host.files.read("proc/sys/kernel/hostname").value_or("unknown"),
                .kernel = host.files.read("proc/sys/kernel/osrelease").value_or("unknown"),
                .version = HYPERFRAMES_VERSION,
                .checks = check_all(host, flags)};
  print(report, flags.json);
  if (count(report.checks, Status::fail) != 0) throw CLI::RuntimeError(1);
}

}  // namespace

void add_doctor_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "doctor",
      "Examines this host: limits, io_uring, memory, cores, cards, GPUs, the way to a peer");
  const auto flags = std::make_shared<DoctorFlags>();
  const auto read_peer = [](std::string& text) -> std::string {
    try {
      (void)doctor::parse_peer(text);
      return {};
    } catch (const Error& error) {
      return error.what();
    }
  };
  command
      ->add_option("--peer", flags->peers,
                   "HOST or HOST:PORT to examine the way to; repeat it for more")
      ->allow_extra_args(false)
      ->check(CLI::Validator(read_peer, ""));
  command->add_flag("--json", flags->json, "Print one object, for programs");
  command->footer(footer);
  command->callback([flags] { perform(*flags); });
}

}  // namespace hyperframes::tools
