#include <hyperframes/apps/tools/node_view.hpp>

#include <catch2/catch_test_macros.hpp>
#include <hyperframes/actors/report.hpp>
#include <hyperframes/runtime/error.hpp>
#include <string>

using namespace hyperframes;
using namespace hyperframes::tools;

namespace {

AwaitPlace place(const char* function, const char* file, unsigned line) {
  AwaitPlace place;
  place.function = function;
  place.file = file;
  place.line = line;
  return place;
}

ActorReport actor(std::uint64_t id, std::string name, std::uint64_t parent = 0) {
  ActorReport actor;
  actor.id = id;
  actor.name = std::move(name);
  actor.service = "demo.Counter";
  actor.parent = parent;
  actor.state = "open";
  return actor;
}

NodeReport report_at(Duration at) {
  NodeReport report;
  report.node = "n";
  report.id = 7;
  report.at = Time(at);
  report.shards.resize(1);
  report.shards[0].answered = true;
  return report;
}

}  // namespace

TEST_CASE("what a node says is read as it was written") {
  NodeReport report = report_at(1s);
  report.shards[0].load.busy_ns = 5;
  report.shards[0].tasks.resize(2);
  report.shards[0].tasks_left_out = 3;
  report.shards.emplace_back().index = 1;
  report.shards.back().doing = "stuck";
  report.actors.push_back(actor(1, "a"));
  ActorReport& busy = report.actors.emplace_back(actor(2, "b", 1));
  busy.busy = true;
  busy.mailbox_messages = 3;
  busy.mailbox_limit = 4;
  busy.waiting_senders = 2;
  busy.restarts = 5;
  busy.last_failure = "bang";
  TurnReport& turn = busy.turns.emplace_back();
  turn.kind = "letter";
  turn.method = "demo.Counter.Add";
  turn.exclusive = true;
  turn.suspended_for = 1500ms;
  AwaitChain& chain = turn.chain;
  chain.places = {place("hf::Task<void> A::f()", "a.cpp", 1), place("void B::g(int)", "b.cpp", 2)};
  chain.places_left_out = 9;
  chain.branches.emplace_back().places = {place("h()", "c.cpp", 3)};
  chain.branches_left_out = 1;
  NodeView view = parse_node(report.to_json());
  CHECK(view.name == "n");
  REQUIRE(view.shards.size() == 2);
  CHECK(view.shards[0].busy_ns == 5);
  CHECK(view.shards[0].tasks == 5);
  CHECK(!view.shards[1].answered);
  CHECK(view.shards[1].doing == "stuck");
  REQUIRE(view.actors.size() == 2);
  CHECK(view.actors[0].parent.empty());
  const ActorView& read = view.actors[1];
  CHECK(read.parent == view.actors[0].id);
  CHECK(read.busy);
  CHECK(read.mailbox == 3);
  CHECK(read.mailbox_limit == 4);
  CHECK(read.waiting_senders == 2);
  CHECK(read.restarts == 5);
  CHECK(waits_on(read) == "b.cpp:2 B::g (2 tasks)");
  const auto lines = chain_lines(read);
  CHECK(lines == std::vector<std::string>{"last crash: bang",
                                          "letter demo.Counter.Add, begun 1.5 s ago",
                                          "  a.cpp:1 A::f", "  ... 9 more ...", "  b.cpp:2 B::g",
                                          "  task 1 of 2", "    c.cpp:3 h", "  and 1 more tasks"});
}

TEST_CASE("a tree has parents before their children, and orphans at the top") {
  NodeReport report = report_at(1s);
  report.actors = {actor(1, "child of b", 3), actor(2, "a"), actor(3, "b"),
                   actor(4, "grandchild", 1), actor(5, "orphan", 99)};
  NodeView view = parse_node(report.to_json());
  std::vector<std::string> shown;
  for (const ActorView* actor : view.tree())
    shown.push_back(std::string(actor->level, '>') + actor->name);
  CHECK(shown == std::vector<std::string>{"a", "b", ">child of b", ">>grandchild", "orphan"});
}

