#include <hyperframes/apps/dataset/encoding.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include <hyperframes/apps/dataset/detail/bytes.hpp>
#include <hyperframes/apps/dataset/detail/utf8.hpp>
#include <hyperframes/runtime/error.hpp>

namespace hyperframes::dataset {
namespace {

using detail::append;
using detail::as_text;
using detail::load;
using Kind = Encoding::Kind;
using Bytes = std::span<const std::byte>;

constexpr std::size_t max_dimensions = 63;
constexpr std::uint64_t max_value_bytes = std::numeric_limits<std::uint32_t>::max();

struct ScalarName {
  Scalar type;
  std::string_view name;
};
constexpr std::array<ScalarName, 11> scalar_names = {{{Scalar::uint8, "uint8"},
                                                      {Scalar::int8, "int8"},
                                                      {Scalar::uint16, "uint16"},
                                                      {Scalar::int16, "int16"},
                                                      {Scalar::float16, "float16"},
                                                      {Scalar::uint32, "uint32"},
                                                      {Scalar::int32, "int32"},
                                                      {Scalar::float32, "float32"},
                                                      {Scalar::uint64, "uint64"},
                                                      {Scalar::int64, "int64"},
                                                      {Scalar::float64, "float64"}}};

std::optional<Scalar> scalar_of(std::string_view name) {
  for (const ScalarName& entry : scalar_names)
    if (entry.name == name) return entry.type;
  return std::nullopt;
}

std::optional<Scalar> scalar_of(std::uint8_t code) {
  for (const ScalarName& entry : scalar_names)
    if (static_cast<std::uint8_t>(entry.type) == code) return entry.type;
  return std::nullopt;
}

bool is_float(Scalar type) {
  return type == Scalar::float16 || type == Scalar::float32 || type == Scalar::float64;
}

[[noreturn]] void corrupt(const Encoding& encoding, std::string found) {
  throw Error(Errc::corrupt, "decode a value of encoding '" + encoding.name + "'",
              std::move(found));
}

[[noreturn]] void wrong_kind(const Encoding& encoding, std::string_view wanted) {
  throw Error(Errc::invalid_argument, "read a value as " + std::string(wanted),
              "its column has the encoding '" + encoding.name + "'",
              "read it as what the column holds, or as bytes");
}

[[noreturn]] void does_not_fit(const Encoding& encoding, std::string found) {
  throw Error(Errc::invalid_argument, "encode a value as '" + encoding.name + "'",
              std::move(found));
}

// ---- Names
// ---------------------------------------------------------------------------------------

[[noreturn]] void refuse_name(std::string_view name, std::string found) {
  throw Error(
      Errc::unsupported, "use the encoding '" + std::string(name) + "'", std::move(found),
      "the encodings are bytes, str, int, uint8 to uint64, int8 to int64, float16 to float64, "
      "str_int, str_float, str_decimal, json, jpeg, png, pil, jpeg_array and "
      "ndarray[:dtype[:shape]]");
}

// Bytes of an array, or nothing where they are more than a sample can hold.
std::optional<std::uint64_t> array_bytes(Scalar type, std::span<const std::uint64_t> shape) {
  std::uint64_t bytes = size_of(type);
  for (const std::uint64_t extent : shape) {
    if (extent == 0 || extent > max_value_bytes / bytes) return std::nullopt;
    bytes *= extent;
  }
  return bytes;
}

std::vector<std::uint64_t> parse_shape(std::string_view name, std::string_view text) {
  std::vector<std::uint64_t> shape;
  while (true) {
    const std::string_view part = text.substr(0, text.find(','));
    std::uint64_t extent = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), extent);
    if (error != std::errc() || end != part.data() + part.size() || extent == 0)
      refuse_name(name, "'" + std::string(part) + "' is no extent of an array");
    shape.push_back(extent);
    if (shape.size() > max_dimensions) refuse_name(name, "an array has at most 63 dimensions");
    if (part.size() == text.size()) return shape;
    text.remove_prefix(part.size() + 1);
  }
}

Encoding parse_array(std::string_view name) {
  Encoding encoding{.kind = Kind::array, .name = std::string(name)};
  std::string_view rest = name.substr(std::string_view("ndarray").size());
  if (rest.empty()) return encoding;
  rest.remove_prefix(1);
  const std::string_view type = rest.substr(0, rest.find(':'));
  const std::optional<Scalar> scalar = scalar_of(type);
  if (!scalar) refuse_name(name, "'" + std::string(type) + "' is no element type");
  encoding.scalar = *scalar;
  encoding.has_scalar = true;
  if (type.size() == rest.size()) return encoding;
  encoding.shape = parse_shape(name, rest.substr(type.size() + 1));
  const std::optional<std::uint64_t> bytes = array_bytes(*scalar, encoding.shape);
  if (!bytes) refuse_name(name, "the array takes more than 4 GiB");
  encoding.size = static_cast<std::uint32_t>(*bytes);
  return encoding;
}

