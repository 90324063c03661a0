#include <CLI/CLI.hpp>

#include "harness.hpp"
#include "other_end.hpp"

int main(int argc, char** argv) {
  if (const auto status = hyperframes::bench::run_other_end(argc, argv)) return *status;
  hyperframes::bench::Runner runner;
  std::string json;
  CLI::App app{
      "The project's figures, each as a ratio to a peer or to a floor taken in the same run.\n"
      "Values are medians of interleaved rounds. Run it on an otherwise idle machine.\n"
      "Example: hyperframes_bench --only runtime --json figures.json"};
  app.add_option("--json", json, "Write rows {name, value, unit, better, peer, ...} to this file");
  app.add_option("--only", runner.only, "Only figures whose group/name contains this text");
  app.add_option("--rounds", runner.rounds, "Rounds of each figure")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_flag("--tiny", runner.tiny,
               "Tiny sizes for the group savina: shows that it runs, and measures nothing");
  app.add_flag("--list", runner.list, "Print the names and stop");
  CLI11_PARSE(app, argc, argv);
  hyperframes::bench::add_runtime_rows(runner);
  hyperframes::bench::add_actor_rows(runner);
  hyperframes::bench::add_savina_rows(runner);
  hyperframes::bench::add_messaging_rows(runner);
  hyperframes::bench::add_network_rows(runner);
  hyperframes::bench::add_channel_rows(runner);
  hyperframes::bench::add_table_rows(runner);
  hyperframes::bench::add_parameter_server_rows(runner);
  return runner.run(json) ? 0 : 1;
}
