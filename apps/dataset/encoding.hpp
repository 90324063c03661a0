// How one column's values lie in a shard file, and how to read and write them.
//
//   const auto encoding = dataset::Encoding::parse("ndarray:float32:2,3");
//   std::string bytes;
//   dataset::encode(encoding, dataset::Value(2.5), bytes);  // throws: an array is wanted
//
// Everything here is safe to call on hostile bytes: a value that does not follow its encoding is an
// `hf::Error` with `Errc::corrupt`, and nothing is allocated from a length that was not checked.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace hyperframes::dataset {

/// The numbers of the format. The values are its codes for an array's element type.
enum class Scalar : std::uint8_t {
  uint8 = 8,
  int8 = 9,
  uint16 = 16,
  int16 = 17,
  float16 = 18,
  uint32 = 32,
  int32 = 33,
  float32 = 34,
  uint64 = 64,
  int64 = 65,
  float64 = 66,
};

/// Bytes that one number takes.
std::size_t size_of(Scalar type) noexcept;
/// "uint8", "float32" and so on.
std::string_view name(Scalar type) noexcept;

/// A column's encoding, as it is named in an index.
struct Encoding {
  enum class Kind {
    scalar,      ///< `int`, `uint8` … `float64`
    bytes,       ///< `bytes`, and `jpeg` and `png` with the file's bytes as they are
    text,        ///< `str`: UTF-8
    decimal,     ///< `str_int`, `str_float`, `str_decimal`: a number as decimal text
    json,        ///< UTF-8 text of JSON, in which NaN and Infinity may stand
    image,       ///< `pil`
    image_list,  ///< `jpeg_array`
    array,       ///< `ndarray`
  };

  Kind kind = Kind::bytes;
  std::string name;                     ///< As in the index, such as "ndarray:int16:2,3".
  Scalar scalar = Scalar::int64;        ///< Of `scalar`, and of `array` where the name has it.
  bool has_scalar = false;              ///< An array's name says the element type.
  std::vector<std::uint64_t> shape{};   ///< Of `array` where the name has it, else empty.
  std::optional<std::uint32_t> size{};  ///< Bytes of a value, where all values have the same.

  /// Throws `unsupported` for a name that the format does not have, and for `pkl`: reading a pickle
  /// runs code that its author chose.
  static Encoding parse(std::string_view name);

  bool operator==(const Encoding& other) const { return name == other.name; }
};

/// A view of an array: element type, extents and the elements in C order, little-endian and
/// unaligned. It refers to the bytes it was decoded from.
struct ArrayView {
  Scalar type = Scalar::uint8;
  std::vector<std::uint64_t> shape{};
  std::span<const std::byte> data{};

  std::uint64_t size() const noexcept { return data.size() / size_of(type); }
  /// Element `i` in C order; `i < size()`. Integers above 2^53 are rounded.
  double real(std::uint64_t i) const;
  /// Element `i` of an integer type. Throws `invalid_argument` for a float type and `too_large` for
  /// a uint64 above the range of int64.
  std::int64_t integer(std::uint64_t i) const;
};

/// A view of a `pil` image: raw pixels in the order and depth that `mode` names, such as "RGB".
struct ImageView {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::string_view mode{};
  std::span<const std::byte> pixels{};
};

/// What is written into one column of a row. Text, bytes and arrays are views: they must live until
/// the call that takes the value returns.
class Value {
 public:
  template <std::signed_integral T>
  Value(T value) : content_(static_cast<std::int64_t>(value)) {}
  template <std::unsigned_integral T>
  Value(T value) : content_(static_cast<std::uint64_t>(value)) {}
  template <std::floating_point T>
  Value(T value) : content_(static_cast<double>(value)) {}
  template <class T>
    requires std::is_convertible_v<const T&, std::string_view>
  Value(const T& text) : content_(std::string_view(text)) {}
  template <std::size_t Extent>
  Value(std::span<const std::byte, Extent> bytes) : content_(std::span<const std::byte>(bytes)) {}
  Value(ArrayView array) : content_(std::move(array)) {}

  using Content = std::variant<std::int64_t, std::uint64_t, double, std::string_view,
                               std::span<const std::byte>, ArrayView>;
  const Content& content() const noexcept { return content_; }

 private:
  Content content_;
};

/// Appends the bytes of `value` to `out`. An integer goes into number and decimal columns, a double
/// into float and decimal columns; text goes into text, decimal and JSON columns; raw bytes go into
/// any column whose encoding they follow. Throws `invalid_argument` where the value does not fit
/// the column.
void encode(const Encoding& encoding, const Value& value, std::string& out);

/// The value as an integer: of integer columns and `str_int`. Throws `too_large` for one that int64
/// does not hold (read it as text), `invalid_argument` for a column of another kind.
std::int64_t decode_integer(const Encoding& encoding, std::span<const std::byte> bytes);
/// The value as a double: of all number and decimal columns. Integers above 2^53 are rounded;
/// decimal text out of a double's range is `too_large`.
double decode_real(const Encoding& encoding, std::span<const std::byte> bytes);
/// The value as UTF-8 text: of text, decimal and JSON columns. Refers to `bytes`.
std::string_view decode_text(const Encoding& encoding, std::span<const std::byte> bytes);
/// The value as an array. Refers to `bytes`.
ArrayView decode_array(const Encoding& encoding, std::span<const std::byte> bytes);
/// The value of a `pil` column. Refers to `bytes`.
ImageView decode_image(const Encoding& encoding, std::span<const std::byte> bytes);
/// The files in a `jpeg_array` column. They refer to `bytes`.
std::vector<std::span<const std::byte>> decode_image_list(const Encoding& encoding,
                                                          std::span<const std::byte> bytes);
/// Checks that `bytes` follow the encoding; throws `corrupt` where they do not.
void check_value(const Encoding& encoding, std::span<const std::byte> bytes);

}  // namespace hyperframes::dataset
