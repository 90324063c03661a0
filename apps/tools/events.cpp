#include <fmt/chrono.h>
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <hyperframes/apps/ps/command_line.hpp>
#include <hyperframes/apps/tools/commands.hpp>
#include <hyperframes/apps/tools/page_reader.hpp>
#include <hyperframes/apps/tools/top_screen.hpp>
#include <hyperframes/runtime/error.hpp>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace hyperframes::tools {
namespace {

using nlohmann::json;

constexpr const char* footer =
    R"(A program shows what its supervisors decide when it was started with --http_addr:

  hyperframes_server --role ps --workdir /tmp/ps --http_addr 127.0.0.1:9464
  hyperframes events 127.0.0.1:9464
  hyperframes events 127.0.0.1:9464 --follow --json

Each line is one decision: which actor ended, why, and what follows. With --json it is an object, whose
fields docs/reference/seeing.md lists.
)";

struct EventsFlags {
  std::string address;
  std::uint64_t after = 0;
  double interval_s = 0.5;
  bool json = false, follow = false;
};

/// By the clock on this host's wall, from the node's, which only goes forward.
std::string time_text(std::int64_t ago_ns) {
  using std::chrono::system_clock;
  const auto at =
      system_clock::now() - std::chrono::duration_cast<system_clock::duration>(Duration(ago_ns));
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(at.time_since_epoch()).count() % 1000;
  return fmt::format("{:%F %T}.{:03}", fmt::localtime(system_clock::to_time_t(at)), ms);
}

/// Asks a node again and again, and prints what is new.
class EventPrinter {
 public:
  explicit EventPrinter(const EventsFlags& flags)
      : reader_(flags.address), as_json_(flags.json), after_(flags.after) {}

  void print_new() {
    while (!look()) {
    }
    std::fflush(stdout);
  }

 private:
  /// False if it has to look again, since the node is another one than before.
  bool look() {
    const std::string path = "/events?after=" + std::to_string(after_);
    try {
      const json page = json::parse(reader_.get(path));
      const auto node = page.at("node_begun_ns").get<std::int64_t>();
      if (node_.value_or(node) != node) {
        note("the process was started anew");
        node_ = node;
        after_ = 0;
        return false;
      }
      node_ = node;
      print(page);
    } catch (const json::exception& error) {
      throw Error(Errc::corrupt, "read what " + path + " says", error.what(),
                  "check that the address is a node's HTTP page, of this version");
    }
    return true;
  }

  void print(const json& page) {
    const auto latest = page.at("latest").get<std::uint64_t>();
    if (std::exchange(first_look_, false) && latest <= after_)
      note(after_ == 0
               ? "nothing was decided so far"
               : fmt::format("nothing was decided after {}; the latest is {}", after_, latest));
    if (latest <= after_) return;
    if (const auto lost = page.at("lost").get<std::uint64_t>(); lost > 0)
      note(fmt::format("{} earlier event{} not kept", lost, lost == 1 ? " was" : "s were"));
    const auto now = page.at("now_ns").get<std::int64_t>();
    for (const json& event : page.at("events")) {
      if (as_json_) {
        fmt::print("{}\n", event.dump(-1, ' ', false, json::error_handler_t::replace));
        continue;
      }
      fmt::print("{}  shard {}  {}\n", time_text(now - event.at("at_ns").get<std::int64_t>()),
                 event.at("shard").get<unsigned>(),
                 printable_line(event.at("line").get<std::string>()));
    }
    after_ = latest;
  }
  // Programs that read JSON get nothing else.
  void note(const std::string& text) const {
    fmt::print(as_json_ ? stderr : stdout, "({})\n", text);
  }

  PageReader reader_;
  const bool as_json_;
  std::uint64_t after_;
  std::optional<std::int64_t> node_;  ///< When it began: which one it is.
  bool first_look_ = true;
};

/// As after `| head -1`. A write would end the program, but there may be none for a long time.
bool nobody_reads() {
  pollfd out{.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  return ::poll(&out, 1, 0) > 0 && (out.revents & POLLERR) != 0;
}

void show_events(const EventsFlags& flags) {
  EventPrinter printer(flags);
  printer.print_new();
  bool answers = true;
  while (flags.follow) {
    std::this_thread::sleep_for(std::chrono::duration<double>(flags.interval_s));
    if (nobody_reads()) return;
    try {
      printer.print_new();
      answers = true;
    } catch (const Error& error) {
      // A process that is started again is worth waiting for.
      if (error.is(Errc::corrupt)) throw;
      if (std::exchange(answers, false))
        fmt::print(stderr, "hyperframes: {}; it is asked again\n", error.what());
    }
  }
}

}  // namespace

void add_events_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "events", "Shows what a node's supervisors decided: who ended, why, and what follows");
  const auto flags = std::make_shared<EventsFlags>();
  command
      ->add_option("ADDRESS", flags->address,
                   "HOST:PORT of a node's HTTP page: what its program was given as --http_addr")
      ->required();
  command->add_flag("--follow", flags->follow, "Go on, and print what comes, until interrupted");
  command->add_flag("--json", flags->json, "Print each event as a line of JSON");
  ps::take_whole(command->add_option("--after", flags->after, "Only those after this number"))
      ->capture_default_str();
  ps::take_number(command->add_option("--interval", flags->interval_s, "Seconds between two looks"),
                  0.05, 3600)
      ->capture_default_str();
  command->footer(footer);
  command->callback([flags] { show_events(*flags); });
}

}  // namespace hyperframes::tools
