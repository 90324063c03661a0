#include <hyperframes/net/rdma/queue.hpp>

#include <openssl/rand.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <hyperframes/net/detail/little_endian.hpp>
#include <limits>
#include <utility>

namespace hyperframes::net::detail {
namespace {

/// Numbers of packets are 24 bits wide, and begin anywhere, so that late ones of a pair that had
/// the same number are not taken for this one's.
std::uint32_t random_sequence() {
  std::uint32_t number = 0;
  if (::RAND_bytes(reinterpret_cast<unsigned char*>(&number), sizeof number) != 1)
    throw Error(Errc::internal, "get random bytes", "libcrypto refused");
  return number & 0xffffff;
}

std::string milliseconds(Duration span) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(span).count()) +
         " ms";
}

/// Of the word that tells of one: address, size, key, and zeros.
constexpr std::size_t landing_bytes = 24;

Error not_made(const char* what, const RdmaDevice& device, int failure) {
  return Error::system(failure ? failure : EIO,
                       std::string("make a ") + what + " on " + device.to_string(), {},
                       failure == ENOMEM || failure == EMFILE
                           ? "raise the limits of locked memory (ulimit -l) and of open files "
                             "(ulimit -n), or have fewer links"
                           : "");
}

}  // namespace

RdmaQueue::RdmaQueue(std::shared_ptr<RdmaDevice> device)
    : device_(std::move(device)),
      piece_bytes_(device_->options().piece_bytes),
      requests_(device_->requests()),
      sizes_(requests_) {}

std::unique_ptr<RdmaQueue> RdmaQueue::create(std::shared_ptr<RdmaDevice> device, unsigned shard) {
  std::unique_ptr<RdmaQueue> queue(new RdmaQueue(std::move(device)));
  RdmaDevice& on = *queue->device_;
  queue->memory_ = on.lease();
  if (auto receives = on.receives(shard)) {
    receives->join();
    queue->shared_ = std::move(receives);
  } else {
    queue->receive_memory_ = on.lease();
  }
  queue->sequence_ = random_sequence();
  int failure = 0;
  queue->completions_ = on.verbs().make_completions(2 * queue->requests_, failure);
  if (!queue->completions_) throw not_made("completion queue", on, failure);
  const VerbsPairSettings settings{queue->requests_, queue->requests_, inline_wanted,
                                   queue->shared_ ? queue->shared_->verbs() : nullptr};
  queue->pair_ = on.verbs().make_pair(queue->completions_, settings, failure);
  if (!queue->pair_) throw not_made("queue pair", on, failure);
  if ((failure = queue->pair_->initialize(on.port_number())) != 0)
    throw not_made("queue pair", on, failure);
  // Before the peer knows of the pair: so what it is promised is there.
  for (std::uint32_t slot = 0; !queue->shared_ && slot < queue->requests_; ++slot)
    queue->post_receive(slot);
  if (queue->failure_) throw *queue->failure_;
  return queue;
}

// First the pair: after that the device touches nothing. What landed may be somebody's still, but
// the peer's no more.
RdmaQueue::~RdmaQueue() {
  pair_.reset();
  if (landing_) landing_->close();
  if (!shared_) return;
  if (completions_) is_drained();  // what had come, and nobody had looked at
  shared_->leave();
}

RdmaOffer RdmaQueue::offer() const {
  RdmaOffer offer;
  offer.pair = pair_->number();
  offer.sequence = sequence_;
  offer.packet_bytes = device_->port().packet_bytes;
  offer.lid = device_->port().lid;
  offer.layer = device_->port().layer;
  offer.pieces = requests_ - RdmaDevice::words;
  offer.piece_bytes = piece_bytes_;
  offer.shares_receives = shared_ != nullptr;
  offer.address = device_->address();
  return offer;
}

void RdmaQueue::connect(const RdmaOffer& peer) {
  const std::string tried = "connect a queue pair of " + device_->to_string() + " to " + peer_;
  const RdmaOptions& options = device_->options();
  if (peer.layer != device_->port().layer)
    throw Error(Errc::unreachable, tried, "one port is on Ethernet, the other one on InfiniBand",
                "choose ports of one network by the RDMA option device");
  VerbsPath path;
  path.port = device_->port_number();
  path.address_index = device_->address_index();
  path.layer = peer.layer;
  path.packet_bytes = std::min(peer.packet_bytes, device_->port().packet_bytes);
  path.own_sequence = sequence_;
  path.peer_sequence = peer.sequence;
  path.peer_pair = peer.pair;
  path.peer_lid = peer.lid;
  path.peer_address = peer.address;
  path.timeout = static_cast<std::uint8_t>(options.timeout);
  path.retries = static_cast<std::uint8_t>(options.retries);
  // Of its own it has posted what it promises: to wait for that without end would only hide a
  // fault. Else heartbeats say when it was too long.
  path.receive_retries = peer.shares_receives ? 7 : 6;
  if (const int failure = pair_->connect(path))
    throw Error::system(failure, tried, {},
                        "see whether there is a route between the addresses of both devices");
  send_bytes_ = std::min(piece_bytes_, peer.piece_bytes);
  if (device_->port().message_bytes)
    send_bytes_ = std::min(send_bytes_, device_->port().message_bytes);
  credit_ = most_credit_ = peer.pieces;
  joined_ = true;
}

