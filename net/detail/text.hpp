// Words of errors and of peers, as they are told to others.
//
//   reject.text = text_of(error);        // what stood in the way, if only a code says so too
//   log::info(printable(what_it_said));  // no escape sequence of a peer's reaches a terminal
#pragma once

#include <algorithm>
#include <hyperframes/runtime/error.hpp>
#include <string>
#include <utility>

namespace hyperframes::net::detail {

inline std::string text_of(const Error& error) {
  return error.found().empty() ? error.code().message() : error.found();
}

inline std::string printable(std::string text) {
  std::ranges::replace_if(text, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

}  // namespace hyperframes::net::detail
