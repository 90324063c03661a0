// The rows of one table, found by key: a hash table made for hundreds of millions of small records.
//
//   hf::ps::RowTable table(/*table=*/0, /*payload_bytes=*/64, hf::ps::all_slots());
//   auto [payload, inserted] = table.find_or_insert(42);       // a new payload is all zeros
//   table.visit(keys, [&](std::size_t i, std::byte* payload) { if (payload) work(i, payload); });
//
// The index is a linear hash of 64-byte groups: 12 one-byte tags and a link in front, 12 row
// numbers behind. A lookup reads one cache line of it, and then the row. Groups of one hash slot
// hold no other slot's rows, so that a slot can be scanned or dropped without the others. The index
// grows by one group at a time: an insert does bounded work, however large the table. Rows never
// move.
//
// One thread at a time. Payload pointers stay valid until their row is erased.
#pragma once

#include <hyperframes/apps/ps/pages.hpp>
#include <hyperframes/apps/ps/slots.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace hyperframes::ps {

namespace detail {

/// One cache line of the index. Entries lie densely: a group in a chain is full unless it is last.
struct alignas(64) Group {
  static constexpr unsigned capacity = 12;
  std::uint8_t tags[capacity];  ///< 0: free.
  std::uint32_t next;           ///< The overflow group's number + 1; 0: none.
  std::uint32_t rows[capacity];
};
static_assert(sizeof(Group) == 64);

inline std::uint32_t match_portable(const Group& group, std::uint8_t tag) noexcept {
  std::uint32_t bits = 0;
  for (unsigned i = 0; i < Group::capacity; ++i) bits |= std::uint32_t{group.tags[i] == tag} << i;
  return bits;
}
/// Bit i: entry i has this tag.
inline std::uint32_t match(const Group& group, std::uint8_t tag) noexcept {
#if defined(__SSE2__)
  const __m128i line = _mm_load_si128(reinterpret_cast<const __m128i*>(&group));
  const __m128i same = _mm_cmpeq_epi8(line, _mm_set1_epi8(static_cast<char>(tag)));
  return static_cast<std::uint32_t>(_mm_movemask_epi8(same)) & 0xfffu;
#else
  return match_portable(group, tag);
#endif
}

inline std::uint8_t tag_of(std::uint64_t hash) noexcept {
  const auto tag = static_cast<std::uint8_t>(hash >> 44);
  return tag + (tag == 0);
}

/// Numbered records of one size, in segments that never move.
class RowArena {
 public:
  explicit RowArena(std::size_t stride);
  std::byte* at(std::uint32_t row) const noexcept {
    return segments_[row >> shift_].data() + (row & mask_) * stride_;
  }
  std::uint32_t allocate();
  void release(std::uint32_t row) noexcept;
  /// Makes the next `count` calls of allocate() succeed. Throws when memory or numbers run out.
  void reserve(std::size_t count);
  std::size_t stride() const noexcept { return stride_; }
  /// Bytes of rows that were ever used: what is resident, but for the last page.
  std::size_t touched_bytes() const noexcept { return std::size_t{used_} * stride_; }

 private:
  void grow();
  std::size_t stride_;
  std::uint32_t shift_, mask_;
  std::vector<Pages> segments_;
  std::uint32_t used_ = 0;       // rows below were handed out at least once
  std::uint32_t free_head_ = 0;  // number + 1; the rest of the list lies in the free rows
  std::uint32_t free_count_ = 0;
};

/// Numbered groups that never move.
class GroupArray {
 public:
  Group* at(std::size_t group) const noexcept {
    return reinterpret_cast<Group*>(blocks_[group >> block_shift].data()) + (group & block_mask);
  }
  std::size_t size() const noexcept { return size_; }
  Group* append();  ///< Cleared.
  /// Makes the next `count` calls of append() succeed. Throws when memory runs out.
  void reserve(std::size_t count);
  std::size_t touched_bytes() const noexcept { return size_ * sizeof(Group); }

 private:
  static constexpr unsigned block_shift = 15;  // 2 MiB
  static constexpr std::size_t block_mask = (std::size_t{1} << block_shift) - 1;
  std::vector<Pages> blocks_;
  std::size_t size_ = 0;
};

std::uint64_t reverse_bits(std::uint64_t value) noexcept;

}  // namespace detail

/// Where a scan of a slot stands: rows of lower positions have been seen. Every row has one fixed
/// position, and a table that grows meanwhile does not disturb a scan: a row that is there the
/// whole time is seen exactly once.
struct ScanPosition {
  std::uint64_t next = 0;
  bool done = false;
  /// The position of a row: its hash, mirrored.
  static std::uint64_t of_hash(std::uint64_t hash) noexcept { return detail::reverse_bits(hash); }
};

