// What befalls workers, in real processes: every batch of their job counts once all the same.
#include "processes.hpp"

namespace hyperframes::tools {
namespace {

TEST_CASE("the unit of a worker that is killed in its middle is finished by another") {
  Processes scene;
  Process& server =
      scene.start_server("server", {{"--num_shards", "4", "--heartbeat_timeout", "2"}});
  const std::string address = scene.address(server);
  // In its second unit: between the acknowledgement and the note of it.
  Process& killed =
      scene.start_worker("killed", address,
                         {.arguments = {"--epochs", "2"},
                          .environment = {{"HYPERFRAMES_FAILPOINT", "worker-after-push=kill:13"}}});
  CHECK(scene.end_of(killed).signal == SIGKILL);
  Process& other = scene.start_worker("other", address, {{"--epochs", "2"}});
  scene.require_success(other);
  scene.check_exactly_once(scene.job(2), address);
}

TEST_CASE("a worker that is killed before it pushes takes its place again") {
  Processes scene;
  Process& server = scene.start_server("server", {{"--num_shards", "4"}});
  const std::string address = scene.address(server);
  Process& worker = scene.start_worker(
      "worker", address,
      {.arguments = {"--epochs", "1"},
       .environment = {{"HYPERFRAMES_FAILPOINT", "worker-before-push=kill:11"}},
       .restart = {.when = RestartPolicy::When::on_failure, .delay = 20ms, .limit = 1000}});
  scene.wait_for("its restart", [&] { return worker.starts() > 1; });
  scene.keeper().set_environment(worker, "HYPERFRAMES_FAILPOINT", "");
  // It may have been started with the variable once more: then it was killed once more.
  scene.require_success(worker);
  scene.check_exactly_once(scene.job(1), address);
}

TEST_CASE("a worker that stood still is given up, and does no harm when it goes on") {
  Processes scene;
  Process& server =
      scene.start_server("server", {{"--num_shards", "4", "--heartbeat_timeout", "2"}});
  const std::string address = scene.address(server);
  Process& frozen = scene.start_worker(
      "frozen", address,
      {.arguments = {"--epochs", "2"},
       .environment = {{"HYPERFRAMES_FAILPOINT", "worker-before-push=stop:13"}}});
  scene.wait_for_pushes("frozen", 12);
  Process& other = scene.start_worker("other", address, {{"--epochs", "2"}});
  scene.require_success(other);  // it did the unit of the frozen one too
  REQUIRE(frozen.running());
  scene.keeper().kill(frozen, SIGCONT);
  scene.require_success(frozen);
  scene.check_exactly_once(scene.job(2), address);
}

TEST_CASE("three workers in lock step end a job that has work for one") {
  Processes scene;
  Process& server = scene.start_server("server", {{"--num_shards", "4", "--staleness_bound", "0"}});
  const std::string address = scene.address(server);
  const ps::JobDefinition job = scene.job(3, 512);
  REQUIRE(job.units_per_epoch() == 1);
  std::vector<Process*> workers;
  for (const char* name : {"worker-0", "worker-1", "worker-2"})
    workers.push_back(
        &scene.start_worker(name, address, {{"--epochs", "3", "--batch_size", "512"}}));
  for (Process* worker : workers) scene.require_success(*worker);
  scene.check_exactly_once(job, address);
}

}  // namespace
}  // namespace hyperframes::tools
