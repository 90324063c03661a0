#include "boost_side.hpp"

#ifdef HYPERFRAMES_TEST_BOOST

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <utility>

namespace hyperframes::test {

struct BoostSide::Impl {
  boost::asio::io_context context;
};

BoostSide::BoostSide() : impl_(std::make_unique<Impl>()) {}
BoostSide::~BoostSide() = default;

void BoostSide::post(std::function<void()> function) {
  boost::asio::post(impl_->context, std::move(function));
}

void BoostSide::run(std::function<void()> on_timer) {
  boost::asio::steady_timer timer(impl_->context, std::chrono::milliseconds(1));
  timer.async_wait([&](const boost::system::error_code&) { on_timer(); });
  impl_->context.run();
}

}  // namespace hyperframes::test

#endif
