#include <hyperframes/apps/tools/top_screen.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string_view>

namespace hyperframes::tools {
namespace {

constexpr std::size_t bar_cells = 16;
constexpr std::size_t least_rows = 3;

const std::vector<std::pair<std::string_view, Key>>& key_sequences() {
  static const std::vector<std::pair<std::string_view, Key>> sequences = {
      {"\x1b[A", Key::up},
      {"\x1bOA", Key::up},
      {"k", Key::up},
      {"\x1b[B", Key::down},
      {"\x1bOB", Key::down},
      {"j", Key::down},
      {"\x1b[5~", Key::page_up},
      {"\x1b[6~", Key::page_down},
      {" ", Key::page_down},
      {"\x1b[H", Key::home},
      {"\x1b[1~", Key::home},
      {"g", Key::home},
      {"\x1b[F", Key::end},
      {"\x1b[4~", Key::end},
      {"G", Key::end},
      {"\r", Key::enter},
      {"\n", Key::enter},
      {"p", Key::pause},
      {"q", Key::quit},
      {"Q", Key::quit},
      {"\x03", Key::quit}};
  return sequences;
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string shard_line(const ShardView& shard, const Screen& style) {
  if (!shard.answered)
    return fmt::format("  shard {}  {}", shard.index,
                       style.paint("does not answer: " + printable_line(shard.doing), Tone::bad));
  std::string line = fmt::format("  shard {:<3}", shard.index);
  line +=
      style.bar(shard.load.value_or(0), bar_cells) + fmt::format("{:>6}", share_text(shard.load));
  line += fmt::format("  {:>10} items/s", rate_text(shard.work_rate));
  line += fmt::format("  {}, {} {}, {} ready, {}", counted(shard.actors, "actor"),
                      with_separators(shard.mailbox_messages),
                      shard.mailbox_messages == 1 ? "message waits" : "messages wait",
                      with_separators(shard.ready), counted(shard.tasks, "task"));
  if (shard.actors_left_out > 0)
    line += fmt::format(" ({} not shown)", counted(shard.actors_left_out, "actor"));
  return line;
}

}  // namespace

std::vector<Key> take_keys(std::string& bytes) {
  std::vector<Key> keys;
  while (!bytes.empty()) {
    const auto& sequences = key_sequences();
    const auto whole = std::ranges::find_if(
        sequences, [&](const auto& known) { return bytes.starts_with(known.first); });
    if (whole != sequences.end()) {
      keys.push_back(whole->second);
      bytes.erase(0, whole->first.size());
      continue;
    }
    const bool part = std::ranges::any_of(sequences, [&](const auto& known) {
      return known.first.size() > bytes.size() && known.first.starts_with(bytes);
    });
    if (part) break;
    keys.push_back(Key::other);
    bytes.erase(0, 1);
  }
  return keys;
}

std::string printable_line(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  std::string line;
  for (std::size_t i = 0; i < text.size(); ++i) {
    // U+0080 to U+009F are control characters as well: the first of them, in two bytes, is 0xc2
    // 0x80.
    const bool second_set = byte(i) == 0xc2 && i + 1 < text.size() && byte(i + 1) < 0xa0;
    line += byte(i) < 0x20 || byte(i) == 0x7f || second_set ? ' ' : text[i];
    i += second_set;
  }
  return line;
}

std::string rate_text(const std::optional<double>& rate) {
  if (!rate) return "-";
  constexpr double whole = 10;
  if (*rate > 0 && *rate < whole) return fmt::format("{:.1f}", *rate);
  return with_separators(static_cast<std::uint64_t>(*rate + 0.5));
}

std::string share_text(const std::optional<double>& share) {
  return share ? fmt::format("{:.0f} %", 100 * *share) : "-";
}

std::vector<std::string> node_lines(const WatchedNode& node, const Screen& style) {
  std::vector<std::string> lines;
  if (!node.view) {
    lines.push_back(node.address + "  " +
                    (node.trouble.empty() ? "has not answered yet"
                                          : style.paint(printable_line(node.trouble), Tone::bad)));
    return lines;
  }
  std::uint64_t actors = 0;
  for (const ShardView& shard : node.view->shards) actors += shard.actors;
  std::string line =
      style.paint(printable_line(node.view->name), Tone::bold) + "  " + node.address +
      fmt::format("  {}, {}", counted(actors, "actor"), counted(node.view->sessions, "session"));
  if (!node.trouble.empty()) line += "  " + style.paint(printable_line(node.trouble), Tone::bad);
  lines.push_back(std::move(line));
  for (const ShardView& shard : node.view->shards) lines.push_back(shard_line(shard, style));
  return lines;
}

std::vector<Table::Column> actor_columns() {
  return {{"actor", Table::Align::left},
          {"shard"},
          {"mailbox"},
          {"messages/s"},
          {"busy"},
          {"handled"},
          {"restarts"},
          {"waits on", Table::Align::left}};
}

std::vector<std::string> actor_cells(const ActorView& actor, unsigned indent, const Screen* style) {
  constexpr double often = 0.8;
  constexpr std::size_t widest_name = 40;
  constexpr unsigned deepest = 8;  // deeper ones stand no further in: their names are to be read
  const auto paint = [&](std::string text, bool noteworthy) {
    return style && noteworthy ? style->paint(text, Tone::warning) : text;
  };
  std::string depth = with_separators(actor.mailbox);
  if (actor.waiting_senders > 0)
    depth += fmt::format("+{}", with_separators(actor.waiting_senders));
  const bool full = actor.mailbox >= actor.mailbox_limit && actor.mailbox_limit > 0;
  const std::string waits = printable_line(waits_on(actor));
  const std::string name =
      std::string(std::size_t{2} * std::min(indent, deepest), ' ') + printable_line(title(actor));
  return {cut_to_width(name, widest_name),
          std::to_string(actor.shard),
          paint(depth, full || actor.waiting_senders > 0),
          rate_text(actor.rate),
          paint(share_text(actor.busy_share), actor.busy_share.value_or(0) > often),
          with_separators(actor.handled),
          paint(with_separators(actor.restarts), actor.restarts > 0),
          actor.state == "open" || waits.empty() ? waits : actor.state + ": " + waits};
}

// ---- the screen -------------------------------------------------------------

void TopScreen::update(std::vector<WatchedNode> nodes) {
  if (paused_) return;
  nodes_ = std::move(nodes);
  make_rows();
}

void TopScreen::make_rows() {
  rows_.clear();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].view) continue;
    if (nodes_.size() > 1) rows_.push_back({i, nullptr});
    for (const ActorView* actor : nodes_[i].view->tree()) rows_.push_back({i, actor});
  }
  // The selection stays on its actor, wherever that stands now; else in its place.
  const auto same = std::ranges::find_if(rows_, [&](const Row& row) {
    return nodes_[row.node].address == selected_node_ &&
           (row.actor ? row.actor->id : std::string()) == selected_actor_;
  });
  if (!moved_) at_ = 0;
  if (moved_ && same != rows_.end()) at_ = static_cast<std::size_t>(same - rows_.begin());
  at_ = std::min(at_, rows_.empty() ? 0 : rows_.size() - 1);
  remember_selection();
}

