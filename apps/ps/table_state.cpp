#include <hyperframes/apps/ps/table_state.hpp>

#include <fmt/format.h>

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <hyperframes/runtime/failpoint.hpp>
#include <utility>

namespace hyperframes::ps {
namespace {

constexpr std::uint64_t last_position = ~std::uint64_t{0};
constexpr std::size_t id_bytes = sizeof(std::uint64_t);

// Rows are floats in the table's raw memory, aligned to 4.
float* floats(std::byte* payload) noexcept { return reinterpret_cast<float*>(payload); }

TableSpec checked(TableSpec spec) {
  spec.check();
  return spec;
}

std::uint64_t position_of(TableId table, std::uint64_t id) noexcept {
  return ScanPosition::of_hash(hash_key(table, id));
}

}  // namespace

TableState::TableState(TableSpec spec, std::vector<Slot> slots)
    : spec_(checked(std::move(spec))),
      slots_(std::move(slots)),
      rows_(spec_.id, spec_.record_bytes(), slots_),
      dedup_(slots_.size()),
      optimizer_(spec_),
      initializer_(spec_) {
  if (!std::ranges::is_sorted(slots_))
    throw Error(Errc::invalid_argument, "make table '" + spec_.name + "'",
                "its slots do not ascend", "give PlacementMap::slots_of");
}

std::uint16_t TableState::place_of(std::uint64_t id) const {
  const Slot slot = slot_of(spec_.id, id);
  const std::uint16_t place = rows_.place_of(slot);
  if (place == RowTable::not_owned)
    throw Error(Errc::moved, fmt::format("find row {} of table '{}'", id, spec_.name),
                fmt::format("its slot {} is not held here", slot),
                "fetch the current map and send the rows where it says");
  return place;
}

/// Copies the ids, aligned, and finds their places.
void TableState::read_ids(const std::byte* ids, std::size_t count) {
  ids_.resize(count);
  if (count != 0) std::memcpy(ids_.data(), ids, count * id_bytes);
  places_.resize(count);
  for (std::size_t i = 0; i < count; ++i) places_[i] = place_of(ids_[i]);
}

void TableState::read_push(const PushBody& push) {
  if (push.width != spec_.width)
    throw Error(Errc::invalid_argument, "push to table '" + spec_.name + "'",
                fmt::format("rows of {} floats; the table has {}", push.width, spec_.width),
                "send one float for each column");
  read_ids(push.ids, push.count);
  const std::size_t count = std::size_t{push.count} * push.width;
  if (reinterpret_cast<std::uintptr_t>(push.values) % alignof(float) == 0) {
    values_ = reinterpret_cast<const float*>(push.values);
    return;
  }
  copied_.resize(count);
  if (count != 0) std::memcpy(copied_.data(), push.values, count * sizeof(float));
  values_ = copied_.data();
}

/// Drops what was applied before; false if nothing is left. Changes no row and no mark.
bool TableState::keep_fresh(const PushKey& key) {
  const auto seen = dedup_.find(key);
  std::vector<char> keep(ids_.size());
  std::size_t fresh = 0;
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    // Rows come grouped by slot: look each slot up once.
    if (i != 0 && places_[i] == places_[i - 1]) {
      keep[i] = keep[i - 1];
    } else {
      const auto verdict = seen.at(places_[i]);
      if (verdict == DedupWindow::Verdict::stale)
        throw Error(Errc::fenced, "push to table '" + spec_.name + "'",
                    fmt::format("incarnation {} of client {} was replaced by a newer one",
                                key.incarnation, key.client),
                    "stop: another process pushes under this client's number");
      keep[i] = verdict == DedupWindow::Verdict::fresh;
    }
    fresh += static_cast<std::size_t>(keep[i]);
  }
  if (fresh != 0 && fresh != ids_.size()) keep_rows(keep);
  return fresh != 0;
}

void TableState::keep_rows(const std::vector<char>& keep) {
  const std::size_t width = spec_.width;
  if (values_ != copied_.data()) copied_.assign(values_, values_ + ids_.size() * width);
  values_ = copied_.data();
  std::size_t kept = 0;
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    if (!keep[i]) continue;
    ids_[kept] = ids_[i];
    places_[kept] = places_[i];
    std::copy_n(copied_.begin() + static_cast<std::ptrdiff_t>(i * width), width,
                copied_.begin() + static_cast<std::ptrdiff_t>(kept * width));
    ++kept;
  }
  ids_.resize(kept);
  places_.resize(kept);
}

/// A lease's watermark lies at its own unit at most: that one is not finished. A higher one, once
/// believed, would make every later push look applied.
void TableState::check_watermark(const PushBody& push) const {
  const std::uint64_t limit = push.key.is_leased() ? unit_order(push.key.epoch, push.key.unit) : 0;
  if (push.forget_before <= limit) return;
  throw Error(
      Errc::invalid_argument, "push to table '" + spec_.name + "'",
      fmt::format("units below {} are to be forgotten; its own is {}", push.forget_before, limit),
      "send forget_before as the unit's lease has it, and 0 without a lease");
}

