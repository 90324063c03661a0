// `hyperframes demo`: trains a recommendation model on real ratings over several processes, kills
// one of them, and proves that nothing was lost.
//
//   CLI::App app;
//   tools::add_demo_command(app);       // its callback runs the demo
//   app.parse(argc, argv);              // throws CLI::RuntimeError with the exit status
#pragma once

namespace CLI {
class App;
}

namespace hyperframes::tools {

void add_demo_command(CLI::App& app);

}  // namespace hyperframes::tools
