#include <hyperframes/apps/tools/demo_report.hpp>
//
#include <fmt/format.h>

#include <algorithm>
#include <hyperframes/runtime/error.hpp>
#include <nlohmann/json.hpp>
#include <type_traits>

namespace hyperframes::tools {
namespace {

using Align = Table::Align;

// A terminal's width, within what is pleasant to read.
std::size_t line_cells(const Screen& screen) {
  return std::clamp<std::size_t>(screen.width(), 60, 100);
}

std::string signed_text(double value) { return fmt::format("{:+.4f}", value); }

void check_split(const SplitOutcome& split, std::vector<std::string>& failures) {
  if (split.runs.empty()) {
    failures.push_back(fmt::format("{} split: no final run was scored", split.name));
    return;
  }
  const double margin = split.mean().auc - split.baseline.auc;
  // Written so that a margin which is not a number fails.
  const bool wins =
      split.margin_is_strict ? margin > split.needed_margin : margin >= split.needed_margin;
  if (wins) return;
  failures.push_back(fmt::format(
      "{} split: the model's AUC {:.4f} against the baseline's {:.4f} is a margin of {:+.4f}; {} "
      "{:.3f} is needed",
      split.name, split.mean().auc, split.baseline.auc, margin,
      split.margin_is_strict ? "more than" : "at least", split.needed_margin));
}

void check_audit(const AuditOutcome& audit, std::vector<std::string>& failures) {
  if (audit.clean()) return;
  if (audit.acknowledged == 0) {
    failures.push_back("audit: no ledger holds an acknowledged push");
    return;
  }
  failures.push_back(
      fmt::format("audit: of {} acknowledged pushes {} are lost and {} were applied exactly once; "
                  "{} pushes were "
                  "applied more than once",
                  with_separators(audit.acknowledged), with_separators(audit.lost),
                  with_separators(audit.applied), with_separators(audit.duplicated)));
}

Table score_table(const DemoOutcome& outcome, const Screen& screen) {
  Table table({{"split", Align::left},
               {"run", Align::left},
               {"AUC"},
               {"baseline"},
               {"margin"},
               {"logloss"},
               {"baseline"},
               {"samples/s"}});
  for (const SplitOutcome& split : outcome.splits) {
    if (&split != &outcome.splits.front()) table.add_rule();
    for (const FinalRun& run : split.runs)
      table.add_row({split.name, fmt::format("seed {}", run.seed),
                     fmt::format("{:.4f}", run.test.auc), "",
                     signed_text(run.test.auc - split.baseline.auc),
                     fmt::format("{:.4f}", run.test.logloss), "",
                     with_separators(static_cast<std::uint64_t>(
                         run.seconds > 0 ? static_cast<double>(run.samples) / run.seconds : 0))});
    const Score mean = split.mean();
    std::vector<std::string> failures;
    check_split(split, failures);
    table.add_row({screen.paint(split.name, Tone::bold),
                   screen.paint(fmt::format("mean of {}", split.runs.size()), Tone::bold),
                   screen.paint(fmt::format("{:.4f}", mean.auc), Tone::bold),
                   fmt::format("{:.4f}", split.baseline.auc),
                   screen.paint(signed_text(mean.auc - split.baseline.auc),
                                failures.empty() ? Tone::good : Tone::bad),
                   screen.paint(fmt::format("{:.4f}", mean.logloss), Tone::bold),
                   fmt::format("{:.4f}", split.baseline.logloss), ""});
  }
  return table;
}

/// What a fact is called, and what is known of it: wrapped into lines that fit the screen.
class Facts {
 public:
  explicit Facts(const Screen& screen) : screen_(screen) {}
  void add(std::string_view name, std::string_view text, Tone tone = Tone::plain) {
    const std::string head = fmt::format("{:<{}}", name, indent);
    const std::string wrapped = wrap_text(text, line_cells(screen_) - indent);
    for (std::size_t at = 0; at <= wrapped.size();) {
      const std::size_t end = std::min(wrapped.find('\n', at), wrapped.size());
      text_ += at == 0 ? head : std::string(indent, ' ');
      text_ += screen_.paint(wrapped.substr(at, end - at), tone) + "\n";
      at = end + 1;
    }
  }
  const std::string& text() const noexcept { return text_; }

