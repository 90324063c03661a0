#include <hyperframes/apps/tools/top_screen.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>

using namespace hyperframes;
using namespace hyperframes::tools;

namespace {

ActorView actor(std::string id, std::string parent = "") {
  ActorView actor;
  actor.name = "actor-" + id;
  actor.id = std::move(id);
  actor.parent = std::move(parent);
  actor.state = "open";
  actor.mailbox_limit = 1024;
  return actor;
}

WatchedNode node(std::string name, int actors) {
  WatchedNode node;
  node.address = name + ":1";
  node.view.emplace().name = std::move(name);
  node.view->shards.emplace_back().answered = true;
  for (int i = 0; i < actors; ++i) node.view->actors.push_back(actor(std::to_string(i)));
  return node;
}

/// Nothing is painted, so that texts can be compared.
const Screen& plain() {
  static const Screen screen({.terminal = true, .colours = false, .unicode = false});
  return screen;
}

bool shows(const std::vector<std::string>& lines, const std::string& text) {
  return std::ranges::any_of(
      lines, [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

std::string selected(const std::vector<std::string>& lines) {
  for (const std::string& line : lines)
    if (line.starts_with("\x1b[7m")) return line;
  return "";
}

bool is_selected(TopScreen& screen, const std::string& text) {
  return selected(screen.lines(100, 24)).find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("the screen has as many lines as the terminal, and none is wider") {
  TopScreen screen(plain());
  std::vector<WatchedNode> nodes = {node("one", 50), node("two", 3)};
  nodes[0].view->actors[0].turns.resize(20);
  screen.update(std::move(nodes));
  for (const std::size_t height : {0u, 1u, 2u, 5u, 10u, 24u, 80u}) {
    for (const std::size_t width : {0u, 1u, 20u, 80u, 200u}) {
      const auto lines = screen.lines(width, height);
      INFO(height << " x " << width);
      CHECK(lines.size() == height);
      for (const auto& line : lines) CHECK(display_width(line) <= width);
    }
  }
}

TEST_CASE("nodes, shards and actors are shown, and what is stuck or silent is named") {
  TopScreen screen(plain());
  std::vector<WatchedNode> nodes = {node("one", 1), node("two", 1)};
  ShardView& stuck = nodes[0].view->shards.emplace_back();
  stuck.index = 1;
  stuck.doing = "in actor 'x'";
  nodes[0].view->shards[0].load = 0.41;
  nodes[1].trouble = "connection refused";
  nodes.push_back({.address = "three:1", .view = {}, .trouble = "never heard of"});
  screen.update(std::move(nodes));
  const auto lines = screen.lines(200, 40);
  for (const char* text : {"one:1", "41 %", "shard 1  does not answer: in actor 'x'", "two:1",
                           "connection refused", "three:1  never heard of", "waits on", "actor-0"})
    CHECK(shows(lines, text));
}

TEST_CASE("an actor is selected with the keys, and its chain is shown below") {
  TopScreen screen(plain());
  auto one = node("one", 5);
  TurnView& turn = one.view->actors[2].turns.emplace_back();
  turn.kind = "letter";
  turn.method = "demo.Add";
  turn.chain.places = {{"f()", "outer.cpp", 1}, {"g()", "inner.cpp", 2}};
  screen.update({one});
  CHECK(is_selected(screen, "actor-0"));
  CHECK(screen.press(Key::down));
  CHECK(screen.press(Key::down));
  auto lines = screen.lines(100, 24);
  CHECK(selected(lines).find("inner.cpp:2 g") != std::string::npos);
  CHECK(shows(lines, "  outer.cpp:1 f"));
  CHECK(screen.press(Key::enter));
  CHECK(!shows(screen.lines(100, 24), "outer.cpp:1 f"));
  CHECK(screen.press(Key::end));
  CHECK(is_selected(screen, "actor-4"));
  CHECK(screen.press(Key::down));
  CHECK(is_selected(screen, "actor-4"));
  CHECK(screen.press(Key::home));
  CHECK(screen.press(Key::up));
  CHECK(is_selected(screen, "actor-0"));
  CHECK(!screen.press(Key::quit));
}

TEST_CASE("on a narrow screen some columns are left out, so that others can be read") {
  TopScreen screen(plain());
  screen.update({node("one", 1)});
  CHECK(shows(screen.lines(110, 24), "actor    shard"));
  CHECK(shows(screen.lines(110, 24), "handled  restarts"));
  CHECK(shows(screen.lines(109, 24), "actor    mailbox"));
  CHECK(!shows(screen.lines(109, 24), "handled"));
  CHECK(shows(screen.lines(60, 24), "restarts"));
}

TEST_CASE("the selection stays on its actor while others come and go") {
  TopScreen screen(plain());
  screen.update({node("one", 5)});
  for (int i = 0; i < 3; ++i) screen.press(Key::down);
  CHECK(is_selected(screen, "actor-3"));
  auto fewer = node("one", 5);
  fewer.view->actors.erase(fewer.view->actors.begin(), fewer.view->actors.begin() + 2);
  screen.update({fewer});
  CHECK(is_selected(screen, "actor-3"));
  fewer.view->actors.clear();
  screen.update({fewer});
  CHECK(shows(screen.lines(80, 24), "no actor yet"));
  screen.update({node("one", 5)});
  CHECK(is_selected(screen, "actor-3"));
}

TEST_CASE("before a key was pressed what stands first is selected, whoever answered first") {
  TopScreen screen(plain());
  std::vector<WatchedNode> nodes = {node("one", 3), node("two", 3)};
  nodes[0].view.reset();
  screen.update(nodes);
  screen.update({node("one", 3), node("two", 3)});
  CHECK(is_selected(screen, "one"));
  screen.press(Key::down);
  CHECK(is_selected(screen, "actor-0"));
}

TEST_CASE("a list longer than the screen scrolls with the selection") {
  TopScreen screen(plain());
  screen.update({node("one", 100)});
  screen.lines(80, 24);
  for (int i = 0; i < 50; ++i) {
    screen.press(Key::down);
    CHECK(!selected(screen.lines(80, 24)).empty());
  }
  CHECK(is_selected(screen, "actor-50"));
  screen.press(Key::page_up);
  screen.press(Key::page_down);
  CHECK(is_selected(screen, "actor-50"));
  screen.press(Key::end);
  CHECK(is_selected(screen, "actor-99"));
}

TEST_CASE("a paused screen keeps what it shows") {
  TopScreen screen(plain());
  screen.update({node("one", 1)});
  screen.press(Key::pause);
  screen.update({node("other", 1)});
  CHECK(shows(screen.lines(80, 24), "one:1"));
  CHECK(shows(screen.lines(80, 24), "(paused)"));
  screen.press(Key::pause);
  screen.update({node("other", 1)});
  CHECK(shows(screen.lines(80, 24), "other:1"));
}

TEST_CASE("what a node sends can't steer the terminal") {
  TopScreen screen(plain());
  auto evil = node("one", 1);
  evil.view->name = "a\x1b[2Jb";
  evil.view->actors[0].name =
      "c\x1b]0;title\x07"
      "d\r\n\xc2\x9b"
      "31m";
  evil.view->actors[0].last_failure = "\x1b[31m";
  evil.trouble = "\x1b[1m";
  screen.update({evil});
  for (const auto& line : screen.lines(100, 24)) {
    std::string rest = line;
    for (const char* own : {"\x1b[7m", "\x1b[0m"})
      for (auto at = rest.find(own); at != std::string::npos; at = rest.find(own))
        rest.erase(at, 4);
    CHECK(rest.find_first_of("\x1b\x07\r\n\x9b") == std::string::npos);
  }
}

TEST_CASE("keys are taken from whole and from broken sequences") {
  std::string bytes = "j\x1b[A\x1b[6~qx";
  CHECK(take_keys(bytes) ==
        std::vector<Key>{Key::down, Key::up, Key::page_down, Key::quit, Key::other});
  CHECK(bytes.empty());
  bytes = "\x1b[";
  CHECK(take_keys(bytes).empty());
  bytes += "B";
  CHECK(take_keys(bytes) == std::vector<Key>{Key::down});
  bytes = "\x1b[zk";
  const auto keys = take_keys(bytes);
  CHECK(keys.back() == Key::up);
  CHECK(bytes.empty());
}

TEST_CASE("full mailboxes, restarts and unknown rates are told apart in the table") {
  ActorView view = actor("1");
  auto cells = actor_cells(view, 1, nullptr);
  CHECK(cells == std::vector<std::string>{"  actor-1", "0", "0", "-", "-", "0", "0", ""});
  view.mailbox = 1024;
  view.waiting_senders = 7;
  view.rate = 0.5;
  view.busy_share = 0.034;
  view.handled = 12345;
  view.restarts = 2;
  view.state = "pausing";
  cells = actor_cells(view, 0, nullptr);
  CHECK(cells == std::vector<std::string>{"actor-1", "0", "1,024+7", "0.5", "3 %", "12,345", "2",
                                          "pausing: waits to be restarted"});
  const Screen coloured({.terminal = true, .colours = true});
  CHECK(actor_cells(view, 0, &coloured)[2] == coloured.paint("1,024+7", Tone::warning));
  CHECK(rate_text(1234567.0) == "1,234,567");
}
