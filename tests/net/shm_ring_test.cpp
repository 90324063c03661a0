// What one process writes into shared memory, and another one, which need not be kind, reads.
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <deque>
#include <hyperframes/net/shm/ring.hpp>
#include <hyperframes/net/shm/segment.hpp>
#include <memory>
#include <new>
#include <random>
#include <thread>
#include <vector>

using namespace hyperframes::net::detail;

namespace {

/// A segment on the heap, so that a sanitizer sees each access beyond it.
class Memory {
 public:
  explicit Memory(const ShmLayout& layout)
      : size_(layout.bytes()),
        bytes_(static_cast<std::byte*>(::operator new(size_, std::align_val_t(4096)))) {
    std::memset(bytes_, 0, size_);
  }
  Memory(const Memory&) = delete;
  ~Memory() { ::operator delete(bytes_, std::align_val_t(4096)); }
  std::byte* get() const { return bytes_; }
  ShmWords& words() const { return *reinterpret_cast<ShmWords*>(bytes_); }
  ShmDescriptor& descriptor(std::size_t index) const {
    return reinterpret_cast<ShmDescriptor*>(bytes_ + ShmLayout::descriptors_at)[index];
  }

 private:
  std::size_t size_;
  std::byte* bytes_;
};

constexpr ShmLayout small{16, 4 << 10};

/// Both ends of one direction, in one thread.
struct Ends {
  explicit Ends(const ShmLayout& layout = small)
      : here(layout),
        there(layout),
        writer(here.get(), there.get(), layout),
        reader(there.get(), here.get(), layout) {}
  /// False: there is no room.
  bool write(std::span<const std::byte> bytes) {
    const auto room = writer.room(bytes.size());
    if (room.size() < bytes.size()) return false;
    std::memcpy(room.data(), bytes.data(), bytes.size());
    writer.publish(bytes.size());
    return true;
  }
  bool write(std::size_t size) { return write(std::vector<std::byte>(size)); }
  std::size_t read() {
    const std::size_t size = reader.next().size();
    reader.take(size);
    reader.publish();
    return size;
  }
  Memory here, there;
  ShmWriter writer;
  ShmReader reader;
};

/// What a reader says of a descriptor that a hostile writer has put there.
std::string fault_of(std::uint64_t ready, std::uint64_t where) {
  Ends ends;
  ends.here.descriptor(0).where = where;
  ends.here.descriptor(0).ready = ready;
  CHECK(ends.reader.has_piece());  // so that nobody sleeps on it
  CHECK(ends.reader.next().empty());
  CHECK(ends.reader.next().empty());
  return ends.reader.fault();
}

constexpr std::uint64_t ready_word(std::uint64_t length, std::uint32_t sequence) {
  return length << 32 | sequence;
}

bool has(const std::string& text, const char* part) { return text.find(part) != text.npos; }

std::byte byte_at(std::uint64_t position) {
  return static_cast<std::byte>(position * 7 + (position >> 8) * 13);
}

}  // namespace

TEST_CASE("the layout of a segment is checked, and its default is one huge page") {
  CHECK(ShmLayout().fault().empty());
  CHECK(ShmLayout().bytes() == 2u << 20);
  CHECK(small.fault().empty());
  for (const ShmLayout bad :
       {ShmLayout{0, 4096}, ShmLayout{17, 4096}, ShmLayout{8, 4096}, ShmLayout{1u << 31, 4096},
        ShmLayout{16, 0}, ShmLayout{16, 4095}, ShmLayout{16, 4100}, ShmLayout{16, 0xffffffc0}})
    CHECK(!bad.fault().empty());
}

TEST_CASE("bytes come out of a ring as they went in, whatever their sizes and however full it is") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  int went_around = 0;
  for (int round = 0; round < 60; ++round) {
    const ShmLayout layout{16u << random() % 4, (4u << 10) << random() % 6};
    Ends ends(layout);
    std::uint64_t written = 0, read = 0;
    for (int step = 0; step < 3000; ++step) {
      if (step % 500 == 0) ends.writer.limit(random() % 3 ? random() % layout.data_bytes : 0);
      // Now the writer is ahead, now the reader: so it gets full, and empty.
      if (random() % 100 < (step / 300 % 2 ? 80u : 20u)) {
        const std::size_t most = 1 + random() % (std::size_t{1} << random() % 17);
        const auto room = ends.writer.room(most);
        REQUIRE(room.size() <= most);
        const std::size_t size = room.empty() ? 0 : 1 + random() % room.size();
        for (std::size_t i = 0; i < size; ++i) room[i] = byte_at(written + i);
        written += size;
        if (size) ends.writer.publish(size);
      } else {
        const auto piece = ends.reader.next();
        const std::size_t size = piece.empty() ? 0 : 1 + random() % piece.size();
        bool same = true;
        for (std::size_t i = 0; i < size; ++i) same &= piece[i] == byte_at(read + i);
        REQUIRE(same);
        read += size;
        ends.reader.take(size);
        if (random() % 3) ends.reader.publish();
      }
      REQUIRE(ends.writer.fault() + ends.reader.fault() == "");
      REQUIRE(read <= written);
    }
    while (!ends.reader.next().empty()) {
      read += ends.reader.next().size();
      ends.reader.take(ends.reader.next().size());
    }
    CHECK(read == written);
    went_around += written > 2 * layout.data_bytes;
  }
  CHECK(went_around > 10);
}

