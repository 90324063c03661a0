#include <hyperframes/runtime/detail/portable.hpp>

#include <utility>

namespace hyperframes::detail {
namespace {

/// Holds the only reference that is left outside of the shard; its release travels home.
struct Carrier : Block {
  explicit Carrier(Buffer only) : held(std::move(only)) {
    kind = held.kind();
    data = held.data();
    capacity = held.size();
    atomic_count = true;
    dispose = [](Block* self) noexcept { delete static_cast<Carrier*>(self); };
  }
  Buffer held;
};

}  // namespace

Buffer portable(Buffer buffer) {
  if (buffer.empty()) return {};
  if (buffer.counts_atomically()) return buffer;
  if (!buffer.unique()) buffer = buffer.proxy();
  std::byte* const data = buffer.data();
  const std::size_t size = buffer.size();
  return Buffer::adopt(new Carrier(std::move(buffer)), data, size);
}

Segments portable(Segments segments) {
  Segments all;
  for (Buffer& buffer : segments) all.push_back(portable(std::move(buffer)));
  return all;
}

}  // namespace hyperframes::detail
