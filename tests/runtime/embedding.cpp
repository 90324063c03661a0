#include "embedding.hpp"

#ifdef HYPERFRAMES_HAS_ASIO

#include <asio/use_future.hpp>
#include <hyperframes/runtime/asio.hpp>
#include <thread>
#include <vector>

namespace hyperframes::test {
namespace {

class ContextOfThreads final : public Embedding {
 public:
  ContextOfThreads(unsigned shards, unsigned threads) : embedded_(context_, {.shards = shards}) {
    for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { context_.run(); });
  }
  ~ContextOfThreads() override {
    embedded_.async_stop(100ms, asio::use_future).get();
    for (auto& thread : threads_) thread.join();
  }
  Runtime& runtime() override { return embedded_.runtime(); }

 private:
  asio::io_context context_;
  AsioRuntime embedded_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<Embedding> make_embedding(unsigned shards, unsigned threads) {
  return std::make_unique<ContextOfThreads>(shards, threads);
}

}  // namespace hyperframes::test

#else

namespace hyperframes::test {
std::unique_ptr<Embedding> make_embedding(unsigned, unsigned) { return nullptr; }
}  // namespace hyperframes::test

#endif
