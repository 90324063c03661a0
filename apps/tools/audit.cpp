#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <hyperframes/actors/node.hpp>
#include <hyperframes/apps/ps/audit.hpp>
#include <hyperframes/apps/ps/command_line.hpp>
#include <hyperframes/apps/ps/security.hpp>
#include <hyperframes/apps/tools/commands.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace hyperframes::tools {
namespace {

constexpr const char* example = R"(Example, after a run whose workers had --ledger:

  hyperframes audit --coordinator_addr 127.0.0.1:6000 --ledger w0.ledger --ledger w1.ledger

Each acknowledged push must be there exactly once, one in doubt at most once. Exit status 1 if not.
)";

struct AuditFlags {
  std::string coordinator_addr;
  std::vector<std::string> ledgers;
  std::string table;
  double timeout_s = 60;
  bool json = false;
  ps::SecurityOptions security;
};

ps::LedgerSummary read_ledgers(const AuditFlags& flags) {
  ps::LedgerSummary summary;
  for (const auto& path : flags.ledgers) summary.add(ps::read_ledger(path), path);
  return summary;
}

ps::TableId table_named(const std::string& name, const ps::ClusterView& view) {
  if (const auto* table = view.table(name)) return table->id;
  std::string names;
  for (const auto& known : view.tables) names += (names.empty() ? "" : ", ") + known.name;
  throw Error(Errc::not_found, "audit table '" + name + "'", "the cluster has no such table",
              names.empty() ? "it has none at all" : "choose one of: " + names);
}

Task<ps::AuditResult> audit_with(ps::PsClient& client, const AuditFlags& flags,
                                 ps::LedgerSummary ledgers) {
  co_await client.start();
  if (!flags.table.empty()) ledgers.keep_only(table_named(flags.table, *client.view()));
  co_return co_await ps::audit(client, std::move(ledgers));
}

/// Connects, audits, and goes; all of it until the timeout has passed.
Task<ps::AuditResult> run_audit(Node& node, const AuditFlags& flags, ps::LedgerSummary ledgers) {
  ps::PsClient client(node,
                      {.coordinator = net::Endpoint::parse("tcp://" + flags.coordinator_addr)});
  ps::AuditResult result;
  std::exception_ptr failure;
  std::string waiting;
  try {
    const auto limit =
        after(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(flags.timeout_s)));
    result = co_await with_deadline(audit_with(client, flags, std::move(ledgers)), limit);
  } catch (const Error& error) {
    waiting = client.waiting();
    failure =
        !error.is(Errc::deadline_exceeded)
            ? std::current_exception()
            : std::make_exception_ptr(Error(
                  Errc::deadline_exceeded, fmt::format("audit within {:g} s", flags.timeout_s),
                  waiting.empty() ? "it was not done" : "it waited for: " + waiting,
                  "start what is missing, or give a greater --timeout"));
  }
  co_await client.close();
  co_await node.close(2s);
  if (failure) std::rethrow_exception(failure);
  co_return result;
}

void print(const ps::AuditResult& result, bool json) {
  if (json) {
    const nlohmann::ordered_json object = {{"acknowledged", result.acknowledged},
                                           {"applied", result.applied},
                                           {"lost", result.lost},
                                           {"duplicated", result.duplicated},
                                           {"in_doubt", result.in_doubt},
                                           {"in_doubt_applied", result.in_doubt_applied}};
    fmt::print("{}\n", object.dump());
  } else {
    const auto line = [](std::string_view name, std::uint64_t count, std::string_view meaning) {
      fmt::print("{:<13} {:>10}  {}\n", name, count, meaning);
    };
    line("acknowledged", result.acknowledged, "pushes that a worker was told are durable");
    line("applied", result.applied, "of those, in the servers' rows");
    line("lost", result.lost, "of those, not there");
    line("duplicated", result.duplicated, "pushes that are there more than once");
    line("in doubt", result.in_doubt,
         fmt::format("sent, and never heard of again; {} are there", result.in_doubt_applied));
    for (const auto& finding : result.findings) fmt::print("  {}\n", ps::describe(finding));
  }
  std::fflush(stdout);
}

void audit(const AuditFlags& flags) {
  auto ledgers = read_ledgers(flags);
  Runtime::Options runtime_options;
  runtime_options.shards = 1;
  Runtime runtime(runtime_options);
  Node node(runtime, {.name = "audit", .network = flags.security.network()});
  const auto result =
      runtime.run([&](Runtime&) { return run_audit(node, flags, std::move(ledgers)); });
  print(result, flags.json);
  if (!result.clean())
    throw Error(Errc::corrupt, "audit the pushes",
                fmt::format("{} are lost and {} were applied more than once", result.lost,
                            result.duplicated),
                "keep the servers' work folders and the ledgers: they show what happened");
}

}  // namespace

void add_audit_command(CLI::App& app) {
  auto flags = std::make_shared<AuditFlags>();
  auto* command =
      app.add_subcommand("audit", "Compares the workers' ledgers with what the servers hold");
  command->footer(example);
  ps::take_address(command->add_option("--coordinator_addr", flags->coordinator_addr,
                                       "HOST:PORT of the coordinator"))
      ->required();
  command->add_option("--ledger", flags->ledgers, "A worker's ledger; repeat it for each")
      ->required()
      ->check(CLI::ExistingFile);
  command->add_option("--table", flags->table, "Only pushes to this table (default: all)");
  ps::take_number(command->add_option("--timeout", flags->timeout_s, "Seconds until it gives up"),
                  .1, 86'400)
      ->capture_default_str();
  command->add_flag("--json", flags->json, "Print one line of JSON");
  ps::add_security_options(*command, flags->security);
  command->callback([flags] { audit(*flags); });
}

}  // namespace hyperframes::tools
