#include <hyperframes/apps/tools/perf/run.hpp>

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <hyperframes/apps/ps/command_line.hpp>
#include <hyperframes/apps/ps/security.hpp>
#include <hyperframes/apps/tools/commands.hpp>
#include <hyperframes/apps/tools/perf/page.hpp>
#include <hyperframes/apps/tools/perf/report.hpp>
#include <hyperframes/apps/tools/perf/sizes.hpp>
#include <hyperframes/apps/tools/progress.hpp>
#include <hyperframes/runtime/error.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace hyperframes::tools {
namespace {

using perf::Run;

constexpr const char* footer =
    R"(URI is tcp://HOST:PORT, rdma://HOST:PORT, auto://HOST:PORT or shm://NAME; port 0 picks a free one.
Without --listen and --connect both ends run here, as two processes. Before a network's own figures the
same is measured between two processes of this host over shared memory, so that one sees which half is
slow: sessions, copies and scheduling here, or the network.

For each size, after a warm-up:
  p50 .. max   microseconds of a message there and back, one under way (histogram, within .4 %);
               a percentile is left out where too few round trips say anything about it
  messages/s   one way, as fast as the receiver grants, counted by the receiver
  CPU          seconds of both processes, user and system, a GB (10^9 bytes) and a million messages
  checked      messages whose bytes (XXH3) and order the receiver has checked: every one
  wrong        of them, and what was lost; if there are any the command ends with status 1
The sender's bytes are made before, so nothing of it is filling; the checksums are in the figures,
and --json says what they took (check_s_per_gb). Leave the machine alone meanwhile. "shm" is shared
memory, "tls" is encrypted TCP, "tcp" is not encrypted; "rdma" is queue pairs, and "soft-rdma" those of
a device that Linux emulates: its figures are no card's.

Between two hosts (a key or certificates also encrypt, which is measured then; --plaintext does not):

  there$ hyperframes perf tcp://0.0.0.0:6000 --listen --key_file key
  here$  hyperframes perf tcp://there:6000 --connect --key_file key

Example:

  hyperframes perf tcp://127.0.0.1:0 --seconds 2 --json perf.json --html perf.html
  hyperframes perf shm://example --seconds 1 --sizes 64,4KiB,1MiB --history perf.jsonl
)";

struct PerfFlags {
  std::string uri, sizes, json, html, history;
  ps::SecurityOptions security;
  double seconds = 60;
  bool listen = false, connect = false, once = false;
  bool no_self_loop = false, polling = false;
};

perf::Setup setup_of(const PerfFlags& flags) {
  perf::Setup setup;
  setup.endpoint = net::Endpoint::parse(flags.uri.empty() ? "tcp://127.0.0.1:0" : flags.uri);
  setup.connect_only = flags.connect;
  setup.self_loop = !flags.no_self_loop;
  setup.seconds = flags.seconds;
  setup.sizes = flags.sizes.empty() ? perf::default_sizes() : perf::parse_sizes(flags.sizes);
  setup.polling = flags.polling;
  setup.security = flags.security;
  return setup;
}

/// Rather now than after a minute. Makes no file, since nothing may come of it, and opens no pipe.
void make_sure_to_write(const std::string& path) {
  if (path.empty()) return;
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(path).parent_path();
  std::error_code unknown;
  const bool there = fs::exists(path, unknown);
  const std::string touched = there ? path : folder.empty() ? "." : folder.string();
  const int failure = fs::is_directory(path, unknown)        ? EISDIR
                      : ::access(touched.c_str(), W_OK) != 0 ? errno
                                                             : 0;
  if (failure != 0)
    throw Error::system(failure, "write " + path, {}, "check the folder and its permissions");
}

void flush_output() {
  if (std::fflush(stdout) != 0)
    throw Error::system(errno, "write to standard output", {},
                        "have it go where there is room; --json writes the figures to a file");
}

void print_head(const PerfFlags& flags, const perf::Setup& setup, const Screen& screen) {
  const Run here = perf::describe_this_host();
  const std::string ends = flags.connect ? "this end of two" : "both ends on this host";
  fmt::print("{}, {}\n", screen.paint("hyperframes perf " + setup.endpoint.to_string(), Tone::bold),
             ends);
  fmt::print("{}, {} cores, Linux {}; {:g} s of steady state; every message checked\n\n",
             here.processor, here.cores, here.kernel, setup.seconds);
  flush_output();
}

void print_half(const Run& run, bool self_loop, const Screen& screen) {
  const perf::Row* const row = perf::nearest_row(run, self_loop, 0);
  const std::string title = self_loop ? "self-loop over shared memory, both ends on this host"
                                      : fmt::format("{} ({})", run.uri, row->transport);
  const std::string label = run.partial() ? ", " + screen.paint("PARTIAL", Tone::bad) : "";
  fmt::print("{}{}\n{}\n", screen.paint(title, Tone::bold), label,
             perf::table_text(run.rows, self_loop, screen));
  std::fflush(stdout);  // a failure is said in the end, when the files are written
}

