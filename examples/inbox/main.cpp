// An actor that is a plain coroutine: it receives from its inbox, one letter after the other.
//
//   printf 'to be or not to be' | example_inbox be
//
// Its state is its local variables. It ends when the node tells it to stop: then `recv` gives
// nothing.

#include <hyperframes/actors/node.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <iostream>
#include <map>
#include <sstream>
#include <string>

#include "words.fbs.hpp"

namespace {

using namespace std::chrono_literals;
using words::Words;

hf::Task<void> count_words(Words::Inbox self) {
  std::map<std::string, unsigned> counts;
  while (auto letter = co_await self.recv()) {
    if (auto put = letter.as<Words::PutMethod>()) {
      std::istringstream line{std::string(put->request.text())};
      for (std::string word; line >> word;) ++counts[word];
    } else if (auto asked = letter.as<Words::CountMethod>()) {
      const auto found = counts.find(std::string(asked->request.word()));
      asked->reply.send({.count = found == counts.end() ? 0 : found->second});
    }
  }
  std::cout << "the actor knew " << counts.size() << " words\n";
}

hf::Task<void> run(hf::Node* node, std::string word) {
  // A mailbox of four letters: while it is full, the loop below is suspended.
  const auto counter =
      co_await node->spawn<Words>({.name = "words", .mailbox = {.messages = 4}}, &count_words);
  for (std::string line; std::getline(std::cin, line);) co_await counter.put({.text = line});
  const words::Answer answer = co_await counter.count({.word = word});
  std::cout << word << ": " << answer.count() << '\n';
}

}  // namespace

int main(int argument_count, char** arguments) {
  const std::string word = argument_count == 2 ? arguments[1] : "";
  if (word.empty() || word.starts_with('-')) {
    const bool help = word == "--help" || word == "-h";
    (help ? std::cout : std::cerr) << "usage: example_inbox WORD < TEXT\n"
                                      "counts how often the word stands in the text\n";
    return help ? 0 : 2;
  }
  try {
    hf::Runtime runtime({.shards = 1});
    hf::Node node(runtime);
    runtime.run([&](hf::Runtime&) { return run(&node, word); });
    runtime.run([&](hf::Runtime&) { return node.close(2s); });
  } catch (const hf::Error& error) {
    std::cerr << "example_inbox: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
