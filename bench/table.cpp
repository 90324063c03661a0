// Figures of the tables: looking rows up and changing them, on one core, in memory beyond any
// cache.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <hyperframes/apps/ps/optimizer.hpp>
#include <hyperframes/apps/ps/row_table.hpp>
#include <hyperframes/apps/ps/table_spec.hpp>
#include <memory>
#include <random>
#include <vector>

#include "harness.hpp"

namespace hyperframes::bench {
namespace {

constexpr std::size_t row_bytes = 512;
constexpr std::size_t width = row_bytes / sizeof(float);
constexpr std::size_t keys_a_round = 4'000'000;
constexpr std::size_t batch = 4096;

/// A table and, of the same size and on the same kind of pages, a plain array of rows.
struct Memory {
  explicit Memory(std::size_t rows)
      : spec{.id = 1, .name = "bench", .width = width, .optimizer = ps::OptimizerKind::sgd},
        table(1, row_bytes, ps::all_slots()),
        optimizer(spec),
        bytes(rows * row_bytes) {
    void* mapped =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    ::madvise(mapped, bytes, MADV_HUGEPAGE);
    array = static_cast<float*>(mapped);
    std::fill_n(array, bytes / sizeof(float), 1.0f);
    for (std::uint64_t key = 0; key < rows; ++key) {
      auto* row = reinterpret_cast<float*>(table.find_or_insert(key).payload);
      std::fill_n(row, width, 1.0f);
    }
    std::mt19937_64 random(7);
    keys.resize(keys_a_round);
    for (auto& key : keys) key = random() % rows;
  }
  ~Memory() { ::munmap(array, bytes); }

  ps::TableSpec spec;
  ps::RowTable table;
  ps::Optimizer optimizer;
  std::size_t bytes;
  float* array = nullptr;
  std::vector<std::uint64_t> keys;
  std::vector<float> out = std::vector<float>(batch * width);
  std::vector<float> gradient = std::vector<float>(width, 0.001f);
};

template <class Work>
double rows_per_second(Memory& memory, Work work) {
  const double start = now_ns();
  for (std::size_t at = 0; at + batch <= keys_a_round; at += batch)
    work(std::span<const std::uint64_t>(memory.keys).subspan(at, batch));
  return static_cast<double>(keys_a_round / batch * batch) / (now_ns() - start) * 1e9;
}

double gather_from_table(Memory& memory) {
  return rows_per_second(memory, [&](std::span<const std::uint64_t> keys) {
    memory.table.visit(keys, [&](std::size_t i, const std::byte* row) {
      std::memcpy(memory.out.data() + i * width, row, row_bytes);
    });
  });
}

double update_in_table(Memory& memory) {
  return rows_per_second(memory, [&](std::span<const std::uint64_t> keys) {
    memory.table.visit(keys, [&](std::size_t, std::byte* row) {
      memory.optimizer.apply(reinterpret_cast<float*>(row), memory.gradient.data());
    });
  });
}

// The floors know where each row is, and prefetch it a few rows ahead.
template <class Work>
void walk_array(Memory& memory, std::span<const std::uint64_t> keys, Work work) {
  constexpr std::size_t ahead = 8;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i + ahead < keys.size()) {
      const char* next = reinterpret_cast<const char*>(memory.array + keys[i + ahead] * width);
      for (std::size_t line = 0; line < row_bytes; line += 64) __builtin_prefetch(next + line);
    }
    work(i, memory.array + keys[i] * width);
  }
}

double gather_from_array(Memory& memory) {
  return rows_per_second(memory, [&](std::span<const std::uint64_t> keys) {
    walk_array(memory, keys, [&](std::size_t i, const float* row) {
      std::memcpy(memory.out.data() + i * width, row, row_bytes);
    });
  });
}

double update_in_array(Memory& memory) {
  return rows_per_second(memory, [&](std::span<const std::uint64_t> keys) {
    walk_array(memory, keys, [&](std::size_t, float* row) {
      for (std::size_t f = 0; f < width; ++f) row[f] -= 0.05f * memory.gradient[f];
    });
  });
}

std::size_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;)
    if (word == "MemAvailable:") {
      std::size_t kib = 0;
      file >> kib;
      return kib << 10;
    }
  return 0;
}

}  // namespace

void add_table_rows(Runner& runner) {
  // Table and array both: 4 GiB each where the machine has them.
  const std::size_t each = std::min<std::size_t>(std::size_t{4} << 30, available_bytes() / 3);
  const std::size_t rows = each / row_bytes;
  auto memory = std::make_shared<std::unique_ptr<Memory>>();
  auto with = [memory, rows](double (*measure)(Memory&)) {
    return [=] {
      if (!*memory) *memory = std::make_unique<Memory>(rows);
      return measure(**memory);
    };
  };
  const std::string note =
      fmt::format("random keys over {:.1f} GiB of 512-byte rows, one core, batches of {}",
                  static_cast<double>(each) / (1 << 30), batch);
  runner.add({.group = "table",
              .name = "look up and copy rows",
              .unit = "rows/s",
              .better = Better::higher,
              .subject = with(gather_from_table),
              .floor = {{"a prefetched gather over a plain array", with(gather_from_array), 0.7}},
              .note = note});
  runner.add({.group = "table",
              .name = "look up and update rows with SGD",
              .unit = "rows/s",
              .better = Better::higher,
              .subject = with(update_in_table),
              .floor = {{"a prefetched update of a plain array", with(update_in_array), 0.7}},
              .note = note});
}

}  // namespace hyperframes::bench