TEST_CASE("a tree shows each actor of a chain of a thousand") {
  NodeReport report = report_at(1s);
  for (std::uint64_t id = 1; id <= 1000; ++id)
    report.actors.push_back(actor(id, "a" + std::to_string(id), id - 1));
  NodeView view = parse_node(report.to_json());
  const auto tree = view.tree();
  REQUIRE(tree.size() == 1000);
  CHECK(tree.back()->name == "a1000");
  CHECK(tree.back()->level == 999);
  CHECK(report.to_string().find("a1000 (demo.Counter)") != std::string::npos);
}

TEST_CASE("rates come from two looks at the same actors, and from nothing else") {
  NodeReport report = report_at(10s);
  report.actors = {actor(1, "a"), actor(2, "gone")};
  report.shards[0].samples = 1000;
  report.actors[0].handled = 100;
  report.actors[0].busy_samples = 50;
  NodeView before = parse_node(report.to_json());
  report = report_at(12s);
  report.actors = {actor(1, "a"), actor(3, "new")};
  report.shards[0].samples = 3000;
  report.shards[0].load.busy_ns = 500'000'000;
  report.actors[0].handled = 300;
  report.actors[0].busy_samples = 1050;
  NodeView now = parse_node(report.to_json());
  add_rates(now, before);
  CHECK(now.shards[0].load == 0.25);
  CHECK(now.actors[0].rate == 100);
  CHECK(now.actors[0].busy_share == 0.5);
  CHECK(!now.actors[1].rate);
  // Another process at the same address, or the same look again.
  NodeView other = parse_node(report.to_json());
  before.id = "another";
  add_rates(other, before);
  CHECK(!other.actors[0].rate);
  add_rates(other, parse_node(report.to_json()));
  CHECK(!other.actors[0].rate);
}

TEST_CASE("what is no node's answer is an error that says where to look") {
  for (const char* text : {"", "{}", "[]", "<html>", "{\"node\":1,\"shards\":[],\"actors\":[]}",
                           "{\"node\":\"n\",\"shards\":[{}],\"actors\":[]}",
                           "{\"node\":\"n\",\"shards\":[],\"actors\":[{\"id\":1}]}"}) {
    INFO(text);
    try {
      parse_node(text);
      FAIL("it was taken");
    } catch (const Error& error) {
      CHECK(error.is(Errc::corrupt));
      CHECK(error.remedy().find("--http_addr") != std::string::npos);
    }
  }
}

TEST_CASE("functions are shown by class and name, however a compiler spells them") {
  CHECK(short_function("main") == "main");
  CHECK(short_function(
            "hyperframes::Task<void> hyperframes::ps::(anonymous namespace)::Server::run()") ==
        "Server::run");
  CHECK(short_function(
            "virtual hf::Task<void> demo::Counter::add(demo::Add, hf::Reply<demo::Value>)") ==
        "Counter::add");
  CHECK(
      short_function("Task<std::tuple<T...>> hyperframes::when_all(Task<T>...) [T = <int, int>]") ==
      "hyperframes::when_all");
  CHECK(short_function(
            "Task<R> hyperframes::ps::{anonymous}::run(F) [with F = main()::<lambda()>]") ==
        "{anonymous}::run");
  CHECK(short_function("auto main()::(anonymous class)::operator()() const") == "main::operator");
  CHECK(!short_function("").empty());
  CHECK(!short_function("((((").empty());
  CHECK(!short_function("))))").empty());
}

TEST_CASE("an actor without a name is titled by its service and a short id") {
  ActorView actor;
  actor.service = "demo.Counter";
  actor.id = "0010000010000005";
  CHECK(title(actor) == "Counter 10000010000005");
  actor.name = "store";
  CHECK(title(actor) == "store");
}

TEST_CASE("an actor that waits for nothing says what comes next") {
  ActorView actor;
  CHECK(waits_on(actor).empty());
  CHECK(chain_lines(actor) == std::vector<std::string>{"waits for letters"});
  actor.mailbox = 1;
  CHECK(chain_lines(actor) == std::vector<std::string>{"its next letter is ready to run"});
  actor.state = "pausing";
  CHECK(waits_on(actor) == "waits to be restarted");
}
