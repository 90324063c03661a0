// A few words about a message that travel beside its data: keys that the program has declared, and
// a text for each.
//
//   hf::net::Metadata metadata{{"trace", "7f3a"}};
//   metadata.set("step", "12");
//   if (const std::string* step = metadata.find("step")) resume_at(*step);
//
// Which keys there are says Messenger::Options::keys: sending any other one is an error that names
// it. With everything around it, it takes at most 64 KiB. A plain value, for any thread.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hyperframes::net {

class Metadata {
 public:
  using Entry = std::pair<std::string, std::string>;
  /// Of one message.
  static constexpr std::size_t most_entries = 256;

  Metadata() noexcept = default;
  /// Of a key that comes twice the last text counts.
  Metadata(std::initializer_list<Entry> entries) {
    for (const Entry& entry : entries) set(entry.first, entry.second);
  }

  /// Any bytes. Replaces what the key had.
  void set(std::string key, std::string text) {
    for (Entry& entry : entries_) {
      if (entry.first != key) continue;
      entry.second = std::move(text);
      return;
    }
    entries_.emplace_back(std::move(key), std::move(text));
  }
  /// Null if there is none. Good until the next change.
  const std::string* find(std::string_view key) const noexcept {
    for (const Entry& entry : entries_)
      if (entry.first == key) return &entry.second;
    return nullptr;
  }
  bool empty() const noexcept { return entries_.empty(); }
  std::size_t size() const noexcept { return entries_.size(); }
  auto begin() const noexcept { return entries_.begin(); }
  auto end() const noexcept { return entries_.end(); }
  friend bool operator==(const Metadata&, const Metadata&) = default;

 private:
  std::vector<Entry> entries_;  // few: looking through them beats a map
};

}  // namespace hyperframes::net
