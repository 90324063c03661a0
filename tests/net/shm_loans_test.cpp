// What is lent over a ring and comes back by it, between ends of which one may be hostile.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <hyperframes/net/shm/loans.hpp>
#include <map>
#include <memory>
#include <new>
#include <random>
#include <vector>

using namespace hyperframes::net::detail;
using hyperframes::Buffer;

namespace {

/// Cleared, and of its exact size, so that a sanitizer sees each access beyond it.
std::shared_ptr<std::byte> memory(std::size_t size) {
  auto* bytes = static_cast<std::byte*>(::operator new(size, std::align_val_t(4096)));
  std::memset(bytes, 0, size);
  return {bytes, [](std::byte* at) { ::operator delete(at, std::align_val_t(4096)); }};
}

constexpr ShmLayout lenders{64, 4 << 10}, borrowers{16, 4 << 10};
constexpr std::size_t arena_bytes = 64 << 10;

/// One direction with loans, in one thread. The layouts differ.
struct Ends {
  std::shared_ptr<std::byte> here = memory(lenders.bytes()), there = memory(borrowers.bytes()),
                             arena = memory(arena_bytes);
  std::uint32_t slots = loan_slots(lenders, borrowers);
  ShmWriter writer{here.get(), there.get(), lenders};
  ShmLoans loans{there.get(), borrowers, slots};
  ShmReader reader{there.get(), here.get(), lenders};
  ShmReturns returns{there.get(), borrowers, slots};