// ---- Numbers
// -------------------------------------------------------------------------------------

double half_to_double(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const int fraction = bits & 0x3ff;
  double magnitude;
  if (exponent == 0x1f)
    magnitude = fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                              : std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    magnitude = std::ldexp(fraction, -24);
  else
    magnitude = std::ldexp(fraction + 0x400, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

std::uint16_t double_to_half(double value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | 0x7e00;
  const double magnitude = std::fabs(value);
  if (magnitude >= 65520) return sign | 0x7c00;  // rounds to infinity
  // In units of the last place: nearbyint() rounds to even, and a carry runs into the exponent.
  const int exponent = magnitude < std::ldexp(1, -14) ? -14 : std::ilogb(magnitude);
  const int units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  return static_cast<std::uint16_t>(sign | (((exponent + 14) << 10) + units));
}

double load_real(Scalar type, const std::byte* bytes) {
  switch (type) {
    case Scalar::uint8: return load<std::uint8_t>(bytes);
    case Scalar::int8: return load<std::int8_t>(bytes);
    case Scalar::uint16: return load<std::uint16_t>(bytes);
    case Scalar::int16: return load<std::int16_t>(bytes);
    case Scalar::float16: return half_to_double(load<std::uint16_t>(bytes));
    case Scalar::uint32: return load<std::uint32_t>(bytes);
    case Scalar::int32: return load<std::int32_t>(bytes);
    case Scalar::float32: return load<float>(bytes);
    case Scalar::uint64: return static_cast<double>(load<std::uint64_t>(bytes));
    case Scalar::int64: return static_cast<double>(load<std::int64_t>(bytes));
    case Scalar::float64: return load<double>(bytes);
  }
  __builtin_unreachable();
}

std::int64_t load_integer(Scalar type, const std::byte* bytes) {
  switch (type) {
    case Scalar::uint8: return load<std::uint8_t>(bytes);
    case Scalar::int8: return load<std::int8_t>(bytes);
    case Scalar::uint16: return load<std::uint16_t>(bytes);
    case Scalar::int16: return load<std::int16_t>(bytes);
    case Scalar::uint32: return load<std::uint32_t>(bytes);
    case Scalar::int32: return load<std::int32_t>(bytes);
    case Scalar::int64: return load<std::int64_t>(bytes);
    case Scalar::uint64: {
      const auto value = load<std::uint64_t>(bytes);
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        throw Error(Errc::too_large, "read a uint64 as an integer",
                    std::to_string(value) + " is above the range of int64", "read it as bytes");
      return static_cast<std::int64_t>(value);
    }
    case Scalar::float16:
    case Scalar::float32:
    case Scalar::float64: break;
  }
  throw Error(Errc::invalid_argument, "read a value as an integer",
              "it is a " + std::string(name(type)), "read it as a real number");
}

template <class T>
void append_integer(const Encoding& encoding, const auto value, std::string& out) {
  if (!std::in_range<T>(value))
    does_not_fit(encoding, std::to_string(value) + " is out of its range");
  append(out, static_cast<T>(value));
}

void append_scalar(const Encoding& encoding, const auto value, std::string& out) {
  if constexpr (std::integral<std::remove_const_t<decltype(value)>>) {
    switch (encoding.scalar) {
      case Scalar::uint8: return append_integer<std::uint8_t>(encoding, value, out);
      case Scalar::int8: return append_integer<std::int8_t>(encoding, value, out);
      case Scalar::uint16: return append_integer<std::uint16_t>(encoding, value, out);
      case Scalar::int16: return append_integer<std::int16_t>(encoding, value, out);
      case Scalar::uint32: return append_integer<std::uint32_t>(encoding, value, out);
      case Scalar::int32: return append_integer<std::int32_t>(encoding, value, out);
      case Scalar::uint64: return append_integer<std::uint64_t>(encoding, value, out);
      case Scalar::int64: return append_integer<std::int64_t>(encoding, value, out);
      default: break;
    }
  } else if (!is_float(encoding.scalar)) {
    does_not_fit(encoding, std::to_string(value) + " is no integer");
  }
  const auto real = static_cast<double>(value);
  switch (encoding.scalar) {
    case Scalar::float16: return append(out, double_to_half(real));
    case Scalar::float32: return append(out, static_cast<float>(real));
    default: return append(out, real);
  }
}

// Digits with an optional sign; longer than any integer type holds is fine.
bool is_decimal_integer(std::string_view text) {
  if (!text.empty() && (text.front() == '-' || text.front() == '+')) text.remove_prefix(1);
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

struct Real {
  double value = 0;
  bool valid = false;
  bool in_range = false;
};

Real scan_real(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  Real real;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), real.value);
  real.valid = error != std::errc::invalid_argument && end == text.data() + text.size();
  real.in_range = error == std::errc();
  return real;
}

double parse_real(const Encoding& encoding, std::string_view text) {
  const Real real = scan_real(text);
  if (!real.valid)
    corrupt(encoding, "'" + std::string(text.substr(0, 40)) + "' is no decimal number");
  if (!real.in_range)
    throw Error(
        Errc::too_large, "read a value of encoding '" + encoding.name + "' as a real number",
        std::string(text.substr(0, 40)) + " is out of the range of a double", "read it as text");
  return real.value;
}

std::int64_t parse_integer(const Encoding& encoding, std::string_view text) {
  if (!is_decimal_integer(text))
    corrupt(encoding, "'" + std::string(text.substr(0, 40)) + "' is no decimal integer");
  const std::string_view digits = text.starts_with('+') ? text.substr(1) : text;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc())
    throw Error(Errc::too_large, "read a value of encoding '" + encoding.name + "' as an integer",
                std::string(text.substr(0, 40)) + " is out of the range of int64",
                "read it as text");
  return value;
}

