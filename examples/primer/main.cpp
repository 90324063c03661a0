// What docs/primer.md shows, in the order of that page:
//
//   example_primer

#include <hyperframes/actors/node.hpp>
#include <hyperframes/runtime/call_on.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <iostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "library.fbs.hpp"

namespace {

using namespace std::chrono_literals;

// ---- Tasks and shards

hf::Task<int> half(int whole) {
  co_await hf::sleep_for(1ms);  // this coroutine waits; its thread goes on with others
  co_return whole / 2;
}

hf::Task<void> show_tasks() {
  const int three = co_await half(6);
  const std::tuple<int, int> both = co_await hf::when_all(half(8), half(10));
  std::cout << three << ' ' << std::get<0>(both) << ' ' << std::get<1>(both) << '\n';
}

hf::Task<void> show_shards(hf::Runtime* runtime) {
  const unsigned there = co_await hf::call_on(runtime->shard(1), [] {
    return hf::Shard::current()->index();  // runs on shard 1
  });
  std::cout << "there: " << there << ", here: " << hf::Shard::current()->index() << '\n';
}

// ---- Actors and messages

class ShelfActor final : public library::Shelf::Actor {
 public:
  hf::Task<void> add(library::Books books, hf::Reply<library::Stock> reply) override {
    stock_ += books.count();
    reply.send({.count = stock_});
    for (auto& waiting : std::exchange(waiting_, {})) waiting.send({.count = stock_});
    co_return;
  }
  hf::Task<void> note(library::Books books) override {
    stock_ += books.count();
    co_return;
  }
  hf::Task<void> wait_for_more(library::Nothing, hf::Reply<library::Stock> reply) override {
    waiting_.push_back(std::move(reply));  // answered later, by `add`
    co_return;
  }
  hf::Task<void> list(library::Books first, hf::StreamWriter<library::Book> writer) override {
    for (int number = 1; number <= first.count(); ++number)
      co_await writer.write({.number = number});  // waits while the reader is behind
    writer.finish();
  }

 private:
  int stock_ = 0;
  std::vector<hf::Reply<library::Stock>> waiting_;
};

hf::Task<void> show_messages(library::ShelfRef shelf) {
  const library::Stock stock = co_await shelf.add({.count = 2});  // an ask: waits for the answer
  std::cout << stock.count() << " books\n";
  co_await shelf.note({.count = 1});                   // a tell: waits for room in the mailbox
  const bool taken = shelf.try_note({.count = 1});     // never waits
  const library::Stock more = co_await shelf.add({});  // behind both, since order holds
  std::cout << (taken ? "taken, " : "no room, ") << more.count() << " books\n";
}

// ---- Deadlines, and answers that come later

hf::Task<void> show_deadlines(library::ShelfRef shelf) {
  try {
    co_await shelf.wait_for_more({}, hf::within(10ms));
  } catch (const hf::Error& error) {
    std::cout << (error.is(hf::Errc::deadline_exceeded) ? "nobody came" : error.what()) << '\n';
  }
  hf::Task<library::Stock> waiting = shelf.wait_for_more({}, hf::within(5s));
  hf::Task<library::Stock> adding = shelf.add({.count = 3}, hf::within(5s));
  const auto both = co_await hf::when_all(std::move(waiting), std::move(adding));
  std::cout << "waited for " << std::get<0>(both).count() << " books\n";
}

// ---- Streams

hf::Task<void> show_streams(library::ShelfRef shelf) {
  hf::StreamReader<library::Book> books = co_await shelf.list({.count = 3});
  while (auto book = co_await books.read()) std::cout << "book " << book->number() << '\n';
}

hf::Task<void> show(hf::Runtime* runtime, hf::Node* node) {
  co_await show_tasks();
  co_await show_shards(runtime);
  const library::ShelfRef shelf = co_await node->spawn<ShelfActor>({.name = "shelf", .shard = 1});
  co_await show_messages(shelf);
  co_await show_deadlines(shelf);
  co_await show_streams(shelf);
}

}  // namespace

int main(int argument_count, char** arguments) {
  if (argument_count > 1) {
    const std::string argument = arguments[1];
    const bool help = argument == "--help" || argument == "-h";
    (help ? std::cout : std::cerr) << "usage: example_primer\n"
                                      "runs what docs/primer.md shows\n";
    return help ? 0 : 2;
  }
  hf::Runtime runtime({.shards = 2});
  hf::Node node(runtime);
  runtime.run([&](hf::Runtime&) { return show(&runtime, &node); });
  runtime.run([&](hf::Runtime&) { return node.close(2s); });
  return 0;
}
