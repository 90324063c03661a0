// What befalls coordinators and servers, in real processes: none of it may leave one that looks
// alive and is not, or lose what was acknowledged.
#include "processes.hpp"

namespace hyperframes::tools {
namespace {

namespace fs = std::filesystem;

/// A server of two parameter shards whose logs fail once, and which then can't be opened again: a
/// newer owner seems to have written there.
class BrokenLogs {
 public:
  explicit BrokenLogs(Processes& scene) : scene_(scene) {
    server_ = &scene.start_server(
        "server", {.arguments = {"--num_shards", "2"},
                   .environment = {{"HYPERFRAMES_FAILPOINT", "log-after-write=error:20"}}});
    scene.wait_for("its shards", [&] { return contains(scene.text(*server_), "have recovered"); });
    for (const auto& folder : folders()) fs::create_directory(folder);
  }
  Process& server() { return *server_; }
  void mend() {
    for (const auto& folder : folders()) fs::remove(folder);
  }

 private:
  std::vector<std::string> folders() const {
    return {scene_.path("server/shard-0000/token-00000000000000ff"),
            scene_.path("server/shard-0001/token-00000000000000ff")};
  }
  Processes& scene_;
  Process* server_;
};

TEST_CASE("a parameter shard that can't be recovered ends its server, which names it") {
  Processes scene;
  BrokenLogs broken(scene);
  const std::string address = scene.address(broken.server());
  scene.start_worker("worker", address, {{"--epochs", "10000"}});
  scene.require_failure(broken.server(), "keep parameter shard");
  CHECK(contains(scene.text(broken.server()), "a newer owner"));
}

TEST_CASE("a parameter shard outlives trouble of some seconds") {
  Processes scene;
  BrokenLogs broken(scene);
  const std::string address = scene.address(broken.server());
  Process& worker = scene.start_worker(
      "worker", address,
      {.arguments = {"--epochs", "2"},
       // The failpoint's error is one for which a worker gives up; a full disk's is not.
       .restart = {.when = RestartPolicy::When::on_failure, .delay = 100ms, .limit = 1000}});
  scene.wait_for("restarts of a shard",
                 [&] { return count_of(scene.text(broken.server()), "; restart ") >= 6; });
  broken.mend();
  scene.require_success(worker);
  scene.check_exactly_once(scene.job(2), address);
  CHECK(broken.server().starts() == 1);
  CHECK(broken.server().running());
}

TEST_CASE("a coordinator that crashes ends its process") {
  Processes scene;
  Process& coordinator = scene.start_server(
      "coordinator", {.arguments = {"--role", "coordinator"},
                      .environment = {{"HYPERFRAMES_FAILPOINT", "coordinator-heartbeat=error:2"}}});
  scene.require_failure(coordinator, "keep the coordinator");
}

TEST_CASE("a server does not follow its coordinator into another cluster") {
  Processes scene;
  const std::string address = fmt::format("127.0.0.1:{}", free_port());
  const Arguments coordinate = {"--role", "coordinator", "--listen", address, "--num_shards", "4"};
  Process& coordinator = scene.start_server("coordinator", {coordinate});
  Process& server = scene.start_server("server", {{"--coordinator_addr", address}});
  scene.wait_for("its shards", [&] { return contains(scene.text(server), "have recovered"); });
  scene.keeper().kill(coordinator, SIGKILL);
  scene.end_of(coordinator);
  fs::remove_all(scene.path("coordinator"));
  Process& empty = scene.start(
      "empty", {Processes::program("hyperframes_server"), "--workdir", scene.path("coordinator")},
      {coordinate});
  scene.require_failure(server, "cluster");
  CHECK(empty.running());
}

TEST_CASE("two clusters are not let into one folder of checkpoints") {
  Processes scene;
  const Arguments shared = {"--num_shards", "1", "--checkpoint_dir", scene.path("checkpoints")};
  Process& first = scene.start_server("first", {shared});
  scene.wait_for("its shard", [&] { return contains(scene.text(first), "have recovered"); });
  Process& second = scene.start_server("second", {shared});
  scene.wait_for("a refusal", [&] {
    return contains(scene.text(second), "give each cluster a --checkpoint_dir of its own");
  });
  CHECK_FALSE(contains(scene.text(second), "have recovered"));
  scene.keeper().kill(first, SIGKILL);
  scene.end_of(first);
  Process& again = scene.start("again",
                               {Processes::program("hyperframes_server"), "--listen", "127.0.0.1:0",
                                "--workdir", scene.path("first")},
                               {shared});
  scene.wait_for("its shard", [&] { return contains(scene.text(again), "have recovered"); });
}

TEST_CASE("older copies of a work folder, or of one shard's files, are refused by their cluster") {
  Processes scene;
  Process& coordinator = scene.start_server(
      "coordinator", {{"--role", "coordinator", "--num_servers", "1", "--num_shards", "2"}});
  const std::string address = scene.address(coordinator);
  unsigned starts = 0;
  const auto start = [&](const std::string& folder, Arguments more = {}) {
    Arguments command = {Processes::program("hyperframes_server"),
                         "--workdir",
                         scene.path(folder),
                         "--listen",
                         "127.0.0.1:0",
                         "--coordinator_addr",
                         address};
    command.insert(command.end(), more.begin(), more.end());
    return std::ref(scene.start(fmt::format("{}-{}", folder, ++starts), std::move(command)));
  };
  const auto started = [&](const std::string& folder, Arguments more = {}) {
    Process& server = start(folder, std::move(more));
    scene.wait_for("its shards", [&] { return contains(scene.text(server), "have recovered"); });
    return std::ref(server);
  };
  const auto copy = [&](const std::string& from, const std::string& to) {
    fs::remove_all(scene.path(to));
    fs::copy(scene.path(from), scene.path(to), fs::copy_options::recursive);
  };
  scene.keeper().stop(started("server"));
  copy("server", "old");
  Process& server = started("server");
  scene.require_success(scene.start_worker("worker", address, {{"--epochs", "1"}}));
  scene.keeper().kill(server, SIGHUP);  // as the end of its terminal does
  CHECK(scene.end_of(server).succeeded());
  // The whole folder, then one shard of it.
  scene.require_failure(start("old"), "its work folder is an older copy");
  copy("server", "mixed");
  copy("old/shard-0001", "mixed/shard-0001");
  Process& mixed = start("mixed");
  scene.require_failure(mixed, "parameter shard 1");
  CHECK(contains(scene.text(mixed), "it is an older copy, or was cut shorter"));
  // It did not take the newest folder's place; and who knows what is lost may go on.
  scene.keeper().stop(started("server"));
  started("mixed", {"--accept_loss"});
}

/// A cluster of which every process is started again when it ends, and two workers without an end.
class Cluster {
 public:
  explicit Cluster(Processes& scene) : scene(scene) {
    address = fmt::format("127.0.0.1:{}", free_port());
    coordinator = &scene.start_server(
        "coordinator", {.arguments = {"--role", "coordinator", "--listen", address, "--num_servers",
                                      "2", "--num_shards", "4"},
                        .restart = Processes::always});
    for (const char* name : {"server-0", "server-1"})
      servers.push_back(
          &scene.start_server(name, {.arguments = {"--name", name, "--coordinator_addr", address},
                                     .restart = Processes::always}));
    for (const char* name : {"worker-0", "worker-1"})
      workers.push_back(&scene.start_worker(
          name, address, {.arguments = {"--epochs", "10000"}, .restart = Processes::always}));
    for (Process* worker : workers) scene.wait_for_pushes(worker->name(), 20);
  }
  void stop_workers_and_audit() {
    for (Process* worker : workers) {
      scene.keeper().stop(*worker, timing().scaled(20s));
      INFO(scene.text(*worker));
      CHECK(worker->ends().back().succeeded());
    }
    Processes::check_clean(scene.audit(address));
  }

