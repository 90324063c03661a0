// The proof that pushes count exactly once: what workers noted, held against what servers hold.
//
//   ps::LedgerSummary ledgers;
//   ledgers.add(ps::read_ledger("worker-0.ledger"), "worker-0.ledger");
//   ps::AuditResult result = co_await ps::audit(client, ledgers);   // result.clean()
//
// Each message of a push adds 1 to a counter row of its own. An acknowledged one must read exactly
// 1; one in doubt, whose worker died before it heard, 0 or 1.
#pragma once

#include <cstdint>
#include <hyperframes/apps/ps/client.hpp>
#include <hyperframes/apps/ps/ledger.hpp>
#include <hyperframes/runtime/task.hpp>
#include <string>
#include <vector>

namespace hyperframes::ps {

/// A push that is not as it must be.
struct AuditFinding {
  LedgerEntry push{};
  double count = 0;  ///< What its counter row reads.
};

struct AuditResult {
  static constexpr std::size_t max_findings = 100;

  std::uint64_t acknowledged = 0;
  std::uint64_t applied = 0;             ///< Acknowledged, and there.
  std::uint64_t lost = 0;                ///< Acknowledged, and not there.
  std::uint64_t duplicated = 0;          ///< There more than once, acknowledged or not.
  std::uint64_t in_doubt = 0;            ///< Sent, and not known to be acknowledged.
  std::uint64_t in_doubt_applied = 0;    ///< Of those, there.
  std::vector<AuditFinding> findings{};  ///< The first max_findings that are lost or duplicated.

  bool clean() const noexcept { return lost == 0 && duplicated == 0; }
  void count(const LedgerEntry& push, double value);
};

/// "epoch 0, unit 3, batch 2 on parameter shard 5: acknowledged, and counted 0 times".
std::string describe(const AuditFinding& finding);

/// Reads the counter rows of all pushes. Throws `rejected` for ledgers of another cluster, whose
/// pushes this one never had, and `not_found` for a table that the cluster does not
/// have; waits for servers that are away, as PsClient does.
Task<AuditResult> audit(PsClient& client, LedgerSummary ledgers);

}  // namespace hyperframes::ps
