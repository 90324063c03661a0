#include <hyperframes/apps/tools/demo_cluster.hpp>
//
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <random>

namespace hyperframes::tools {

namespace fs = std::filesystem;

namespace {

/// Takes a port of 127.0.0.1, any if it is 0, and lets it go; 0 if somebody has it.
std::uint16_t try_port(std::uint16_t port) {
  const auto fail = [](int error) {
    throw Error::system(error, "find a free port of 127.0.0.1", {},
                        "check that the loopback interface is up");
  };
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) fail(errno);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const bool bound =
      ::bind(socket, generic, size) == 0 && ::getsockname(socket, generic, &size) == 0;
  const int error = errno;
  ::close(socket);
  if (bound) return ntohs(address.sin_port);
  if (port == 0 || error != EADDRINUSE) fail(error);
  return 0;
}

}  // namespace

std::uint16_t free_port() {
  constexpr unsigned first = 10'000;  // below are those of well-known servers
  unsigned ephemeral = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> ephemeral;
  std::random_device random;
  for (int i = 0; i < 100 && ephemeral > first; ++i)
    if (const std::uint16_t port = try_port(first + random() % (ephemeral - first))) return port;
  return try_port(0);
}

ClusterProcesses::ClusterProcesses(ClusterOptions options, ProcessKeeper& keeper)
    : options_(std::move(options)), keeper_(keeper) {
  fs::create_directories(logs());
  fs::create_directories(options_.folder / "ledgers");
}

void ClusterProcesses::start() {
  // A port of its own choosing would change when it is started again.
  address_ = fmt::format("127.0.0.1:{}", free_port());
  const auto number = [](unsigned value) { return std::to_string(value); };
  keeper_.start(
      {.name = "coordinator",
       .command = {program("hyperframes_server"), "--role", "coordinator", "--workdir",
                   (options_.folder / "coordinator").string(), "--listen", address_,
                   "--num_servers", number(options_.servers), "--num_shards",
                   number(options_.shards), "--staleness_bound", number(options_.staleness_bound),
                   "--heartbeat_timeout", number(options_.heartbeat_timeout_s)},
       .log = logs() / "coordinator.log",
       .restart = options_.restart});
  for (unsigned i = 0; i < options_.servers; ++i) {
    const std::string name = fmt::format("server-{}", i);
    servers_.push_back(&keeper_.start(
        {.name = name,
         .command = {program("hyperframes_server"), "--role", "ps", "--name", name, "--workdir",
                     (options_.folder / name).string(), "--coordinator_addr", address_, "--listen",
                     "127.0.0.1:0", "--durability", options_.durability, "--checkpoint_interval",
                     number(options_.checkpoint_interval_s)},
         .log = logs() / (name + ".log"),
         .restart = options_.restart}));
  }
}

Process* ClusterProcesses::server(const std::string& name) const noexcept {
  for (Process* server : servers_)
    if (server->name() == name) return server;
  return nullptr;
}

std::vector<Process*> ClusterProcesses::start_workers(const TrainingRun& run) {
  std::vector<Process*> workers;
  for (unsigned i = 0; i < options_.workers; ++i) {
    const std::string name = fmt::format("{}-worker-{}", run.job, i);
    ledgers_.push_back((options_.folder / "ledgers" / (name + ".ledger")).string());
    std::vector<std::string> command = worker_command(run, run.data);
    for (const std::string& argument :
         {std::string("--name"), fmt::format("worker-{}", i), std::string("--batch_size"),
          std::to_string(run.batch_size), std::string("--checkpoint_resume"), std::string("latest"),
          std::string("--ledger"), ledgers_.back()})
      command.push_back(argument);
    if (run.epochs != 0) {
      command.push_back("--epochs");
      command.push_back(std::to_string(run.epochs));
    }
    workers.push_back(&keeper_.start({.name = name,
                                      .command = std::move(command),
                                      .log = logs() / (name + ".log"),
                                      .restart = options_.worker_restart}));
  }
  return workers;
}

std::vector<std::string> ClusterProcesses::worker_command(const TrainingRun& run,
                                                          const fs::path& data) const {
  return {program("hyperframes_worker"),
          "--coordinator_addr",
          address_,
          "--job",
          run.job,
          "--data_dir",
          data.string(),
          "--model_config",
          run.model.string(),
          "--seed",
          std::to_string(run.seed)};
}

Process& ClusterProcesses::start_evaluation(const TrainingRun& run, const fs::path& data,
                                            const std::string& name) {
  std::vector<std::string> command = worker_command(run, data);
  command.insert(command.end(), {"--evaluate", "--json"});
  return start_step(name, std::move(command));
}

Process& ClusterProcesses::start_audit(const std::string& name) {
  std::vector<std::string> arguments = {"audit", "--json", "--coordinator_addr", address_};
  for (const std::string& ledger : ledgers_) {
    arguments.push_back("--ledger");
    arguments.push_back(ledger);
  }
  return start_tool(name, std::move(arguments));
}

Process& ClusterProcesses::start_tool(const std::string& name, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), program("hyperframes"));
  return start_step(name, std::move(arguments));
}

Process& ClusterProcesses::start_step(const std::string& name, std::vector<std::string> command) {
  return keeper_.start({.name = name,
                        .command = std::move(command),
                        .log = logs() / (name + ".log"),
                        .output = logs() / (name + ".out")});
}

}  // namespace hyperframes::tools
