// The cluster's view as one core shard knows it, and a way to wait for the next one.
//
//   auto view = feed.current();                     // null before the first
//   view = co_await feed.newer_than(view->version); // suspends
#pragma once

#include <cstdint>
#include <hyperframes/apps/ps/cluster_view.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/task.hpp>
#include <memory>

namespace hyperframes::ps {

/// Belongs to one core shard.
class ViewFeed {
 public:
  const std::shared_ptr<const ClusterView>& current() const noexcept { return view_; }
  /// An older version than the current one is ignored.
  void publish(std::shared_ptr<const ClusterView> view) {
    if (view_ && view->version <= view_->version) return;
    view_ = std::move(view);
    changed_.pulse();
  }
  Task<std::shared_ptr<const ClusterView>> newer_than(std::uint64_t version) {
    while (!view_ || view_->version <= version) co_await changed_.wait();
    co_return view_;
  }

 private:
  std::shared_ptr<const ClusterView> view_;
  Event changed_;
};

}  // namespace hyperframes::ps
