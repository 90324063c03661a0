#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <hyperframes/apps/ps/ledger.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/crc32c.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <random>

#include "temporary_folder.hpp"

using namespace hyperframes;
using namespace hyperframes::ps;
using hyperframes::ps::test::TemporaryFolder;

namespace {

LedgerEntry entry(std::uint32_t batch, std::uint64_t counter) {
  return {
      .job = 1, .epoch = 2, .unit = 3, .batch = batch, .table = 4, .shard = 5, .counter = counter};
}

constexpr std::uint64_t cluster = 0x1a2b;

Task<void> write_entries(std::string path, std::vector<LedgerEntry> entries,
                         std::uint64_t cluster) {
  auto ledger = co_await Ledger::open(path);
  co_await ledger->begin(cluster);
  co_await ledger->add(std::move(entries));
  co_await ledger->close();
}

void write(Runtime& runtime, const std::string& path, std::vector<LedgerEntry> entries,
           std::uint64_t to = cluster) {
  runtime.run([&](Runtime&) { return write_entries(path, entries, to); });
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

LedgerContents parse(const std::string& text) {
  return parse_ledger(std::as_bytes(std::span(text)), "ledger");
}

template <class Function>
Error thrown_by(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error;
  }
  return Error(Errc::internal, "nothing was thrown");
}

}  // namespace

TEST_CASE("a ledger that is opened again goes on where it ended") {
  TemporaryFolder folder;
  const auto path = folder.file("ledger");
  Runtime runtime({.shards = 1});
  write(runtime, path, {entry(0, 10), entry(0, 10).acknowledged()});
  write(runtime, path, {entry(1, 11)});
  write(runtime, path, {});
  const auto entries = read_ledger(path).entries;
  REQUIRE(entries.size() == 3);
  CHECK(entries[0] == entry(0, 10));
  CHECK(entries[1] == entry(0, 10).acknowledged());
  CHECK(entries[2] == entry(1, 11));
}

TEST_CASE("wherever a crash cut the ledger, its whole records stay and the rest is cut off") {
  TemporaryFolder folder;
  const auto path = folder.file("ledger");
  Runtime runtime({.shards = 1});
  write(runtime, path, {entry(0, 10), entry(1, 11), entry(2, 12)});
  const auto whole = read_text(path);
  REQUIRE(whole.size() == Ledger::header_bytes + 3 * Ledger::record_bytes);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    write_text(path, whole.substr(0, size));
    const auto left =
        size < Ledger::header_bytes ? 0 : (size - Ledger::header_bytes) / Ledger::record_bytes;
    CHECK(parse(whole.substr(0, size)).entries.size() == left);
    write(runtime, path, {entry(7, 17)});
    const auto entries = read_ledger(path).entries;
    REQUIRE(entries.size() == left + 1);
    CHECK(entries.back() == entry(7, 17));
  }
}

TEST_CASE("a tail that power loss filled with zeros is cut off") {
  TemporaryFolder folder;
  const auto path = folder.file("ledger");
  Runtime runtime({.shards = 1});
  write(runtime, path, {entry(0, 10)});
  write_text(path, read_text(path) + std::string(3 * Ledger::record_bytes, '\0'));
  CHECK(read_ledger(path).entries.size() == 1);
  write(runtime, path, {entry(1, 11)});
  CHECK(read_ledger(path).entries.size() == 2);
}

TEST_CASE("of records that power loss struck before they were synced those before a hole stay") {
  TemporaryFolder folder;
  const auto path = folder.file("ledger");
  Runtime runtime({.shards = 1});
  write(runtime, path, {entry(0, 10)});
  runtime.run([&](Runtime&) {
    return co_invoke([path]() -> Task<void> {
      auto ledger = co_await Ledger::open(path);
      co_await ledger->begin(cluster);
      for (std::uint32_t i = 1; i < 6; ++i) co_await ledger->add({entry(i, 10 + i)});
    });  // and then its power goes
  });
  const auto whole = read_text(path);
  for (std::size_t lost = 1; lost < 6; ++lost) {
    CAPTURE(lost);
    auto struck = whole;
    struck.replace(Ledger::header_bytes + lost * Ledger::record_bytes, Ledger::record_bytes,
                   Ledger::record_bytes, '\0');
    write_text(path, struck);
    CHECK(read_ledger(path).entries.size() == lost);
    write(runtime, path, {entry(9, 19)});
    const auto entries = read_ledger(path).entries;
    REQUIRE(entries.size() == lost + 1);
    CHECK(entries.back() == entry(9, 19));
  }
  // The first one had been synced before the others were written, and each of them says so.
  auto hurt = whole;
  hurt[Ledger::header_bytes] = static_cast<char>(hurt[Ledger::header_bytes] ^ 4);
  CHECK(thrown_by([&] { parse(hurt); }).is(Errc::corrupt));
}

