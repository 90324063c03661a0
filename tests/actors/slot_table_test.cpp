#include <hyperframes/actors/detail/slot_table.hpp>

#include <catch2/catch_test_macros.hpp>
#include <set>

using hyperframes::detail::SlotTable;

TEST_CASE("what is in a table of slots is found under its number, and not under an older one") {
  SlotTable<int> table;
  int one = 1, two = 2;
  const auto first = table.add(one);
  CHECK(table.find(first) == &one);
  table.remove(table.slot_of(first));
  CHECK(table.find(first) == nullptr);
  const auto second = table.add(two);
  CHECK(table.slot_of(second) == table.slot_of(first));
  CHECK(table.find(first) == nullptr);
  CHECK(table.find(second) == &two);
  CHECK(table.size() == 1);
  CHECK(table.find(second + 1) == nullptr);
}

TEST_CASE("no number comes back once the numbers of its slot are used up") {
  SlotTable<int, 3> table;
  int value = 0;
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 100; ++i) {
    const auto number = table.add(value);
    CHECK(number != 0);
    CHECK(seen.insert(number).second);
    CHECK(table.find(number) == &value);
    table.remove(table.slot_of(number));
    for (const auto old : seen) CHECK(table.find(old) == nullptr);
  }
  CHECK(table.size() == 0);
}

TEST_CASE("entries of a table of slots may leave and come while all are visited") {
  SlotTable<int> table;
  int values[] = {0, 1, 2, 3, 4};
  std::uint64_t numbers[5];
  for (int i = 0; i < 5; ++i) numbers[i] = table.add(values[i]);
  int visits = 0;
  table.for_each([&](int& value) {
    ++visits;
    table.remove(table.slot_of(numbers[value]));
    if (value == 1) numbers[0] = table.add(values[0]);
  });
  CHECK(visits == 5);
  CHECK(table.size() == 1);
  CHECK(table.find(numbers[0]) == &values[0]);
}
