// The part of a program that runs on Boost.Asio. Debian 12's Boost and asio both declare some names
// outside their namespaces, so that one source file can't include both.
#pragma once

#include <functional>
#include <memory>

#if __has_include(<boost/asio.hpp>)
#define HYPERFRAMES_TEST_BOOST
#endif

namespace hyperframes::test {

class BoostSide {
 public:
  BoostSide();
  ~BoostSide();
  void post(std::function<void()> function);
  /// Runs what was posted, and a timer.
  void run(std::function<void()> on_timer);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hyperframes::test
