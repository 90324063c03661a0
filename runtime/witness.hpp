// Who knows, above the runtime, on whose behalf a shard's coroutines run: a node knows its actors.
//
//   class Actors : public hf::Witness { ... };
//   const std::uint32_t first = runtime.add_witness(actors);   // owners first ... first + 2^24 - 1
//   (co_await hf::CurrentPromise{}).owner = first + slot;      // what it awaits inherits that
//
// It counts from when that coroutine is resumed next. So a stalled shard can be reported by the
// name of the actor that holds it up, and a dump shows the coroutines that are no tasks of the
// shard's own.
#pragma once

#include <cstdint>
#include <string>

namespace hyperframes {

class Shard;

/// Added by Runtime::add_witness; lives until Runtime::remove_witness has returned.
class Witness {
 public:
  /// Owner numbers that each witness has.
  static constexpr std::uint32_t owners = 1u << 24;

  /// In words, who that owner on that shard is; empty if it can't be told. From any thread, also
  /// while the shard is stuck.
  virtual std::string owner_name(unsigned shard, std::uint32_t owner) const = 0;
  /// Adds lines about `shard` to a dump's text, a bounded number. On that shard.
  virtual void dump(Shard& shard, std::string& text) const = 0;

 protected:
  ~Witness() = default;
};

}  // namespace hyperframes
