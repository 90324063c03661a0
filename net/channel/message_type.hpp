// What kind of message a message is, by its name; and which kinds a receiver wants.
//
//   static const hf::net::MessageType batch("ml.splitter.batch");    // checked here
//   hf::net::TypeFilter("ml.splitter.*").matches(batch);             // true
//   auto message = co_await channel.recv("ml.splitter.batch");       // or a pattern
//
// A name has three parts, `module.part.event`, each of small letters, digits and '_' with a letter
// first; 128 characters at most. On the wire a type is the hash of its name; the name itself goes
// along once. In a pattern a part may be '*', which stands for any; a last '*' stands for all that
// follows, so that `ml.*` and `*` are patterns too. Plain values, for any thread.
#pragma once

#include <cstdint>
#include <hyperframes/runtime/error.hpp>
#include <memory>
#include <string>
#include <string_view>

namespace hyperframes::net {

class MessageType {
 public:
  static constexpr std::size_t longest_name = 128;

  /// None; can't be sent.
  MessageType() noexcept = default;
  /// Throws Errc::invalid_argument that says what is wrong with the name. Make those that are used
  /// often once: it takes memory.
  MessageType(std::string_view name);
  MessageType(const char* name) : MessageType(std::string_view(name)) {}
  MessageType(const std::string& name) : MessageType(std::string_view(name)) {}
  /// The same, with the error for a result.
  static Result<MessageType> try_parse(std::string_view name);

  /// Empty if it is none.
  std::string_view name() const noexcept { return known_ ? known_->name : std::string_view(); }
  /// As it travels: FNV-1a of the name, 64 bits; 0 if it is none.
  std::uint64_t id() const noexcept { return known_ ? known_->id : 0; }
  explicit operator bool() const noexcept { return known_ != nullptr; }
  friend bool operator==(const MessageType& a, const MessageType& b) noexcept {
    return a.known_ == b.known_ || a.name() == b.name();
  }

 private:
  struct Known {
    std::string name;
    std::uint64_t id;
  };
  std::shared_ptr<const Known> known_;
};

class TypeFilter {
 public:
  /// Every type.
  TypeFilter() noexcept = default;
  /// Throws Errc::invalid_argument that says what is wrong with the pattern.
  TypeFilter(std::string_view pattern);
  TypeFilter(const char* pattern) : TypeFilter(std::string_view(pattern)) {}
  TypeFilter(const std::string& pattern) : TypeFilter(std::string_view(pattern)) {}
  /// Exactly that one.
  TypeFilter(const MessageType& type) : TypeFilter(type.name()) {}

  bool matches(const MessageType& type) const noexcept;
  std::string_view pattern() const noexcept {
    return pattern_.empty() ? std::string_view("*") : std::string_view(pattern_);
  }

 private:
  std::string pattern_;  ///< Empty: every type.
  bool exact_ = false;
};

}  // namespace hyperframes::net
