#include <algorithm>
#include <cstring>
#include <hyperframes/net/link.hpp>
#include <hyperframes/runtime/detail/pool.hpp>
#include <iterator>
#include <new>
#include <utility>
#include <vector>

namespace hyperframes::net::detail {
namespace {

/// Memory that several buffers lie in, one behind the other, or that one does while another one
/// keeps what pays for it.
struct Joined : hyperframes::detail::Block {
  Buffer first, payment;
  std::vector<Buffer> others;
  static void end(hyperframes::detail::Block* block) noexcept {
    auto* self = static_cast<Joined*>(block);
    self->~Joined();
    hyperframes::detail::pool_release(self);
  }
};

Buffer join(Buffer first, std::vector<Buffer> others, std::size_t size, Buffer payment) {
  auto* block = new (hyperframes::detail::pool_allocate(sizeof(Joined))) Joined;
  block->kind = first.kind();
  block->home = Shard::current();
  block->data = first.data();
  block->capacity = size;
  block->dispose = &Joined::end;
  block->first = std::move(first);
  block->others = std::move(others);
  block->payment = std::move(payment);
  return Buffer::adopt(block, block->data, size);
}

}  // namespace

// Nobody has a reason to lend anything but payload of one frame, so nothing else is parsed out of
// loans: a peer could have it done over and over for the price of a descriptor. What is too short
// to be worth a loan is copied, unless it is the end of one.
std::size_t Link::on_loan(Buffer piece) noexcept {
  if (end_) return 0;
  heard();
  expects_large_ = false;
  const std::size_t size = piece.size();
  bytes_received_ += size;
  copied_of_loans_ = 0;
  const std::uint64_t payload = frame_.kind == FrameKind::data ? remaining_ : 0;
  if (size > payload) {
    corrupt("it lent " + std::to_string(size) + " bytes where " + std::to_string(payload) +
            " of a message have to come");
  } else if (settings_.take_loans &&
             (size >= Transport::least_loan || goes_on(in(frame_.lane), piece))) {
    note_loan(std::move(piece));
  } else {
    copy_in(in(frame_.lane), piece.data(), size);
    copied_of_loans_ = size;
    advance(size);
  }
  after_receive();
  return copied_of_loans_;
}

/// Whether it lies right behind what was lent of the message last, in the message and in memory.
bool Link::goes_on(const LaneIn& lane, const Buffer& piece) noexcept {
  if (lane.lent.empty()) return false;
  const Lent& last = lane.lent.back();
  return last.end() == lane.received && last.piece.data() + last.piece.size() == piece.data();
}

void Link::note_loan(Buffer piece) {
  LaneIn& lane = in(frame_.lane);
  const std::size_t size = piece.size();
  // What follows lies as it does in the message: on the same place of a line.
  if (lane.sparse) lane.copied += (lane.received + size - lane.copied) % wire::part_alignment;
  lane.lent.push_back({lane.received, lane.copied, std::move(piece)});
  advance(size);
}

void Link::drop_message(LaneIn& lane) noexcept {
  lane.memory = Buffer();
  lane.lent.clear();
  lane.sparse = false;
}

void Link::copy_in(LaneIn& lane, const std::byte* at, std::size_t size) {
  if (lane.sparse && lane.copied + size > lane.memory.size()) make_dense(lane);
  std::byte* const into = lane.memory.data() + (lane.sparse ? lane.copied : lane.received);
  std::memcpy(into, at, size);
  if (lane.sparse) lane.copied += size;
}

/// Where in the lane's memory a byte is that was copied, or where it would go.
std::size_t Link::place_of(const LaneIn& lane, std::uint64_t offset) noexcept {
  if (!lane.sparse) return offset;
  const auto next = std::ranges::upper_bound(lane.lent, offset, {}, &Lent::offset);
  if (next == lane.lent.begin()) return offset;
  const Lent& before = *std::prev(next);
  return before.copied + (offset - before.end());
}

/// Gets the message the memory that one has of which nothing is lent. The head's stays, for what it
/// pays.
void Link::make_dense(LaneIn& lane) {
  Buffer whole = account_->allocate(lane.charge, 0, lane.total);
  const auto copy = [&](std::uint64_t begin, std::uint64_t end) {
    if (begin == end) return;
    std::memcpy(whole.data() + begin, lane.memory.data() + place_of(lane, begin), end - begin);
  };
  std::uint64_t begin = 0;
  for (const Lent& lent : lane.lent) {
    copy(begin, lent.offset);
    begin = lent.end();
  }
  copy(begin, lane.received);
  lane.memory = join(std::move(whole), {}, lane.total, std::move(lane.memory));
  lane.sparse = false;
}

/// A message of which something is lent. Only segments are left where they are.
Result<Message> Link::assemble(LaneIn& lane) {
  if (lane.total < wire::envelope_size) return wire::decode(gather(lane, 0, lane.total));
  const Buffer envelope = part_of(lane, 0, wire::envelope_size, false);
  auto head = wire::decode_head(
      std::span<const std::byte, wire::envelope_size>(envelope.data(), wire::envelope_size),
      lane.total);
  if (!head) return head.error();
  const Buffer prefix = part_of(lane, 0, head->prefix_size(), false);
  return wire::decode_scattered(*head, lane.total, prefix.data() + wire::envelope_size,
                                [&](std::uint64_t begin, std::uint64_t size, bool is_segment) {
                                  return part_of(lane, begin, size, is_segment);
                                });
}

/// In place if it was copied as a whole, or if it may be and loans are exactly that part, on an
/// address that parts begin on; else in memory of its own. Each keeps what the message is charged.
Buffer Link::part_of(LaneIn& lane, std::uint64_t begin, std::uint64_t size, bool may_be_lent) {
  const auto first = std::ranges::upper_bound(lane.lent, begin, {}, &Lent::end);
  if (first == lane.lent.end() || first->offset >= begin + size)
    return lane.memory.slice(place_of(lane, begin), size);
  const auto address = reinterpret_cast<std::uintptr_t>(first->piece.data());
  const bool fits = first->offset == begin && address % wire::part_alignment == 0;
  if (!may_be_lent || !fits) return gather(lane, begin, size);
  // One loan, or several of memory that lies side by side.
  std::vector<Buffer> others;
  std::uint64_t end = first->end();
  for (auto next = first + 1; end < begin + size; ++next) {
    const bool adjoins = next != lane.lent.end() && next->offset == end &&
                         next->piece.data() == first->piece.data() + (end - begin);
    if (!adjoins) return gather(lane, begin, size);
    others.push_back(next->piece);
    end = next->end();
  }
  if (end != begin + size) return gather(lane, begin, size);
  return join(first->piece, std::move(others), size, lane.memory);
}

/// Copies what is lent of it, to where the rest is if there is a place for all of it.
Buffer Link::gather(LaneIn& lane, std::uint64_t begin, std::uint64_t size) {
  const std::uint64_t end = begin + size;
  Buffer into = lane.sparse ? join(account_->allocate(lane.charge, 0, size), {}, size, lane.memory)
                            : lane.memory.slice(begin, size);
  const auto copy_rest = [&](std::uint64_t from, std::uint64_t to) {
    if (!lane.sparse || from >= to) return;
    std::memcpy(into.data() + (from - begin), lane.memory.data() + place_of(lane, from), to - from);
  };
  std::uint64_t at = begin;
  for (auto lent = std::ranges::upper_bound(lane.lent, begin, {}, &Lent::end);
       lent != lane.lent.end() && lent->offset < end; ++lent) {
    copy_rest(at, lent->offset);
    const std::uint64_t from = std::max(lent->offset, begin), to = std::min(lent->end(), end);
    std::memcpy(into.data() + (from - begin), lent->piece.data() + (from - lent->offset),
                to - from);
    copied_of_loans_ += to - from;
    at = to;
  }
  copy_rest(at, end);
  return into;
}

}  // namespace hyperframes::net::detail