bool TableState::apply(const PushBody& push) {
  check_watermark(push);
  read_push(push);
  // One number that is none would spread to every row that meets this one.
  for (std::size_t i = 0; i < ids_.size() * spec_.width; ++i)
    if (!std::isfinite(values_[i])) [[unlikely]]
      throw Error(Errc::invalid_argument, "push to table '" + spec_.name + "'",
                  fmt::format("column {} of row {} is {}", i % spec_.width, ids_[i / spec_.width],
                              values_[i]),
                  "lower the learning rate, or look for a division by zero in the model");
  dedup_.check_room(push.key);
  if (!keep_fresh(push.key)) return false;
  rows_.reserve(ids_.size());
  dedup_.forget_units_before(push.forget_before);
  apply_rows();
  mark(push.key);
  return true;
}

void TableState::apply_rows() {
  rows_.visit_or_insert(ids_, [this](std::size_t i, std::byte* payload, bool inserted) {
    float* record = floats(payload);
    const float* values = values_ + i * spec_.width;
    if (is_counter(ids_[i])) return optimizer_.add(record, values);
    if (inserted) {
      initializer_.fill(ids_[i], {record, spec_.width});
      optimizer_.begin(record);
    }
    optimizer_.apply(record, values);
  });
}

void TableState::mark(const PushKey& key) {
  for (std::size_t i = 0; i < places_.size(); ++i)
    if (i == 0 || places_[i] != places_[i - 1]) dedup_.mark(key, places_[i]);
}

void TableState::erase(const EraseBody& erase) {
  read_ids(erase.ids, erase.count);
  for (const auto id : ids_) rows_.erase(id);
}

void TableState::pull(std::span<const std::byte> ids, std::span<std::byte> values) const {
  const std::size_t count = ids.size() / id_bytes;
  const std::size_t row_bytes = spec_.width * sizeof(float);
  if (ids.size() % id_bytes != 0 || values.size() != count * row_bytes)
    throw Error(Errc::invalid_argument, "pull from table '" + spec_.name + "'",
                fmt::format("{} bytes of ids and room for {} bytes", ids.size(), values.size()),
                fmt::format("give 8 bytes for each id and {} for each row", row_bytes));
  std::vector<std::uint64_t> keys(count);
  if (count != 0) std::memcpy(keys.data(), ids.data(), ids.size());
  for (const auto id : keys) place_of(id);
  std::vector<float> first(spec_.width);
  rows_.visit(keys, [&](std::size_t i, const std::byte* payload) {
    const void* from = payload;
    if (payload == nullptr) {
      initializer_.fill(keys[i], first);
      from = first.data();
    }
    std::memcpy(values.data() + i * row_bytes, from, row_bytes);
  });
}

std::vector<std::pair<std::uint64_t, float>> TableState::counters() const {
  std::vector<std::pair<std::uint64_t, float>> found;
  for (const Slot slot : slots_) {
    ScanPosition position;
    while (!position.done)
      rows_.scan(slot, position, rows_.size() + 1, [&](std::uint64_t id, const std::byte* payload) {
        if (!is_counter(id)) return;
        float value = 0;
        std::memcpy(&value, payload, sizeof value);
        found.emplace_back(id, value);
      });
  }
  return found;
}

bool TableState::encode_next(TableScan& scan, std::uint64_t lsn, std::size_t budget_bytes,
                             SnapshotEncoder& encoder, Bytes& out) const {
  if (scan.slot == slots_.size()) return false;
  const std::size_t row_bytes = id_bytes + spec_.record_bytes();
  SnapshotRows part{.table = spec_.id, .slot = slots_[scan.slot]};
  part.first = scan.position.next;
  part.lsn = lsn;
  Bytes dedup, rows;
  if (part.first == 0) dedup_.encode(scan.slot, dedup);
  rows_.scan(part.slot, scan.position, std::max<std::size_t>(1, budget_bytes / row_bytes),
             [&](std::uint64_t id, const std::byte* payload) {
               detail::put<std::uint64_t>(rows, id);
               rows.insert(rows.end(), payload, payload + spec_.record_bytes());
               ++part.count;
             });
  part.last = scan.position.done ? last_position : scan.position.next - 1;
  part.dedup = dedup;
  part.rows = rows;
  encoder.rows(part, out);
  if (scan.position.done) scan = {.slot = scan.slot + 1, .position = {}};
  return scan.slot != slots_.size();
}

