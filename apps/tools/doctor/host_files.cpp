#include <hyperframes/apps/tools/doctor/host_files.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

namespace hyperframes::tools::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_bytes = 1u << 20;
constexpr unsigned most_listed = 1u << 16;

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

std::string take_digits(std::string_view& text) {
  std::size_t size = 0;
  while (size < text.size() && is_digit(text[size])) ++size;
  std::string digits(text.substr(0, size));
  text.remove_prefix(size);
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  return digits;
}

bool comes_before(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    if (is_digit(a.front()) && is_digit(b.front())) {
      const std::string one = take_digits(a), other = take_digits(b);
      if (one.size() != other.size()) return one.size() < other.size();
      if (one != other) return one < other;
    } else if (a.front() != b.front()) {
      return a.front() < b.front();
    } else {
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  return a.size() < b.size();
}

}  // namespace

HostFiles::HostFiles(fs::path root) : root_(std::move(root)) {}

std::optional<std::string> HostFiles::read(const std::string& path) const {
  std::ifstream file(root_ / path, std::ios::binary);
  std::string text(most_bytes, '\0');
  if (!file.is_open()) return std::nullopt;
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.gcount() == 0 && !file.eof())) return std::nullopt;
  text.resize(static_cast<std::size_t>(file.gcount()));
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  return text;
}

std::vector<std::string> HostFiles::lines(const std::string& path) const {
  std::vector<std::string> lines;
  std::istringstream text(read(path).value_or(""));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

std::optional<std::int64_t> HostFiles::number(const std::string& path) const {
  const auto text = read(path);
  return text ? read_whole(*text) : std::nullopt;
}

std::optional<std::string> HostFiles::field(const std::string& path, std::string_view key) const {
  for (const std::string& line : lines(path))
    if (line.starts_with(key) && line.size() > key.size() && line[key.size()] == ':')
      return std::string(trimmed(std::string_view(line).substr(key.size() + 1)));
  return std::nullopt;
}

std::vector<std::string> HostFiles::list(const std::string& path) const {
  std::vector<std::string> names;
  std::error_code failure;
  fs::directory_iterator entries(root_ / path, failure);
  while (!failure && entries != fs::directory_iterator()) {
    names.push_back(entries->path().filename().string());
    entries.increment(failure);
  }
  std::ranges::sort(names, comes_before);
  return names;
}

bool HostFiles::exists(const std::string& path) const {
  std::error_code failure;
  return fs::exists(root_ / path, failure);
}

std::optional<std::string> HostFiles::resolve(const std::string& path) const {
  std::error_code failure;
  const fs::path root = fs::canonical(root_, failure);
  if (failure) return std::nullopt;
  const fs::path real = fs::canonical(root_ / path, failure);
  if (failure) return std::nullopt;
  return real.lexically_relative(root).generic_string();
}

std::optional<std::int64_t> read_whole(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::istringstream stream{std::string(text)};
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view white = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(white), text.size()));
  return text.substr(0, text.find_last_not_of(white) + 1);
}

std::vector<unsigned> read_list(std::string_view text) {
  std::vector<unsigned> numbers;
  while (!text.empty()) {
    const std::string_view part = trimmed(text.substr(0, text.find(',')));
    text.remove_prefix(std::min(text.find(','), text.size() - 1) + 1);
    const auto dash = part.find('-');
    const auto low = read_whole(part.substr(0, dash));
    const auto high = dash == part.npos ? low : read_whole(part.substr(dash + 1));
    if (!low || !high || *low < 0 || *high < *low || *high >= most_listed) continue;
    for (auto number = *low; number <= *high; ++number)
      numbers.push_back(static_cast<unsigned>(number));
  }
  return numbers;
}

std::string list_text(const std::vector<unsigned>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[i]);
    if (last != i) text += fmt::format("-{}", numbers[last]);
    i = last + 1;
  }
  return text;
}

std::string binary_text(std::uint64_t bytes) {
  static constexpr std::string_view units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) value /= 1024, ++unit;
  const std::string number = fmt::format("{:.1f}", value);
  const bool whole = number.ends_with(".0");
  return fmt::format("{} {}", whole ? number.substr(0, number.size() - 2) : number, units[unit]);
}

}  // namespace hyperframes::tools::doctor
