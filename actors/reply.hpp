// The right, and the duty, to answer one ask.
//
//   hf::Task<void> add(demo::Add request, hf::Reply<demo::Value> reply) override {
//     reply.send({.total = total_ += request.delta()});     // or keep the Reply and answer later
//   }
//
// A Reply is answered once, on its actor's shard, and never suspends: also while the asker's
// mailbox or connection is busy. Destroyed unanswered, on that shard, it answers Errc::no_reply;
// or, if its handler threw (also what that called, and moved the Reply to), that hf::Error, or
// actor_down for another exception. After a `tell` nobody waits, and answering does nothing; so
// does a second answer.
#pragma once

#include <concepts>
#include <hyperframes/actors/detail/letter.hpp>
#include <utility>

namespace hyperframes {

/// A message together with data that travels beside it and is never copied into it. The buffers are
/// of the shard that has it.
template <class T>
struct WithSegments {
  T value;
  Segments segments;
};

namespace detail {

template <class T>
struct AnswerParts {
  using Message = T;
  static constexpr bool segments = false;
};
template <class T>
struct AnswerParts<WithSegments<T>> {
  using Message = T;
  static constexpr bool segments = true;
};

/// The part of a Reply that does not depend on what it answers with.
class ReplyBase {
 public:
  /// False once the asker has certainly stopped waiting: what it would cost to answer can be saved.
  bool wanted() const noexcept;
  /// When the asker stops waiting, by this shard's clock; no_deadline if nobody does.
  Time deadline() const noexcept { return letter_ ? letter_->deadline : no_deadline; }
  /// Answers with an error, which the asker's co_await throws.
  void fail(Error error) {
    if (Letter* letter = std::exchange(letter_, nullptr)) detail::fail(letter, std::move(error));
  }
  /// False once answered or moved from, and if nobody waits (a tell).
  explicit operator bool() const noexcept { return letter_ != nullptr; }

 protected:
  explicit ReplyBase(Letter* letter) noexcept : letter_(letter) {}
  ReplyBase(ReplyBase&& other) noexcept : letter_(std::exchange(other.letter_, nullptr)) {}
  ReplyBase& operator=(ReplyBase&& other) noexcept {
    if (this != &other) {
      if (letter_) drop_unanswered(letter_);
      letter_ = std::exchange(other.letter_, nullptr);
    }
    return *this;
  }
  ~ReplyBase() {
    if (letter_) drop_unanswered(letter_);
  }

  template <class T>
  void answer(T&& value) noexcept(std::is_nothrow_move_constructible_v<T>) {
    if (!letter_) return;
    new (letter_->template payload<T>()) T(std::move(value));
    letter_->content = Letter::Content::answer;
    send_back(std::exchange(letter_, nullptr));
  }

  Letter* letter_;
};

}  // namespace detail

template <class T>
class Reply : public detail::ReplyBase {
  using Message = typename detail::AnswerParts<T>::Message;
  using Fields = typename Message::Fields;

 public:
  /// For generated code.
  explicit Reply(detail::Letter* letter) noexcept : ReplyBase(letter) {}
  Reply(Reply&&) noexcept = default;
  Reply& operator=(Reply&&) noexcept = default;

  /// `reply.send({.total = 3})`, or an answer that was built before.
  void send(const Fields& fields)
    requires(!detail::AnswerParts<T>::segments)
  {
    answer(Message(fields));
  }
  template <std::same_as<Message> Answer>
  void send(Answer message)
    requires(!detail::AnswerParts<T>::segments)
  {
    answer(std::move(message));
  }

  /// The same with data beside it.
  void send(const Fields& fields, Segments segments)
    requires detail::AnswerParts<T>::segments
  {
    answer(T{Message(fields), std::move(segments)});
  }
  template <std::same_as<Message> Answer>
  void send(Answer message, Segments segments)
    requires detail::AnswerParts<T>::segments
  {
    answer(T{std::move(message), std::move(segments)});
  }
};

}  // namespace hyperframes
