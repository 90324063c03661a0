#include <CLI/CLI.hpp>
#include <hyperframes/apps/ps/server.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/log.hpp>
#include <map>

using namespace hyperframes::ps;

int main(int argc, char** argv) {
  ServerOptions options;
  std::string durability = "push";
  CLI::App app{
      "Holds parameters: a parameter server's process.\n\n"
      "One process alone, which coordinates too and prints its address:\n"
      "  hyperframes_server --role ps --workdir /tmp/ps --num_shards 16\n"
      "A coordinator and two servers:\n"
      "  hyperframes_server --role coordinator --workdir /tmp/c --num_servers 2 --listen "
      "127.0.0.1:6000\n"
      "  hyperframes_server --role ps --workdir /tmp/a --coordinator_addr 127.0.0.1:6000 --listen "
      "127.0.0.1:0\n"
      "  hyperframes_server --role ps --workdir /tmp/b --coordinator_addr 127.0.0.1:6000 --listen "
      "127.0.0.1:0\n"
      "A killed server that is started again with the same --workdir takes over where it was."};
  app.get_formatter()->column_width(34);
  app.add_option("--role", options.role, "ps: own parameter shards; coordinator: only coordinate")
      ->transform(CLI::CheckedTransformer(std::map<std::string, ServerRole>{
          {"ps", ServerRole::parameters}, {"coordinator", ServerRole::coordinator}}))
      ->default_str("ps");
  app.add_option("--workdir", options.workdir, "Folder of the logs and of this server's identity")
      ->required();
  app.add_option("--checkpoint_dir", options.checkpoint_dir,
                 "Folder of the snapshots (default: WORKDIR/checkpoints)");
  app.add_option("--checkpoint_interval", options.checkpoint_interval_s,
                 "Seconds between snapshots; 0: none")
      ->capture_default_str();
  app.add_option("--coordinator_addr", options.coordinator_addr,
                 "HOST:PORT of the coordinator; without it this process coordinates");
  app.add_option("--listen", options.listen, "HOST:PORT to listen on; port 0 picks one")
      ->capture_default_str();
  app.add_option("--name", options.name, "This server's name (default: kept in WORKDIR)");
  app.add_option("--num_shards", options.num_shards,
                 "Parameter shards of the cluster; fixed by the first start of the coordinator")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--num_servers", options.num_servers,
                 "Servers that the coordinator waits for before it deals the shards")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--staleness_bound", options.staleness_bound,
                 "Steps that a worker may be ahead of the slowest; 0: all in lock step")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--heartbeat_timeout", options.heartbeat_timeout_s,
                 "Seconds after which a silent worker no longer holds the others up")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  app.add_option("--durability", durability,
                 "When a push is acknowledged: push (synced), interval, none")
      ->check(CLI::IsMember({"push", "interval", "none"}))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "Core shards of this process")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--key_file", options.key_file,
                 "Secret that all processes share; needed on any address but loopback");
  app.add_flag("--insecure", options.insecure, "Listen on any address without a key");
  CLI11_PARSE(app, argc, argv);
  try {
    options.durability = parse_durability(durability);
  } catch (const hyperframes::Error& error) {
    hyperframes::log::error(error.what());
    return 2;
  }
  return run_server(std::move(options));
}
