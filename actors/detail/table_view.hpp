// The base of generated views of FlatBuffers tables.
#pragma once

#include <cstdint>
#include <hyperframes/runtime/buffer.hpp>
#include <span>
#include <utility>

namespace hyperframes::detail {

/// Owns the finished buffer. Copies share it, as Buffers do; default-made or moved-from, it holds
/// none and must not be read.
class TableView {
 public:
  const Buffer& buffer() const noexcept { return buffer_; }
  Buffer release_buffer() && noexcept { return std::move(buffer_); }
  explicit operator bool() const noexcept { return !buffer_.empty(); }

 protected:
  TableView() noexcept = default;
  void adopt(Buffer buffer) noexcept { buffer_ = std::move(buffer); }
  const std::byte* bytes() const noexcept { return buffer_.data(); }

  /// `vector` is flatc's, of scalars or structs, and may be null.
  template <class Element, class Vector>
  static std::span<const Element> elements(const Vector* vector) noexcept {
    if (!vector) return {};
    return {reinterpret_cast<const Element*>(vector->Data()), vector->size()};
  }

 private:
  Buffer buffer_;
};

}  // namespace hyperframes::detail
