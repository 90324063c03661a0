// How an actor is started.
//
//   co_await node.spawn<Store>({.name = "store", .shard = 1}, path);
//   co_await node.spawn<Store>("store", path);       // the same, on this shard, by name only
//   co_await node.spawn<Store>({}, path);            // without a name: reached by its reference
#pragma once

#include <hyperframes/actors/mailbox.hpp>
#include <hyperframes/actors/restart.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <hyperframes/runtime/time.hpp>
#include <limits>
#include <optional>
#include <string>

namespace hyperframes {

/// The shard on which `spawn` is called; for a child of a Supervisor, the supervisor's.
inline constexpr unsigned this_shard = std::numeric_limits<unsigned>::max();

struct SpawnOptions {
  /// Unique in the node; `find` knows it by this, here and from other nodes. May be empty.
  std::string name{};
  unsigned shard = this_shard;  ///< Where it lives; below Runtime::shard_count().
  MailboxOptions mailbox{};
  RestartPolicy restart{};  ///< By default it is never restarted (Restart::temporary).
  /// What becomes of waiting letters when it is restarted, for whatever reason: true keeps them for
  /// its successor, false sends them to the dead letters.
  bool keep_mailbox = true;
  /// `user`, `system`, or what Runtime::group gives: decides its share of a busy shard.
  Group group = Group::user;
  /// What its turns and `stopping()` may take when it ends; what has not ended then is destroyed,
  /// and named. Unset: Timing::default_deadline. 0: at once, without `stopping()`. Duration::max():
  /// as long as it takes. Its children come after that, each with its own.
  std::optional<Duration> shutdown{};
};

}  // namespace hyperframes