const TopScreen::Row* TopScreen::selected() const noexcept {
  return at_ < rows_.size() ? &rows_[at_] : nullptr;
}

void TopScreen::remember_selection() {
  const Row* const row = selected();
  if (!row) return;
  selected_node_ = nodes_[row->node].address;
  selected_actor_ = row->actor ? row->actor->id : "";
}

bool TopScreen::press(Key key) {
  const std::size_t last = rows_.empty() ? 0 : rows_.size() - 1;
  moved_ |= key >= Key::up && key <= Key::end;
  switch (key) {
    case Key::quit: return false;
    case Key::pause: paused_ = !paused_; break;
    case Key::enter: pane_open_ = !pane_open_; break;
    case Key::up: at_ -= at_ > 0; break;
    case Key::down: at_ = std::min(at_ + 1, last); break;
    case Key::page_up: at_ -= std::min(at_, visible_); break;
    case Key::page_down: at_ = std::min(at_ + visible_, last); break;
    case Key::home: at_ = 0; break;
    case Key::end: at_ = last; break;
    case Key::other: break;
  }
  remember_selection();
  return true;
}

std::vector<std::string> TopScreen::head(std::size_t height) const {
  std::vector<std::string> lines;
  for (const WatchedNode& node : nodes_)
    for (auto& line : node_lines(node, style_)) lines.push_back(std::move(line));
  const std::size_t most = std::max<std::size_t>(height / 3, 2);
  if (lines.size() > most) {
    const std::size_t hidden = lines.size() - most + 1;
    lines.resize(most - 1);
    lines.push_back(fmt::format("  ... {} more lines of nodes and shards", hidden));
  }
  return lines;
}

