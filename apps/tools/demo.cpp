#include <hyperframes/apps/tools/demo.hpp>
//
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <fstream>
#include <hyperframes/apps/ps/command_line.hpp>
#include <hyperframes/apps/tools/demo_run.hpp>
#include <hyperframes/apps/tools/signal_notes.hpp>
#include <memory>
#include <string>

namespace hyperframes::tools {
namespace {

constexpr const char* about =
    R"(One coordinator, two servers and two workers for each training run, as processes
of this machine that talk over TCP. In the middle of a run a server is killed; it
is started again, recovers, and the run goes on. At the end the model must beat
the baseline on both divisions of the ratings, and an audit compares the ledgers
of the workers with what the servers hold: each acknowledged push exactly once.

Exit status: 0 all is as promised, 1 it is not, 2 the demo could not be carried
out, 130 interrupted.
)";

void write_json(const std::filesystem::path& path, const DemoOutcome& outcome) {
  std::ofstream file(path);
  file << json_of(outcome);
  file.close();
  if (!file)
    throw Error::system(errno, "write the result to " + path.string(), {},
                        "check the folder and its permissions");
}

int run_demo(const DemoOptions& options) {
  const SignalNotes notes;  // the children are ended first
  Screen screen({.file = STDOUT_FILENO});
  std::unique_ptr<DemoRun> demo;
  try {
    demo = std::make_unique<DemoRun>(options, screen, [&] { return notes.seen() != 0; });
    const DemoOutcome outcome = demo->run();
    const bool passed = failures_of(outcome).empty();
    screen.print("\n" + report_of(outcome, screen));
    if (!options.json.empty()) write_json(options.json, outcome);
    demo->clean_up(passed);
    if (!passed) screen.print(fmt::format("The logs are in {}", demo->logs().string()));
    return passed ? 0 : 1;
  } catch (const DemoInterrupted&) {
    screen.print("Interrupted: stopping all processes.");
    demo->clean_up(true);
    return 128 + notes.seen();
  } catch (const std::exception& error) {
    if (demo) demo->clean_up(false);
    screen.print(screen.paint("FAILED", Tone::bad) + "  " + error.what());
    if (demo) screen.print(fmt::format("The work folder is {}", demo->folder().string()));
    return 2;
  }
}

}  // namespace

void add_demo_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "demo", "Trains on real ratings over several processes, kills one, and checks the result");
  const auto options = std::make_shared<DemoOptions>();
  command->add_option("--json", options->json, "Also write the result to this file, as JSON");
  command->add_option("--workdir", options->workdir,
                      "Folder for data, logs and ledgers, which is kept (default: a new one under "
                      "TMPDIR or /var/tmp, removed after a demo that passed)");
  command->add_flag("--keep", options->keep, "Keep the work folder");
  ps::take_whole(
      command->add_option("--kills", options->kills, "Servers to kill, one after the other"), 0,
      1000)
      ->capture_default_str();
  ps::take_whole(command->add_option("--seed", options->seed,
                                     "First seed of the models and the order of samples"))
      ->capture_default_str();
  ps::take_whole(
      command->add_option("--seeds", options->seeds, "Final fits on each division of the ratings"),
      1, 100)
      ->capture_default_str();
  command
      ->add_option("--durability", options->durability,
                   "When a push is acknowledged: push (synced), interval, none")
      ->check(CLI::IsMember({"push", "interval", "none"}))
      ->capture_default_str();
  ps::take_whole(command->add_option("--servers", options->servers, "Server processes"), 1, 64)
      ->capture_default_str();
  ps::take_whole(command->add_option("--workers", options->workers, "Worker processes of each run"),
                 1, 64)
      ->capture_default_str();
  ps::take_whole(command->add_option("--num_shards", options->shards, "Parameter shards"), 1, 4096)
      ->capture_default_str();
  ps::take_whole(command->add_option("--staleness_bound", options->staleness_bound,
                                     "Steps that a worker may be ahead of the slowest"),
                 0, 1'000'000)
      ->capture_default_str();
  ps::take_whole(command->add_option("--batch_size", options->batch_size, "Samples of a batch"), 1,
                 1'000'000)
      ->capture_default_str();
  command->add_option("--ratings", options->ratings,
                      "CSV file of ratings to use instead of R's package dslabs");
  command->add_flag("--quick", options->quick, "One model and one seed on each division");
  command->footer(about);
  command->callback([options] {
    const int status = run_demo(*options);
    if (status != 0) throw CLI::RuntimeError(status);
  });
}

}  // namespace hyperframes::tools
