#include <hyperframes/apps/dataset/encoding.hpp>

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "support.hpp"

using namespace hyperframes::dataset;
using hyperframes::Errc;
using test::bytes_of;
using test::require_error;

namespace {

std::string encoded(std::string_view encoding, const Value& value) {
  std::string out;
  encode(Encoding::parse(encoding), value, out);
  return out;
}

std::int64_t integer(std::string_view encoding, std::string_view bytes) {
  return decode_integer(Encoding::parse(encoding), bytes_of(bytes));
}

double real(std::string_view encoding, std::string_view bytes) {
  return decode_real(Encoding::parse(encoding), bytes_of(bytes));
}

template <class T>
std::string raw(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(std::data(values)), values.size() * sizeof(T)};
}

}  // namespace

TEST_CASE("each number encoding takes its natural size and returns what went in") {
  struct Case {
    const char* name;
    std::size_t size;
    std::int64_t low, high;
  };
  for (const Case& c : {Case{"int", 8, INT64_MIN, INT64_MAX}, Case{"int8", 1, -128, 127},
                        Case{"int16", 2, -32768, 32767}, Case{"int32", 4, INT32_MIN, INT32_MAX},
                        Case{"int64", 8, INT64_MIN, INT64_MAX}, Case{"uint8", 1, 0, 255},
                        Case{"uint16", 2, 0, 65535}, Case{"uint32", 4, 0, UINT32_MAX},
                        Case{"uint64", 8, 0, INT64_MAX}}) {
    INFO(c.name);
    CHECK(Encoding::parse(c.name).size == c.size);
    for (const std::int64_t value : {c.low, c.high, std::int64_t{7}}) {
      const std::string bytes = encoded(c.name, value);
      CHECK(bytes.size() == c.size);
      CHECK(integer(c.name, bytes) == value);
    }
    if (c.low > INT64_MIN)
      require_error(Errc::invalid_argument, "out of its range",
                    [&] { encoded(c.name, c.low - 1); });
    if (c.high < INT64_MAX)
      require_error(Errc::invalid_argument, "out of its range",
                    [&] { encoded(c.name, c.high + 1); });
    require_error(Errc::corrupt, "needs", [&] { integer(c.name, "123"); });
  }
  CHECK(real("float64", encoded("float64", 0.1)) == 0.1);
  CHECK(real("float32", encoded("float32", 0.1)) == static_cast<double>(0.1f));
  CHECK(real("float32", encoded("float32", 3)) == 3);
  CHECK(real("int16", encoded("int16", -3)) == -3);
  require_error(Errc::invalid_argument, "is no integer", [] { encoded("int", 2.5); });
  require_error(Errc::invalid_argument, "as an integer", [] { integer("float32", "1234"); });
}

TEST_CASE("a uint64 above the range of int64 is refused as an integer and readable as a double") {
  const std::string bytes = encoded("uint64", UINT64_MAX);
  CHECK(bytes == raw<std::uint64_t>({UINT64_MAX}));
  CHECK(real("uint64", bytes) == 18446744073709551616.0);
  require_error(Errc::too_large, "above the range of int64", [&] { integer("uint64", bytes); });
}

TEST_CASE("every float16 survives a round trip, and numbers between round to even") {
  for (unsigned bits = 0; bits <= 0xffff; ++bits) {
    const std::string bytes = raw<std::uint16_t>({static_cast<std::uint16_t>(bits)});
    const double value = real("float16", bytes);
    if (std::isnan(value)) continue;
    if (encoded("float16", value) != bytes) FAIL_CHECK("bits " << bits << " value " << value);
  }
  CHECK(real("float16", encoded("float16", std::nan(""))) != 0);
  const auto rounded = [](double value) { return real("float16", encoded("float16", value)); };
  CHECK(rounded(1 + std::ldexp(1, -11)) == 1);                       // a tie, to even
  CHECK(rounded(1 + std::ldexp(3, -11)) == 1 + std::ldexp(2, -10));  // a tie, to even
  CHECK(rounded(1 + std::ldexp(1.01, -11)) == 1 + std::ldexp(1, -10));
  CHECK(rounded(std::ldexp(1, -25)) == 0);  // half the smallest
  CHECK(rounded(std::ldexp(1.01, -25)) == std::ldexp(1, -24));
  CHECK(rounded(1 - std::ldexp(1, -13)) == 1);  // carries into the exponent
  CHECK(rounded(65519) == 65504);
  CHECK(rounded(65520) == std::numeric_limits<double>::infinity());
  CHECK(std::signbit(rounded(-0.0)));
}