// ---- Arrays
// --------------------------------------------------------------------------------------

std::uint64_t load_extent(const std::byte* bytes, unsigned log2_size) {
  switch (log2_size) {
    case 0: return load<std::uint8_t>(bytes);
    case 1: return load<std::uint16_t>(bytes);
    case 2: return load<std::uint32_t>(bytes);
    default: return load<std::uint64_t>(bytes);
  }
}

std::vector<std::uint64_t> take_shape(const Encoding& encoding, Bytes& bytes) {
  if (bytes.empty()) corrupt(encoding, "its shape is missing");
  const auto header = load<std::uint8_t>(bytes.data());
  bytes = bytes.subspan(1);
  const unsigned log2_size = header & 3;
  const std::size_t dimensions = header >> 2;
  if (dimensions == 0) corrupt(encoding, "an array has at least one dimension");
  if (bytes.size() < dimensions << log2_size) corrupt(encoding, "its shape is cut short");
  std::vector<std::uint64_t> shape(dimensions);
  for (std::size_t i = 0; i < dimensions; ++i)
    shape[i] = load_extent(bytes.data() + (i << log2_size), log2_size);
  bytes = bytes.subspan(dimensions << log2_size);
  return shape;
}

void append_shape(std::span<const std::uint64_t> shape, std::string& out) {
  const std::uint64_t largest = *std::max_element(shape.begin(), shape.end());
  const unsigned log2_size = largest <= 0xff         ? 0
                             : largest <= 0xffff     ? 1
                             : largest <= 0xffffffff ? 2
                                                     : 3;
  append(out, static_cast<std::uint8_t>(shape.size() << 2 | log2_size));
  for (const std::uint64_t extent : shape)
    out.append(reinterpret_cast<const char*>(&extent), std::size_t{1} << log2_size);
}

void encode_array(const Encoding& encoding, const ArrayView& array, std::string& out) {
  if (encoding.kind != Kind::array) does_not_fit(encoding, "an array was given");
  if (array.shape.empty() || array.shape.size() > max_dimensions)
    does_not_fit(encoding, "an array has 1 to 63 dimensions");
  const std::optional<std::uint64_t> bytes = array_bytes(array.type, array.shape);
  if (!bytes) does_not_fit(encoding, "an extent is 0, or the array takes more than 4 GiB");
  if (*bytes != array.data.size())
    does_not_fit(encoding, "its shape needs " + std::to_string(*bytes) + " bytes and " +
                               std::to_string(array.data.size()) + " were given");
  if (encoding.has_scalar && encoding.scalar != array.type)
    does_not_fit(encoding, "the array is of " + std::string(name(array.type)));
  if (!encoding.shape.empty() && encoding.shape != array.shape)
    does_not_fit(encoding, "the array has another shape");
  if (!encoding.has_scalar) append(out, static_cast<std::uint8_t>(array.type));
  if (encoding.shape.empty()) append_shape(array.shape, out);
  out.append(as_text(array.data));
}

// ---- Encoding by the kind of value
// ---------------------------------------------------------------