// ---- Memory

std::span<std::byte> RdmaQueue::send_slot(std::uint64_t number) const noexcept {
  return memory_.bytes().subspan(number % requests_ * piece_bytes_, piece_bytes_);
}

std::span<std::byte> RdmaQueue::receive_slot(std::uint32_t slot) const noexcept {
  if (shared_) return shared_->memory(slot);
  return receive_memory_.bytes().subspan(std::size_t{slot} * piece_bytes_, piece_bytes_);
}

// ---- Sending

/// Words have places of their own in the queue, so that they never wait for pieces.
bool RdmaQueue::can_send_piece() const noexcept {
  return sends_in_flight() + RdmaDevice::words < requests_ && credit_ > 0 &&
         (limit_ == 0 || bytes_in_flight_ < limit_);
}

std::span<std::byte> RdmaQueue::room(std::size_t wanted) noexcept {
  if (!has_room()) return {};
  return send_slot(sent_).first(std::min<std::size_t>(wanted, send_bytes_));
}

void RdmaQueue::publish(Word word, std::size_t size) noexcept {
  --credit_;
  const std::uint32_t owed = owed_;
  if (!post(take_owed(word), size, false, std::nullopt)) owed_ = owed;
}

// The number that goes with it says where, so nothing is given back by it.
void RdmaQueue::publish_at(const LandingMap::Place& place) noexcept {
  --credit_;
  const VerbsTarget into{peer_landing_.address + place.offset, peer_landing_.key};
  post(place.offset, place.size, false, into);
}

bool RdmaQueue::say(Word word, bool signalled) noexcept {
  if (failure_ || !joined_ || sends_in_flight() >= requests_) return false;
  const std::uint32_t owed = owed_;
  const bool posted = post(take_owed(word), 0, signalled, std::nullopt);
  if (!posted) owed_ = owed;
  return posted;
}

// ---- Landings

void RdmaQueue::ask_for_landing() noexcept {
  if (asked_ || failure_ || !joined_ || !can_send_piece()) return;
  if (ask_again_ != Time{} && Clock::now() < ask_again_) return;
  asked_ = true;
  publish(Word::ask, 0);
}

bool RdmaQueue::answer(std::shared_ptr<RdmaDevice::Landing> landing) noexcept {
  const std::span<std::byte> room = this->room(landing_bytes);
  if (room.empty()) return false;
  std::memset(room.data(), 0, room.size());
  if (landing) {
    store_little(room.data(), reinterpret_cast<std::uint64_t>(landing->bytes().data()));
    store_little(room.data() + 8, std::uint64_t{landing->bytes().size()});
    store_little(room.data() + 16, landing->remote_key());
  }
  landing_ = std::move(landing);
  was_asked_ = false;
  publish(Word::landing, room.size());
  return true;
}

void RdmaQueue::give_back_places(std::vector<std::uint32_t>& offsets) noexcept {
  while (!offsets.empty()) {
    const std::span<std::byte> room = this->room(offsets.size() * sizeof(std::uint32_t));
    const std::size_t count = room.size() / sizeof(std::uint32_t);
    if (count == 0) return;
    for (std::size_t i = 0; i < count; ++i) {
      store_little(room.data() + i * sizeof(std::uint32_t), offsets.back());
      offsets.pop_back();
    }
    publish(Word::returned, count * sizeof(std::uint32_t));
  }
}

void RdmaQueue::take_landing(std::span<const std::byte> bytes) noexcept {
  const bool right = asked_ && !lands() && bytes.size() == landing_bytes;
  const std::uint64_t size = right ? load_little<std::uint64_t>(bytes.data() + 8) : 0;
  if (!right || size > std::numeric_limits<std::uint32_t>::max())
    return corrupt("it tells of memory to write into that it was not asked for");
  asked_ = size != 0;
  if (size == 0) {
    ask_again_ = after(10 * timing().heartbeat());
    return;
  }
  peer_landing_ = {load_little<std::uint64_t>(bytes.data()),
                   load_little<std::uint32_t>(bytes.data() + 16)};
  map_ = LandingMap(static_cast<std::uint32_t>(size));
}

