// Included first in every test that GCC compiles. Catch2's CHECK and REQUIRE name their expression
// twice more where it is not to run, so that the compiler may warn of it. GCC runs a co_await
// there: CHECK(co_await received() == "text") would receive three times. Here they name it once.
#pragma once

#include <catch2/catch_test_macros.hpp>

#undef INTERNAL_CATCH_TEST
#define INTERNAL_CATCH_TEST(macro, disposition, ...)                                         \
  do {                                                                                       \
    Catch::AssertionHandler asserted(macro##_catch_sr, CATCH_INTERNAL_LINEINFO,              \
                                     CATCH_INTERNAL_STRINGIFY(__VA_ARGS__), disposition);    \
    INTERNAL_CATCH_TRY {                                                                     \
      CATCH_INTERNAL_START_WARNINGS_SUPPRESSION CATCH_INTERNAL_SUPPRESS_PARENTHESES_WARNINGS \
          asserted.handleExpr(Catch::Decomposer() <= __VA_ARGS__);                           \
      CATCH_INTERNAL_STOP_WARNINGS_SUPPRESSION                                               \
    }                                                                                        \
    INTERNAL_CATCH_CATCH(asserted)                                                           \
    asserted.complete();                                                                     \
  } while (false)
