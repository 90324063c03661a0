// Memory for tables that outgrow every cache: zeroed, aligned to 2 MiB, on pages of 2 MiB where
// the kernel has them.
//
//   detail::Pages pages(32 << 20, "hold rows");
//   pages.prefer_huge(2 << 20);   // from the third MiB on
//   std::byte* base = pages.data();
#pragma once

#include <cstddef>
#include <string_view>

namespace hyperframes::ps::detail {

inline constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

/// Owns one private anonymous mapping. Nothing is resident until it is touched.
class Pages {
 public:
  Pages() = default;
  /// Rounds `bytes` up to 2 MiB. Throws an `Error` with the errno, naming `purpose`.
  Pages(std::size_t bytes, std::string_view purpose);
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;
  ~Pages();

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  /// Asks for 2 MiB pages from `offset` to the end. Only advice: small pages work as well.
  void prefer_huge(std::size_t offset = 0) noexcept;

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace hyperframes::ps::detail