void RdmaQueue::take_returned(std::span<const std::byte> bytes) noexcept {
  bool right = bytes.size() % sizeof(std::uint32_t) == 0;
  for (std::size_t at = 0; right && at < bytes.size(); at += sizeof(std::uint32_t))
    right = map_.give_back(load_little<std::uint32_t>(bytes.data() + at));
  if (!right) corrupt("it returns memory of its that nothing was written into");
}

// Memory and places come back by completions alone: so there must be one to come before there is
// nothing left to send with.
bool RdmaQueue::must_signal(std::size_t size, bool is_piece) const noexcept {
  if (unsignalled_ + 1 >= requests_ / 8) return true;
  if (!is_piece) return sends_in_flight() + 1 >= requests_;
  const std::size_t most = limit_ ? limit_ : std::size_t{requests_} * send_bytes_;
  return unsignalled_bytes_ + size >= most / 4 || bytes_in_flight_ + size >= most ||
         sends_in_flight() + 1 + RdmaDevice::words >= requests_;
}

bool RdmaQueue::post(std::uint32_t immediate, std::size_t size, bool signalled,
                     std::optional<VerbsTarget> into) noexcept {
  VerbsPair::Send send;
  send.id = sent_;
  send.bytes = send_slot(sent_).first(size);
  send.key = memory_.key();
  send.immediate = immediate;
  send.into = into;
  send.signalled = signalled || must_signal(size, size > 0);
  send.inlined = size > 0 && size <= pair_->inline_bytes();
  if (const int failure = pair_->post_send(send)) {
    fail(Error::system(failure < 0 ? -failure : failure, "send to " + peer_,
                       "the device took no more: " + std::to_string(sends_in_flight()) + " of " +
                           std::to_string(requests_) + " requests are under way"));
    return false;
  }
  sizes_[sent_ % requests_] = static_cast<std::uint32_t>(size);
  ++sent_;
  bytes_in_flight_ += size;
  unsignalled_ = send.signalled ? 0 : unsignalled_ + 1;
  unsignalled_bytes_ = send.signalled ? 0 : unsignalled_bytes_ + size;
  return true;
}

void RdmaQueue::count_sent(std::uint64_t number) noexcept {
  for (; completed_ <= number && completed_ < sent_; ++completed_)
    bytes_in_flight_ -= sizes_[completed_ % requests_];
}

// ---- Receiving

void RdmaQueue::post_receive(std::uint32_t slot) noexcept {
  const int failure =
      shared_ ? shared_->post(slot)
              : pair_->post_receive(receive_bit | slot, receive_slot(slot), receive_memory_.key());
  if (failure)
    return fail(Error::system(failure < 0 ? -failure : failure, "post memory to receive into"));
  if (!shared_) ++posted_;
}

/// What this link does not use any more is the others' still.
void RdmaQueue::return_shared(std::uint32_t slot) noexcept {
  if (shared_) (void)shared_->post(slot);
}

void RdmaQueue::fill_stash() noexcept {
  stash_at_ = stash_count_ = 0;
  const int count = completions_->poll(stash_);
  if (count < 0) return fail(Error::system(-count, "poll for completions"));
  stash_count_ = static_cast<std::size_t>(count);
}

std::optional<RdmaQueue::Arrival> RdmaQueue::next() noexcept {
  while (!failure_) {
    if (stash_at_ == stash_count_) fill_stash();
    if (stash_at_ == stash_count_) break;
    if (auto arrival = take_in(stash_[stash_at_++])) return arrival;
  }
  return std::nullopt;
}

std::optional<RdmaQueue::Arrival> RdmaQueue::take_in(const VerbsCompletion& completion) noexcept {
  const bool received = completion.id & receive_bit;
  if (received && !shared_) --posted_;
  if (!received) count_sent(completion.id);
  const auto slot = static_cast<std::uint32_t>(completion.id & 0xffffffff);
  if (completion.status != VerbsStatus::success) {
    note_failure(completion);
    if (received) return_shared(slot);
    return std::nullopt;
  }
  if (!received) return std::nullopt;
  auto arrival = take_received(completion, slot);
  if (!arrival) release({static_cast<Word>(completion.immediate & 0xff), {}, slot});
  return arrival;
}

