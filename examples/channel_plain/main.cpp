// A program without coroutines that sends numbers to another one, which answers with their sum.
//
//   channel_plain sum tcp://127.0.0.1:6000
//   channel_plain add tcp://127.0.0.1:6000 1 2 3

#include <hyperframes/net/channel/blocking.hpp>
#include <iostream>
#include <string>
#include <vector>

namespace {

using namespace std::chrono_literals;
using Words = std::vector<std::string>;
namespace blocking = hf::net::blocking;

void sum(blocking::Messenger& messenger, const std::string& uri) {
  std::cout << "listening on " << messenger.listen(uri).to_string() << std::endl;
  blocking::Channel channel = messenger.accept();
  long total = 0;
  while (true) {
    const hf::net::TypedMessage message = channel.recv("plain.sum.*");
    if (message.type == "plain.sum.end") break;
    total += std::stol(std::string(message.body.text()));
  }
  channel.send({.type = "plain.sum.total", .body = hf::Buffer::copy_of(std::to_string(total))});
}

void add(blocking::Messenger& messenger, const Words& words) {
  blocking::Channel channel = messenger.connect(words[1]);
  for (std::size_t i = 2; i < words.size(); ++i)
    channel.send({.type = "plain.sum.number", .body = hf::Buffer::copy_of(words[i])});
  channel.send({.type = "plain.sum.end"});
  std::cout << "total " << channel.recv("plain.sum.total", 10s).body.text() << std::endl;
}

}  // namespace

int main(int argument_count, char** arguments) {
  const Words words(arguments + 1, arguments + argument_count);
  if (words.size() < 2 || (words[0] != "sum" && words[0] != "add")) {
    const bool help = words == Words{"--help"} || words == Words{"-h"};
    (help ? std::cout : std::cerr) << "usage: channel_plain sum URI\n"
                                      "       channel_plain add URI NUMBER...\n";
    return help ? 0 : 2;
  }
  try {
    blocking::Messenger messenger;
    if (words[0] == "sum")
      sum(messenger, words[1]);
    else
      add(messenger, words);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
