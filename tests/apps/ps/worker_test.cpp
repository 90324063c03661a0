#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <hyperframes/actors/node.hpp>
#include <hyperframes/apps/dataset/writer.hpp>
#include <hyperframes/apps/ps/cluster_view.hpp>
#include <hyperframes/apps/ps/coordinator.hpp>
#include <hyperframes/apps/ps/job.hpp>
#include <hyperframes/apps/ps/worker.hpp>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/sleep.hpp>

#include "temporary_folder.hpp"

using namespace hyperframes;
using namespace hyperframes::ps;
using hyperframes::ps::test::TemporaryFolder;

namespace {

/// Lets a worker join a job that has no work for it now, and refuses its reports.
class RefusingCoordinator final : public protocol::Coordinator::Actor {
 public:
  explicit RefusingCoordinator(ClusterView view) : view_(std::move(view)) {}

 private:
  static void refuse(const char* tried) {
    throw Error(Errc::invalid_argument, tried, "this coordinator does not take it");
  }
  Task<void> join_server(protocol::JoinServer, Reply<protocol::ServerLease>) override {
    refuse("join");
    co_return;
  }
  Task<void> renew_lease(protocol::RenewLease, Reply<protocol::ServerLease>) override {
    refuse("renew a lease");
    co_return;
  }
  Task<void> watch(protocol::WatchRequest request, Reply<protocol::ClusterView> reply) override {
    if (request.known_version() != view_.version) {
      reply.send(view_.encode());
    } else {
      waiting_.push_back(std::move(reply));
    }
    co_return;
  }
  Task<void> create_tables(protocol::CreateTables, Reply<protocol::ClusterView> reply) override {
    reply.send(view_.encode());
    co_return;
  }
  Task<void> open_job(protocol::OpenJob, Reply<protocol::JobTerms> reply) override {
    reply.send({.job = 1, .worker = 1, .staleness_bound = 3, .heartbeat_timeout_ms = 30'000});
    co_return;
  }
  Task<void> lease_unit(protocol::LeaseUnit, Reply<protocol::UnitLease> reply) override {
    reply.send({.state = protocol::LeaseState::wait});
    co_return;
  }
  Task<void> finish_unit(protocol::FinishUnit, Reply<protocol::UnitLease>) override {
    refuse("finish a unit");
    co_return;
  }
  Task<void> progress(protocol::WorkerProgress, Reply<protocol::WorkerOrders>) override {
    refuse("report progress");
    co_return;
  }
  Task<void> leave_job(protocol::LeaveJob, Reply<protocol::Nothing> reply) override {
    reply.send({});
    co_return;
  }
  Task<void> status(protocol::Nothing, Reply<protocol::ClusterStatus>) override {
    refuse("say how it goes");
    co_return;
  }

  ClusterView view_;
  std::vector<Reply<protocol::ClusterView>> waiting_;
};

}  // namespace

TEST_CASE("a worker whose reports are refused ends with that error", "[threads]") {
  TemporaryFolder folder;
  {
    dataset::Writer writer(folder.path() / "data", {{"user", "int"}, {"label", "int"}});
    for (int i = 0; i < 20; ++i) writer.append({i % 3, i % 2});
    writer.finish();
  }
  std::ofstream(folder.file("model.yaml"))
      << "model: logistic_regression\nfields: [{name: user}]\n";
  std::string errors;
  log::set_sink([&errors](log::Level level, std::string_view text) {
    if (level == log::Level::error) errors += text;
  });

  const std::vector<NodeId> nodes{21};
  ClusterView view{.version = 1, .placement = PlacementMap::first(2, nodes)};
  TableSpec table{.id = 1, .name = feature_table_name("job", 1), .width = 1};
  view.tables.push_back(table);
  Runtime runtime({.shards = 1});
  Node node(runtime, {.name = "coordinator", .network = net::Network::Options()});
  const auto endpoint = runtime.run([&](Runtime&) -> Task<net::Endpoint> {
    auto bound = co_await node.listen(net::Endpoint::parse("127.0.0.1:0"));
    co_await node.spawn<RefusingCoordinator>(coordinator_name, view);
    co_return bound;
  });
  const std::string text = endpoint.to_string();
  const int status = run_worker({.coordinator_addr = text.substr(text.find("//") + 2),
                                 .data_dir = folder.file("data"),
                                 .model_config = folder.file("model.yaml"),
                                 .job = "job",
                                 .name = "w0"});
  runtime.run([&](Runtime&) -> Task<void> { co_await node.close(2s); });
  log::set_sink({});
  CHECK(status == 1);
  CHECK(errors.find("report progress") != std::string::npos);
}
