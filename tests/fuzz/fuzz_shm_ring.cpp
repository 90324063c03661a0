#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <hyperframes/net/shm/ring.hpp>
#include <hyperframes/net/shm/setup.hpp>
#include <new>
#include <span>

// A peer that may put anything into its memory, and an end of ours that reads it, writes to its own
// and sleeps in between. Whatever it is, nothing beyond the peer's data is read and nothing beyond
// ours is written; what makes no sense is named, and ends it. The peer's offer is read first.
namespace {

using namespace hyperframes::net::detail;

void require(bool fine, const char* what) {
  if (fine) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

constexpr ShmLayout layout{16, 4 << 10};

/// Of its exact size, so that each access beyond it is seen.
class Memory {
 public:
  Memory()
      : bytes_(static_cast<std::byte*>(::operator new(layout.bytes(), std::align_val_t(128)))) {
    std::memset(bytes_, 0, layout.bytes());
  }
  ~Memory() { ::operator delete(bytes_, std::align_val_t(128)); }
  std::byte* get() const { return bytes_; }
  ShmWords& words() const { return *reinterpret_cast<ShmWords*>(bytes_); }
  ShmDescriptor& descriptor(std::size_t index) const {
    return reinterpret_cast<ShmDescriptor*>(bytes_ + ShmLayout::descriptors_at)[index % 16];
  }

 private:
  std::byte* bytes_;
};

class Program {
 public:
  explicit Program(std::span<const std::uint8_t> input) : input_(input) {}

  void run() {
    while (!input_.empty() && reader_.fault().empty() && writer_.fault().empty()) step();
  }

 private:
  std::uint8_t byte() {
    if (input_.empty()) return 0;
    const std::uint8_t first = input_.front();
    input_ = input_.subspan(1);
    return first;
  }
  /// Small as a rule, and sometimes anything.
  std::uint64_t number() {
    const std::uint8_t first = byte();
    if (first < 160) return first;
    if (first < 250) return std::uint64_t{byte()} << (first - 160) % 64;
    return ~std::uint64_t{0} - byte();
  }

  void step() {
    switch (byte() % 10) {
      case 0: return say_piece();
      case 1: theirs_.descriptor(byte()).ready = number() << 32 | (number() & 0xffffffff); return;
      case 2: theirs_.descriptor(byte()).where = number(); return;
      case 3: return take_ours();
      case 4: theirs_.words().taken = number(); return;
      case 5:
        theirs_.words().data_armed = static_cast<std::uint32_t>(number());
        theirs_.words().room_armed = static_cast<std::uint32_t>(number());
        return;
      case 6:
      case 7: return read();
      case 8: return write();
      default: return sleep();
    }
  }
  // As an honest peer would, or nearly.
  void say_piece() {
    const std::uint64_t sequence = ++said_;
    ShmDescriptor& descriptor = theirs_.descriptor(sequence - 1);
    const std::uint64_t offset = number() * 64 % layout.data_bytes;
    const std::uint64_t most = layout.data_bytes - offset;
    descriptor.where = offset;
    descriptor.ready = (1 + number() % most) << 32 | static_cast<std::uint32_t>(sequence);
  }
  void take_ours() {
    theirs_.words().taken = std::min<std::uint64_t>(written_, taken_ += byte() % 4);
  }

  void read() {
    const auto piece = reader_.next();
    if (!reader_.fault().empty()) return require(piece.empty(), "a piece beside a fault");
    if (piece.empty())
      return require(!reader_.has_piece(), "there is something, and nothing to read");
    require(piece.data() >= theirs_.get() + layout.data_at() &&
                piece.data() + piece.size() <= theirs_.get() + layout.bytes(),
            "a piece outside of the data");
    std::uint8_t sum = 0;
    for (const std::byte at : piece) sum ^= static_cast<std::uint8_t>(at);
    [[maybe_unused]] static volatile std::uint8_t read_all;
    read_all = sum;
    reader_.take(byte() % 2 ? piece.size() : 1 + byte() % piece.size());
    if (byte() % 2 && reader_.publish()) (void)reader_.must_ring();
  }
  void write() {
    if (byte() % 8 == 0) writer_.limit(number() % layout.data_bytes);
    const auto room = writer_.room(1 + number() % (64 << 10));
    if (room.empty()) return;
    require(room.data() >= ours_.get() + layout.data_at() &&
                room.data() + room.size() <= ours_.get() + layout.bytes(),
            "room outside of the data");
    std::memset(room.data(), byte(), room.size());
    writer_.publish(byte() % 2 ? room.size() : 1 + byte() % room.size());
    ++written_;
    require(writer_.in_flight() <= layout.descriptors, "more is on its way than there is room for");
    (void)writer_.must_ring();
  }
  void sleep() {
    reader_.alarm().arm();
    writer_.alarm().arm();
    (void)(reader_.has_piece() || writer_.has_progress());
    reader_.alarm().disarm();
    writer_.alarm().disarm();
  }

  std::span<const std::uint8_t> input_;
  Memory ours_, theirs_;
  ShmWriter writer_{ours_.get(), theirs_.get(), layout};
  ShmReader reader_{ours_.get(), theirs_.get(), layout};
  std::uint64_t said_ = 0, written_ = 0, taken_ = 0;
};

void read_offer(std::span<const std::byte> bytes) {
  auto offer = decode_offer(bytes, "the peer");
  if (!offer) return;
  require(bytes.size() == ShmOffer::size, "an offer of another size");
  if (offer->status != ShmOffer::Status::offer)
    return require(offer->text.size() <= 160, "a text without end");
  require(offer->layout.fault().empty(), "a layout that can't be");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::size_t head = std::min(size, ShmOffer::size);
  read_offer(std::as_bytes(std::span(data, head)));
  // The checks behind the magic number are reached too.
  std::byte offer[ShmOffer::size] = {};
  std::memcpy(offer, data, head);
  const auto whole = ShmOffer().encode();
  std::memcpy(offer, whole.data(), 12);
  read_offer(offer);
  Program(std::span(data, size)).run();
  return 0;
}
