// The `hyperframes` tool: one command with sub-commands.

#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <filesystem>

#include <hyperframes/apps/ps/command_line.hpp>
#include <hyperframes/apps/tools/commands.hpp>
#include <hyperframes/apps/tools/demo.hpp>

namespace tools = hyperframes::tools;

int main(int argc, char** argv) {
  CLI::App app(
      "Hyperframes: data sets, training and what runs. `hyperframes COMMAND --help` explains each.",
      "hyperframes");
  app.require_subcommand(1);
  app.get_formatter()->column_width(32);
  tools::add_demo_command(app);
  tools::add_publish_command(app);
  tools::add_inspect_command(app);
  tools::add_movielens_command(app);
  tools::add_baseline_command(app);
  tools::add_audit_command(app);
  tools::add_cert_command(app);
  tools::add_actors_command(app);
  tools::add_events_command(app);
  tools::add_top_command(app);
  tools::add_perf_command(app);
  tools::add_doctor_command(app);
  tools::add_sim_command(app);
  try {
    return hyperframes::ps::parse_command_line(app, argc, argv).value_or(0);
  } catch (const std::filesystem::filesystem_error& error) {
    std::fprintf(stderr, "hyperframes: use '%s': %s; check the path, its owner and its mode\n",
                 error.path1().c_str(), error.code().message().c_str());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hyperframes: %s\n", error.what());
    return 1;
  }
}
