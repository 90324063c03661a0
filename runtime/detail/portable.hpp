// Results that leave the shards: what may be released by any thread.
#pragma once

#include <hyperframes/runtime/buffer.hpp>

namespace hyperframes::detail {

/// The same bytes, counted atomically: it may be copied and released on any thread, while the
/// runtime that the memory belongs to exists. On the shard that has the buffer.
Buffer portable(Buffer buffer);
Segments portable(Segments segments);

/// How a value leaves its shard. Specialised for what refers to memory of the shard.
template <class T>
struct Portable {
  static T make(T value) { return value; }
};
template <>
struct Portable<Buffer> {
  static Buffer make(Buffer value) { return portable(std::move(value)); }
};
template <>
struct Portable<Segments> {
  static Segments make(Segments value) { return portable(std::move(value)); }
};

}  // namespace hyperframes::detail
