#include <hyperframes/apps/tools/watch.hpp>

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <hyperframes/apps/ps/command_line.hpp>
#include <hyperframes/apps/tools/commands.hpp>
#include <hyperframes/apps/tools/page_reader.hpp>
#include <hyperframes/apps/tools/terminal.hpp>
#include <hyperframes/runtime/error.hpp>
#include <memory>
#include <string>

namespace hyperframes::tools {
namespace {

constexpr const char* address_help =
    "HOST:PORT of a node's HTTP page: what its program was given as --http_addr";

constexpr const char* actors_footer =
    R"(A program shows its actors when it was started with --http_addr:

  hyperframes_server --role ps --workdir /tmp/ps --http_addr 127.0.0.1:9464
  hyperframes actors 127.0.0.1:9464 --chains
  hyperframes actors 127.0.0.1:9464 --json
)";

constexpr const char* top_footer = R"(Example:

  hyperframes top 127.0.0.1:9464 127.0.0.1:9465

An actor is selected with the arrows; the lines that it waits on stand below. Where standard output is
no terminal, one screen is printed.
)";

struct ActorsFlags {
  std::string address;
  double interval_s = 1;
  bool json = false, chains = false;
};

/// The node that has answered; throws what stood in the way instead.
const NodeView& answered(const WatchedNode& node) {
  if (!node.view) throw std::runtime_error(node.trouble);
  return *node.view;
}

std::string table_text(NodeView& node, const Screen& style, bool chains) {
  Table table(actor_columns());
  const auto tree = node.tree();
  for (const ActorView* actor : tree) table.add_row(actor_cells(*actor, actor->level, &style));
  std::string text = table.render(style);
  if (!chains) return text;
  for (const ActorView* actor : tree) {
    if (actor->turns.empty()) continue;
    text += "\n" + style.paint(printable_line(title(*actor)), Tone::bold) + "\n";
    for (const auto& line : chain_lines(*actor)) text += "  " + printable_line(line) + "\n";
  }
  return text;
}

/// Lines that a terminal would break are cut there; elsewhere all is printed.
void print_fitting(const Screen& screen, const std::string& text) {
  if (!screen.terminal()) {
    fmt::print("{}", text);
    return;
  }
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    fmt::print("{}\n", cut_to_width(std::string_view(text).substr(at, end - at), screen.width()));
    at = end + 1;
  }
}

void show_actors(const ActorsFlags& flags) {
  if (flags.json) {
    const std::string text = PageReader(flags.address).get("/actors");
    parse_node(text);  // throws if it is something else
    fmt::print("{}\n", text);
    return;
  }
  // Rates need two looks.
  const bool rates = flags.interval_s > 0;
  Watch watch({flags.address},
              std::chrono::duration_cast<Duration>(std::chrono::duration<double>(flags.interval_s)),
              {});
  watch.wait_for_answers(1);
  auto nodes = watch.nodes();
  answered(nodes.front());
  if (rates) {
    watch.wait_for_answers(2);
    nodes = watch.nodes();
  }
  const Screen screen({.file = STDOUT_FILENO});
  std::string text;
  for (const auto& line : node_lines(nodes.front(), screen)) text += line + "\n";
  print_fitting(screen, text + "\n" + table_text(*nodes.front().view, screen, flags.chains));
}

// ---- top --------------------------------------------------------------------

void print_once(const std::vector<std::string>& addresses) {
  Watch watch(addresses, 1s, {});
  watch.wait_for_answers(2);
  const Screen screen({.file = STDOUT_FILENO});
  for (auto& node : watch.nodes()) {
    for (const auto& line : node_lines(node, screen)) fmt::print("{}\n", line);
    if (node.view) fmt::print("\n{}\n", table_text(*node.view, screen, false));
  }
}

/// Returns the signal that ended it, or 0.
int show_screen(const std::vector<std::string>& addresses) {
  Terminal terminal;
  const Screen style({.file = STDOUT_FILENO});
  TopScreen screen(style);
  Watch watch(addresses, 1s, [&terminal] { terminal.wake(); });
  std::string typed;
  while (true) {
    screen.update(watch.nodes());
    const auto size = terminal.size();
    terminal.draw(screen.lines(size.columns, size.rows));
    const auto news = terminal.wait(1s);
    if (news.signal != 0 || news.gone) return news.signal;
    typed += news.bytes;
    for (const Key key : take_keys(typed))
      if (!screen.press(key)) return 0;
  }
}

void top(const std::vector<std::string>& addresses) {
  for (const auto& address : addresses) PageReader{address};  // refuses what is none
  if (!Terminal::available()) return print_once(addresses);
  constexpr int by_signal = 128;  // as shells count
  if (const int signal = show_screen(addresses); signal != 0)
    throw CLI::RuntimeError(by_signal + signal);
}

}  // namespace

void add_actors_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("actors", "Shows a node's actors, and the lines that they wait on");
  const auto flags = std::make_shared<ActorsFlags>();
  command->add_option("ADDRESS", flags->address, address_help)->required();
  command->add_flag("--json", flags->json, "Print all that the node says, as JSON");
  command->add_flag("--chains", flags->chains,
                    "Print the whole chain of lines of each suspended handler");
  ps::take_number(command->add_option("--interval", flags->interval_s,
                                      "Seconds over which rates are measured; 0: none"),
                  0, 3600)
      ->capture_default_str();
  command->footer(actors_footer);
  command->callback([flags] { show_actors(*flags); });
}

void add_top_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("top", "Shows nodes, shards and actors, anew each second");
  const auto addresses = std::make_shared<std::vector<std::string>>();
  command->add_option("ADDRESS", *addresses, address_help)->required();
  command->footer(top_footer);
  command->callback([addresses] { top(*addresses); });
}

}  // namespace hyperframes::tools
