#include <hyperframes/apps/ps/row_table.hpp>

#include <hyperframes/runtime/error.hpp>

#include <cassert>
#include <string>
#include <utility>

namespace hyperframes::ps {
namespace detail {
namespace {
constexpr std::size_t segment_bytes = std::size_t{32} << 20;
}

std::uint64_t reverse_bits(std::uint64_t value) noexcept {
  value = ((value >> 1) & 0x5555555555555555u) | ((value & 0x5555555555555555u) << 1);
  value = ((value >> 2) & 0x3333333333333333u) | ((value & 0x3333333333333333u) << 2);
  value = ((value >> 4) & 0x0f0f0f0f0f0f0f0fu) | ((value & 0x0f0f0f0f0f0f0f0fu) << 4);
  return __builtin_bswap64(value);
}

RowArena::RowArena(std::size_t stride) : stride_(stride) {
  shift_ = static_cast<std::uint32_t>(std::bit_width(segment_bytes / stride)) - 1;
  mask_ = (std::uint32_t{1} << shift_) - 1;
}

void RowArena::grow() {
  if (segments_.size() >= (std::size_t{1} << (32 - shift_)) - 1)
    throw Error(Errc::exhausted, "add a row", "one part of a table holds at most 4 billion rows",
                "raise --num_shards");
  Pages pages((std::size_t{mask_} + 1) * stride_, "hold rows");
  // A small table stays on small pages; the first 2 MiB turn huge once they are all used.
  if (segments_.empty()) {
    pages.prefer_huge(huge_page_bytes);
  } else {
    pages.prefer_huge();
    segments_.front().prefer_huge();
  }
  segments_.push_back(std::move(pages));
}

void RowArena::reserve(std::size_t count) {
  const auto free_rows = [&] { return (segments_.size() << shift_) - used_ + free_count_; };
  while (free_rows() < count) grow();
}

std::uint32_t RowArena::allocate() {
  if (free_head_ != 0) {
    const std::uint32_t row = free_head_ - 1;
    std::memcpy(&free_head_, at(row), sizeof free_head_);
    --free_count_;
    return row;
  }
  if (used_ == segments_.size() << shift_) grow();
  return used_++;
}

void RowArena::release(std::uint32_t row) noexcept {
  std::memcpy(at(row), &free_head_, sizeof free_head_);
  free_head_ = row + 1;
  ++free_count_;
}

void GroupArray::reserve(std::size_t count) {
  while ((blocks_.size() << block_shift) - size_ < count) {
    Pages pages(sizeof(Group) << block_shift, "hold a table's index");
    if (!blocks_.empty()) {
      pages.prefer_huge();
      blocks_.front().prefer_huge();
    }
    blocks_.push_back(std::move(pages));
  }
}

Group* GroupArray::append() {
  reserve(1);
  Group* group = at(size_++);
  *group = Group{};
  return group;
}

}  // namespace detail

namespace {
/// A group's mean number of entries: more saves memory, less saves overflow groups.
constexpr std::uint64_t mean_entries = 9;

std::size_t checked_payload(std::size_t bytes) {
  if (bytes == 0 || bytes % 4 != 0 || bytes > RowTable::max_payload_bytes)
    throw Error(
        Errc::invalid_argument, "make a table of rows of " + std::to_string(bytes) + " bytes",
        "a row's size is a multiple of 4 bytes up to 1 MiB", "change the dimension of the table");
  return bytes;
}
}  // namespace

std::span<const Slot> all_slots() noexcept {
  static const auto slots = [] {
    std::array<Slot, slot_count> all;
    for (std::size_t i = 0; i < slot_count; ++i) all[i] = static_cast<Slot>(i);
    return all;
  }();
  return slots;
}

RowTable::RowTable(TableId table, std::size_t payload_bytes, std::span<const Slot> slots)
    : table_(table),
      payload_bytes_(checked_payload(payload_bytes)),
      // Beyond 2 KiB the processor sees the stream by itself.
      prefetch_bytes_(std::min<std::size_t>(payload_bytes + key_bytes, 2048)),
      places_(slots.size()),
      rows_(payload_bytes + key_bytes) {
  place_.fill(not_owned);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] >= slot_count || place_[slots[i]] != not_owned)
      throw Error(Errc::invalid_argument, "make a table of " + std::to_string(places_) + " slots",
                  "slot " + std::to_string(slots[i]) + " is named twice or is above " +
                      std::to_string(slot_count - 1));
    place_[slots[i]] = static_cast<std::uint16_t>(i);
  }
  if (slots.empty())
    throw Error(Errc::invalid_argument, "make a table of no slots", "it could hold no row");
  for (std::size_t i = 0; i < places_; ++i) groups_.append();
}

