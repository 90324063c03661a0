// The `hyperframes` tool: one command with sub-commands.

#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>

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
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hyperframes: %s\n", error.what());
    return 1;
  }
  return 0;
}
