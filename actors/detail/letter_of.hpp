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
    std::max({Letter::payload_offset<RequestOf<Method>>() + sizeof(RequestOf<Method>),
              Letter::payload_offset<AnswerOf<Method>>() + sizeof(AnswerOf<Method>),
              Letter::payload_offset<Error*>() + sizeof(Error*)});

template <class Method>
std::uint32_t charged_bytes(const RequestOf<Method>& request) noexcept {
  std::size_t bytes = letter_size<Method>;
  if constexpr (!Method::Request::is_struct) bytes += request.request.buffer().size();
  if constexpr (Method::request_segments) bytes += request.segments.size_bytes();
  return static_cast<std::uint32_t>(std::min<std::size_t>(bytes, UINT32_MAX));
}

template <class Method>
Letter* make_letter(RequestOf<Method>&& request, Letter::Kind kind) {
  using Request = RequestOf<Method>;
  auto* letter = new (pool_allocate(letter_size<Method>)) Letter(Method::info);
  letter->bytes = charged_bytes<Method>(request);
  new (letter->payload<Request>()) Request(std::move(request));
  letter->content = Letter::Content::request;
  letter->kind = kind;
  return letter;
}

/// A call as its handler gets it.
template <class Method>
struct Invocation {
  using Segments = typename RequestOf<Method>::Segments;
  typename Method::Request request;
  [[no_unique_address]] Segments segments{};
  Reply<AnswerOf<Method>> reply;
};
template <class Method>
  requires Method::oneway
struct Invocation<Method> {
  using Segments = typename RequestOf<Method>::Segments;
  typename Method::Request request;
  [[no_unique_address]] Segments segments{};
};

/// A call whose request lies with its sender: its handler's parameters are made straight from it.
template <class Method>
struct InvocationInPlace {
  typename Method::Request& request;
  typename RequestOf<Method>::Segments& segments;
  Reply<AnswerOf<Method>> reply;
};
template <class Method>
  requires Method::oneway
struct InvocationInPlace<Method> {
  typename Method::Request& request;
  typename RequestOf<Method>::Segments& segments;
};

/// `letter`: the ask's, for its answer; null for a tell.
template <class Method>
InvocationInPlace<Method> invocation_of(RequestOf<Method>& request,
                                        [[maybe_unused]] Letter* letter) noexcept {
  if constexpr (Method::oneway) {
    return {request.request, request.segments};
  } else {
    return {request.request, request.segments, Reply<AnswerOf<Method>>(letter)};
  }
}

}  // namespace hyperframes::detail
