#include <hyperframes/runtime/error.hpp>

namespace hyperframes {
namespace {

std::string compose(const std::error_code& code, const std::string& tried, const std::string& found,
                    const std::string& remedy) {
  std::string text = tried + ": " + (found.empty() ? code.message() : found);
  const bool own = code.category() == error_category();
  if (own || !found.empty())
    text +=
        " [" + (own ? std::string(name(static_cast<Errc>(code.value()))) : code.message()) + "]";
  if (!remedy.empty()) text += "; " + remedy;
  return text;
}

class Category final : public std::error_category {
  const char* name() const noexcept override { return "hyperframes"; }
  std::string message(int value) const override {
    std::string text(hyperframes::name(static_cast<Errc>(value)));
    for (char& c : text)
      if (c == '_') c = ' ';
    return text;
  }
};

}  // namespace

const std::error_category& error_category() noexcept {
  static const Category category;
  return category;
}

std::string_view name(Errc code) noexcept {
  switch (code) {
    case Errc::cancelled: return "cancelled";
    case Errc::deadline_exceeded: return "deadline_exceeded";
    case Errc::closed: return "closed";
    case Errc::exhausted: return "exhausted";
    case Errc::too_large: return "too_large";
    case Errc::corrupt: return "corrupt";
    case Errc::rejected: return "rejected";
    case Errc::unreachable: return "unreachable";
    case Errc::peer_lost: return "peer_lost";
    case Errc::not_found: return "not_found";
    case Errc::already_exists: return "already_exists";
    case Errc::overloaded: return "overloaded";
    case Errc::unknown_type: return "unknown_type";
    case Errc::verification_failed: return "verification_failed";
    case Errc::actor_down: return "actor_down";
    case Errc::no_reply: return "no_reply";
    case Errc::would_deadlock: return "would_deadlock";
    case Errc::fenced: return "fenced";
    case Errc::moved: return "moved";
    case Errc::invalid_argument: return "invalid_argument";
    case Errc::unsupported: return "unsupported";
    case Errc::version_mismatch: return "version_mismatch";
    case Errc::unauthenticated: return "unauthenticated";
    case Errc::shutting_down: return "shutting_down";
    case Errc::internal: return "internal";
  }
  return "unknown_error";
}

Error::Error(std::error_code code, std::string tried, std::string found, std::string remedy)
    : std::system_error(code),
      tried_(std::move(tried)),
      found_(std::move(found)),
      remedy_(std::move(remedy)),
      text_(compose(code, tried_, found_, remedy_)) {}

Error Error::system(int error_number, std::string tried, std::string found, std::string remedy) {
  const int positive = error_number < 0 ? -error_number : error_number;
  return Error(std::error_code(positive, std::generic_category()), std::move(tried),
               std::move(found), std::move(remedy));
}

}  // namespace hyperframes
