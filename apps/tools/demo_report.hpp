// What the demo has found, whether that is good enough, and how it is said.
//
//   tools::DemoOutcome outcome = ...;
//   for (const std::string& failure : tools::failures_of(outcome)) screen.print(failure);
//   std::ofstream("result.json") << tools::json_of(outcome);
#pragma once

#include <cstdint>
#include <hyperframes/apps/tools/progress.hpp>
#include <string>
#include <vector>

namespace hyperframes::tools {

struct Score {
  double auc = 0;
  double logloss = 0;
};

/// One training run whose model was scored on the test part.
struct FinalRun {
  std::uint64_t seed = 0;
  Score test{};
  std::uint64_t samples = 0;  ///< Trained on, over all epochs.
  double seconds = 0;         ///< From the start of its workers to their end.
};

/// One setting of the hyperparameters, fitted and scored on the validation cut.
struct Candidate {
  std::string name;
  Score validation{};
};

struct SplitOutcome {
  std::string name;               ///< "random" or "time".
  double needed_margin = 0;       ///< By which the mean AUC must exceed the baseline's, or more.
  bool margin_is_strict = false;  ///< It must be more.
  std::vector<Candidate> candidates{};  ///< Empty: there was nothing to choose.
  std::string chosen{};                 ///< The candidate of the final runs.
  std::vector<FinalRun> runs{};
  Score baseline{};

  Score mean() const;
};

/// What the audit's process counted over all ledgers, in pushes.
struct AuditOutcome {
  std::uint64_t acknowledged = 0;
  std::uint64_t applied = 0;     ///< Of the acknowledged, those that the servers hold.
  std::uint64_t lost = 0;        ///< Acknowledged, and not there.
  std::uint64_t duplicated = 0;  ///< There more than once.
  std::uint64_t in_doubt = 0;    ///< Sent, and never acknowledged: there once or not at all.

  bool clean() const noexcept {
    return acknowledged > 0 && lost == 0 && duplicated == 0 && applied == acknowledged;
  }
};

struct KillOutcome {
  std::string server;
  double recovery_ms = -1;  ///< From the kill to its first acknowledged push; below 0: never seen.
};

struct DemoOutcome {
  std::vector<SplitOutcome> splits;
  AuditOutcome audit;
  std::vector<KillOutcome> kills;
  std::vector<std::string> unexpected_ends;  ///< Of processes.
  std::string durability = "push";
  double seconds = 0;  ///< Of the whole demo.

  /// Samples of all final runs over their seconds, the one with the kill included.
  double samples_per_s() const;
  /// The median over the kills; below 0 when there was none, or one was not seen to end.
  double recovery_ms() const;
};

/// One line for each thing that is not as promised. Empty: all is well.
std::vector<std::string> failures_of(const DemoOutcome& outcome);
/// The tables and lines that the demo ends with.
std::string report_of(const DemoOutcome& outcome, const Screen& screen);
/// {splits: {NAME: {model_auc, baseline_auc, model_logloss, baseline_logloss}}, audit:
/// {acknowledged, applied, lost, duplicated, in_doubt}, kills, recovery_ms, samples_per_s}.
std::string json_of(const DemoOutcome& outcome);

/// As `hyperframes_worker --evaluate --json` and `hyperframes audit --json` write them. Throw
/// `corrupt` when the text is something else.
Score parse_score(const std::string& json, const std::string& source);
AuditOutcome parse_audit(const std::string& json, const std::string& source);

}  // namespace hyperframes::tools