TEST_CASE("decimal text keeps numbers that no fixed type holds") {
  const std::string large = "592592353929222982000";
  CHECK(encoded("str_int", large) == large);
  CHECK(real("str_int", large) == 592592353929222982000.0);
  require_error(Errc::too_large, "out of the range of int64", [&] { integer("str_int", large); });
  CHECK(integer("str_int", "-12") == -12);
  CHECK(integer("str_int", "+12") == 12);
  CHECK(encoded("str_int", -12) == "-12");
  CHECK(encoded("str_float", 0.6015712968511815) == "0.6015712968511815");
  CHECK(std::isnan(real("str_float", "nan")));
  CHECK(real("str_float", "-inf") == -std::numeric_limits<double>::infinity());
  CHECK(real("str_decimal", "1E+2") == 100);
  require_error(Errc::too_large, "out of the range of a double",
                [] { real("str_decimal", "1e999"); });
  CHECK(encoded("str_decimal", "1e999") == "1e999");
  for (const char* text : {"", "+", "1.5", "0x10", " 1", "1 "}) {
    INFO("'" << text << "'");
    require_error(Errc::invalid_argument, "no such number", [&] { encoded("str_int", text); });
    require_error(Errc::corrupt, "no decimal integer", [&] { integer("str_int", text); });
  }
  for (const char* text : {"", "+", "1.5x", "one"}) {
    require_error(Errc::invalid_argument, "no such number", [&] { encoded("str_float", text); });
    require_error(Errc::corrupt, "no decimal number", [&] { real("str_float", text); });
  }
  require_error(Errc::invalid_argument, "no integer", [] { encoded("str_int", 1.5); });
}

TEST_CASE("text that is not UTF-8 is refused both ways") {
  for (const std::string bad :
       {"\xff", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "a\x80"}) {
    require_error(Errc::invalid_argument, "not UTF-8", [&] { encoded("str", bad); });
    require_error(Errc::corrupt, "not UTF-8",
                  [&] { decode_text(Encoding::parse("str"), bytes_of(bad)); });
  }
  for (const std::string good : {"", "n\u00e9", "\u4e2d\u6587", "\U0001f600"})
    CHECK(decode_text(Encoding::parse("str"), bytes_of(encoded("str", good))) == good);
  CHECK(encoded("json", "{\"a\": NaN}") == "{\"a\": NaN}");
}

TEST_CASE("an array says its type and shape unless its column does") {
  const std::string data = raw<std::int16_t>({-1, 2, 3, 4, 5, -6});
  const ArrayView array{.type = Scalar::int16, .shape = {2, 3}, .data = bytes_of(data)};
  const std::string both = encoded("ndarray", array);
  CHECK(both == std::string("\x11\x08\x02\x03", 4) + data);
  CHECK(encoded("ndarray:int16", array) == std::string("\x08\x02\x03", 3) + data);
  CHECK(encoded("ndarray:int16:2,3", array) == data);
  CHECK(Encoding::parse("ndarray:int16:2,3").size == 12);
  CHECK(!Encoding::parse("ndarray:int16").size);

  const ArrayView decoded = decode_array(Encoding::parse("ndarray"), bytes_of(both));
  CHECK(decoded.type == Scalar::int16);
  CHECK(decoded.shape == std::vector<std::uint64_t>{2, 3});
  REQUIRE(decoded.size() == 6);
  CHECK(decoded.integer(0) == -1);
  CHECK(decoded.real(5) == -6);

  require_error(Errc::invalid_argument, "int16", [&] { encoded("ndarray:float32", array); });
  require_error(Errc::invalid_argument, "another shape",
                [&] { encoded("ndarray:int16:3,2", array); });
  require_error(Errc::invalid_argument, "an array was given", [&] { encoded("bytes", array); });
}

TEST_CASE("an array's shape takes the smallest integers that hold it") {
  for (const std::uint64_t extent : {255u, 256u, 65535u, 65536u}) {
    const std::string data(extent, 'x');
    const ArrayView array{.type = Scalar::uint8, .shape = {extent}, .data = bytes_of(data)};
    const std::string bytes = encoded("ndarray", array);
    const std::size_t width = extent <= 255 ? 1 : extent <= 65535 ? 2 : 4;
    CHECK(bytes.size() == 2 + width + extent);
    CHECK(decode_array(Encoding::parse("ndarray"), bytes_of(bytes)).shape == array.shape);
  }
}

TEST_CASE("bytes that are no array are refused") {
  const Encoding encoding = Encoding::parse("ndarray");
  const auto decode = [&](std::string bytes) { decode_array(encoding, bytes_of(bytes)); };
  require_error(Errc::corrupt, "element type is missing", [&] { decode(""); });
  require_error(Errc::corrupt, "no code of an element type", [&] { decode("\x07\x04\x01x"); });
  require_error(Errc::corrupt, "shape is missing", [&] { decode("\x08"); });
  require_error(Errc::corrupt, "at least one dimension",
                [&] { decode(std::string("\x08\x00", 2)); });
  require_error(Errc::corrupt, "cut short", [&] { decode("\x08\x08\x02"); });
  require_error(Errc::corrupt, "does not match", [&] { decode("\x08\x04\x02x"); });
  require_error(Errc::corrupt, "does not match", [&] { decode(std::string("\x08\x04\x00", 3)); });
  // 63 dimensions of 2^64 - 1 overflow every product.
  require_error(Errc::corrupt, "does not match",
                [&] { decode("\x08\xff" + std::string(63 * 8, '\xff')); });
}