void encode_number(const Encoding& encoding, const auto value, std::string& out) {
  switch (encoding.kind) {
    case Kind::scalar: return append_scalar(encoding, value, out);
    case Kind::decimal: {
      if (encoding.name == "str_int" && std::floating_point<std::remove_const_t<decltype(value)>>)
        does_not_fit(encoding, std::to_string(value) + " is no integer");
      char digits[64];
      const auto [end, error] = std::to_chars(digits, digits + sizeof(digits), value);
      out.append(digits, end);
      return;
    }
    default: does_not_fit(encoding, "a number was given");
  }
}

void encode_text(const Encoding& encoding, std::string_view text, std::string& out) {
  if (encoding.kind != Kind::text && encoding.kind != Kind::decimal && encoding.kind != Kind::json)
    does_not_fit(encoding, "text was given");
  try {
    check_value(encoding, detail::as_bytes(text));
  } catch (const Error& error) {
    does_not_fit(encoding, error.found());
  }
  out.append(text);
}

void encode_bytes(const Encoding& encoding, Bytes bytes, std::string& out) {
  try {
    check_value(encoding, bytes);
  } catch (const Error& error) {
    does_not_fit(encoding, error.found());
  }
  out.append(as_text(bytes));
}

}  // namespace

std::size_t size_of(Scalar type) noexcept {
  switch (type) {
    case Scalar::uint8:
    case Scalar::int8: return 1;
    case Scalar::uint16:
    case Scalar::int16:
    case Scalar::float16: return 2;
    case Scalar::uint32:
    case Scalar::int32:
    case Scalar::float32: return 4;
    case Scalar::uint64:
    case Scalar::int64:
    case Scalar::float64: return 8;
  }
  __builtin_unreachable();
}

std::string_view name(Scalar type) noexcept {
  for (const ScalarName& entry : scalar_names)
    if (entry.type == type) return entry.name;
  __builtin_unreachable();
}

Encoding Encoding::parse(std::string_view name) {
  if (name == "pkl")
    throw Error(Errc::unsupported, "read a column of encoding 'pkl'",
                "reading a pickle runs code that its author chose",
                "write the column again with another encoding, such as json or ndarray");
  Encoding encoding{.name = std::string(name)};
  const std::optional<Scalar> scalar = name == "int" ? Scalar::int64 : scalar_of(name);
  if (scalar) {
    encoding.kind = Kind::scalar;
    encoding.scalar = *scalar;
    encoding.has_scalar = true;
    encoding.size = static_cast<std::uint32_t>(size_of(*scalar));
  } else if (name == "bytes" || name == "jpeg" || name == "png") {
    encoding.kind = Kind::bytes;
  } else if (name == "str") {
    encoding.kind = Kind::text;
  } else if (name == "str_int" || name == "str_float" || name == "str_decimal") {
    encoding.kind = Kind::decimal;
  } else if (name == "json") {
    encoding.kind = Kind::json;
  } else if (name == "pil") {
    encoding.kind = Kind::image;
  } else if (name == "jpeg_array") {
    encoding.kind = Kind::image_list;
  } else if (name == "ndarray" || name.starts_with("ndarray:")) {
    return parse_array(name);
  } else {
    refuse_name(name, "the format has no such encoding");
  }
  return encoding;
}

double ArrayView::real(std::uint64_t i) const {
  return load_real(type, data.data() + i * size_of(type));
}

std::int64_t ArrayView::integer(std::uint64_t i) const {
  return load_integer(type, data.data() + i * size_of(type));
}

void encode(const Encoding& encoding, const Value& value, std::string& out) {
  const std::size_t before = out.size();
  std::visit(
      [&]<class T>(const T& content) {
        if constexpr (std::is_same_v<T, std::string_view>)
          encode_text(encoding, content, out);
        else if constexpr (std::is_same_v<T, Bytes>)
          encode_bytes(encoding, content, out);
        else if constexpr (std::is_same_v<T, ArrayView>)
          encode_array(encoding, content, out);
        else
          encode_number(encoding, content, out);
      },
      value.content());
  if (out.size() - before > max_value_bytes)
    does_not_fit(encoding,
                 "it takes " + std::to_string(out.size() - before) + " bytes, above 4 GiB");
}

std::int64_t decode_integer(const Encoding& encoding, Bytes bytes) {
  if (encoding.kind == Kind::decimal) return parse_integer(encoding, as_text(bytes));
  if (encoding.kind != Kind::scalar) wrong_kind(encoding, "an integer");
  check_value(encoding, bytes);
  return load_integer(encoding.scalar, bytes.data());
}

