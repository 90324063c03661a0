// The programs with the options that they document, run as their users run them.
#include "processes.hpp"

namespace hyperframes::tools {
namespace {

struct Case {
  Arguments server = {};  // options of a server that coordinates too
  Arguments client = {};  // of worker and audit
};

/// A job of one worker on one server: it ends, and every batch counts once.
/// `says`: words that must stand in the server's log.
void train(const Case& options, const std::string& says = {}) {
  Processes scene;
  Arguments server_options = {"--num_shards", "4"};
  server_options.insert(server_options.end(), options.server.begin(), options.server.end());
  Process& server = scene.start_server("server", {server_options});
  const std::string address = scene.address(server);
  Arguments worker_options = {"--epochs", "2"};
  worker_options.insert(worker_options.end(), options.client.begin(), options.client.end());
  Process& worker = scene.start_worker("worker", address, {worker_options});
  scene.require_success(worker);
  scene.check_exactly_once(scene.job(2), address, options.client);
  CHECK(server.running());
  scene.keeper().stop(server, timing().scaled(20s));
  CHECK(server.ends().back().succeeded());
  CHECK(contains(scene.text(server), says));
}

TEST_CASE("a server without a coordinator coordinates") { train({}); }
TEST_CASE("a server of two core shards serves like one", "[threads]") {
  train({{"--threads", "2"}});
}
TEST_CASE("a job trains with --durability interval") {
  train({{"--durability", "interval"}}, "acknowledged in the last second may be lost");
}
TEST_CASE("a job trains with --durability none") {
  train({{"--durability", "none"}}, "acknowledged since the last snapshot may be lost");
}

TEST_CASE("beyond loopback a key is needed, which all who take part have") {
  Processes scene;
  std::ofstream(scene.path("key")) << "a secret of more than sixteen bytes\n";
  std::ofstream(scene.path("other")) << "another secret, as long as the one\n";
  scene.require_failure(scene.start_server("nowhere", {{"--listen", "0.0.0.0:0"}}),
                        "--advertise_addr", 2);
  scene.require_failure(
      scene.start_server("open", {{"--listen", "0.0.0.0:0", "--advertise_addr", "127.0.0.1:0"}}),
      "give a key file");

  Process& server =
      scene.start_server("server", {{"--listen", "0.0.0.0:0", "--advertise_addr", "127.0.0.1:0",
                                     "--key_file", scene.path("key"), "--num_shards", "4"}});
  const std::string address = scene.address(server);
  CHECK(address.starts_with("127.0.0.1:"));
  scene.require_failure(scene.start_worker("keyless", address, {{"--epochs", "1"}}), "key");
  scene.require_failure(scene.start_worker("stranger", address,
                                           {{"--epochs", "1", "--key_file", scene.path("other")}}),
                        "key");
  scene.require_success(
      scene.start_worker("worker", address, {{"--epochs", "1", "--key_file", scene.path("key")}}));
  scene.check_exactly_once(scene.job(1), address, {"--key_file", scene.path("key")});
}

TEST_CASE("certificates serve as well as a key, and keep another authority's nodes out") {
  Processes scene;
  unsigned made = 0;
  const auto make = [&](Arguments arguments) {
    arguments.insert(arguments.begin(), {Processes::program("hyperframes"), "cert"});
    scene.require_success(scene.start(fmt::format("cert-{}", ++made), std::move(arguments)));
  };
  const auto options = [&](const std::string& folder, const std::string& name) -> Arguments {
    const std::string in = scene.path(folder) + "/";
    return {"--certificate",    in + name + ".crt", "--certificate_key",
            in + name + ".key", "--authority",      in + "ca.crt"};
  };
  for (const char* folder : {"trust", "other"}) {
    make({"ca", scene.path(folder)});
    make({"node", scene.path(folder), "node-1"});
  }
  make({"node", scene.path("trust"), "node-2"});
  const auto extended = [](Arguments arguments, const Arguments& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  Process& server = scene.start_server(
      "server",
      {extended({"--listen", "0.0.0.0:0", "--advertise_addr", "127.0.0.1:0", "--num_shards", "4"},
                options("trust", "node-1"))});
  const std::string address = scene.address(server);
  scene.require_failure(scene.start_worker("keyless", address, {{"--epochs", "1"}}), "TLS");
  scene.require_failure(
      scene.start_worker("stranger", address,
                         {extended({"--epochs", "1"}, options("other", "node-1"))}),
      "authority");
  scene.require_success(scene.start_worker(
      "worker", address, {extended({"--epochs", "1"}, options("trust", "node-2"))}));
  scene.check_exactly_once(scene.job(1), address, options("trust", "node-2"));
}

TEST_CASE("without a key other addresses than loopback are served only when told so") {
  train({{"--listen", "0.0.0.0:0", "--advertise_addr", "127.0.0.1:0", "--insecure"}});
}

// ---- What is refused ----------------------------------------------------------------------------

TEST_CASE("a server says what is wrong with its options, and ends") {
  Processes scene;
  unsigned number = 0;
  const auto refuses = [&](Arguments arguments, const std::string& part) {
    arguments.insert(arguments.begin(), Processes::program("hyperframes_server"));
    Process& server = scene.start(fmt::format("refused-{}", ++number), std::move(arguments));
    const ProcessEnd end = scene.end_of(server);
    INFO(end.text() << "\n" << scene.text(server));
    CHECK(end.status != 0);
    CHECK(end.signal == 0);
    CHECK(contains(scene.text(server), part));
  };
  const std::string folder = scene.path("folder");
  std::ofstream(scene.path("file")) << "short\n";
  refuses({}, "--workdir");
  refuses({"--workdir", folder, "--role", "worker"}, "--role");
  refuses({"--workdir", folder, "--num_shards", "0"}, "--num_shards");
  refuses({"--workdir", folder, "--num_servers", "0"}, "--num_servers");
  refuses({"--workdir", folder, "--threads", "0"}, "--threads");
  refuses({"--workdir", folder, "--staleness_bound", "-1"}, "--staleness_bound");
  refuses({"--workdir", folder, "--heartbeat_timeout", "0"}, "--heartbeat_timeout");
  refuses({"--workdir", folder, "--durability", "always"}, "--durability");
  refuses({"--workdir", folder, "--nonsense"}, "--nonsense");
  refuses({"--workdir", folder, "--listen", "nonsense:port"}, "nonsense:port");
  refuses({"--workdir", folder, "--listen", "127.0.0.1:0", "--key_file", scene.path("none")},
          "none");
  refuses({"--workdir", folder, "--listen", "127.0.0.1:0", "--key_file", scene.path("file")},
          "at least 16");
  refuses({"--workdir", scene.path("file"), "--listen", "127.0.0.1:0"}, "--workdir");
  refuses({"--workdir", folder, "--listen", "127.0.0.1:0", "--coordinator_addr", "nonsense:port"},
          "nonsense:port");
  refuses({"--workdir", folder, "--listen", "shm://name"}, "no HOST:PORT");
  refuses({"--workdir", folder, "--listen", "127.0.0.1:7001", "--coordinator_addr",
           "tcp://127.0.0.1:7001"},
          "are both 127.0.0.1:7001");
  refuses({"--workdir", folder, "--listen", "127.0.0.1:7001", "--http_addr", "127.0.0.1:7001"},
          "give them different ports");
  refuses({"--workdir", folder, "--listen", "127.0.0.1:0", "--key_file", scene.path(".")},
          "name a file");
}

TEST_CASE("a server can't take the folder, the name or the cluster of another one") {
  Processes scene;
  Process& server = scene.start_server("server", {{"--name", "a", "--num_shards", "4"}});
  const std::string address = scene.address(server);
  const std::string folder = scene.path("server");
  const auto server_at = [&](const std::string& name, const std::string& workdir, Arguments more) {
    Arguments command = {Processes::program("hyperframes_server"), "--workdir", workdir, "--listen",
                         "127.0.0.1:0"};
    command.insert(command.end(), more.begin(), more.end());
    return std::ref(scene.start(name, std::move(command)));
  };
  scene.wait_for("its shards", [&] { return contains(scene.text(server), "have recovered"); });
  scene.require_failure(server_at("intruder", folder, {}),
                        fmt::format("the process {} runs there", server.pid()));
  scene.require_failure(
      server_at("namesake", scene.path("other"), {"--name", "a", "--coordinator_addr", address}),
      "has joined before");
  scene.keeper().stop(server);
  scene.require_failure(server_at("renamed", folder, {"--name", "b"}), "it belongs to 'a'");
  scene.require_failure(server_at("divided", folder, {"--num_shards", "8"}), "--num_shards 4");
  std::filesystem::remove(folder + "/coordinator.db");
  std::filesystem::remove(folder + "/coordinator.db-wal");
  std::filesystem::remove(folder + "/coordinator.db-shm");
  scene.require_failure(server_at("bereft", folder, {"--num_shards", "4"}),
                        "give --coordinator_addr if that cluster's coordinator runs elsewhere");
  CHECK_FALSE(std::filesystem::exists(folder + "/coordinator.db"));
  Process& other = scene.start_server("elsewhere", {{"--num_shards", "4"}});
  scene.require_failure(server_at("stray", folder, {"--coordinator_addr", scene.address(other)}),
                        "holds data of cluster");
  std::filesystem::remove(folder + "/identity.json");
  scene.require_failure(server_at("nobody", folder, {}), "identity.json");
}

TEST_CASE("a worker says what is wrong with its options, and ends") {
  Processes scene;
  Process& server = scene.start_server("server", {{"--num_shards", "4"}});
  const std::string address = scene.address(server);
  const std::string data = scene.training(), model = scene.path("model.yaml");
  std::ofstream(scene.path("bad.yaml")) << "model: factorization_machine\nfieldz: []\n";
  std::ofstream(scene.path("other.yaml")) << "model: factorization_machine\nlatent: 4\n"
                                             "fields: [{name: user}]\n";
  std::ofstream(scene.path("unknown.yaml")) << "model: logistic_regression\n"
                                               "fields: [{name: colour}]\n";
  scene.require_success(scene.start_worker("first", address, {{"--epochs", "1"}}));
  unsigned number = 0;
  const auto refuses = [&](Arguments arguments, const std::string& part) {
    arguments.insert(arguments.begin(), Processes::program("hyperframes_worker"));
    Process& worker = scene.start(fmt::format("refused-{}", ++number), std::move(arguments));
    const ProcessEnd end = scene.end_of(worker);
    INFO(end.text() << "\n" << scene.text(worker));
    CHECK(end.status != 0);
    CHECK(end.signal == 0);
    CHECK(contains(scene.text(worker), part));
  };
  const auto on = [&](const std::string& data_dir, const std::string& config, Arguments more = {}) {
    Arguments all = {"--coordinator_addr", address, "--data_dir", data_dir,
                     "--model_config",     config};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  refuses({}, "--coordinator_addr");
  refuses({"--coordinator_addr", address, "--model_config", model}, "--data_dir");
  refuses(on(scene.path("nothing"), model), "nothing");
  refuses(on(data, scene.path("none.yaml")), "none.yaml");
  refuses(on(data, scene.path("bad.yaml")), "line 2");
  refuses(on(data, scene.path("unknown.yaml")), "colour");
  refuses(on(data, model, {"--batch_size", "0"}), "--batch_size");
  refuses(on(data, model, {"--unit_batches", "2000"}), "--unit_batches");
  refuses(on(data, model, {"--checkpoint_resume", "maybe"}), "--checkpoint_resume");
  refuses(on(data, model, {"--nonsense"}), "--nonsense");
  refuses(on(data, model, {"--json"}), "--json requires --evaluate");
  refuses(on(data, model, {"--predictions", scene.path("p")}), "--predictions requires --evaluate");
  refuses(on(data, model, {"--job", "a/b"}), "slash");
  refuses(on(data, model, {"--ledger", scene.path("nowhere/ledger")}), "nowhere/ledger");
  refuses(on(data, model, {"--evaluate", "--job", "another"}), "another");
  // What does not fit the job that was defined above.
  refuses(on(data, model, {"--epochs", "1", "--batch_size", "65"}), "batch size is 64, not 65");
  refuses(on(data, model, {"--epochs", "2", "--batch_size", "64"}), "number of epochs is 1, not 2");
  refuses(on(data, scene.path("other.yaml"), {"--epochs", "1", "--batch_size", "64"}),
          "model's hash");
  refuses({"--coordinator_addr", "nonsense:port", "--data_dir", data, "--model_config", model},
          "nonsense:port");
}

}  // namespace
}  // namespace hyperframes::tools