void TableState::restore(const SnapshotRows& part) {
  const std::uint16_t place = rows_.place_of(part.slot);
  const std::string tried = fmt::format("restore slot {} of table '{}'", part.slot, spec_.name);
  if (place == RowTable::not_owned)
    throw Error(Errc::corrupt, tried, "this parameter shard does not hold it",
                "start with the --num_shards that the snapshot was written with");
  if (part.rows.size() != part.count * (id_bytes + spec_.record_bytes()))
    throw Error(Errc::corrupt, tried, "its rows have another size");
  // Slots are restored in the order in which they were taken: the first one's watermark is the one
  // that held at all of them, and the log raises it again in step.
  if (!part.dedup.empty()) {
    const std::uint64_t watermark = dedup_.decode(place, part.dedup);
    if (contained_.empty()) dedup_.forget_units_before(watermark);
  }
  rows_.reserve(part.count);
  const std::byte* row = part.rows.data();
  for (std::uint32_t i = 0; i < part.count; ++i, row += id_bytes + spec_.record_bytes()) {
    const auto id = detail::load<std::uint64_t>(row);
    const std::uint64_t position = position_of(spec_.id, id);
    if (slot_of(spec_.id, id) != part.slot || position < part.first || position > part.last)
      throw Error(Errc::corrupt, tried, fmt::format("row {} does not belong there", id));
    const auto [payload, inserted] = rows_.find_or_insert(id);
    if (!inserted) throw Error(Errc::corrupt, tried, fmt::format("row {} stands there twice", id));
    std::memcpy(payload, row + id_bytes, spec_.record_bytes());
  }
  if (contained_.empty()) contained_.resize(slots_.size());
  contained_[place].push_back({part.last, part.lsn});
}

bool TableState::slot_contains(std::size_t place, std::uint64_t lsn) const noexcept {
  return !contained_.empty() && !contained_[place].empty() && lsn <= contained_[place].front().lsn;
}

bool TableState::contains(std::uint64_t id, std::uint64_t lsn) const noexcept {
  if (contained_.empty()) return false;
  const auto& parts = contained_[rows_.place_of(slot_of(spec_.id, id))];
  const auto part =
      std::ranges::lower_bound(parts, position_of(spec_.id, id), {}, &Contained::last);
  return part != parts.end() && lsn <= part->lsn;
}

void TableState::replay(std::span<const std::byte> record) {
  const RecordHead head = decode_head(record);
  try {
    if (head.kind == RecordKind::push) replay_push(decode_push(record), head.lsn);
    if (head.kind == RecordKind::erase) replay_erase(decode_erase(record), head.lsn);
  } catch (const Error& error) {
    throw Error(Errc::corrupt,
                fmt::format("replay record {} into table '{}'", head.lsn, spec_.name), error.what(),
                "restore the newest copy of the work folder: what was acknowledged since is lost");
  }
}

// A slot's applied pushes are those of its first part. What that part contains is skipped whole;
// behind it they decide as they did when the push came, and only rows of later parts, which contain
// more, are left out.
void TableState::replay_push(const PushBody& push, std::uint64_t lsn) {
  read_push(push);
  std::vector<char> keep(ids_.size());
  for (std::size_t i = 0; i < ids_.size(); ++i) keep[i] = !slot_contains(places_[i], lsn);
  keep_rows(keep);
  const bool fresh = keep_fresh(push.key);
  dedup_.forget_units_before(push.forget_before);
  if (!fresh) return;
  mark(push.key);
  keep.resize(ids_.size());
  for (std::size_t i = 0; i < ids_.size(); ++i) keep[i] = !contains(ids_[i], lsn);
  keep_rows(keep);
  apply_rows();
}

void TableState::replay_erase(const EraseBody& erase, std::uint64_t lsn) {
  read_ids(erase.ids, erase.count);
  for (const auto id : ids_)
    if (!contains(id, lsn)) rows_.erase(id);
}

void TableState::finish_recovery() noexcept {
  contained_.clear();
  if (hyperframes::detail::planted("keys-lost-on-recovery")) dedup_ = DedupWindow(slots_.size());
}

std::size_t TableState::memory_bytes() const noexcept {
  return rows_.memory().total() + dedup_.memory_bytes();
}

std::uint64_t TableState::digest() const {
  std::uint64_t sum = 0;
  for (std::size_t place = 0; place < slots_.size(); ++place) {
    ScanPosition position;
    while (!position.done)
      rows_.scan(slots_[place], position, 1024, [&](std::uint64_t id, const std::byte* payload) {
        sum += XXH3_64bits_withSeed(payload, spec_.record_bytes(), hash_key(spec_.id, id));
      });
    Bytes dedup;
    dedup_.encode(place, dedup);
    sum += XXH3_64bits_withSeed(dedup.data(), dedup.size(), place);
  }
  return sum;
}

}  // namespace hyperframes::ps
