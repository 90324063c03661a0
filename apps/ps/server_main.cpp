#include <CLI/CLI.hpp>
#include <hyperframes/apps/ps/command_line.hpp>
#include <hyperframes/apps/ps/cores.hpp>
#include <hyperframes/apps/ps/server.hpp>
#include <hyperframes/runtime/error.hpp>

using namespace hyperframes::ps;

int main(int argc, char** argv) {
  ServerOptions options;
  std::string role = "ps", durability = "push";
  CLI::App app{
      "Holds parameters: a parameter server's process.\n\n"
      "One process alone, which coordinates too and prints its address:\n"
      "  hyperframes_server --role ps --workdir /tmp/ps --num_shards 16\n"
      "A coordinator and two servers:\n"
      "  hyperframes_server --role coordinator --workdir /tmp/c --num_servers 2 \\\n"
      "      --listen 127.0.0.1:6000\n"
      "  hyperframes_server --role ps --workdir /tmp/a --listen 127.0.0.1:0 \\\n"
      "      --coordinator_addr 127.0.0.1:6000\n"
      "  hyperframes_server --role ps --workdir /tmp/b --listen 127.0.0.1:0 \\\n"
      "      --coordinator_addr 127.0.0.1:6000\n"
      "Over several hosts, with a key, on all addresses of a host that others call 10.0.0.7\n"
      "('hyperframes cert --help' has the same with certificates):\n"
      "  hyperframes_server --role ps --workdir /tmp/ps --key_file key \\\n"
      "      --listen 0.0.0.0:6000 --advertise_addr 10.0.0.7:6000\n"
      "A killed server that is started again with the same --workdir takes over where it was.\n"
      "SIGINT, SIGTERM and SIGHUP stop it in order; SIGUSR1 logs what it does.\n"
      "Exit status: 0 stopped by a signal, 1 error, 2 for a command line that is not understood."};
  app.get_formatter()->column_width(34);
  app.add_option("--role", role, "ps: own parameter shards; coordinator: only coordinate")
      ->check(CLI::IsMember({"ps", "coordinator"}))
      ->capture_default_str();
  app.add_option("--workdir", options.workdir, "Folder of the logs and of this server's identity")
      ->required();
  app.add_option("--checkpoint_dir", options.checkpoint_dir,
                 "Folder of the snapshots, of one cluster alone (default: WORKDIR/checkpoints)");
  take_whole(app.add_option("--checkpoint_interval", options.checkpoint_interval_s,
                            "Seconds between snapshots; 0: none"),
             0, 31'536'000)
      ->capture_default_str();
  take_address(app.add_option("--coordinator_addr", options.coordinator_addr,
                              "HOST:PORT of the coordinator; without it this process coordinates"));
  take_address(
      app.add_option("--listen", options.listen,
                     "HOST:PORT to listen on; port 0 picks one, and without one it is 6000"))
      ->capture_default_str();
  take_address(
      app.add_option("--advertise_addr", options.advertise_addr,
                     "HOST:PORT by which others reach this server; port 0: the one it listens on. "
                     "Needed where --listen is on all addresses (default: --listen)"));
  app.add_option("--name", options.name, "This server's name (default: kept in WORKDIR)");
  take_whole(app.add_option("--num_shards", options.num_shards,
                            "Parameter shards of the cluster; fixed by the first start of the "
                            "coordinator (default: as then, 16 at first)"),
             1, 4096);
  take_whole(app.add_option("--num_servers", options.num_servers,
                            "Servers that the coordinator waits for before it deals the shards"),
             1, 4096)
      ->capture_default_str();
  take_whole(app.add_option("--staleness_bound", options.staleness_bound,
                            "Steps that a worker may be ahead of the slowest; 0: all in lock step"),
             0, 1'000'000)
      ->capture_default_str();
  take_whole(app.add_option("--heartbeat_timeout", options.heartbeat_timeout_s,
                            "Seconds after which a silent worker no longer holds the others up"),
             1, 86'400)
      ->capture_default_str();
  app.add_option("--durability", durability,
                 "When a push is acknowledged: push (synced), interval, none")
      ->check(CLI::IsMember({"push", "interval", "none"}))
      ->capture_default_str();
  app.add_flag(
      "--accept_loss", options.accept_loss,
      "For one start: go on with an older copy of WORKDIR, or without a shard's folder, and "
      "lose what was acknowledged since");
  take_whole(app.add_option("--threads", options.threads, "Core shards of this process"), 1, 1024)
      ->capture_default_str();
  add_core_option(app, options.cores);
  add_security_options(app, options.security);
  add_transport_options(app, options.transport);
  app.add_option("--http_addr", options.http_addr,
                 "HOST:PORT on which to show metrics and actors to this host; port 0 picks one "
                 "(see hyperframes top)");
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  options.role = role == "ps" ? ServerRole::parameters : ServerRole::coordinator;
  try {
    options.durability = parse_durability(durability);
    options.check();
  } catch (const hyperframes::Error& error) {
    return refuse_usage(app.get_name(), error.what());
  }
  return run_server(std::move(options));
}
