// A task on somebody's io_context, built with what pkg-config says alone.
#include <asio.hpp>
#include <hyperframes/actors/asio.hpp>
#include <hyperframes/actors/node.hpp>
#include <iostream>

namespace {

hf::Task<int> answer() { co_return 42; }

asio::awaitable<void> print_answer(hf::AsioRuntime& embedded) {
  const auto executor = co_await asio::this_coro::executor;
  const int value =
      co_await hf::async_run(executor, embedded.shard(0), answer, asio::use_awaitable);
  std::cout << "answer " << value << " in asio\n";
}

}  // namespace

int main() {
  asio::io_context context;
  hf::AsioRuntime embedded(context);
  hf::Node node(embedded.runtime());
  asio::co_spawn(context, print_answer(embedded), [&](std::exception_ptr) { context.stop(); });
  context.run();
}
