// What an action fails with; the case fails if it does not.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <hyperframes/runtime/error.hpp>

namespace net_test {

template <class Action>
hf::Error error_of(Action action) {
  try {
    action();
  } catch (const hf::Error& error) {
    return error;
  }
  FAIL("it went well");
  std::abort();
}

}  // namespace net_test
