// Letters of a given method: what lies in them, and how they are made.
#pragma once

#include <algorithm>
#include <hyperframes/actors/detail/letter.hpp>
#include <hyperframes/actors/reply.hpp>
#include <type_traits>

namespace hyperframes::detail {

struct NoSegments {};

template <class Method>
struct RequestOf {
  using Segments = std::conditional_t<Method::request_segments, hyperframes::Segments, NoSegments>;
  typename Method::Request request;
  [[no_unique_address]] Segments segments{};
};

template <class Method>
using AnswerOf =
    std::conditional_t<Method::response_segments, WithSegments<typename Method::Response>,
                       typename Method::Response>;

template <class Method>
inline constexpr std::size_t letter_size =
    sizeof(Letter) + std::max({sizeof(RequestOf<Method>), sizeof(AnswerOf<Method>), sizeof(void*)});

template <class Message>
std::size_t bytes_beside(const Message& message) noexcept {
  if constexpr (!Message::is_struct) return message.buffer().size();
  return 0;
}

template <class Method, class... Parts>
Letter* make_letter(typename Method::Request request, Parts... segments) {
  static_assert(alignof(RequestOf<Method>) <= 16 && alignof(AnswerOf<Method>) <= 16);
  std::size_t bytes = letter_size<Method> + bytes_beside(request);
  if constexpr (Method::request_segments) bytes += (segments.size_bytes() + ...);
  auto* letter = new (pool_allocate(letter_size<Method>)) Letter(Method::info);
  new (letter->payload()) RequestOf<Method>{std::move(request), std::move(segments)...};
  letter->content = Letter::Content::request;
  letter->bytes = bytes;
  return letter;
}

}  // namespace hyperframes::detail