double decode_real(const Encoding& encoding, Bytes bytes) {
  if (encoding.kind == Kind::decimal) return parse_real(encoding, as_text(bytes));
  if (encoding.kind != Kind::scalar) wrong_kind(encoding, "a real number");
  check_value(encoding, bytes);
  return load_real(encoding.scalar, bytes.data());
}

std::string_view decode_text(const Encoding& encoding, Bytes bytes) {
  if (encoding.kind != Kind::text && encoding.kind != Kind::decimal && encoding.kind != Kind::json)
    wrong_kind(encoding, "text");
  if (!detail::is_utf8(as_text(bytes))) corrupt(encoding, "it is not UTF-8");
  return as_text(bytes);
}

ArrayView decode_array(const Encoding& encoding, Bytes bytes) {
  if (encoding.kind != Kind::array) wrong_kind(encoding, "an array");
  ArrayView array{.type = encoding.scalar, .shape = encoding.shape};
  if (!encoding.has_scalar) {
    if (bytes.empty()) corrupt(encoding, "its element type is missing");
    const auto code = load<std::uint8_t>(bytes.data());
    const std::optional<Scalar> type = scalar_of(code);
    if (!type) corrupt(encoding, std::to_string(code) + " is no code of an element type");
    array.type = *type;
    bytes = bytes.subspan(1);
  }
  if (array.shape.empty()) array.shape = take_shape(encoding, bytes);
  const std::optional<std::uint64_t> size = array_bytes(array.type, array.shape);
  if (!size || *size != bytes.size())
    corrupt(encoding, "its shape does not match its " + std::to_string(bytes.size()) + " bytes");
  array.data = bytes;
  return array;
}

ImageView decode_image(const Encoding& encoding, Bytes bytes) {
  if (encoding.kind != Kind::image) wrong_kind(encoding, "an image");
  constexpr std::size_t header_bytes = 12;
  if (bytes.size() < header_bytes) corrupt(encoding, "its header is cut short");
  const auto mode_length = load<std::uint32_t>(bytes.data() + 8);
  if (mode_length > bytes.size() - header_bytes) corrupt(encoding, "its mode is cut short");
  const std::string_view mode = as_text(bytes.subspan(header_bytes, mode_length));
  if (!detail::is_utf8(mode)) corrupt(encoding, "its mode is not UTF-8");
  return {.width = load<std::uint32_t>(bytes.data()),
          .height = load<std::uint32_t>(bytes.data() + 4),
          .mode = mode,
          .pixels = bytes.subspan(header_bytes + mode_length)};
}

std::vector<Bytes> decode_image_list(const Encoding& encoding, Bytes bytes) {
  if (encoding.kind != Kind::image_list) wrong_kind(encoding, "a list of images");
  if (bytes.size() < 4) corrupt(encoding, "its count is missing");
  const auto count = load<std::uint32_t>(bytes.data());
  const std::byte* sizes = bytes.data() + 4;
  bytes = bytes.subspan(4);
  if (count > bytes.size() / 4) corrupt(encoding, "its sizes are cut short");
  bytes = bytes.subspan(std::size_t{4} * count);
  std::vector<Bytes> files(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto size = load<std::uint32_t>(sizes + 4 * i);
    if (size > bytes.size()) corrupt(encoding, "file " + std::to_string(i) + " is cut short");
    files[i] = bytes.first(size);
    bytes = bytes.subspan(size);
  }
  if (!bytes.empty())
    corrupt(encoding, std::to_string(bytes.size()) + " bytes follow its last file");
  return files;
}

void check_value(const Encoding& encoding, Bytes bytes) {
  if (encoding.size && bytes.size() != *encoding.size)
    corrupt(encoding, "it has " + std::to_string(bytes.size()) + " bytes and needs " +
                          std::to_string(*encoding.size));
  switch (encoding.kind) {
    case Kind::scalar:
    case Kind::bytes: return;
    case Kind::text:
    case Kind::json: static_cast<void>(decode_text(encoding, bytes)); return;
    case Kind::decimal: {
      const std::string_view text = as_text(bytes);
      const bool valid =
          encoding.name == "str_int" ? is_decimal_integer(text) : scan_real(text).valid;
      if (!valid) corrupt(encoding, "'" + std::string(text.substr(0, 40)) + "' is no such number");
      return;
    }
    case Kind::image: decode_image(encoding, bytes); return;
    case Kind::image_list: decode_image_list(encoding, bytes); return;
    case Kind::array: decode_array(encoding, bytes); return;
  }
}

}  // namespace hyperframes::dataset
