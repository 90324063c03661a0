#include <catch2/catch_test_macros.hpp>
#include <hyperframes/apps/ps/cluster_view.hpp>

using namespace hyperframes::ps;

TEST_CASE("a table travels with all that it is") {
  TableSpec spec;
  spec.id = 3;
  spec.name = "movies/rows";
  spec.width = 17;
  spec.optimizer = OptimizerKind::sgd;
  spec.learning_rate = 0.25f;
  spec.initial_accumulator = 0.5f;
  spec.l2 = 0.125f;
  spec.initializer = InitializerKind::uniform;
  spec.initializer_scale = 0.75f;
  spec.initializer_from = 1;
  spec.seed = 99;
  ClusterView view;
  view.version = 4;
  view.tables = {spec};
  view.workers = {{.worker = 2, .job = 1, .joined_at_clock = 30}};
  view.staleness_bound = 2;
  const auto arrived = ClusterView::decode(protocol::ClusterView(view.encode()));
  REQUIRE(arrived.tables.size() == 1);
  CHECK(arrived.tables[0].differences(spec).empty());
  CHECK(arrived.tables[0] == spec);
  REQUIRE(arrived.workers.size() == 1);
  CHECK(arrived.workers[0].joined_at_clock == 30);
  CHECK((arrived.version == 4 && arrived.staleness_bound == 2));
}
