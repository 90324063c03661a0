// Fills a MethodInfo from a method's types. Included by generated sources.
#pragma once

#include <cstring>
#include <hyperframes/actors/detail/letter_of.hpp>
#include <hyperframes/actors/detail/pooled_buffer.hpp>
#include <hyperframes/actors/detail/streaming.hpp>
#include <string>

namespace hyperframes::detail {

// ---- one message, to and from bytes -----------------------------------------

template <class Message>
Buffer to_bytes(Message&& message) {
  using Plain = std::remove_cvref_t<Message>;
  if constexpr (Plain::is_struct) {
    Buffer buffer = pooled_buffer(sizeof(Plain));
    std::memcpy(buffer.data(), &message, sizeof(Plain));
    return buffer;
  } else {
    return std::move(message).release_buffer();
  }
}

template <class Message>
Result<Message> from_bytes(Buffer buffer) {
  if constexpr (Message::is_struct) {
    const auto refuse = [&](std::string found) {
      return Error(Errc::verification_failed,
                   std::string("read a ") + Message::type_name + " from a peer", std::move(found),
                   "check that both ends use the same version of its schema");
    };
    if (buffer.size() != sizeof(Message))
      return refuse("it has " + std::to_string(buffer.size()) + " bytes instead of " +
                    std::to_string(sizeof(Message)));
    Message message;
    std::memcpy(static_cast<void*>(&message), buffer.data(), sizeof(Message));
    if (!message.known()) return refuse("an enum in it has a value that the schema does not know");
    return message;
  } else {
    return Message::verified(std::move(buffer));
  }
}

/// Afterwards the message may be moved to another shard: its buffer has no other reference here.
template <class Message>
void detach_message(Message& message) {
  if constexpr (!Message::is_struct) {
    if (message.buffer().unique() || !message) return;
    Buffer buffer = std::move(message).release_buffer();
    message = Message::unverified(buffer.proxy());
  }
}
void detach_segments(Segments& segments);

// ---- a method's letters -----------------------------------------------------

template <class Method>
struct MethodFunctions;

/// Moves the request out of its letter.
template <class Method>
Invocation<Method> take_request(Letter& letter, [[maybe_unused]] Letter* for_answer) noexcept {
  auto& held = letter.content_as<RequestOf<Method>>();
  if constexpr (Method::oneway) {
    return {std::move(held.request), std::move(held.segments)};
  } else {
    return {std::move(held.request), std::move(held.segments), Reply<AnswerOf<Method>>(for_answer)};
  }
}

/// The letter becomes the Reply's, or ends here.
template <class Method>
  requires(!StreamingMethod<Method>)
Invocation<Method> open_letter(Letter* letter) noexcept {
  const bool told = letter->kind == Letter::Kind::tell;
  Invocation<Method> call = take_request<Method>(*letter, told ? nullptr : letter);
  MethodFunctions<Method>::destroy_content(*letter);
  letter->content = Letter::Content::nothing;
  if (told) {
    destroy(letter);
  } else if constexpr (Method::oneway) {
    drop_unanswered(letter);  // a peer that asked where there is nothing to answer
  }
  return call;
}

template <class Method>
struct MethodFunctions {
  using Request = RequestOf<Method>;
  using Answer = AnswerOf<Method>;

  static Task<void> invoke(Actor& actor, Letter* letter) {
    return Method::invoke(static_cast<typename Method::Service::Actor&>(actor),
                          open_letter<Method>(letter));
  }

  static void destroy_content(Letter& letter) noexcept {
    if (letter.content == Letter::Content::request) {
      letter.content_as<Request>().~Request();
    } else {
      letter.content_as<Answer>().~Answer();
    }
  }

  static void write(Letter& letter, Buffer& body, Segments& segments) {
    if (letter.content == Letter::Content::request) {
      auto& request = letter.content_as<Request>();
      if constexpr (Method::request_segments) segments = std::move(request.segments);
      body = to_bytes(std::move(request.request));
    } else if constexpr (Method::response_segments) {
      auto& answer = letter.content_as<Answer>();
      segments = std::move(answer.segments);
      body = to_bytes(std::move(answer.value));
    } else {
      body = to_bytes(std::move(letter.content_as<Answer>()));
    }
    destroy_content(letter);
    letter.content = Letter::Content::nothing;
  }

  static Error surplus_segments() {
    return Error(Errc::verification_failed, std::string("read a message of ") + Method::name,
                 "it has segments, which the schema does not allow",
                 "check that both ends use the same version of its schema");
  }

  static Result<Letter*> read_request(Buffer body, Segments segments) {
    auto message = from_bytes<typename Method::Request>(std::move(body));
    if (!message) return message.error();
    Request request{std::move(*message)};
    if constexpr (Method::request_segments) {
      request.segments = std::move(segments);
    } else if (!segments.empty()) {
      return surplus_segments();
    }
    return make_letter<Method>(std::move(request), Letter::Kind::tell);
  }

  static Result<void> read_answer(Letter& letter, Buffer body, Segments segments) {
    auto message = from_bytes<typename Method::Response>(std::move(body));
    if (!message) return message.error();
    if constexpr (Method::response_segments) {
      new (letter.payload<Answer>()) Answer{std::move(*message), std::move(segments)};
    } else {
      if (!segments.empty()) return surplus_segments();
      new (letter.payload<Answer>()) Answer(std::move(*message));
    }
    letter.content = Letter::Content::answer;
    return {};
  }

  static void detach(Letter& letter) {
    if (letter.content == Letter::Content::request) {
      auto& request = letter.content_as<Request>();
      detach_message(request.request);
      if constexpr (Method::request_segments) detach_segments(request.segments);
    } else if (letter.content == Letter::Content::answer) {
      auto& answer = letter.content_as<Answer>();
      if constexpr (Method::response_segments) {
        detach_message(answer.value);
        detach_segments(answer.segments);
      } else {
        detach_message(answer);
      }
    }
  }
};

template <class Method>
constexpr MethodInfo make_method_info() noexcept {
  using Functions = MethodFunctions<Method>;
  return {.id = Method::id,
          .name = Method::name,
          .index = Method::index,
          .interleaved = Method::interleaved,
          .oneway = Method::oneway,
          .bulk = Method::bulk,
          .streams = false,
          .invoke = &Functions::invoke,
          .destroy_content = &Functions::destroy_content,
          .write = &Functions::write,
          .read_request = &Functions::read_request,
          .read_answer = &Functions::read_answer,
          .detach = &Functions::detach};
}

}  // namespace hyperframes::detail
