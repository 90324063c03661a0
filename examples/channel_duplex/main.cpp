// The program of docs/tutorials/messages.md: two of it talk both ways on one channel, over whatever
// the URI says.
//
//   channel_duplex listen auto://127.0.0.1:6000
//   channel_duplex connect auto://127.0.0.1:6000
//
// In place of auto:// it takes tcp:// and, on one host, shm://name.

#include <hyperframes/net/channel/messenger.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <iostream>
#include <string>
#include <vector>

namespace {

using namespace std::chrono_literals;
using Words = std::vector<std::string>;

hf::Task<void> speak(hf::net::Channel* channel, std::string name, int count) {
  for (int i = 1; i <= count; ++i) {
    hf::net::TypedMessage line{.type = "duplex.talk.line", .metadata = {{"from", name}}};
    line.body = hf::Buffer::copy_of("line " + std::to_string(i));
    co_await channel->send(std::move(line));
  }
  co_await channel->send({.type = "duplex.talk.end", .metadata = {{"from", name}}});
}

hf::Task<void> hear(hf::net::Channel* channel) {
  int lines = 0;
  while (true) {
    const hf::net::TypedMessage message = co_await channel->recv("duplex.talk.*", hf::after(10s));
    if (message.type == "duplex.talk.end") {
      std::cout << *message.metadata.find("from") << " sent " << lines << " lines" << std::endl;
      co_return;
    }
    ++lines;
  }
}

/// Both at the same time, on one channel.
hf::Task<void> talk(hf::net::Channel channel, std::string name, int count) {
  co_await hf::when_all(speak(&channel, name, count), hear(&channel));
}

hf::Task<void> listen(hf::net::Messenger* messenger, std::string uri) {
  const hf::net::Endpoint bound = co_await messenger->listen(uri);
  std::cout << "listening on " << bound.to_string() << std::endl;
  hf::net::Channel channel = co_await messenger->accept();
  co_await talk(std::move(channel), "the listener", 1000);
}

hf::Task<void> connect(hf::net::Messenger* messenger, std::string uri) {
  hf::net::Channel channel = co_await messenger->connect(uri);
  co_await talk(std::move(channel), "the caller", 2000);
}

void run(const Words& words) {
  hf::Runtime runtime({.shards = 1});
  hf::net::Messenger messenger(runtime, {.keys = {"from"}});
  runtime.run([&](hf::Runtime&) {
    return words[0] == "listen" ? listen(&messenger, words[1]) : connect(&messenger, words[1]);
  });
  runtime.run([&](hf::Runtime&) { return messenger.close(2s); });
}

}  // namespace

int main(int argument_count, char** arguments) {
  const Words words(arguments + 1, arguments + argument_count);
  if (words.size() != 2 || (words[0] != "listen" && words[0] != "connect")) {
    const bool help = words == Words{"--help"} || words == Words{"-h"};
    (help ? std::cout : std::cerr) << "usage: channel_duplex listen URI\n"
                                      "       channel_duplex connect URI\n";
    return help ? 0 : 2;
  }
  try {
    run(words);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