TEST_CASE("a flipped bit in what had been synced is reported as corrupt") {
  TemporaryFolder folder;
  const auto path = folder.file("ledger");
  Runtime runtime({.shards = 1});
  write(runtime, path, {entry(0, 10)});
  write(runtime, path, {entry(1, 11)});
  const auto whole = read_text(path);
  for (std::size_t at = 0; at < Ledger::header_bytes + Ledger::record_bytes; ++at) {
    CAPTURE(at);
    auto damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    write_text(path, damaged);
    CHECK(thrown_by([&] { read_ledger(path); }).is(Errc::corrupt));
    CHECK(thrown_by([&] { write(runtime, path, {}); }).is(Errc::corrupt));
    CHECK(read_text(path) == damaged);
  }
}

TEST_CASE("a file that is no ledger is left as it is") {
  TemporaryFolder folder;
  Runtime runtime({.shards = 1});
  const auto path = folder.file("notes");
  for (const std::string text : {"what somebody wrote by hand, longer than a header", "short",
                                 "Hello", "a header's bytes"}) {
    write_text(path, text);
    const Error error = thrown_by([&] { write(runtime, path, {entry(0, 1)}); });
    CHECK(error.is(Errc::corrupt));
    CHECK(error.found().find("does not begin as a ledger does") != std::string::npos);
    CHECK(read_text(path) == text);
  }
}

TEST_CASE("a header of which a crash left nothing but its size is written again") {
  TemporaryFolder folder;
  Runtime runtime({.shards = 1});
  const auto path = folder.file("ledger");
  for (std::size_t size = 0; size <= Ledger::header_bytes; ++size) {
    write_text(path, std::string(size, '\0'));
    write(runtime, path, {entry(0, 1)});
    CHECK(read_ledger(path).entries == std::vector{entry(0, 1)});
  }
}

TEST_CASE("two workers can't write one ledger") {
  TemporaryFolder folder;
  const auto path = folder.file("ledger");
  Runtime runtime({.shards = 1});
  runtime.run([&](Runtime&) {
    return co_invoke([path]() -> Task<void> {
      auto first = co_await Ledger::open(path);
      bool rejected = false;
      try {
        auto second = co_await Ledger::open(path);
      } catch (const Error& error) {
        rejected = error.is(Errc::rejected);
      }
      CHECK(rejected);
      co_await first->close();
      first.reset();
      auto third = co_await Ledger::open(path);
      co_await third->close();
    });
  });
}

TEST_CASE("overlapping calls keep their order and lose nothing") {
  TemporaryFolder folder;
  const auto path = folder.file("ledger");
  Runtime runtime({.shards = 1});
  runtime.run([&](Runtime&) {
    return co_invoke([path]() -> Task<void> {
      auto ledger = co_await Ledger::open(path);
      co_await ledger->begin(cluster);
      std::vector<Task<void>> calls;
      for (std::uint32_t i = 0; i < 50; ++i) {
        calls.push_back(ledger->add({entry(i, i), entry(i, i).acknowledged()}));
        if (i % 7 == 0) calls.push_back(ledger->sync());
      }
      co_await when_all(std::move(calls));
      CHECK(ledger->entries() == 100);
      co_await ledger->close();
    });
  });
  const auto entries = read_ledger(path).entries;
  REQUIRE(entries.size() == 100);
  for (std::uint32_t i = 0; i < 50; ++i) {
    CHECK(entries[2 * i] == entry(i, i));
    CHECK(entries[2 * i + 1] == entry(i, i).acknowledged());
  }
}

TEST_CASE("ledgers put together count a push once, acknowledged if any says so") {
  LedgerSummary summary;
  const std::vector first{entry(0, 10), entry(0, 10).acknowledged(), entry(1, 11)};
  const std::vector second{entry(1, 11), entry(1, 11).acknowledged(), entry(2, 12)};
  summary.add(first);
  summary.add(second);
  summary.add(std::vector{entry(0, 10)});  // sent again after it was acknowledged elsewhere
  REQUIRE(summary.pushes().size() == 3);
  CHECK(summary.pushes().at({4, 10}).state == LedgerEntry::State::acknowledged);
  CHECK(summary.pushes().at({4, 11}).state == LedgerEntry::State::acknowledged);
  CHECK(summary.pushes().at({4, 12}).state == LedgerEntry::State::in_doubt);
}