/// Every slot, ascending.
std::span<const Slot> all_slots() noexcept;

class RowTable {
 public:
  static constexpr std::size_t max_payload_bytes = std::size_t{1} << 20;

  /// `payload_bytes`: a multiple of 4 up to max_payload_bytes. `slots`: whose rows are held here;
  /// distinct, not empty. Throws `invalid_argument`.
  RowTable(TableId table, std::size_t payload_bytes, std::span<const Slot> slots);

  struct Inserted {
    std::byte* payload;
    bool inserted;
  };
  static constexpr std::uint16_t not_owned = 0xffff;
  bool owns(Slot slot) const noexcept { return place_[slot] != not_owned; }
  /// The slot's index in the slots that the table was made with, or not_owned.
  std::uint16_t place_of(Slot slot) const noexcept { return place_[slot]; }
  /// Null when there is no such row. A payload is aligned to 4 bytes.
  std::byte* find(std::uint64_t key) const noexcept;
  /// A new row's payload is zero, whatever lay there before. Throws `moved` when the key's slot is
  /// not held here.
  Inserted find_or_insert(std::uint64_t key);
  bool erase(std::uint64_t key) noexcept;

  /// rows[i] = find(keys[i]), with the cache misses overlapped and the rows on their way into the
  /// cache. Sizes must agree.
  void find_batch(std::span<const std::uint64_t> keys, std::span<std::byte*> rows) const noexcept;
  /// visit(i, payload or null) for each key in order, overlapped as find_batch. `visit` may insert
  /// into this table but not erase.
  template <class Visit>
  void visit(std::span<const std::uint64_t> keys, Visit&& visit) const;
  /// visit(i, payload, inserted) for each key in order, inserting what is missing.
  template <class Visit>
  void visit_or_insert(std::span<const std::uint64_t> keys, Visit&& visit);

  /// Visits rows of `slot` from `position` on in order of position, until at least `row_budget`
  /// were seen or the slot is done; `position` moves on. `visit(key, payload)` must not change
  /// the table.
  template <class Visit>
  void scan(Slot slot, ScanPosition& position, std::size_t row_budget, Visit&& visit) const;
  /// Erases a slot's rows.
  void drop_slot(Slot slot) noexcept;

  /// Makes sure that `count` inserts find memory. Throws an `Error`; the table is unchanged then.
  void reserve(std::size_t count);

  std::size_t size() const noexcept { return size_; }
  std::size_t payload_bytes() const noexcept { return payload_bytes_; }
  TableId table() const noexcept { return table_; }

  struct Memory {
    std::size_t rows;   ///< Bytes of row records, free ones included.
    std::size_t index;  ///< Bytes of groups.
    std::size_t total() const noexcept { return rows + index; }
  };
  Memory memory() const noexcept;

 private:
  using Group = detail::Group;
  static constexpr std::uint32_t no_row = 0xffffffffu;
  static constexpr std::size_t key_bytes = 8;
  static constexpr std::size_t ahead = 16;  ///< How far fetching the index runs ahead of its use.
  static constexpr std::size_t burst = 8;   ///< Rows whose first lines are fetched together.
  /// Keys whose rows are found before the first is used.
  static constexpr std::size_t block = 256;

  static std::uint64_t key_at(const std::byte* row) noexcept {
    std::uint64_t key;
    std::memcpy(&key, row, sizeof key);
    return key;
  }
  /// Fetches the first line of each row of a burst.
  void fetch_first_lines(const std::uint32_t* rows) const noexcept {
    for (std::size_t i = 0; i < burst; ++i)
      if (rows[i] != no_row) __builtin_prefetch(rows_.at(rows[i]));
  }
  void fetch_other_lines(std::uint32_t number) const noexcept {
    if (number == no_row) return;
    const auto row = reinterpret_cast<std::uintptr_t>(rows_.at(number));
    const std::uintptr_t end = row + prefetch_bytes_;
    for (std::uintptr_t line = (row & ~std::uintptr_t{63}) + 64; line < end; line += 64)
      __builtin_prefetch(reinterpret_cast<const void*>(line));
  }
  const Group* next_of(const Group* group) const noexcept {
    return group->next != 0 ? overflow_.at(group->next - 1) : nullptr;
  }
  Group* next_of(Group* group) noexcept {
    return group->next != 0 ? overflow_.at(group->next - 1) : nullptr;
  }
  /// The group where a hash of the slot at `place` belongs. Group b * places + place holds hashes
  /// that are b mod 2^level, or mod 2^(level + 1) once it was split.
  std::size_t home(std::uint64_t hash, std::size_t place) const noexcept {
    const std::uint64_t low = hash & level_mask_;
    const std::size_t fine = low * places_ + place;
    return fine < groups_.size() ? fine : (low & (level_mask_ >> 1)) * places_ + place;
  }
  /// For each key the number of the first row with its tag, or no_row.
  void find_rows(std::span<const std::uint64_t> keys, std::uint32_t* rows) const noexcept;
  /// The first row with the right tag is nearly always it; when not, or when the index changed
  /// since, the plain lookup decides.
  std::byte* settle(std::uint64_t key, std::uint32_t number) const noexcept {
    if (number != no_row) {
      std::byte* row = rows_.at(number);
      if (key_at(row) == key) return row + key_bytes;
    }
    return find(key);
  }
  /// Runs work(i, payload or null) over the keys, with the next rows on their way.
  template <class Work>
  void pipeline(std::span<const std::uint64_t> keys, Work&& work) const;

