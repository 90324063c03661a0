// Shards on somebody's io_context, for tests that know nothing of asio.
#pragma once

#include <hyperframes/runtime/runtime.hpp>
#include <memory>

namespace hyperframes::test {

/// An io_context with threads of its own, and a runtime in it; stopped in order at the end.
class Embedding {
 public:
  virtual ~Embedding() = default;
  virtual Runtime& runtime() = 0;
};

std::unique_ptr<Embedding> make_embedding(unsigned shards, unsigned threads);

}  // namespace hyperframes::test
