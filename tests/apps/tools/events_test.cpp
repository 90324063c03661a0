// `hyperframes events` beside a node of this process.
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/actors/supervisor.hpp>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tool.hpp"

using namespace hyperframes;
using tools_test::contains;
using tools_test::Outcome;
using tools_test::run;
using tools_test::succeed;
using tools_test::WorkFolder;

namespace {

/// A node whose supervisor has a child named "pool", which is restarted by hand.
class Supervised {
 public:
  explicit Supervised(const std::string& http_address = "127.0.0.1:0") : runtime_({.shards = 1}) {
    log::set_sink([](log::Level, std::string_view) {});
    Node::Options options;
    options.http_address = http_address;
    try {
      node_ = std::make_unique<Node>(runtime_, options);
    } catch (const Error& error) {
      log::set_sink({});
      if (error.is(Errc::unsupported)) SKIP(error.what());
      throw;
    }
    root_ = runtime_.run([this](Runtime&) {
      SpawnOptions pool;
      pool.name = "pool";
      pool.restart.kind = Restart::permanent;
      return node_->spawn<Supervisor>(
          "root", Supervision{.children = {child<Supervisor>(pool, Supervision())}});
    });
  }
  ~Supervised() { log::set_sink({}); }
  Supervised(const Supervised&) = delete;

  std::string address() const { return node_->http_address(); }
  void restart() {
    runtime_.run([this](Runtime&) { return root_.restart("pool"); });
  }

 private:
  Runtime runtime_;
  std::unique_ptr<Node> node_;
  SupervisorRef root_;
};

}  // namespace

TEST_CASE("events are shown with their times, or as lines of JSON, from a number on") {
  Supervised program;
  const WorkFolder folder;
  CHECK(contains(succeed(folder, "hyperframes events " + program.address()).text,
                 "nothing was decided so far"));
  program.restart();
  program.restart();
  const std::string text = succeed(folder, "hyperframes events " + program.address()).text;
  INFO(text);
  CHECK(contains(text, ":"));
  CHECK(contains(text, "  shard 0  actor 'pool' is restarted by hand\n"));
  const Outcome lines = succeed(
      folder, "hyperframes events --json --after 1 http://" + program.address() + "/metrics");
  const auto event = nlohmann::json::parse(lines.text);  // one
  CHECK(event.at("number") == 2);
  CHECK(event.at("decision") == "restart");
  CHECK(event.at("by_hand") == true);
}

TEST_CASE("followed, events are printed as they come") {
  Supervised program;
  const WorkFolder folder;
  program.restart();
  std::thread later([&] {
    // The second one comes once the first one was printed.
    while (folder.read("printed").empty())
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    program.restart();
  });
  const Outcome outcome = run(folder,
                              "touch printed; timeout 60 hyperframes events --follow "
                              "--interval 0.05 --json " +
                                  program.address() +
                                  " > printed & followed=$!; "
                                  "until [ $(wc -l < printed) = 2 ]; do sleep 0.05; "
                                  "kill -0 $followed || exit 3; done; "
                                  "kill $followed; cat printed");
  later.join();
  INFO(outcome.text);
  CHECK(outcome.status == 0);
  CHECK(contains(outcome.text, "\"number\":1"));
  CHECK(contains(outcome.text, "\"number\":2"));
}

TEST_CASE("followed events end when nobody reads them any more, also if none come") {
  Supervised program;
  const WorkFolder folder;
  program.restart();
  const Outcome outcome =
      run(folder, "(timeout 60 hyperframes events --follow --interval 0.05 " + program.address() +
                      "; echo $? > ended) | head -1; cat ended");
  INFO(outcome.text);
  CHECK(contains(outcome.text, "\n0\n"));
}

TEST_CASE("all events of a process that was started anew are shown, and that it was") {
  auto program = std::make_unique<Supervised>();
  const std::string address = program->address();
  const WorkFolder folder;
  for (int i = 0; i < 3; ++i) program->restart();
  std::thread later([&] {
    for (int i = 0; i < 10'000 && !contains(folder.read("printed"), "\"number\":3"); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    program.reset();
    program = std::make_unique<Supervised>(address);
    for (int i = 0; i < 5; ++i) program->restart();
  });
  // Asked seldom, so that the new one has decided more by then than the old one had.
  const Outcome outcome = run(folder,
                              "touch printed; timeout 100 hyperframes events --follow "
                              "--interval 1 --json " +
                                  address +
                                  " > printed 2> said & followed=$!; "
                                  "until [ $(wc -l < printed) -ge 8 ]; do sleep 0.05; "
                                  "kill -0 $followed || exit 3; done; "
                                  "kill $followed; cat said; cat printed");
  later.join();
  INFO(outcome.text);
  CHECK(outcome.status == 0);
  CHECK(contains(outcome.text, "(the process was started anew)"));
  for (const char* number : {"1", "2", "3", "4", "5"})
    CHECK(contains(outcome.text, "\"number\":" + std::string(number)));
  CHECK(folder.read("printed").find("\"number\":1") !=
        folder.read("printed").rfind("\"number\":1"));
}

TEST_CASE("a number that no event has yet shows none, and says which is the latest") {
  Supervised program;
  const WorkFolder folder;
  program.restart();
  const std::string text =
      succeed(folder, "hyperframes events --after 100 " + program.address()).text;
  CHECK(text == "(nothing was decided after 100; the latest is 1)\n");
}

TEST_CASE("who does not answer is named, and so is what is no node") {
  const WorkFolder folder;
  const Outcome nobody = run(folder, "hyperframes events 127.0.0.1:1");
  CHECK(nobody.status == 1);
  CHECK(contains(nobody.text, "ask the node at http://127.0.0.1:1/events"));
  for (const std::string command : {"events", "actors"}) {
    const Outcome link = run(folder, "hyperframes " + command + " http://127.0.0.1:1/metrics");
    CHECK(contains(link.text, "ask the node at http://127.0.0.1:1/" + command));
    const Outcome other = run(folder, "hyperframes " + command + " tcp://127.0.0.1:1");
    CHECK(contains(other.text, "give HOST:PORT, or http://HOST:PORT"));
  }
}