  std::byte* locate(std::uint64_t key, std::uint64_t hash) const noexcept;
  std::byte* insert_new(std::uint64_t key, std::uint64_t hash);
  void add_entry(Group* group, std::uint8_t tag, std::uint32_t row);
  void split();
  std::uint32_t allocate_overflow();
  void trim_chain(Group* last) noexcept;

  TableId table_;
  std::size_t payload_bytes_;
  std::size_t prefetch_bytes_;
  std::size_t places_;
  std::uint64_t level_mask_ = 1;  // 2^(level + 1) - 1
  detail::RowArena rows_;
  detail::GroupArray groups_, overflow_;
  std::size_t size_ = 0;
  std::uint32_t free_overflow_ = 0;  // number + 1; linked by Group::next
  std::array<std::uint16_t, slot_count> place_;
};

// Index and rows are fetched in turns, a block of keys at a time: mixed, each row's many lines fill
// the processor's miss buffers, and the index line, which everything else waits for, queues behind.
// First lines are fetched in bursts: the first touch of a page holds up the processor while it
// walks the page table, and only walks that begin close together overlap. The other lines are
// fetched row by row between the work, so that the memory never waits for it.
template <class Work>
void RowTable::pipeline(std::span<const std::uint64_t> keys, Work&& work) const {
  std::array<std::uint32_t, block + 2 * burst> rows;
  for (std::size_t begin = 0; begin < keys.size(); begin += block) {
    const std::size_t count = std::min(block, keys.size() - begin);
    find_rows(keys.subspan(begin, count), rows.data());
    std::fill_n(rows.begin() + count, 2 * burst, no_row);
    fetch_first_lines(&rows[0]);
    fetch_first_lines(&rows[burst]);
    for (std::size_t i = 0; i < burst; ++i) fetch_other_lines(rows[i]);
    for (std::size_t i = 0; i < count; ++i) {
      if (i % burst == 0 && i + 2 * burst < count) fetch_first_lines(&rows[i + 2 * burst]);
      fetch_other_lines(rows[i + burst]);
      work(begin + i, settle(keys[begin + i], rows[i]));
    }
  }
}

template <class Visit>
void RowTable::visit(std::span<const std::uint64_t> keys, Visit&& visit) const {
  pipeline(keys, visit);
}

template <class Visit>
void RowTable::visit_or_insert(std::span<const std::uint64_t> keys, Visit&& visit) {
  pipeline(keys, [&](std::size_t i, std::byte* payload) {
    const bool missing = payload == nullptr;
    if (missing) payload = insert_new(keys[i], hash_key(table_, keys[i]));
    visit(i, payload, missing);
  });
}

template <class Visit>
void RowTable::scan(Slot slot, ScanPosition& position, std::size_t row_budget,
                    Visit&& visit) const {
  const std::size_t place = place_[slot];
  if (place == not_owned) position.done = true;
  for (std::size_t seen = 0; !position.done && seen < row_budget;) {
    const std::size_t half = (level_mask_ >> 1) + 1;  // 2^level
    const std::size_t home = this->home(detail::reverse_bits(position.next), place);
    const bool deep = home >= half * places_ || home + half * places_ < groups_.size();
    const Group* const first = groups_.at(home);
    for (const Group* group = first; group != nullptr; group = next_of(group))
      for (unsigned i = 0; i < Group::capacity && group->tags[i] != 0; ++i)
        __builtin_prefetch(rows_.at(group->rows[i]));
    for (const Group* group = first; group != nullptr; group = next_of(group))
      for (unsigned i = 0; i < Group::capacity && group->tags[i] != 0; ++i, ++seen) {
        const std::byte* row = rows_.at(group->rows[i]);
        visit(key_at(row), row + key_bytes);
      }
    // A group holds the positions that begin with the mirrored bits of its number.
    const int depth = std::countr_zero(half) + deep;
    position.next = depth == 0 ? 0 : position.next + (std::uint64_t{1} << (64 - depth));
    position.done = position.next == 0;
  }
}

}  // namespace hyperframes::ps