  Ends() { reader.take_loans({arena.get(), arena_bytes}, returns); }
  ShmWords& words_there() { return *reinterpret_cast<ShmWords*>(there.get()); }
  std::atomic<std::uint16_t>& entry(std::size_t index) {
    return reinterpret_cast<std::atomic<std::uint16_t>*>(there.get() +
                                                         borrowers.returns_at())[index];
  }
  std::uint16_t lend(Buffer piece, std::uint32_t line) {
    const auto size = static_cast<std::uint32_t>(piece.size());
    const std::uint16_t slot = loans.lend(std::move(piece), writer.count() + 1);
    writer.publish_loan(slot, line, size);
    return slot;
  }
  /// As a hostile lender.
  void say(std::uint64_t where, std::uint64_t length) {
    auto* descriptors = reinterpret_cast<ShmDescriptor*>(here.get() + ShmLayout::descriptors_at);
    descriptors[said_ % lenders.descriptors].where = where;
    ++said_;
    descriptors[(said_ - 1) % lenders.descriptors].ready = length << 32 | said_;
  }
  std::uint32_t said_ = 0;
};

constexpr std::uint64_t loan_at(std::uint64_t slot, std::uint64_t line) {
  return std::uint64_t{1} << 48 | slot << 32 | line;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

std::string fault_of(std::uint64_t where, std::uint64_t length) {
  Ends ends;
  ends.say(where, length);
  CHECK(ends.reader.next().empty());
  CHECK(ends.reader.next().empty());
  return ends.reader.fault();
}

}  // namespace

TEST_CASE("a loan passes through the ring among pieces, in their order, and takes no room in it") {
  Ends ends;
  const auto room = ends.writer.room(4 << 10);
  REQUIRE(room.size() == 4 << 10);
  std::memset(room.data(), 7, room.size());
  ends.writer.publish(room.size());
  REQUIRE(ends.writer.room(1).empty());  // it is full
  REQUIRE(ends.writer.has_descriptor());
  const std::uint16_t slot = ends.lend(Buffer::heap(40'000), 3);
  CHECK(!ends.reader.is_loan());
  CHECK(ends.reader.next().size() == 4 << 10);
  CHECK(!ends.reader.is_loan());
  ends.reader.take(4 << 10);
  const auto loan = ends.reader.next();
  CHECK(ends.reader.is_loan());
  CHECK(ends.reader.slot() == slot);
  CHECK(loan.data() == ends.arena.get() + 3 * 64);
  CHECK(loan.size() == 40'000);
  ends.reader.take(loan.size());
  ends.reader.publish();
  CHECK(ends.writer.room(4 << 10).size() == 4 << 10);
  CHECK(ends.reader.fault() + ends.writer.fault() == "");
}

TEST_CASE("without a descriptor nothing is lent, until pieces were taken") {
  Ends ends;
  for (std::uint32_t i = 0; i < lenders.descriptors; ++i) {
    REQUIRE(ends.writer.room(1).size() == 1);
    ends.writer.publish(1);
  }
  CHECK(!ends.writer.has_descriptor());
  ends.reader.take(ends.reader.next().size());
  ends.reader.publish();
  CHECK(ends.writer.has_descriptor());
}

TEST_CASE("loans come back in any order, over and over, and each lets go of its own memory") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  Ends ends;
  std::map<std::uint16_t, Buffer> kept;  // lent, by the lender's account
  std::vector<std::uint16_t> out;        // with the borrower
  std::size_t round_trips = 0;
  for (int step = 0; step < 20'000; ++step) {
    switch (random() % 3) {
      case 0: {
        if (!ends.loans.free_slots() || !ends.writer.has_descriptor()) break;
        Buffer piece = Buffer::heap(1 + random() % 1000);
        const std::uint16_t slot = ends.lend(piece, 0);
        REQUIRE(kept.emplace(slot, std::move(piece)).second);
        break;
      }
      case 1: {
        const auto piece = ends.reader.next();
        if (piece.empty()) break;
        REQUIRE(ends.reader.is_loan());
        ends.returns.take(ends.reader.slot());
        out.push_back(ends.reader.slot());
        ends.reader.take(piece.size());
        ends.reader.publish();
        break;
      }
      default: {
        for (std::size_t count = random() % 4; count && !out.empty(); --count) {
          std::swap(out[random() % out.size()], out.back());
          ends.returns.give_back(out.back());
          out.pop_back();
        }
        if (random() % 2) round_trips += ends.loans.collect();
        std::size_t bytes = 0;
        for (auto it = kept.begin(); it != kept.end();) {
          // The lender's reference has gone with the return.
          if (it->second.unique()) {
            it = kept.erase(it);
          } else {
            bytes += (it++)->second.size();
          }
        }
        REQUIRE(ends.loans.bytes() == bytes);
        REQUIRE(ends.loans.count() == kept.size());
      }
    }
    REQUIRE(ends.reader.fault() + ends.writer.fault() + ends.loans.fault() == "");
  }
  CHECK(round_trips > 1000);
  CHECK(ends.slots == 16);
}

TEST_CASE("a lender that lies is refused by what it says") {
  CHECK(has(fault_of(loan_at(0, 0), 0), "lends 0 bytes"));
  CHECK(has(fault_of(loan_at(0, 0), arena_bytes + 1), "65537 bytes at 0 of 65536"));
  CHECK(has(fault_of(loan_at(0, 0), ShmLayout::most_loan + 1), "16777217 bytes at once"));
  CHECK(has(fault_of(loan_at(0, 1023), 65), "65 bytes at 65472"));
  CHECK(has(fault_of(loan_at(0, 0xffffffff), 64), "at 274877906880"));
  CHECK(has(fault_of(loan_at(16, 0), 64), "slot 16 of 16"));
  CHECK(has(fault_of(loan_at(65535, 0), 64), "slot 65535"));
  CHECK(has(fault_of(std::uint64_t{2} << 48, 64), "kind 2"));
  CHECK(has(fault_of(std::uint64_t{1} << 32, 64), "segment 1"));
}

TEST_CASE("a slot that did not come back can't be lent by again") {
  Ends ends;
  ends.say(loan_at(3, 0), 64);
  REQUIRE(ends.reader.next().size() == 64);
  ends.returns.take(3);
  ends.reader.take(64);
  ends.say(loan_at(3, 1), 64);
  CHECK(ends.reader.next().empty());
  CHECK(has(ends.reader.fault(), "slot 3, which did not come back"));
}

TEST_CASE("where nothing may be lent a loan is refused") {
  Ends ends;
  ShmReader reader(ends.there.get(), ends.here.get(), lenders);
  ends.say(loan_at(0, 0), 64);
  CHECK(reader.next().empty());
  CHECK(has(reader.fault(), "kind 1"));
}

TEST_CASE("a borrower that lies about what it returns is refused, and nothing else comes back") {
  Ends ends;
  const Buffer piece = Buffer::heap(100);
  const std::uint16_t slot = ends.lend(piece, 0);
  const auto other = static_cast<std::uint16_t>(slot + 1);
  std::string expected;
  SECTION("more than are out") {
    ends.words_there().returned = 2;
    expected = "returned 2 loans, after 0 and with 1 out";
  }
  SECTION("fewer than before") {
    ends.words_there().returned = ~std::uint64_t{0};
    expected = "returned 18446744073709551615 loans";
  }
  SECTION("one that is not out") {
    ends.entry(0) = other;
    ends.words_there().returned = 1;
    expected = "loan " + std::to_string(other) + ", which is not out";
  }
  SECTION("one that there is not") {
    ends.entry(0) = 16;
    ends.words_there().returned = 1;
    expected = "loan 16, which is not out";
  }
  CHECK(ends.loans.has_returns());  // so that nobody sleeps on it
  CHECK(ends.loans.collect() == 0);
  CHECK(has(ends.loans.fault(), expected));
  CHECK(!piece.unique());
  ends.loans.end();
  CHECK(piece.unique());
}

TEST_CASE("a loan that is returned twice is refused") {
  Ends ends;
  const std::uint16_t first = ends.lend(Buffer::heap(100), 0);
  const Buffer kept = Buffer::heap(100);
  ends.lend(kept, 0);
  ends.entry(0) = first;
  ends.entry(1) = first;
  ends.words_there().returned = 2;
  CHECK(ends.loans.collect() == 1);
  CHECK(has(ends.loans.fault(), "is not out"));
  CHECK(!kept.unique());
}

TEST_CASE("a borrower that leaves keeps what it has taken, and never had the rest") {
  Ends ends;
  const Buffer taken = Buffer::heap(100), unread = Buffer::heap(200);
  ends.lend(taken, 0);
  REQUIRE(ends.writer.room(1).size() == 1);
  ends.writer.publish(1);
  ends.lend(unread, 2);
  ends.lend(unread, 6);
  REQUIRE(!ends.reader.next().empty());
  const std::uint16_t slot = ends.reader.slot();
  ends.returns.take(slot);
  ends.reader.take(100);
  ends.reader.publish();

  SECTION("it has not said that it leaves") { ends.words_there().given_up = 0; }
  SECTION("it says nonsense") { ends.words_there().given_up = 3; }
  ends.loans.end_unread();
  CHECK(ends.loans.count() == 3);

  depart(ends.there.get(), GENERATE(Departure::broken_off, Departure::ended));
  ends.loans.end_unread();
  CHECK(unread.unique());
  CHECK(!taken.unique());
  CHECK(ends.loans.count() == 1);
  CHECK(ends.loans.bytes() == 100);
  ends.returns.give_back(slot);
  CHECK(ends.loans.collect() == 1);
  CHECK(taken.unique());
  CHECK(ends.loans.fault() == "");
}