 private:
  static constexpr std::size_t indent = 21;
  const Screen& screen_;
  std::string text_;
};

std::string facts_of(const DemoOutcome& outcome, const Screen& screen) {
  Facts facts(screen);
  for (const SplitOutcome& split : outcome.splits) {
    std::string text = split.chosen;
    for (const Candidate& candidate : split.candidates)
      text += fmt::format("{} {} {:.4f}",
                          &candidate == &split.candidates.front() ? "; validation AUC:" : ",",
                          candidate.name, candidate.validation.auc);
    facts.add(fmt::format("model, {} split", split.name), text);
  }
  facts.add("samples/s",
            fmt::format("{} over all final runs{}",
                        with_separators(static_cast<std::uint64_t>(outcome.samples_per_s())),
                        outcome.kills.empty() ? "" : ", the kill included"));
  facts.add("durability", outcome.durability);
  for (const KillOutcome& kill : outcome.kills) {
    if (kill.recovery_ms < 0)
      facts.add("recovery", kill.server + " acknowledged no push after its kill", Tone::bad);
    else
      facts.add("recovery", fmt::format("{:.0f} ms from the kill of {} to its next push",
                                        kill.recovery_ms, kill.server));
  }
  const AuditOutcome& audit = outcome.audit;
  const Tone tone = audit.clean() ? Tone::good : Tone::bad;
  facts.add("audit",
            fmt::format("{} pushes acknowledged, {} of them applied once",
                        with_separators(audit.acknowledged), with_separators(audit.applied)),
            tone);
  facts.add("",
            fmt::format("{} lost, {} duplicated; {} in doubt", with_separators(audit.lost),
                        with_separators(audit.duplicated), with_separators(audit.in_doubt)),
            tone);
  facts.add("time", minutes_text(std::chrono::duration_cast<Duration>(
                        std::chrono::duration<double>(outcome.seconds))));
  return facts.text();
}

/// "PASSED  text", wrapped under its text.
std::string verdict(std::string_view word, Tone tone, const std::string& text,
                    const Screen& screen) {
  const std::string head = fmt::format("{}  ", screen.paint(word, tone));
  return wrap_text(head + text, line_cells(screen), display_width(head)) + "\n";
}

nlohmann::json parse_json(const std::string& text, const std::string& source) {
  // What a program logs before its result does not belong to it.
  const std::size_t begin = std::min(text.find('{'), text.size());
  auto json = nlohmann::json::parse(text.substr(begin), nullptr, false);
  if (!json.is_object())
    throw Error(Errc::corrupt, "read the result of " + source,
                "'" + text.substr(0, 200) + "' is no JSON object", "look into its log");
  return json;
}

template <class Value>
Value number_of(const nlohmann::json& json, const char* key, const std::string& source) {
  const auto found = json.find(key);
  const bool fits = found != json.end() &&
                    (std::is_integral_v<Value> ? found->is_number_unsigned() : found->is_number());
  if (!fits)
    throw Error(Errc::corrupt, "read the result of " + source,
                std::string("it has no number '") + key + "'", "look into its log");
  return found->get<Value>();
}

}  // namespace

Score SplitOutcome::mean() const {
  Score sum;
  for (const FinalRun& run : runs) {
    sum.auc += run.test.auc;
    sum.logloss += run.test.logloss;
  }
  const auto count = static_cast<double>(runs.size());
  return {sum.auc / count, sum.logloss / count};
}

double DemoOutcome::samples_per_s() const {
  double samples = 0;
  double time = 0;
  for (const SplitOutcome& split : splits) {
    for (const FinalRun& run : split.runs) {
      samples += static_cast<double>(run.samples);
      time += run.seconds;
    }
  }
  return time > 0 ? samples / time : 0;
}

double DemoOutcome::recovery_ms() const {
  std::vector<double> times;
  for (const KillOutcome& kill : kills) {
    if (kill.recovery_ms < 0) return -1;
    times.push_back(kill.recovery_ms);
  }
  if (times.empty()) return -1;
  std::sort(times.begin(), times.end());
  return (times[(times.size() - 1) / 2] + times[times.size() / 2]) / 2;
}

std::vector<std::string> failures_of(const DemoOutcome& outcome) {
  std::vector<std::string> failures;
  for (const SplitOutcome& split : outcome.splits) check_split(split, failures);
  check_audit(outcome.audit, failures);
  for (const KillOutcome& kill : outcome.kills)
    if (kill.recovery_ms < 0)
      failures.push_back(kill.server + " was killed, and acknowledged no push after that");
  for (const std::string& end : outcome.unexpected_ends)
    failures.push_back("a process ended that should not have: " + end);
  return failures;
}

std::string report_of(const DemoOutcome& outcome, const Screen& screen) {
  std::string text =
      score_table(outcome, screen).render(screen) + "\n" + facts_of(outcome, screen) + "\n";
  const std::vector<std::string> failures = failures_of(outcome);
  for (const std::string& failure : failures) text += verdict("FAILED", Tone::bad, failure, screen);
  if (failures.empty())
    text += verdict("PASSED", Tone::good,
                    "the model wins on every split, and each acknowledged push was applied "
                    "exactly once",
                    screen);
  return text;
}

std::string json_of(const DemoOutcome& outcome) {
  nlohmann::ordered_json splits = nlohmann::ordered_json::object();
  for (const SplitOutcome& split : outcome.splits) {
    const Score mean = split.mean();
    splits[split.name] = {{"model_auc", mean.auc},
                          {"baseline_auc", split.baseline.auc},
                          {"model_logloss", mean.logloss},
                          {"baseline_logloss", split.baseline.logloss}};
  }
  const AuditOutcome& audit = outcome.audit;
  nlohmann::ordered_json json = {{"splits", splits},
                                 {"audit",
                                  {{"acknowledged", audit.acknowledged},
                                   {"applied", audit.applied},
                                   {"lost", audit.lost},
                                   {"duplicated", audit.duplicated},
                                   {"in_doubt", audit.in_doubt}}},
                                 {"kills", outcome.kills.size()},
                                 {"recovery_ms", nullptr},
                                 {"samples_per_s", outcome.samples_per_s()}};
  if (outcome.recovery_ms() >= 0) json["recovery_ms"] = outcome.recovery_ms();
  return json.dump(2) + "\n";
}

Score parse_score(const std::string& json, const std::string& source) {
  const nlohmann::json parsed = parse_json(json, source);
  return {number_of<double>(parsed, "auc", source), number_of<double>(parsed, "logloss", source)};
}

AuditOutcome parse_audit(const std::string& json, const std::string& source) {
  const nlohmann::json parsed = parse_json(json, source);
  const auto count = [&](const char* key) { return number_of<std::uint64_t>(parsed, key, source); };
  return {count("acknowledged"), count("applied"), count("lost"), count("duplicated"),
          count("in_doubt")};
}

}  // namespace hyperframes::tools