std::vector<std::string> TopScreen::table(std::size_t width) const {
  // Where not all columns fit, these go first.
  constexpr std::size_t narrow = 110, shard_column = 1, handled_column = 5;
  const auto fitting = [&](auto columns) {
    if (width >= narrow || columns.size() <= handled_column) return columns;
    columns.erase(columns.begin() + handled_column);
    columns.erase(columns.begin() + shard_column);
    return columns;
  };
  Table table(fitting(actor_columns()));
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    const unsigned indent = nodes_.size() > 1 ? 1 : 0;
    if (row.actor) {
      // The selected row is shown inverted, and painted cells would end that.
      table.add_row(fitting(
          actor_cells(*row.actor, row.actor->level + indent, i == at_ ? nullptr : &style_)));
    } else {
      table.add_row({printable_line(nodes_[row.node].view->name)});
    }
  }
  return split_lines(table.render(style_));
}

std::vector<std::string> TopScreen::pane(std::size_t height) const {
  const Row* const row = selected();
  if (!pane_open_ || !row || !row->actor || height < 2) return {};
  std::vector<std::string> lines = {style_.paint(
      printable_line(title(*row->actor) + "  " + row->actor->service + "  " + row->actor->state),
      Tone::bold)};
  for (const auto& line : chain_lines(*row->actor)) lines.push_back("  " + printable_line(line));
  if (lines.size() > height) {
    const std::size_t hidden = lines.size() - height + 1;
    lines.resize(height - 1);
    lines.push_back(fmt::format("  ... {} more lines", hidden));
  }
  return lines;
}

std::vector<std::string> TopScreen::lines(std::size_t width, std::size_t height) {
  std::vector<std::string> all = head(height);
  std::vector<std::string> rows = table(width);
  const std::vector<std::string> titles(rows.begin(), rows.begin() + 2);  // and the rule below them
  rows.erase(rows.begin(), rows.begin() + 2);
  // A blank line, titles and keys take four; the pane has what rows leave, and a third at least.
  const std::size_t used = all.size() + 4;
  const std::size_t left = height > used ? height - used : 0;
  const std::size_t free = left - std::min(left, rows.size() + 1);
  auto chain = pane(left > least_rows ? std::max(left / 3, free) : 0);
  visible_ = std::max<std::size_t>(left - std::min(left, chain.empty() ? 0 : chain.size() + 1), 1);
  first_ = std::clamp(first_, at_ + 1 > visible_ ? at_ + 1 - visible_ : 0, at_);
  if (first_ + visible_ > rows.size()) first_ = rows.size() > visible_ ? rows.size() - visible_ : 0;

  all.emplace_back();
  all.insert(all.end(), titles.begin(), titles.end());
  for (std::size_t i = first_; i < std::min(first_ + visible_, rows.size()); ++i) {
    const std::string line = cut_to_width(rows[i], width);
    const std::size_t pad = width - std::min(width, display_width(line));
    all.push_back(i == at_ ? "\x1b[7m" + line + std::string(pad, ' ') + "\x1b[0m" : line);
  }
  if (rows.empty()) all.push_back("  no actor yet");
  if (!chain.empty()) {
    all.emplace_back();
    for (auto& line : chain) all.push_back(std::move(line));
  }
  if (all.size() + 1 > height) all.resize(height > 0 ? height - 1 : 0);
  while (all.size() + 1 < height) all.emplace_back();
  if (height > 0)
    all.push_back(style_.paint(std::string("arrows select  Enter chain  p pause") +
                                   (paused_ ? " (paused)" : "") + "  q leave",
                               Tone::dim));
  for (auto& line : all)
    if (display_width(line) > width) line = cut_to_width(line, width);
  return all;
}

}  // namespace hyperframes::tools
