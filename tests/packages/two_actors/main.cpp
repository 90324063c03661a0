// Two actors of a schema of ours: the clerk asks the counter, once for each word of a greeting.
#include <counter.fbs.hpp>
#include <hyperframes/actors/node.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <iostream>
#include <sstream>
#include <string>

using namespace std::chrono_literals;

namespace {

class CounterActor final : public demo::Counter::Actor {
  hf::Task<void> add(demo::Addition request, hf::Reply<demo::Total> reply) override {
    reply.send({.value = total_ += request.delta()});
    co_return;
  }
  long total_ = 0;
};

class ClerkActor final : public demo::Clerk::Actor {
 public:
  explicit ClerkActor(demo::CounterRef counter) : counter_(counter) {}

 private:
  hf::Task<void> count(demo::Greeting request, hf::Reply<demo::Note> reply) override {
    std::istringstream words{std::string(request.text())};
    std::string word;
    long total = 0;
    while (words >> word) {
      const demo::Total answer = co_await counter_.add({.delta = 1}, hf::within(5s));
      total = answer.value();
    }
    reply.send({.text = std::to_string(total) + " words were counted"});
  }
  demo::CounterRef counter_;
};

hf::Task<std::string> talk(hf::Node* node) {
  auto counter = co_await node->spawn<CounterActor>("counter");
  auto clerk = co_await node->spawn<ClerkActor>("clerk", counter);
  const demo::Note note = co_await clerk.count({.text = "good morning to you"}, hf::within(5s));
  co_return std::string(note.text());
}

}  // namespace

int main() {
  try {
    hf::Runtime runtime({.shards = 1});
    hf::Node node(runtime);
    std::cout << runtime.run([&](hf::Runtime&) { return talk(&node); }) << '\n';
    runtime.run([&](hf::Runtime&) { return node.close(2s); });
  } catch (const hf::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
