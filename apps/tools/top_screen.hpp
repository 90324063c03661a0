// What `hyperframes top` shows, apart from the terminal that it shows it on.
//
//   TopScreen screen(style);
//   screen.update(nodes);                                      // each second
//   screen.press(Key::down);                                   // selects the next actor
//   for (const auto& line : screen.lines(width, height)) print(line);
#pragma once

#include <hyperframes/apps/tools/node_view.hpp>
#include <hyperframes/apps/tools/progress.hpp>
#include <optional>
#include <string>
#include <vector>

namespace hyperframes::tools {

enum class Key : std::uint8_t {
  other,
  up,
  down,
  page_up,
  page_down,
  home,
  end,
  enter,  ///< Shows or hides the selected actor's chain.
  pause,  ///< "p": keeps what is shown.
  quit,   ///< "q", or Control and C.
};

/// Takes the keys out of what a terminal has sent; what may be the beginning of one stays.
std::vector<Key> take_keys(std::string& bytes);

/// One node that is watched.
struct WatchedNode {
  std::string address;
  std::optional<NodeView> view;  ///< The last answer; empty: none yet.
  std::string trouble;           ///< Why there was no answer this time.
};

/// Makes one line safe to show: what a node sends holds no control characters then.
std::string printable_line(std::string_view text);
/// Rates and shares as the tables show them; "-" while they are not known.
std::string rate_text(const std::optional<double>& rate);
std::string share_text(const std::optional<double>& share);
/// "server-0  127.0.0.1:9464  12 actors, 2 sessions", and a line for each shard.
std::vector<std::string> node_lines(const WatchedNode& node, const Screen& style);
/// The columns of the actors' table, and an actor's cells.
std::vector<Table::Column> actor_columns();
std::vector<std::string> actor_cells(const ActorView& actor, unsigned indent, const Screen* style);

class TopScreen {
 public:
  explicit TopScreen(const Screen& style) : style_(style) {}

  /// Unless it is paused.
  void update(std::vector<WatchedNode> nodes);
  /// False: the user wants to leave.
  bool press(Key key);
  /// Exactly `height` lines or fewer, none wider than `width`.
  std::vector<std::string> lines(std::size_t width, std::size_t height);

 private:
  struct Row {
    std::size_t node;
    const ActorView* actor;  ///< Null: the node's own row.
  };
  void make_rows();
  const Row* selected() const noexcept;
  void remember_selection();
  std::vector<std::string> head(std::size_t height) const;
  std::vector<std::string> table(std::size_t width) const;
  std::vector<std::string> pane(std::size_t height) const;

  const Screen& style_;
  std::vector<WatchedNode> nodes_;
  std::vector<Row> rows_;
  std::size_t at_ = 0;       ///< The selected row.
  std::size_t first_ = 0;    ///< The first row that is shown.
  std::size_t visible_ = 1;  ///< Rows that fit.
  std::string selected_node_, selected_actor_;
  bool pane_open_ = true, paused_ = false;
  bool moved_ = false;  ///< The user has selected something: until then it is what stands first.
};

}  // namespace hyperframes::tools
