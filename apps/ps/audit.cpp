#include <fmt/format.h>

#include <hyperframes/apps/ps/audit.hpp>
#include <map>
#include <utility>

namespace hyperframes::ps {
namespace {

constexpr std::size_t rows_a_pull = 8192;

}  // namespace

void AuditResult::count(const LedgerEntry& push, double value) {
  const bool acknowledged_push = push.state == LedgerEntry::State::acknowledged;
  const bool there = value != 0;
  const bool twice = there && value != 1;  // or damaged: a counter holds whole numbers
  (acknowledged_push ? acknowledged : in_doubt) += 1;
  if (there) (acknowledged_push ? applied : in_doubt_applied) += 1;
  lost += acknowledged_push && !there;
  duplicated += twice;
  if ((twice || (acknowledged_push && !there)) && findings.size() < max_findings)
    findings.push_back({push, value});
}

std::string describe(const AuditFinding& finding) {
  const LedgerEntry& push = finding.push;
  return fmt::format(
      "job {}, epoch {}, unit {}, batch {} on parameter shard {}: {}, and counted {:g} "
      "times",
      push.job, push.epoch, push.unit, push.batch, push.shard,
      push.state == LedgerEntry::State::acknowledged ? "acknowledged" : "in doubt", finding.count);
}

Task<AuditResult> audit(PsClient& client, LedgerSummary ledgers) {
  if (const auto here = client.view()->cluster; ledgers.cluster() != 0 && ledgers.cluster() != here)
    throw Error(Errc::rejected, "audit the pushes",
                fmt::format("the ledgers are of cluster {:016x}, and the coordinator is the one of "
                            "cluster {:016x}",
                            ledgers.cluster(), here),
                "give the ledgers of this cluster's workers, or the coordinator that they used");
  AuditResult result;
  auto next = ledgers.pushes().begin();
  while (next != ledgers.pushes().end()) {
    const TableId id = next->first.table;
    const TableSpec* known = client.view()->table(id);
    if (known == nullptr)
      throw Error(Errc::not_found, fmt::format("audit table {}", id),
                  "the ledgers name it, and the cluster has no such table",
                  "ask the coordinator that the workers used");
    const TableSpec table = *known;
    std::vector<std::uint64_t> counters;
    const auto first = next;
    for (;
         next != ledgers.pushes().end() && next->first.table == id && counters.size() < rows_a_pull;
         ++next)
      counters.push_back(next->first.counter);
    const auto rows = co_await client.pull(table, std::move(counters));
    std::size_t at = 0;
    for (auto push = first; push != next; ++push, at += table.width)
      result.count(push->second, rows[at]);
  }
  co_return result;
}

}  // namespace hyperframes::ps