TEST_CASE("a full ring has no room until something was taken and told") {
  SECTION("of bytes") {
    Ends ends;
    REQUIRE(ends.write(4 << 10));
    CHECK(ends.writer.room(1).empty());
    ends.reader.take(ends.reader.next().size());
    CHECK(!ends.writer.has_progress());
    CHECK(ends.writer.room(1).empty());
    ends.reader.publish();
    CHECK(ends.writer.has_progress());
    CHECK(ends.writer.room(10'000).size() == 4 << 10);
  }
  SECTION("of descriptors") {
    Ends ends;
    for (int i = 0; i < 16; ++i) REQUIRE(ends.write(1));
    CHECK(ends.writer.room(1).empty());
    CHECK(ends.read() == 1);
    CHECK(ends.writer.room(1).size() == 1);
  }
}

TEST_CASE("no more than the limit is on its way, however much memory there is") {
  Ends ends(ShmLayout{1024, 1 << 20});
  ends.writer.limit(100'000);
  std::size_t sent = 0;
  while (!ends.writer.room(1 << 20).empty()) {
    const std::size_t size = ends.writer.room(1 << 20).size();
    CHECK(size <= ShmWriter::piece_bytes);
    sent += size;
    ends.writer.publish(size);
  }
  CHECK(sent >= 100'000);
  CHECK(sent < 100'064);
}

TEST_CASE("a piece that is taken in parts is given back as a whole") {
  Ends ends;
  REQUIRE(ends.write(1000));
  const auto piece = ends.reader.next();
  ends.reader.take(400);
  CHECK(!ends.reader.publish());
  CHECK(ends.reader.has_piece());
  CHECK(ends.reader.next().data() == piece.data() + 400);
  ends.reader.take(600);
  CHECK(ends.reader.publish());
  CHECK(!ends.reader.publish());
  CHECK(!ends.reader.has_piece());
}

TEST_CASE("a sleeper is rung for once, and again when it sleeps again") {
  Ends ends;
  CHECK(!ends.writer.must_ring());
  ends.reader.alarm().arm();
  CHECK(ends.writer.must_ring());
  CHECK(!ends.writer.must_ring());
  ends.reader.alarm().arm();  // it is armed already
  CHECK(!ends.writer.must_ring());
  ends.reader.alarm().disarm();
  CHECK(!ends.writer.must_ring());
  ends.reader.alarm().arm();
  CHECK(ends.writer.must_ring());
  ends.writer.ring_again();  // it could not be rung
  CHECK(ends.writer.must_ring());
  CHECK(ends.reader.alarm().times() == 2);
  // Data and room are two matters.
  CHECK(!ends.reader.must_ring());
  ends.writer.alarm().arm();
  CHECK(ends.reader.must_ring());
}

TEST_CASE("a descriptor that makes no sense is refused by what it says, and nothing is read") {
  CHECK(has(fault_of(ready_word(64, 2), 0), "sequence 2"));
  CHECK(has(fault_of(ready_word(64, 0xffffffff), 0), "sequence 4294967295"));
  CHECK(has(fault_of(ready_word(0, 1), 0), "0 bytes at 0"));
  CHECK(has(fault_of(ready_word(4097, 1), 0), "4097 bytes at 0 of 4096"));
  CHECK(has(fault_of(ready_word(0xffffffff, 1), 0), "4294967295 bytes"));
  CHECK(has(fault_of(ready_word(64, 1), 4033), "64 bytes at 4033"));
  CHECK(has(fault_of(ready_word(1, 1), 0xffffffff), "at 4294967295"));
  CHECK(has(fault_of(ready_word(64, 1), std::uint64_t{3} << 32), "segment 3"));
  CHECK(has(fault_of(ready_word(64, 1), std::uint64_t{7} << 48), "kind 7"));
}

TEST_CASE("a descriptor of the round before is no piece, and one of the next round is refused") {
  Ends ends;
  for (int i = 0; i < 16; ++i) {
    REQUIRE(ends.write(8));
    REQUIRE(ends.read() == 8);
  }
  CHECK(!ends.reader.has_piece());
  CHECK(ends.reader.next().empty());
  CHECK(ends.reader.fault().empty());
  ends.here.descriptor(0).ready = ready_word(8, 33);
  CHECK(ends.reader.next().empty());
  CHECK(has(ends.reader.fault(), "descriptor 17"));
}

TEST_CASE("a peer that takes what was never sent, or untakes, is refused") {
  Ends ends;
  REQUIRE(ends.write(2000));
  REQUIRE(ends.write(1000));
  CHECK(ends.read() == 2000);
  CHECK(ends.writer.room(4096).size() == 1024);  // to the end of the memory
  std::uint64_t taken = 0;
  SECTION("more than was sent") { taken = 3; }
  SECTION("fewer than before") { taken = 0; }
  SECTION("all there is") { taken = ~std::uint64_t{0}; }
  ends.there.words().taken = taken;
  CHECK(ends.writer.has_progress());  // so that nobody sleeps on it
  CHECK(ends.writer.room(4096).empty());
  CHECK(has(ends.writer.fault(), "pieces"));
  CHECK(has(ends.writer.fault(), std::to_string(taken).c_str()));
}

namespace {

/// One process' view of a pair of segments, and its end of a socket for doorbells.
struct Process {
  Process(ShmSegment own_memory, ShmSegment others_memory, int socket)
      : own(std::move(own_memory)),
        others(std::move(others_memory)),
        bell(socket),
        writer(own.memory(), others.memory(), small),
        reader(own.memory(), others.memory(), small) {}
  template <class End>
  void ring(End& end) {
    const char byte = 1;
    if (end.must_ring() && ::send(bell.get(), &byte, 1, MSG_NOSIGNAL) != 1) end.ring_again();
  }
  /// False: nobody rang for a very long time.
  template <class Ready>
  bool sleep(ShmAlarm& alarm, Ready ready) {
    alarm.arm();
    std::atomic_thread_fence(std::memory_order_seq_cst);
    bool woken = true;
    if (!ready()) {
      pollfd look{bell.get(), POLLIN, 0};
      char bytes[64];
      woken = ::poll(&look, 1, 60'000) == 1 && ::recv(bell.get(), bytes, sizeof bytes, 0) > 0;
    }
    alarm.disarm();
    return woken;
  }
  ShmSegment own, others;
  OwnDescriptor bell;
  ShmWriter writer;
  ShmReader reader;
};

}  // namespace

TEST_CASE("two sleepy ends of mapped memory pass a stream both ways, and no wake-up is lost",
          "[threads]") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  ShmSegment a = ShmSegment::create(small, false), b = ShmSegment::create(small, false);
  const auto mapped = [](const ShmSegment& segment) {
    return ShmSegment::attach(OwnDescriptor(::dup(segment.descriptor())), small, "attach");
  };
  ShmSegment a_elsewhere = mapped(a), b_elsewhere = mapped(b);
  Process one(std::move(a), std::move(b_elsewhere), ends[0]);
  Process two(std::move(b), std::move(a_elsewhere), ends[1]);
  constexpr std::uint64_t total = 3 << 20;
  std::atomic<bool> right{true}, woken{true};

  const auto work = [&](Process& self, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::uint64_t written = 0, read = 0;
    while ((written < total || read < total) && right && woken) {
      bool moved = false;
      if (written < total) {
        const auto room = self.writer.room(std::min(total - written, 1 + random() % 3000));
        for (std::size_t i = 0; i < room.size(); ++i) room[i] = byte_at(written + i);
        if (!room.empty()) {
          self.writer.publish(room.size());
          self.ring(self.writer);
          written += room.size();
          moved = true;
        }
      }
      for (auto piece = self.reader.next(); !piece.empty(); piece = self.reader.next()) {
        for (std::size_t i = 0; i < piece.size(); ++i)
          if (piece[i] != byte_at(read + i)) right = false;
        read += piece.size();
        self.reader.take(piece.size());
        moved = true;
        if (random() % 2) break;
      }
      if (self.reader.publish()) self.ring(self.reader);
      if (!self.writer.fault().empty() || !self.reader.fault().empty()) right = false;
      if (moved) continue;
      // It waits for both, as a transport does.
      self.writer.alarm().arm();
      const auto ready = [&] {
        return self.reader.has_piece() || (written < total && self.writer.has_progress());
      };
      if (!self.sleep(self.reader.alarm(), ready)) woken = false;
      self.writer.alarm().disarm();
    }
  };
  std::thread other([&] { work(two, seed + 1); });
  work(one, seed);
  other.join();
  CHECK(right);
  CHECK(woken);
}