  Processes& scene;
  std::string address;
  Process* coordinator = nullptr;
  std::vector<Process*> servers, workers;
};

TEST_CASE("a coordinator that is killed and comes back is missed by nobody") {
  Processes scene;
  Cluster cluster(scene);
  for (unsigned kill = 1; kill <= 3; ++kill) {
    scene.keeper().kill(*cluster.coordinator, SIGKILL);
    scene.wait_for("the coordinator", [&] { return cluster.coordinator->starts() == kill + 1; });
    // More than the units that were leased before: so the new process leases some.
    for (Process* worker : cluster.workers) scene.wait_for_pushes(worker->name(), 150);
  }
  for (Process* process :
       {cluster.servers[0], cluster.servers[1], cluster.workers[0], cluster.workers[1]}) {
    INFO(scene.text(*process));
    CHECK(process->starts() == 1);
  }
  cluster.stop_workers_and_audit();
}

TEST_CASE("servers and workers that are told to end under load lose nothing") {
  Processes scene;
  Cluster cluster(scene);
  const auto end_and_return = [&](Process& process) {
    const unsigned starts = process.starts();
    scene.keeper().kill(process, SIGTERM);
    scene.wait_for(process.name() + " to come back", [&] { return process.starts() > starts; });
    INFO(scene.text(process));
    CHECK(process.ends().back().succeeded());
    for (Process* worker : cluster.workers) scene.wait_for_pushes(worker->name(), 40);
  };
  end_and_return(*cluster.servers[0]);
  end_and_return(*cluster.workers[0]);
  end_and_return(*cluster.servers[1]);
  end_and_return(*cluster.coordinator);
  cluster.stop_workers_and_audit();
}

TEST_CASE("pushes, checkpoints and evictions go on at once on two core shards", "[threads]") {
  Processes scene;
  Process& server =
      scene.start_server("server", {{"--num_shards", "4", "--threads", "2", "--checkpoint_interval",
                                     "1", "--heartbeat_timeout", "1"}});
  const std::string address = scene.address(server);
  std::vector<Process*> workers;
  for (const char* name : {"worker-0", "worker-1"})
    workers.push_back(&scene.start_worker(name, address, {{"--epochs", "10000"}}));
  for (Process* worker : workers) scene.wait_for_pushes(worker->name(), 20);
  for (std::size_t round = 0; round < 4; ++round) {
    Process& frozen = *workers[round % 2];
    scene.keeper().kill(frozen, SIGSTOP);
    scene.wait_for("an eviction",
                   [&] { return count_of(scene.text(server), "is out: it was silent") > round; });
    scene.wait_for_pushes(workers[1 - round % 2]->name(), 40);
    scene.keeper().kill(frozen, SIGCONT);
    for (Process* worker : workers) scene.wait_for_pushes(worker->name(), 40);
  }
  for (Process* worker : workers) {
    scene.keeper().stop(*worker, timing().scaled(20s));
    INFO(scene.text(*worker));
    CHECK(worker->ends().back().succeeded());
  }
  Processes::check_clean(scene.audit(address));
  scene.keeper().stop(server, timing().scaled(20s));
  INFO(scene.text(server));
  CHECK(server.ends().back().succeeded());
}

}  // namespace
}  // namespace hyperframes::tools