std::byte* RowTable::locate(std::uint64_t key, std::uint64_t hash) const noexcept {
  const std::uint16_t place = place_[slot_of_hash(hash)];
  if (place == not_owned) return nullptr;
  const std::uint8_t tag = detail::tag_of(hash);
  for (const Group* group = groups_.at(home(hash, place)); group != nullptr; group = next_of(group))
    for (std::uint32_t found = detail::match(*group, tag); found != 0; found &= found - 1) {
      std::byte* row = rows_.at(group->rows[std::countr_zero(found)]);
      if (key_at(row) == key) return row + key_bytes;
    }
  return nullptr;
}

std::byte* RowTable::find(std::uint64_t key) const noexcept {
  return locate(key, hash_key(table_, key));
}

RowTable::Inserted RowTable::find_or_insert(std::uint64_t key) {
  const std::uint64_t hash = hash_key(table_, key);
  if (std::byte* payload = locate(key, hash)) return {payload, false};
  return {insert_new(key, hash), true};
}

std::byte* RowTable::insert_new(std::uint64_t key, std::uint64_t hash) {
  const Slot slot = slot_of_hash(hash);
  if (!owns(slot))
    throw Error(Errc::moved, "insert key " + std::to_string(key),
                "its slot " + std::to_string(slot) + " is not held here",
                "get the newest placement map");
  if (size_ >= groups_.size() * mean_entries) split();
  const std::uint32_t number = rows_.allocate();
  add_entry(groups_.at(home(hash, place_[slot])), detail::tag_of(hash), number);
  std::byte* row = rows_.at(number);
  std::memcpy(row, &key, sizeof key);
  std::memset(row + key_bytes, 0, payload_bytes_);
  ++size_;
  return row + key_bytes;
}

void RowTable::add_entry(Group* group, std::uint8_t tag, std::uint32_t row) {
  std::uint32_t vacant = detail::match(*group, 0);
  while (vacant == 0) {
    if (group->next == 0) group->next = allocate_overflow() + 1;
    group = next_of(group);
    vacant = detail::match(*group, 0);
  }
  const int at = std::countr_zero(vacant);
  group->tags[at] = tag;
  group->rows[at] = row;
}

std::uint32_t RowTable::allocate_overflow() {
  if (free_overflow_ == 0) {
    overflow_.append();
    return static_cast<std::uint32_t>(overflow_.size() - 1);
  }
  const std::uint32_t number = free_overflow_ - 1;
  free_overflow_ = overflow_.at(number)->next;
  *overflow_.at(number) = Group{};
  return number;
}

/// Splits the next group in turn: its entries stay or go to the new last group by one hash bit.
void RowTable::split() {
  const std::size_t half = (level_mask_ >> 1) + 1;
  Group* const from = groups_.at(groups_.size() - half * places_);
  Group* const into = groups_.append();
  for (const Group* group = from; group != nullptr; group = next_of(group))
    for (unsigned i = 0; i < Group::capacity && group->tags[i] != 0; ++i)
      __builtin_prefetch(rows_.at(group->rows[i]));
  Group* kept = from;  // what stays is written over what was read
  unsigned kept_at = 0;
  for (Group* group = from; group != nullptr; group = next_of(group))
    for (unsigned i = 0; i < Group::capacity && group->tags[i] != 0; ++i) {
      const std::uint8_t tag = group->tags[i];
      const std::uint32_t row = group->rows[i];
      if ((hash_key(table_, key_at(rows_.at(row))) & half) != 0) {
        add_entry(into, tag, row);
        continue;
      }
      if (kept_at == Group::capacity) kept = next_of(kept), kept_at = 0;
      kept->tags[kept_at] = tag;
      kept->rows[kept_at++] = row;
    }
  std::fill(kept->tags + kept_at, kept->tags + Group::capacity, std::uint8_t{0});
  trim_chain(kept);
  if (groups_.size() == 2 * half * places_) level_mask_ = 2 * level_mask_ + 1;
}

