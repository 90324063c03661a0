#include <CLI/CLI.hpp>
#include <hyperframes/apps/ps/command_line.hpp>
#include <hyperframes/apps/ps/cores.hpp>
#include <hyperframes/apps/ps/worker.hpp>

using namespace hyperframes::ps;

int main(int argc, char** argv) {
  WorkerOptions options;
  std::string resume = "latest";
  CLI::App app{
      "Trains a model on a parameter server, or scores data with it.\n\n"
      "Train; start as many as you like, they share the job's data:\n"
      "  hyperframes_worker --coordinator_addr 127.0.0.1:6000 --data_dir data/train \\\n"
      "                     --batch_size 2048 --model_config model.yaml --checkpoint_resume "
      "latest\n"
      "Score:\n"
      "  hyperframes_worker --evaluate --coordinator_addr 127.0.0.1:6000 --data_dir data/test \\\n"
      "                     --model_config model.yaml\n"
      "A worker that is killed loses nothing: its unit is leased to another, or to itself again.\n"
      "SIGTERM and SIGHUP let it leave in order.\n"
      "Exit status: 0 done or left, 1 error, 130 interrupted, 2 for a command line that is not\n"
      "understood."};
  app.get_formatter()->column_width(34);
  take_address(app.add_option("--coordinator_addr", options.coordinator_addr,
                              "HOST:PORT of the coordinator"))
      ->required();
  app.add_option("--data_dir", options.data_dir, "Data set in the MDS format")->required();
  app.add_option("--model_config", options.model_config, "model.yaml: fields, model, optimizer")
      ->required();
  take_whole(app.add_option("--batch_size", options.batch_size, "Samples a batch"), 1, 10'000'000)
      ->capture_default_str();
  take_whole(
      app.add_option("--unit_batches", options.unit_batches, "Batches of a leased work unit"), 1,
      1024)
      ->capture_default_str();
  app.add_option(
         "--checkpoint_resume", resume,
         "latest: go on where the job is; none: forget what was done under its name, unless "
         "others are at work on it")
      ->check(CLI::IsMember({"latest", "none"}))
      ->capture_default_str();
  app.add_option("--job", options.job, "Name of the training run; its tables carry it")
      ->capture_default_str();
  take_whole(
      app.add_option("--epochs", options.epochs, "Passes over the data (default: the model's)"), 1,
      100'000);
  take_whole(
      app.add_option("--seed", options.seed, "Of the data's order and the rows' first values"))
      ->capture_default_str();
  app.add_option("--name", options.name, "This worker's name (default: host and process)");
  app.add_option("--ledger", options.ledger,
                 "File that notes each acknowledged push, for 'hyperframes audit'");
  CLI::Option* const evaluate = app.add_flag("--evaluate", options.evaluate,
                                             "Print AUC and logloss on the data; train nothing");
  app.add_option("--predictions", options.predictions,
                 "With --evaluate: file for a line 'sample,label,prediction' a sample")
      ->needs(evaluate);
  app.add_flag("--json", options.json, "With --evaluate: print them as JSON")->needs(evaluate);
  add_core_option(app, options.cores);
  add_security_options(app, options.security);
  add_transport_options(app, options.transport);
  app.add_option("--http_addr", options.http_addr,
                 "HOST:PORT on which to show metrics and actors to this host; port 0 picks one "
                 "(see hyperframes top)");
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  options.resume = resume == "latest";
  return run_worker(std::move(options));
}
