#include <hyperframes/apps/ps/dedup.hpp>

#include <hyperframes/runtime/error.hpp>

#include <algorithm>
#include <cassert>
#include <string>
#include <tuple>

namespace hyperframes::ps {
namespace {
constexpr std::uint32_t batches_a_block = 64;
constexpr std::uint8_t format = 1;

bool is_set(const std::uint64_t* words, std::uint64_t bit) noexcept {
  return (words[bit / 64] >> (bit % 64)) & 1;
}
}  // namespace

DedupWindow::Verdict DedupWindow::Seen::at(std::size_t place) const noexcept {
  if (everywhere_ != Verdict::fresh) return everywhere_;
  if (words_ != nullptr) return (words_[place] & bit_) != 0 ? Verdict::duplicate : Verdict::fresh;
  if (marks_ == nullptr) return Verdict::fresh;
  const Mark& mark = marks_[place];
  if (incarnation_ < mark.incarnation) return Verdict::stale;
  if (incarnation_ > mark.incarnation) return Verdict::fresh;
  if (sequence_ < mark.low) return Verdict::duplicate;
  if (sequence_ - mark.low >= client_window) return Verdict::fresh;
  return is_set(mark.seen.data(), sequence_ % client_window) ? Verdict::duplicate : Verdict::fresh;
}

std::size_t DedupWindow::block_at(std::uint64_t order, std::uint32_t block) const noexcept {
  const auto found =
      std::ranges::lower_bound(blocks_, std::tuple(order, block), {},
                               [](const Block& b) { return std::tuple(b.order, b.block); });
  return static_cast<std::size_t>(found - blocks_.begin());
}

std::size_t DedupWindow::client_at(std::uint64_t client) const noexcept {
  const auto found = std::ranges::lower_bound(clients_, client, {}, &Client::client);
  return static_cast<std::size_t>(found - clients_.begin());
}

DedupWindow::Seen DedupWindow::find(const PushKey& key) const noexcept {
  Seen seen;
  if (key.is_leased()) {
    const std::uint64_t order = unit_order(key.epoch, key.unit);
    if (order < forgotten_before_) seen.everywhere_ = Verdict::duplicate;
    const std::uint32_t block = key.batch / batches_a_block;
    const std::size_t at = block_at(order, block);
    if (at == blocks_.size() || blocks_[at].order != order || blocks_[at].block != block)
      return seen;
    seen.words_ = blocks_[at].words.get();
    seen.bit_ = std::uint64_t{1} << (key.batch % batches_a_block);
    return seen;
  }
  const std::size_t at = client_at(key.client);
  if (at == clients_.size() || clients_[at].client != key.client) return seen;
  seen.marks_ = clients_[at].marks.data();
  seen.incarnation_ = key.incarnation;
  seen.sequence_ = key.sequence;
  return seen;
}

void DedupWindow::check_room(const PushKey& key) const {
  if (key.is_leased()) {
    const std::uint64_t order = unit_order(key.epoch, key.unit);
    const std::uint32_t block = key.batch / batches_a_block;
    const std::size_t at = block_at(order, block);
    const bool known =
        at < blocks_.size() && blocks_[at].order == order && blocks_[at].block == block;
    if (known || order < forgotten_before_ || blocks_.size() < max_blocks) return;
    throw Error(Errc::exhausted,
                "remember a push of epoch " + std::to_string(key.epoch) + ", unit " +
                    std::to_string(key.unit),
                std::to_string(max_blocks) +
                    " units are open: work began on them, and the "
                    "coordinator does not call them finished",
                "finish or free the oldest unit, or make units larger");
  }
  const std::size_t at = client_at(key.client);
  if ((at < clients_.size() && clients_[at].client == key.client) || clients_.size() < max_clients)
    return;
  throw Error(Errc::exhausted, "remember a push of client " + std::to_string(key.client),
              std::to_string(max_clients) + " clients are known", "forget those that are gone");
}

std::uint64_t* DedupWindow::words_of(std::uint64_t order, std::uint32_t block) {
  const std::size_t at = block_at(order, block);
  if (at == blocks_.size() || blocks_[at].order != order || blocks_[at].block != block)
    blocks_.insert(blocks_.begin() + static_cast<std::ptrdiff_t>(at),
                   Block{order, block, std::make_unique<std::uint64_t[]>(places_)});
  return blocks_[at].words.get();
}

DedupWindow::Mark& DedupWindow::mark_of(std::uint64_t client, std::size_t place) {
  const std::size_t at = client_at(client);
  if (at == clients_.size() || clients_[at].client != client)
    clients_.insert(clients_.begin() + static_cast<std::ptrdiff_t>(at),
                    Client{client, std::vector<Mark>(places_)});
  return clients_[at].marks[place];
}

void DedupWindow::begin_incarnation(Mark& mark, std::uint64_t incarnation) noexcept {
  if (incarnation > mark.incarnation) mark = {.incarnation = incarnation};
}

void DedupWindow::mark(const PushKey& key, std::size_t place) {
  assert(place < places_);
  if (!key.is_leased()) {
    Mark& mark = mark_of(key.client, place);
    begin_incarnation(mark, key.incarnation);
    if (key.incarnation == mark.incarnation) mark_sequence(mark, key.sequence);
    return;
  }
  const std::uint64_t order = unit_order(key.epoch, key.unit);
  if (order < forgotten_before_) return;
  words_of(order, key.batch / batches_a_block)[place] |= std::uint64_t{1}
                                                         << (key.batch % batches_a_block);
}

void DedupWindow::raise_low(Mark& mark, std::uint64_t low) noexcept {
  if (low <= mark.low) return;
  if (low - mark.low >= client_window) {
    mark.seen = {};
  } else {
    // Bits of sequences that leave the window will stand for new ones.
    for (std::uint64_t s = mark.low; s < low; ++s)
      mark.seen[s % client_window / 64] &= ~(std::uint64_t{1} << (s % 64));
  }
  mark.low = low;
}

void DedupWindow::mark_sequence(Mark& mark, std::uint64_t sequence) noexcept {
  if (sequence < mark.low) return;
  if (sequence - mark.low >= client_window) raise_low(mark, sequence - client_window + 1);
  mark.seen[sequence % client_window / 64] |= std::uint64_t{1} << (sequence % 64);
}

void DedupWindow::forget_units_before(std::uint64_t order) noexcept {
  if (order <= forgotten_before_) return;
  forgotten_before_ = order;
  std::erase_if(blocks_, [&](const Block& block) { return block.order < order; });
}

void DedupWindow::forget_client(std::uint64_t client) noexcept {
  std::erase_if(clients_, [&](const Client& known) { return known.client == client; });
}

void DedupWindow::encode(std::size_t place, Bytes& out) const {
  assert(place < places_);
  detail::put<std::uint8_t>(out, format);
  detail::put<std::uint64_t>(out, forgotten_before_);
  const auto has = [&](const Block& block) { return block.words[place] != 0; };
  detail::put<std::uint32_t>(out, static_cast<std::uint32_t>(std::ranges::count_if(blocks_, has)));
  for (const Block& block : blocks_) {
    if (!has(block)) continue;
    detail::put<std::uint64_t>(out, block.order);
    detail::put<std::uint32_t>(out, block.block);
    detail::put<std::uint64_t>(out, block.words[place]);
  }
  const auto used = [&](const Client& client) { return client.marks[place] != Mark{}; };
  detail::put<std::uint32_t>(out,
                             static_cast<std::uint32_t>(std::ranges::count_if(clients_, used)));
  for (const Client& client : clients_) {
    if (!used(client)) continue;
    const Mark& mark = client.marks[place];
    detail::put<std::uint64_t>(out, client.client);
    detail::put<std::uint64_t>(out, mark.incarnation);
    detail::put<std::uint64_t>(out, mark.low);
    detail::put_array<std::uint64_t>(out, mark.seen);
  }
}

// Parts that were taken at different times hold, together, units that were never open together.
void DedupWindow::check_decoded(std::size_t count, std::size_t limit) {
  if (count >= 2 * limit)
    throw Error(Errc::exhausted, "read which pushes were applied",
                std::to_string(count) + " units or clients",
                "restore the newest copy of the work folder: what was acknowledged since is lost");
}

std::uint64_t DedupWindow::decode(std::size_t place, std::span<const std::byte> bytes) {
  detail::ByteReader reader(bytes, "read which pushes were applied");
  if (const auto version = reader.get<std::uint8_t>(); version != format)
    reader.fail("its format is " + std::to_string(version));
  const auto watermark = reader.get<std::uint64_t>();
  for (auto count = reader.get<std::uint32_t>(); count > 0; --count) {
    const auto order = reader.get<std::uint64_t>();
    const auto block = reader.get<std::uint32_t>();
    const auto word = reader.get<std::uint64_t>();
    if (order < forgotten_before_) continue;
    if (block > 0xffffffffu / batches_a_block) reader.fail("an impossible batch");
    check_decoded(blocks_.size(), max_blocks);
    words_of(order, block)[place] |= word;
  }
  for (auto count = reader.get<std::uint32_t>(); count > 0; --count) {
    const auto id = reader.get<std::uint64_t>();
    Mark part{.incarnation = reader.get<std::uint64_t>()};
    part.low = reader.get<std::uint64_t>();
    for (auto& word : part.seen) word = reader.get<std::uint64_t>();
    if (id == 0 || part.low > ~std::uint64_t{0} - (client_window - 1))
      reader.fail("an impossible client");
    check_decoded(clients_.size(), max_clients);
    Mark& mark = mark_of(id, place);
    begin_incarnation(mark, part.incarnation);
    if (part.incarnation != mark.incarnation) continue;
    raise_low(mark, part.low);
    for (std::uint64_t i = 0; i < client_window; ++i)
      if (is_set(part.seen.data(), (part.low + i) % client_window))
        mark_sequence(mark, part.low + i);
  }
  reader.expect_end();
  return watermark;
}

void DedupWindow::clear(std::size_t place) noexcept {
  for (Block& block : blocks_) block.words[place] = 0;
  for (Client& client : clients_) client.marks[place] = Mark{};
}

std::size_t DedupWindow::memory_bytes() const noexcept {
  return blocks_.size() * (sizeof(Block) + places_ * sizeof(std::uint64_t)) +
         clients_.size() * (sizeof(Client) + places_ * sizeof(Mark));
}

}  // namespace hyperframes::ps