TEST_CASE("images and lists of images are split into their parts") {
  const std::string pil = raw<std::uint32_t>({2, 1, 3}) + "RGB" + "abcdef";
  const ImageView image = decode_image(Encoding::parse("pil"), bytes_of(pil));
  CHECK(image.width == 2);
  CHECK(image.height == 1);
  CHECK(image.mode == "RGB");
  CHECK(image.pixels.size() == 6);
  require_error(Errc::corrupt, "header is cut short",
                [] { decode_image(Encoding::parse("pil"), bytes_of("short")); });
  require_error(Errc::corrupt, "mode is cut short", [] {
    const std::string bytes = raw<std::uint32_t>({2, 1, 0xffffffff}) + "RGB";
    decode_image(Encoding::parse("pil"), bytes_of(bytes));
  });

  const Encoding list = Encoding::parse("jpeg_array");
  const std::string files = raw<std::uint32_t>({2, 1, 3}) + "abbb";
  const auto split = decode_image_list(list, bytes_of(files));
  REQUIRE(split.size() == 2);
  CHECK(split[0].size() == 1);
  CHECK(split[1].size() == 3);
  const auto refuse = [&](std::string bytes, const char* part) {
    require_error(Errc::corrupt, part, [&] { decode_image_list(list, bytes_of(bytes)); });
  };
  refuse("abc", "count is missing");
  refuse(raw<std::uint32_t>({0xffffffff}), "sizes are cut short");
  refuse(raw<std::uint32_t>({1, 4}) + "abc", "file 0 is cut short");
  refuse(files + "x", "follow its last file");
  CHECK(encoded("jpeg", bytes_of("\xff\xd8")) == "\xff\xd8");
}

TEST_CASE("pickles and unknown encodings are refused by name") {
  require_error(Errc::unsupported, "runs code", [] { Encoding::parse("pkl"); });
  for (const char* name :
       {"", "integer", "ndarray:", "ndarray:int", "ndarray:int8:", "ndarray:int8:0",
        "ndarray:int8:2,", "ndarray:int8:2,x", "ndarray:int8:99999999999999999999",
        "ndarray:int64:65536,65536", "ndarrays"}) {
    INFO("'" << name << "'");
    require_error(Errc::unsupported, "the encodings are bytes", [&] { Encoding::parse(name); });
  }
  std::string dimensions = "ndarray:int8:1";
  for (int i = 1; i < 64; ++i) dimensions += ",1";
  require_error(Errc::unsupported, "at most 63", [&] { Encoding::parse(dimensions); });
}

TEST_CASE("a value of another kind than its column is refused") {
  require_error(Errc::invalid_argument, "text was given", [] { encoded("int", "5"); });
  require_error(Errc::invalid_argument, "a number was given", [] { encoded("str", 5); });
  require_error(Errc::invalid_argument, "encoding 'str'", [] { integer("str", "5"); });
  require_error(Errc::invalid_argument, "encoding 'int'",
                [] { decode_text(Encoding::parse("int"), bytes_of("12345678")); });
}

TEST_CASE("hostile bytes decode or are refused, for every encoding") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const std::vector<Encoding> encodings = {Encoding::parse("int"),
                                           Encoding::parse("float16"),
                                           Encoding::parse("str"),
                                           Encoding::parse("str_int"),
                                           Encoding::parse("str_decimal"),
                                           Encoding::parse("json"),
                                           Encoding::parse("pil"),
                                           Encoding::parse("jpeg_array"),
                                           Encoding::parse("ndarray"),
                                           Encoding::parse("bytes"),
                                           Encoding::parse("ndarray:float32"),
                                           Encoding::parse("ndarray:int16:2,3")};
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes(random() % 24, '\0');
    // Mostly small numbers: those get past the first checks.
    for (char& c : bytes) c = static_cast<char>(random() % 4 == 0 ? random() : random() % 20);
    const Encoding& encoding = encodings[random() % encodings.size()];
    try {
      check_value(encoding, bytes_of(bytes));
      if (encoding.kind == Encoding::Kind::array) {
        const ArrayView array = decode_array(encoding, bytes_of(bytes));
        double sum = 0;
        for (std::uint64_t i = 0; i < array.size(); ++i) sum += array.real(i);
        static_cast<void>(sum);
      }
    } catch (const hyperframes::Error& error) {
      if (!error.is(Errc::corrupt)) throw;
    }
  }
}
