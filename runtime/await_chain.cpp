#include <hyperframes/runtime/await_chain.hpp>

#include <hyperframes/runtime/detail/promise.hpp>
#include <string_view>

namespace hyperframes {
namespace {

// Longer chains exist (a task may await a million others): their end is not worth a long pause.
constexpr std::size_t most_links = 10'000;

std::string_view without_folders(std::string_view file) {
  return file.substr(file.rfind('/') + 1);  // npos + 1 is 0
}

std::string text_of(const std::vector<AwaitPlace>& places, std::size_t left_out) {
  std::string text;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (i > 0) text += " > ";
    if (left_out > 0 && i == places.size() / 2)
      text += "... " + std::to_string(left_out) + " more ... > ";
    text += places[i].to_string();
  }
  return text;
}

}  // namespace

AwaitPlace::AwaitPlace(const std::source_location& where)
    : function(where.function_name()),
      file(without_folders(where.file_name())),
      line(where.line()) {}

std::string AwaitPlace::to_string() const {
  return std::string(function) + " (" + std::string(file) + ":" + std::to_string(line) + ")";
}

std::size_t AwaitChain::place_count() const noexcept {
  std::size_t count = places.size();
  for (const AwaitChain& branch : branches) count += branch.place_count();
  return count;
}

std::string AwaitChain::to_string() const {
  if (places.empty() && branches.empty()) return "not started";
  std::string text = text_of(places, places_left_out);
  if (!branches.empty() || branches_left_out > 0) {
    text += " > {" + std::to_string(branches.size() + branches_left_out) + " tasks: ";
    for (std::size_t i = 0; i < branches.size(); ++i)
      text += (i > 0 ? "; " : "") + branches[i].to_string();
    text += branches_left_out > 0 ? "; ...}" : "}";
  }
  return ready ? text + " (ready to run)" : text;
}

namespace detail {

AwaitChain chain_of(const PromiseBase* first, unsigned level) {
  constexpr std::size_t half = AwaitChain::most_places / 2;
  AwaitChain chain;
  std::vector<const PromiseBase*> last;  // a ring, of those behind the first half
  std::size_t behind = 0, links = 0;
  const PromiseBase* innermost = nullptr;
  for (const PromiseBase* at = first; at && links < most_links; at = at->child, ++links) {
    innermost = at;
    if (!at->suspended_at.line()) continue;
    if (chain.places.size() < half) {
      chain.places.emplace_back(at->suspended_at);
    } else if (last.size() < half) {
      last.push_back(at);
      ++behind;
    } else {
      last[behind++ % half] = at;
    }
  }
  chain.places_left_out = behind - last.size();
  for (std::size_t i = 0; i < last.size(); ++i)
    chain.places.emplace_back(last[(behind + i) % last.size()]->suspended_at);
  if (!innermost) return chain;
  chain.ready = innermost->queued;
  if (innermost->branches) innermost->branches->describe(chain, level + 1);
  return chain;
}

}  // namespace detail
}  // namespace hyperframes
