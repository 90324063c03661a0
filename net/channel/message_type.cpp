#include <hyperframes/net/channel/message_type.hpp>

namespace hyperframes::net {
namespace {

constexpr std::size_t parts_of_a_name = 3;

std::uint64_t fnv1a(std::string_view text) noexcept {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 1099511628211u;
  }
  return hash;
}

/// Takes the first part off `rest`.
std::string_view next_part(std::string_view& rest) noexcept {
  const auto dot = rest.find('.');
  const std::string_view part = rest.substr(0, dot);
  rest.remove_prefix(dot == rest.npos ? rest.size() : dot + 1);
  return part;
}

/// What is wrong with one part, or nothing.
std::string fault_of(std::string_view part) {
  if (part.empty()) return "it has an empty part";
  if (part[0] < 'a' || part[0] > 'z')
    return "its part '" + std::string(part) + "' does not begin with a small letter";
  for (const char c : part) {
    const bool fine = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    if (!fine)
      return "its part '" + std::string(part) +
             "' holds something else than small letters, digits and '_'";
  }
  return {};
}

std::string fault_of(std::string_view name, bool pattern) {
  if (name.size() > MessageType::longest_name)
    return "it has " + std::to_string(name.size()) + " characters, the limit is " +
           std::to_string(MessageType::longest_name);
  std::size_t parts = 0;
  bool open_end = false;
  std::string_view rest = name;
  do {
    const std::string_view part = next_part(rest);
    ++parts;
    open_end = pattern && part == "*";
    if (!open_end)
      if (std::string fault = fault_of(part); !fault.empty()) return fault;
  } while (!rest.empty());
  if (name.ends_with('.')) return "it ends with '.'";
  if (parts == parts_of_a_name || (open_end && parts < parts_of_a_name)) return {};
  return "it has " + std::to_string(parts) + (parts == 1 ? " part" : " parts");
}

// A peer's bytes may be anything: the error shows no more of them than needed.
std::string shown(std::string_view text) {
  std::string safe;
  for (const char c : text.substr(0, MessageType::longest_name))
    safe += c >= ' ' && c < 127 ? c : '?';
  return "'" + safe + (text.size() > MessageType::longest_name ? "...'" : "'");
}

}  // namespace

Result<MessageType> MessageType::try_parse(std::string_view name) {
  if (std::string fault = fault_of(name, false); !fault.empty())
    return Error(Errc::invalid_argument, "name a message's type " + shown(name), std::move(fault),
                 "write module.part.event, such as ml.splitter.batch");
  MessageType type;
  type.known_ = std::make_shared<const Known>(std::string(name), fnv1a(name));
  return type;
}

MessageType::MessageType(std::string_view name) : MessageType(try_parse(name).value()) {}

TypeFilter::TypeFilter(std::string_view pattern) {
  if (pattern == "*") return;
  exact_ = pattern.find('*') == pattern.npos;
  if (std::string fault = fault_of(pattern, true); !fault.empty())
    throw Error(Errc::invalid_argument, "receive messages of type " + shown(pattern),
                std::move(fault),
                "write a type such as ml.splitter.batch, or a pattern such as ml.splitter.*");
  pattern_ = pattern;
}

bool TypeFilter::matches(const MessageType& type) const noexcept {
  if (pattern_.empty()) return true;
  if (exact_) return type.name() == pattern_;
  std::string_view wanted = pattern_, name = type.name();
  while (!wanted.empty()) {
    const std::string_view part = next_part(wanted);
    const std::string_view own = next_part(name);
    if (part == "*") {
      if (wanted.empty()) return !own.empty();
    } else if (part != own) {
      return false;
    }
  }
  return name.empty();
}

}  // namespace hyperframes::net