TEST_CASE("ledgers that use one counter for two pushes are refused") {
  LedgerSummary summary;
  summary.add(std::vector{entry(0, 10)});
  CHECK(thrown_by([&] { summary.add(std::vector{entry(1, 10)}); }).is(Errc::corrupt));
}

TEST_CASE("a ledger says whose pushes it notes, and takes no other cluster's") {
  TemporaryFolder folder;
  const auto path = folder.file("ledger");
  Runtime runtime({.shards = 1});
  write(runtime, path, {entry(0, 10)}, 7);
  const auto before = read_text(path);
  const Error error = thrown_by([&] { write(runtime, path, {entry(1, 11)}, 8); });
  INFO(error.what());
  CHECK(error.is(Errc::rejected));
  CHECK(error.found().find("0000000000000007") != std::string::npos);
  CHECK(error.found().find("0000000000000008") != std::string::npos);
  CHECK(read_text(path) == before);
  write(runtime, path, {entry(1, 11)}, 7);
  CHECK(read_ledger(path).cluster == 7);
  CHECK(read_ledger(path).entries.size() == 2);
}

TEST_CASE("a ledger of an older format is refused by its version, and left as it is") {
  TemporaryFolder folder;
  const auto path = folder.file("ledger");
  Runtime runtime({.shards = 1});
  const std::string old("HFPLDGER\1\0\0\0\xb3\xc7\x45\xd2", 16);
  write_text(path, old);
  CHECK(thrown_by([&] { write(runtime, path, {}); }).is(Errc::version_mismatch));
  CHECK(thrown_by([&] { read_ledger(path); }).is(Errc::version_mismatch));
  CHECK(read_text(path) == old);
}

TEST_CASE("a ledger of the format before is read, and goes on in the one of today") {
  TemporaryFolder folder;
  const auto path = folder.file("ledger");
  Runtime runtime({.shards = 1});
  write(runtime, path, {entry(0, 10)});
  auto older = read_text(path);
  older[8] = 2;
  const std::uint32_t sum = crc32c(std::as_bytes(std::span(older)).first(12));
  std::memcpy(older.data() + 12, &sum, sizeof sum);
  write_text(path, older);
  CHECK(read_ledger(path).entries.size() == 1);
  write(runtime, path, {entry(1, 11)});
  CHECK(read_ledger(path).entries.size() == 2);
  CHECK(read_text(path)[8] == 3);
}

TEST_CASE("a ledger that no worker has begun proves nothing, and is refused") {
  TemporaryFolder folder;
  const auto path = folder.file("ledger");
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}, Ledger::header_bytes}) {
    write_text(path, std::string(size, '\0'));
    CHECK(thrown_by([&] { read_ledger(path); }).is(Errc::invalid_argument));
  }
}

TEST_CASE("a ledger that is closed before it was begun leaves no file, and no other one's goes") {
  TemporaryFolder folder;
  const auto path = folder.file("ledger");
  Runtime runtime({.shards = 1});
  const auto open_and_close = [&] {
    runtime.run([&](Runtime&) {
      return co_invoke([path]() -> Task<void> {
        auto ledger = co_await Ledger::open(path);
        co_await ledger->close();
      });
    });
  };
  open_and_close();
  CHECK_FALSE(std::filesystem::exists(path));
  write(runtime, path, {entry(0, 10)});
  open_and_close();
  CHECK(read_ledger(path).entries.size() == 1);
}

TEST_CASE("ledgers of two clusters are not put together") {
  LedgerSummary summary;
  summary.add({.cluster = 7, .entries = {entry(0, 10)}}, "first");
  summary.add({.cluster = 7, .entries = {entry(1, 11)}}, "second");
  const Error error = thrown_by([&] { summary.add({.cluster = 8, .entries = {}}, "third"); });
  INFO(error.what());
  CHECK(error.is(Errc::invalid_argument));
  CHECK(error.found().find("'second' is of cluster 0000000000000007") != std::string::npos);
  CHECK(error.found().find("'third' of cluster 0000000000000008") != std::string::npos);
}

TEST_CASE("of ledgers put together one table's pushes can be kept") {
  LedgerSummary summary;
  auto other = entry(1, 11);
  other.table = 9;
  summary.add({.cluster = 7, .entries = {entry(0, 10), other}}, "ledger");
  summary.keep_only(9);
  CHECK(summary.cluster() == 7);
  REQUIRE(summary.pushes().size() == 1);
  CHECK(summary.pushes().begin()->second == other);
}
