#include <hyperframes/apps/ps/table_spec.hpp>

#include <fmt/format.h>

#include <cmath>

namespace hyperframes::ps {
namespace {

[[noreturn]] void refuse(const TableSpec& spec, std::string found, std::string remedy) {
  throw Error(Errc::invalid_argument, "define table '" + spec.name + "'", std::move(found),
              std::move(remedy));
}

template <class T>
void note(std::string& text, const char* what, const T& is, const T& expected) {
  if (is == expected) return;
  if (!text.empty()) text += ", ";
  text += fmt::format("{} {} instead of {}", what, is, expected);
}

}  // namespace

void TableSpec::check() const {
  if (name.size() > max_name_bytes)
    refuse(*this, fmt::format("its name has {} bytes", name.size()),
           fmt::format("use at most {}", max_name_bytes));
  if (width < 1 || width > max_width)
    refuse(*this, fmt::format("its width is {}", width),
           fmt::format("give between 1 and {} floats a row", max_width));
  if (initializer_from > width)
    refuse(*this, fmt::format("its initializer begins at column {} of {}", initializer_from, width),
           "begin within the row");
  if (optimizer > OptimizerKind::adagrad)
    refuse(*this, fmt::format("its optimizer has the number {}", static_cast<int>(optimizer)),
           "use sgd (0) or adagrad (1)");
  if (initializer > InitializerKind::normal)
    refuse(*this, fmt::format("its initializer has the number {}", static_cast<int>(initializer)),
           "use zero (0), constant (1), uniform (2) or normal (3)");
  if (!std::isfinite(learning_rate) || !std::isfinite(initializer_scale))
    refuse(*this, "its learning rate or initializer scale is no finite number", "give a number");
  if (!(initial_accumulator >= 0) || !std::isfinite(initial_accumulator))
    refuse(*this, fmt::format("its initial accumulator is {}", initial_accumulator),
           "give 0 or more");
  if (!(l2 >= 0) || !std::isfinite(l2))
    refuse(*this, fmt::format("its l2 is {}", l2), "give 0 or more");
}

std::string TableSpec::differences(const TableSpec& expected) const {
  std::string text;
  note(text, "id", id, expected.id);
  note(text, "name", name, expected.name);
  note(text, "width", width, expected.width);
  note(text, "optimizer", static_cast<int>(optimizer), static_cast<int>(expected.optimizer));
  note(text, "learning rate", learning_rate, expected.learning_rate);
  note(text, "initial accumulator", initial_accumulator, expected.initial_accumulator);
  note(text, "l2", l2, expected.l2);
  note(text, "initializer", static_cast<int>(initializer), static_cast<int>(expected.initializer));
  note(text, "initializer scale", initializer_scale, expected.initializer_scale);
  note(text, "first initialized column", initializer_from, expected.initializer_from);
  note(text, "seed", seed, expected.seed);
  return text;
}

void TableSpec::encode(Bytes& out) const {
  detail::put<std::uint32_t>(out, id);
  detail::put_text(out, name);
  detail::put<std::uint32_t>(out, width);
  detail::put<std::uint8_t>(out, static_cast<std::uint8_t>(optimizer));
  detail::put<std::uint8_t>(out, static_cast<std::uint8_t>(initializer));
  detail::put<float>(out, learning_rate);
  detail::put<float>(out, initial_accumulator);
  detail::put<float>(out, l2);
  detail::put<float>(out, initializer_scale);
  detail::put<std::uint32_t>(out, initializer_from);
  detail::put<std::uint64_t>(out, seed);
}

TableSpec TableSpec::decode(detail::ByteReader& reader) {
  TableSpec spec;
  spec.id = reader.get<std::uint32_t>();
  spec.name = reader.get_text(max_name_bytes);
  spec.width = reader.get<std::uint32_t>();
  spec.optimizer = static_cast<OptimizerKind>(reader.get<std::uint8_t>());
  spec.initializer = static_cast<InitializerKind>(reader.get<std::uint8_t>());
  spec.learning_rate = reader.get<float>();
  spec.initial_accumulator = reader.get<float>();
  spec.l2 = reader.get<float>();
  spec.initializer_scale = reader.get<float>();
  spec.initializer_from = reader.get<std::uint32_t>();
  spec.seed = reader.get<std::uint64_t>();
  try {
    spec.check();
  } catch (const Error& error) {
    reader.fail("an impossible table: " + error.found());
  }
  return spec;
}

}  // namespace hyperframes::ps