std::optional<RdmaQueue::Arrival> RdmaQueue::take_received(const VerbsCompletion& completion,
                                                           std::uint32_t slot) noexcept {
  if (completion.written) return take_landed(completion, slot);
  const auto word = static_cast<Word>(completion.immediate & 0xff);
  if (!take_credit(completion.immediate)) return std::nullopt;
  const Arrival arrival{word, receive_slot(slot).first(completion.bytes), slot};
  const bool has_bytes = word == Word::piece || word == Word::landing || word == Word::returned;
  if ((completion.bytes != 0) != has_bytes || word < Word::piece || word > Word::returned) {
    corrupt("a message of kind " + std::to_string(completion.immediate & 0xff) + " has " +
            std::to_string(completion.bytes) + " bytes");
    return std::nullopt;
  }
  switch (word) {
    case Word::credit: break;
    case Word::landing: take_landing(arrival.bytes); break;
    case Word::returned: take_returned(arrival.bytes); break;
    case Word::ask:
      if (was_asked_ || landing_) {
        corrupt("it asks twice for memory to write into");
        return std::nullopt;
      }
      was_asked_ = true;
      return arrival;
    default: return arrival;
  }
  return std::nullopt;
}

// The device has seen to it that it lies in the landing; its place there is the peer's word.
std::optional<RdmaQueue::Arrival> RdmaQueue::take_landed(const VerbsCompletion& completion,
                                                         std::uint32_t slot) noexcept {
  const std::uint64_t offset = completion.immediate;
  const std::size_t bytes = landing_ ? landing_->bytes().size() : 0;
  if (completion.bytes == 0 || offset + completion.bytes > bytes) {
    corrupt("it wrote " + std::to_string(completion.bytes) + " bytes to " + std::to_string(offset) +
            " of " + std::to_string(bytes));
    return std::nullopt;
  }
  return Arrival{Word::piece, landing_->bytes().subspan(offset, completion.bytes), slot,
                 completion.immediate};
}

bool RdmaQueue::take_credit(std::uint32_t immediate) noexcept {
  const std::uint32_t back = immediate >> 16;
  if (back > most_credit_ - credit_) {
    corrupt("it gives back " + std::to_string(back) + " pieces, and had " +
            std::to_string(most_credit_ - credit_));
    return false;
  }
  credit_ += back;
  return true;
}

void RdmaQueue::release(const Arrival& arrival) noexcept {
  if (failure_) return return_shared(arrival.slot);
  if (arrival.word == Word::piece || arrival.word >= Word::ask) ++owed_;
  post_receive(arrival.slot);
}

bool RdmaQueue::give_back() noexcept {
  const std::uint32_t pieces = requests_ - RdmaDevice::words;
  return owed_ >= pieces / 2 && say(Word::credit);
}

// ---- Sleeping

// What came between the last look and this word makes no event: so that is looked for here.
void RdmaQueue::arm() noexcept {
  if (failure_) return;
  if (!std::exchange(armed_, true)) {
    if (const int failure = completions_->arm())
      return fail(
          Error::system(failure < 0 ? -failure : failure, "ask for an event of completions"));
  }
  if (stash_at_ == stash_count_) fill_stash();
}

// ---- The end

void RdmaQueue::note_failure(const VerbsCompletion& completion) noexcept {
  const RdmaOptions& options = device_->options();
  const std::string tried = (completion.id & receive_bit ? "receive from " : "send to ") + peer_;
  switch (completion.status) {
    case VerbsStatus::retries_exceeded:
      return fail(Error::system(ETIMEDOUT, tried,
                                "its device acknowledged nothing, though it was sent " +
                                    std::to_string(options.retries + 1) + " times within " +
                                    milliseconds(retry_time(options)),
                                "see the RDMA options timeout and retries"));
    case VerbsStatus::receiver_not_ready:
      return fail(Error::system(ECONNRESET, tried, "its device has no memory to receive into"));
    case VerbsStatus::flushed:
      return fail(Error::system(ECONNRESET, tried, "the queue pair has failed"));
    default:
      return fail(Error::system(ECONNRESET, tried,
                                std::string("the queue pair has failed: ") + completion.text));
  }
}

void RdmaQueue::corrupt(std::string found) noexcept {
  fail(Error(Errc::corrupt, "receive from " + peer_, std::move(found),
             "the connection was closed; run the same release on both ends"));
}

void RdmaQueue::end() noexcept {
  fail(Error(Errc::closed, "use the queue pair to " + peer_, "it was ended"));
  pair_->fail();
}

bool RdmaQueue::is_drained() noexcept {
  while (true) {
    for (; stash_at_ < stash_count_; ++stash_at_) {
      const VerbsCompletion& completion = stash_[stash_at_];
      if (completion.id & receive_bit) {
        if (!shared_) --posted_;
        return_shared(static_cast<std::uint32_t>(completion.id & 0xffffffff));
        empty_looks_ = 0;
      } else {
        count_sent(completion.id);
      }
    }
    fill_stash();
    // Of what was not signalled, and went well before, nothing comes; nor of receives that are
    // others' too, but for one that a message was just coming into.
    if (stash_at_ == stash_count_)
      return posted_ == 0 && sends_in_flight() <= unsignalled_ && (!shared_ || ++empty_looks_ > 5);
  }
}

}  // namespace hyperframes::net::detail
