// What a shard looks at itself, in every turn, because no completion tells of it: memory that
// another process writes.
//
//   struct Inbox : hf::Poller { std::size_t poll() noexcept override; ... };
//   shard.add_poller(inbox);              // until shard.remove_poller(inbox)
//
// While the shard is awake, nobody needs to tell it of anything. Before it sleeps it arms its
// pollers: each leaves word where the other side sees it that it wants to be woken from now on, by
// the completion of some operation. Only then does the shard look once more: what came before the
// word was left is found, and what comes after it wakes.
#pragma once

#include <cstddef>

namespace hyperframes {

/// All calls on the shard, in its turns or between them. None may destroy a poller.
class Poller {
 public:
  /// Does what there is to do, within a budget of its own. Returns how much it did: the shard
  /// counts that as work, and stays awake for a while.
  virtual std::size_t poll() noexcept = 0;
  /// The shard is about to sleep. A fence (seq_cst) follows, and then `ready`.
  virtual void arm() noexcept = 0;
  /// Whether there is something to do now. Only looks.
  virtual bool ready() const noexcept = 0;
  /// The shard is awake.
  virtual void disarm() noexcept = 0;

 protected:
  ~Poller() = default;
};

}  // namespace hyperframes
