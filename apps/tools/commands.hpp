// The sub-commands of `hyperframes`.
//
//   CLI::App app;
//   tools::add_publish_command(app);
//   app.parse(argc, argv);  // runs the one that was chosen
//
// A command runs in its callback, blocks until it is done, writes its result to standard output,
// and throws `hf::Error` where it fails.
#pragma once

namespace CLI {
class App;
}

namespace hyperframes::tools {

void add_audit_command(CLI::App& app);
void add_cert_command(CLI::App& app);
void add_publish_command(CLI::App& app);
void add_movielens_command(CLI::App& app);
void add_baseline_command(CLI::App& app);
void add_inspect_command(CLI::App& app);
void add_actors_command(CLI::App& app);
void add_events_command(CLI::App& app);
void add_top_command(CLI::App& app);
void add_perf_command(CLI::App& app);
void add_doctor_command(CLI::App& app);
void add_sim_command(CLI::App& app);

}  // namespace hyperframes::tools
