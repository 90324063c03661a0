#include <catch2/catch_test_macros.hpp>
#include <hyperframes/apps/ps/audit.hpp>

using namespace hyperframes::ps;

namespace {

LedgerEntry push(LedgerEntry::State state) {
  return {.job = 1,
          .epoch = 2,
          .unit = 3,
          .batch = 4,
          .table = 5,
          .shard = 6,
          .counter = 7,
          .state = state};
}
constexpr auto acknowledged = LedgerEntry::State::acknowledged;
constexpr auto in_doubt = LedgerEntry::State::in_doubt;

}  // namespace

TEST_CASE("an acknowledged push must be there exactly once, one in doubt at most once") {
  AuditResult result;
  result.count(push(acknowledged), 1);
  result.count(push(in_doubt), 0);
  result.count(push(in_doubt), 1);
  CHECK(result.clean());
  CHECK(result.findings.empty());
  CHECK(result.acknowledged == 1);
  CHECK(result.applied == 1);
  CHECK(result.in_doubt == 2);
  CHECK(result.in_doubt_applied == 1);

  AuditResult lost;
  lost.count(push(acknowledged), 0);
  CHECK(!lost.clean());
  CHECK(lost.lost == 1);
  CHECK(lost.applied == 0);
  REQUIRE(lost.findings.size() == 1);
  CHECK(describe(lost.findings[0]).find("epoch 2, unit 3, batch 4 on parameter shard 6") !=
        std::string::npos);

  for (const auto state : {acknowledged, in_doubt}) {
    AuditResult twice;
    twice.count(push(state), 2);
    CHECK(!twice.clean());
    CHECK(twice.duplicated == 1);
    CHECK(twice.lost == 0);
  }
  AuditResult damaged;
  damaged.count(push(acknowledged), 0.5);
  CHECK(!damaged.clean());
}

TEST_CASE("findings are listed up to a limit, and counted beyond it") {
  AuditResult result;
  for (std::size_t i = 0; i < AuditResult::max_findings + 10; ++i)
    result.count(push(acknowledged), 0);
  CHECK(result.lost == AuditResult::max_findings + 10);
  CHECK(result.findings.size() == AuditResult::max_findings);
}
