#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <hyperframes/net/shm/loans.hpp>
#include <hyperframes/net/shm/ring.hpp>
#include <hyperframes/net/shm/setup.hpp>
#include <new>
#include <span>
#include <vector>

// A peer that may put anything into its memory, and an end of ours that reads it, writes to its own
// and sleeps in between; each lends to the other. Whatever it is, nothing beyond the peer's data
// and arena is read and nothing beyond ours is written, and no loan ends that is not out; what
// makes no sense is named, and ends it. The peer's offer is read first.
namespace {

using namespace hyperframes::net::detail;

void require(bool fine, const char* what) {
  if (fine) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

constexpr ShmLayout layout{16, 4 << 10};
constexpr std::size_t arena_bytes = 4 << 10;

/// Of its exact size, so that each access beyond it is seen.
class Memory {
 public:
  explicit Memory(std::size_t size = layout.bytes())
      : bytes_(static_cast<std::byte*>(::operator new(size, std::align_val_t(128)))) {
    std::memset(bytes_, 0, size);
  }
  ~Memory() { ::operator delete(bytes_, std::align_val_t(128)); }
  std::byte* get() const { return bytes_; }
  ShmWords& words() const { return *reinterpret_cast<ShmWords*>(bytes_); }
  ShmDescriptor& descriptor(std::size_t index) const {
    return reinterpret_cast<ShmDescriptor*>(bytes_ + ShmLayout::descriptors_at)[index % 16];
  }
  std::atomic<std::uint16_t>& entry(std::size_t index) const {
    return reinterpret_cast<std::atomic<std::uint16_t>*>(bytes_ + layout.returns_at())[index % 16];
  }

 private:
  std::byte* bytes_;
};

class Program {
 public:
  explicit Program(std::span<const std::uint8_t> input) : input_(input) {
    reader_.take_loans({arena_.get(), arena_bytes}, returns_);
  }

  void run() {
    while (!input_.empty() && reader_.fault().empty() && writer_.fault().empty() &&
           loans_.fault().empty())
      step();
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
    switch (byte() % 16) {
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
      case 9: return say_loan();
      case 10: return give_back();
      case 11: return lend();
      case 12: return return_ours();
      case 13: theirs_.entry(byte()) = static_cast<std::uint16_t>(number()); return;
      case 14: theirs_.words().returned = number(); return;
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
  void say_loan() {
    const std::uint64_t sequence = ++said_;
    ShmDescriptor& descriptor = theirs_.descriptor(sequence - 1);
    const std::uint64_t slot = number() & 0xffff, line = byte() % (arena_bytes / 64);
    descriptor.where = ShmDescriptor::lent << 48 | slot << 32 | line;
    descriptor.ready =
        (1 + number() % (arena_bytes - line * 64)) << 32 | static_cast<std::uint32_t>(sequence);
  }
  /// One of those that we have of theirs.
  void give_back() {
    if (borrowed_.empty()) return;
    std::swap(borrowed_[byte() % borrowed_.size()], borrowed_.back());
    returns_.give_back(borrowed_.back());
    borrowed_.pop_back();
  }
  void lend() {
    if (left_ || !loans_.free_slots() || !writer_.has_descriptor()) return;
    const auto size = static_cast<std::uint32_t>(1 + byte());
    const std::uint16_t slot = loans_.lend(hyperframes::Buffer::heap(size), writer_.count() + 1);
    require(slot < layout.descriptors, "a slot that there is not");
    writer_.publish_loan(slot, byte(), size);
    ++written_;
    require(writer_.in_flight() <= layout.descriptors, "more is on its way than there is room for");
  }
  /// As an honest peer would, or nearly; and we look.
  void return_ours() {
    if (byte() % 4) {
      theirs_.entry(returned_) = static_cast<std::uint16_t>(byte() % layout.descriptors);
      theirs_.words().returned = ++returned_;
    }
    const std::size_t out = loans_.count();
    const std::size_t back = loans_.collect();
    require(out - back == loans_.count(), "the account of what is lent is wrong");
    if (byte() == 0) leave();
    require((loans_.bytes() == 0) == (loans_.count() == 0), "so is that of its bytes");
  }
  void leave() {
    theirs_.words().given_up = byte() % 4;
    left_ |= departure_of(theirs_.get()) != Departure::none;
    const std::size_t out = loans_.count();
    loans_.end_unread();
    require(left_ ? loans_.count() <= out : loans_.count() == out, "it came back too early");
  }
  void take_ours() {
    theirs_.words().taken = std::min<std::uint64_t>(written_, taken_ += byte() % 4);
  }

  void read() {
    const auto piece = reader_.next();
    if (!reader_.fault().empty()) return require(piece.empty(), "a piece beside a fault");
    if (piece.empty())
      return require(!reader_.has_piece(), "there is something, and nothing to read");
    const bool lent = reader_.is_loan();
    const std::byte* const begin = lent ? arena_.get() : theirs_.get() + layout.data_at();
    const std::size_t bytes = lent ? arena_bytes : layout.data_bytes;
    require(piece.data() >= begin && piece.data() + piece.size() <= begin + bytes,
            "a piece outside of the data");
    std::uint8_t sum = 0;
    for (const std::byte at : piece) sum ^= static_cast<std::uint8_t>(at);
    [[maybe_unused]] static volatile std::uint8_t read_all;
    read_all = sum;
    if (lent) {
      require(!returns_.is_out(reader_.slot()), "a slot is lent by twice");
      returns_.take(reader_.slot());
      borrowed_.push_back(reader_.slot());
    }
    reader_.take(lent || byte() % 2 ? piece.size() : 1 + byte() % piece.size());
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
  Memory arena_{arena_bytes};  // theirs
  ShmLoans loans_{theirs_.get(), layout, layout.descriptors};
  ShmReturns returns_{ours_.get(), layout, layout.descriptors};
  std::vector<std::uint16_t> borrowed_;
  std::uint64_t said_ = 0, written_ = 0, taken_ = 0, returned_ = 0;
  bool left_ = false;  ///< They have said so once.
};

void read_offer(std::span<const std::byte> bytes) {
  auto offer = decode_offer(bytes, "the peer");
  if (!offer) return;
  require(bytes.size() == ShmOffer::size, "an offer of another size");
  if (offer->status != ShmOffer::Status::offer)
    return require(offer->text.size() <= 160, "a text without end");
  require(offer->layout.fault().empty(), "a layout that can't be");
  require(offer->arena_bytes % 4096 == 0 && offer->arena_bytes <= ShmLayout::most_arena,
          "an arena that can't be");
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