/// Gives back the overflow groups behind `last`.
void RowTable::trim_chain(Group* last) noexcept {
  std::uint32_t next = last->next;
  last->next = 0;
  while (next != 0) {
    const std::uint32_t number = next - 1;
    next = overflow_.at(number)->next;
    overflow_.at(number)->next = free_overflow_;
    free_overflow_ = number + 1;
  }
}

bool RowTable::erase(std::uint64_t key) noexcept {
  const std::uint64_t hash = hash_key(table_, key);
  const std::uint16_t place = place_[slot_of_hash(hash)];
  if (place == not_owned) return false;
  const std::uint8_t tag = detail::tag_of(hash);
  Group* const first = groups_.at(home(hash, place));
  Group* hole_group = nullptr;
  int hole = 0;
  Group *last = first, *before_last = first;
  for (Group* group = first; group != nullptr; group = next_of(group)) {
    for (std::uint32_t found = detail::match(*group, tag); found != 0; found &= found - 1) {
      const int i = std::countr_zero(found);
      if (key_at(rows_.at(group->rows[i])) == key) hole_group = group, hole = i;
    }
    before_last = std::exchange(last, group);
  }
  if (hole_group == nullptr) return false;
  rows_.release(hole_group->rows[hole]);
  // The chain's last entry fills the hole, so that chains stay dense.
  const int end = std::popcount(~detail::match(*last, 0) & 0xfffu) - 1;
  hole_group->tags[hole] = last->tags[end];
  hole_group->rows[hole] = last->rows[end];
  last->tags[end] = 0;
  if (end == 0 && last != first) trim_chain(before_last);
  --size_;
  return true;
}

void RowTable::drop_slot(Slot slot) noexcept {
  const std::size_t place = place_[slot];
  if (place == not_owned) return;
  for (std::size_t home = place; home < groups_.size(); home += places_) {
    Group* const first = groups_.at(home);
    for (const Group* group = first; group != nullptr; group = next_of(group))
      for (unsigned i = 0; i < Group::capacity && group->tags[i] != 0; ++i, --size_)
        rows_.release(group->rows[i]);
    std::ranges::fill(first->tags, std::uint8_t{0});
    trim_chain(first);
  }
}

void RowTable::reserve(std::size_t count) {
  rows_.reserve(count);
  groups_.reserve(count / mean_entries + 1);
  overflow_.reserve(2 * count);  // at worst one for the row and one for the split before it
}

void RowTable::find_rows(std::span<const std::uint64_t> keys, std::uint32_t* rows) const noexcept {
  struct Pending {
    const Group* group;
    std::uint8_t tag;
  };
  std::array<Pending, ahead> ring;
  const auto begin = [&](std::size_t i) {
    const std::uint64_t hash = hash_key(table_, keys[i]);
    const std::uint16_t place = place_[slot_of_hash(hash)];
    const Group* group = place != not_owned ? groups_.at(home(hash, place)) : nullptr;
    __builtin_prefetch(group);
    ring[i % ahead] = {group, detail::tag_of(hash)};
  };
  for (std::size_t i = 0; i < std::min(ahead, keys.size()); ++i) begin(i);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto [first, tag] = ring[i % ahead];
    if (i + ahead < keys.size()) begin(i + ahead);
    rows[i] = no_row;
    for (const Group* group = first; group != nullptr; group = next_of(group))
      if (const std::uint32_t found = detail::match(*group, tag)) {
        rows[i] = group->rows[std::countr_zero(found)];
        break;
      }
  }
}

void RowTable::find_batch(std::span<const std::uint64_t> keys,
                          std::span<std::byte*> rows) const noexcept {
  assert(keys.size() == rows.size());
  visit(keys, [&](std::size_t i, std::byte* payload) { rows[i] = payload; });
}

RowTable::Memory RowTable::memory() const noexcept {
  return {rows_.touched_bytes(), groups_.touched_bytes() + overflow_.touched_bytes()};
}

}  // namespace hyperframes::ps
