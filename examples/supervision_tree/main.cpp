// A supervision tree: an index that is built from a store, and a pool that answers from the index.
//
//   example_supervision_tree
//
//   root (rest_for_one)
//     store
//     index
//     pool (one_for_one)
//       answers-1, answers-2
//
// When the index crashes, what was started after it begins anew with it, and the store does not.

#include <hyperframes/actors/supervisor.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>

#include "search.fbs.hpp"

namespace {

using namespace std::chrono_literals;

class PartActor final : public search::Part::Actor {
 public:
  explicit PartActor(std::string name) : name_(std::move(name)) {}

  hf::Task<void> started() override {
    std::cout << "  " << name_ << " starts" << (asked_ ? ", and goes on\n" : "\n");
    co_return;
  }
  hf::Task<void> stopping() override {
    std::cout << "  " << name_ << " ends\n";
    co_return;
  }
  hf::Task<void> query(search::Question question, hf::Reply<search::Answer> reply) override {
    if (question.text() == "break") throw std::runtime_error(name_ + " is broken");
    reply.send({.text = "question " + std::to_string(++asked_) + " to " + name_});
    co_return;
  }

  // What a life leaves to the next one, unless it crashed: then who knows what it is worth?
  std::optional<int> snapshot(hf::ExitReason why) {
    return why == hf::ExitReason::crashed ? std::nullopt : std::optional(asked_);
  }
  hf::Task<void> restore(int asked) {
    asked_ = asked;
    co_return;
  }

 private:
  std::string name_;
  int asked_ = 0;
};

hf::ChildSpec part(const std::string& name) {
  const hf::RestartPolicy twice{.kind = hf::Restart::permanent, .intensity = 2, .period = 60s};
  return hf::child<PartActor>({.name = name, .restart = twice}, name);
}

hf::Supervision plan() {
  const hf::Supervision pool{.children = {part("answers-1"), part("answers-2")}};
  const hf::RestartPolicy once{.kind = hf::Restart::permanent, .intensity = 1, .period = 60s};
  return {.strategy = hf::Strategy::rest_for_one,
          .children = {part("store"), part("index"),
                       hf::child<hf::Supervisor>({.name = "pool", .restart = once}, pool)}};
}

/// Answers nothing if the part broke meanwhile.
hf::Task<std::string> answer_of(search::PartRef part, std::string text) {
  try {
    const auto answer = co_await part.query({.text = std::move(text)});
    co_return std::string(answer.text());
  } catch (const hf::Error&) {
    co_return "";
  }
}

hf::Task<void> ask(hf::Node* node, std::string name, std::string text) {
  std::cout << name << ", " << text << '\n';
  search::PartRef part = node->find<search::Part>(name).value();
  const std::string answer = co_await answer_of(part, text);
  if (!answer.empty()) std::cout << "  " << answer << '\n';
  if (answer.empty()) co_await hf::sleep_for(200ms);  // until all that is to start has started
}

hf::Task<void> run(hf::Node* node) {
  const auto root = co_await node->spawn<hf::Supervisor>("root", plan());
  co_await ask(node, "answers-1", "what is there?");
  co_await ask(node, "answers-1", "break");  // it alone is restarted
  co_await ask(node, "index", "break");      // the store goes on

  std::cout << "by hand\n";
  co_await ask(node, "store", "what is there?");
  co_await root.restart("store");
  co_await root.add(part("statistics"));
  const auto children = co_await root.children();
  for (const hf::ChildState& child : children) std::cout << "  there is " << child.name << '\n';

  co_await ask(node, "index", "break");
  co_await ask(node, "index", "break");  // one too many: the root has nobody above it
  for (const auto& event : node->events().events) std::cout << event.to_string() << '\n';
}

}  // namespace

int main(int argument_count, char** arguments) {
  if (argument_count > 1) {
    const std::string argument = arguments[1];
    const bool help = argument == "--help" || argument == "-h";
    (help ? std::cout : std::cerr)
        << "usage: example_supervision_tree\n"
           "breaks parts of a tree, and shows what becomes of the rest\n";
    return help ? 0 : 2;
  }
  try {
    hf::Runtime runtime({.shards = 1});
    hf::Node node(runtime);
    runtime.run([&](hf::Runtime&) { return run(&node); });
    runtime.run([&](hf::Runtime&) { return node.close(2s); });
  } catch (const hf::Error& error) {
    std::cerr << "example_supervision_tree: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