void write_files(const PerfFlags& flags, const Run& run, const std::vector<Run>& earlier,
                 const Screen& screen) {
  const bool sound = !run.partial() && run.wrong() == 0;
  if (!flags.history.empty() && sound) {
    const std::string text = perf::history_text(earlier, run, screen);
    if (!text.empty())
      fmt::print("{} earlier run{} in {}\n{}\n", earlier.size(), earlier.size() == 1 ? "" : "s",
                 flags.history, text);
    perf::append_history(flags.history, run);
  }
  if (!flags.history.empty() && !sound)
    fmt::print("not added to {}: a run that is whole and right is\n", flags.history);
  if (!flags.json.empty()) perf::write_json(flags.json, run);
  if (!flags.html.empty()) perf::write_page(flags.html, run, earlier);
  for (const std::string& path : {flags.json, flags.html})
    if (!path.empty()) fmt::print("wrote {}\n", path);
}

/// What makes the command fail though there are results.
void throw_if_bad(const perf::Outcome& outcome) {
  constexpr int by_signal = 128;  // as shells count
  const Run& run = outcome.run;
  if (outcome.signal != 0) throw CLI::RuntimeError(by_signal + outcome.signal);
  if (run.partial())
    throw Error(Errc::peer_lost, "measure " + run.uri + " to the end", run.error,
                "what stands above is what there was until then");
  if (run.wrong() != 0)
    throw Error(Errc::corrupt, "move messages over " + run.uri,
                fmt::format("{} of {} arrived wrong or not at all{}{}", run.wrong(), run.verified(),
                            run.problem.empty() ? "" : "; the first: ", run.problem));
}

void measure(const PerfFlags& flags) {
  const perf::Setup setup = setup_of(flags);
  std::vector<Run> earlier;
  if (!flags.history.empty()) earlier = perf::read_history(flags.history);
  for (const std::string& path : {flags.json, flags.html, flags.history}) make_sure_to_write(path);
  const Screen screen({.file = STDOUT_FILENO});
  print_head(flags, setup, screen);
  const perf::Outcome outcome = perf::measure(
      setup, [&](const Run& run, bool self_loop) { print_half(run, self_loop, screen); });
  for (const std::string& line : outcome.left_out) fmt::print("left out: {}\n", line);
  for (const std::string& line : perf::verdict(outcome.run)) fmt::print("{}\n", line);
  if (!perf::verdict(outcome.run).empty()) fmt::print("\n");
  write_files(flags, outcome.run, earlier, screen);
  flush_output();
  throw_if_bad(outcome);
}

/// With --listen nothing is measured here.
void refuse_idle_options(const CLI::App& command) {
  for (const char* name :
       {"--seconds", "--sizes", "--json", "--html", "--history", "--no_self_loop"})
    if (command.count(name) != 0) throw CLI::ExcludesError(name, "--listen");
}

void perform(const CLI::App& command, const PerfFlags& flags) {
  if (!flags.listen) return measure(flags);
  refuse_idle_options(command);
  perf::serve(setup_of(flags), flags.once);
}

/// Refused with the command line, before anything is done.
CLI::Validator readable(std::function<void(const std::string&)> read) {
  return CLI::Validator(
      [read = std::move(read)](std::string& text) -> std::string {
        try {
          read(text);
          return {};
        } catch (const Error& error) {
          return error.what();
        }
      },
      "");
}

}  // namespace

void add_perf_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "perf", "Measures latency, rate and bandwidth between two processes, and checks each byte");
  const auto flags = std::make_shared<PerfFlags>();
  CLI::Option* const uri =
      command->add_option("URI", flags->uri, "Where they meet (default: tcp://127.0.0.1:0)")
          ->check(readable([](const std::string& text) { (void)net::Endpoint::parse(text); }));
  CLI::Option* const listen =
      command
          ->add_flag("--listen", flags->listen,
                     "Be the other end, for one client after another, until interrupted")
          ->needs(uri);
  command->add_flag("--connect", flags->connect, "Be the end that measures; the other one listens")
      ->needs(uri)
      ->excludes(listen);
  ps::take_number(command->add_option("--seconds", flags->seconds,
                                      "Of steady state in all; the self-loop takes a quarter more"),
                  .01, 86'400)
      ->capture_default_str();
  command
      ->add_option("--sizes", flags->sizes,
                   "Sizes of messages, such as 8,4KiB,1MiB (default: 11 from 8 B to 64 MiB)")
      ->check(readable([](const std::string& text) { (void)perf::parse_sizes(text); }));
  command->add_option("--json", flags->json, "Write the rows to this file");
  command->add_option("--html", flags->html, "Write a page with plots to this file");
  command->add_option("--history", flags->history,
                      "Compare with the runs in this file, and append this one");
  command->add_flag("--no_self_loop", flags->no_self_loop,
                    "Leave out the self-loop over shared memory");
  command->add_flag("--polling", flags->polling,
                    "Never sleep: for machines with a core to spare for each end");
  ps::add_security_options(*command, flags->security);
  command->add_flag("--once", flags->once, "")->group("");
  command->footer(footer);
  command->callback([command, flags] { perform(*command, *flags); });
}

}  // namespace hyperframes::tools
