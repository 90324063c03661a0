// Tasks on two shards and a link over the loopback: something of each layer that it links.
#include <hyperframes/net/endpoint.hpp>
#include <hyperframes/runtime/call_on.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <iostream>
#include <tuple>

using namespace std::chrono_literals;

namespace {

hf::Task<int> half(int whole) {
  co_await hf::sleep_for(1ms);
  co_return whole / 2;
}

hf::Task<int> sum() {
  const std::tuple<int, int> halves = co_await hf::when_all(half(40), half(44));
  co_return std::get<0>(halves) + std::get<1>(halves);
}

}  // namespace

int main() {
  try {
    hf::Runtime runtime({.shards = 2});
    const int answer = runtime.run([](hf::Runtime&) { return sum(); });
    hf::log::info("the tasks have ended");
    const auto endpoint = hf::net::Endpoint::parse("tcp://127.0.0.1:6000");
    std::cout << "answer " << answer << " for " << endpoint.to_string() << '\n';
  } catch (const hf::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
