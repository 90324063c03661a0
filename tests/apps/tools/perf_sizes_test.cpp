#include <hyperframes/apps/tools/perf/sizes.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <hyperframes/apps/tools/perf/protocol.hpp>
#include <hyperframes/runtime/error.hpp>

namespace hf = hyperframes;
namespace perf = hf::tools::perf;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("sizes are read in any unit, and shown in the largest that fits") {
  CHECK(perf::parse_sizes("8,4KiB,1 MiB,100B") ==
        std::vector<std::uint64_t>{8, 4096, 1u << 20, 100});
  CHECK(perf::size_text(8) == "8 B");
  CHECK(perf::size_text(4096) == "4 KiB");
  CHECK(perf::size_text(4097) == "4097 B");
  CHECK(perf::size_text(64u << 20) == "64 MiB");
  for (const std::uint64_t size : perf::default_sizes())
    CHECK(perf::parse_sizes(perf::size_text(size)) == std::vector<std::uint64_t>{size});
}

TEST_CASE("the sizes that are measured unless told otherwise go from the least to the largest") {
  CHECK(perf::default_sizes().front() == 8);
  CHECK(perf::default_sizes().back() == 64u << 20);
}

TEST_CASE("a size that makes no sense is refused with its text") {
  const char* const bad[] = {"",      "8,",    "x",    "4kb",   "-8",  "7",
                             "8,8",   "65MiB", "1GiB", "8,,64", "4.5", "99999999999999999999",
                             "64 B B"};
  for (const char* text : bad) {
    INFO("'" << text << "'");
    CHECK_THROWS_WITH(perf::parse_sizes(text), ContainsSubstring("read the size '"));
  }
  CHECK_THROWS_WITH(perf::parse_sizes("8,4kb"), ContainsSubstring("'4kb'"));
}
