#include <hyperframes/net/rdma/setup.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <hyperframes/net/detail/little_endian.hpp>
#include <hyperframes/net/detail/text.hpp>

namespace hyperframes::net::detail {
namespace {

constexpr std::size_t address_at = 64, text_at = 96;

std::uint32_t number_at(std::span<const std::byte> bytes, std::size_t at) {
  return load_little<std::uint32_t>(bytes.data() + at);
}

/// What no device could mean, or empty.
std::string fault_of(const RdmaOffer& offer, std::uint32_t lid, std::uint32_t layer) {
  const auto out_of_range = [](const char* what, std::uint32_t number) {
    return "its offer says " + std::to_string(number) + " for " + what;
  };
  if (layer != 1 && layer != 2) return out_of_range("the layer", layer);
  if (lid > 0xffff) return out_of_range("the LID", lid);
  if (offer.pair > 0xffffff) return out_of_range("the pair", offer.pair);
  if (offer.sequence > 0xffffff) return out_of_range("the first packet", offer.sequence);
  const bool packet = std::has_single_bit(offer.packet_bytes) && offer.packet_bytes >= 256 &&
                      offer.packet_bytes <= 4096;
  if (!packet) return out_of_range("the bytes of a packet", offer.packet_bytes);
  if (offer.pieces < 8 || offer.pieces > 4096) return out_of_range("the pieces", offer.pieces);
  if (offer.piece_bytes < 1024 || offer.piece_bytes > 1u << 20)
    return out_of_range("the bytes of a piece", offer.piece_bytes);
  return {};
}

}  // namespace

std::array<std::byte, RdmaOffer::size> RdmaOffer::encode() const noexcept {
  std::array<std::byte, size> bytes{};
  store_little(bytes.data(), magic);
  store_little(bytes.data() + 8, version);
  store_little(bytes.data() + 12, static_cast<std::uint32_t>(status));
  if (status == Status::offer) {
    store_little(bytes.data() + 16, pair);
    store_little(bytes.data() + 20, sequence);
    store_little(bytes.data() + 24, packet_bytes);
    store_little(bytes.data() + 28, std::uint32_t{lid});
    store_little(bytes.data() + 32, static_cast<std::uint32_t>(layer));
    store_little(bytes.data() + 36, pieces);
    store_little(bytes.data() + 40, piece_bytes);
    store_little(bytes.data() + 44, std::uint32_t{shares_receives});
    std::memcpy(bytes.data() + address_at, address.data(), address.size());
  }
  std::memcpy(bytes.data() + text_at, text.data(), std::min(text.size(), text_bytes));
  return bytes;
}

// Magic, version, status and text stand where they stand in every version.
Result<RdmaOffer> decode_rdma_offer(std::span<const std::byte> bytes, const std::string& peer) {
  const auto corrupt = [&](std::string found) {
    return Error(Errc::corrupt, "set up RDMA with " + peer, std::move(found),
                 "the connection was closed; run the same release on both ends");
  };
  if (bytes.size() != RdmaOffer::size ||
      load_little<std::uint64_t>(bytes.data()) != RdmaOffer::magic)
    return corrupt("its message is no offer of a queue pair");
  RdmaOffer offer;
  offer.version = number_at(bytes, 8);
  const std::uint32_t status = number_at(bytes, 12);
  if (status > 2) return corrupt("its message has status " + std::to_string(status));
  offer.status = static_cast<RdmaOffer::Status>(status);
  const auto* const text = reinterpret_cast<const char*>(bytes.data() + text_at);
  offer.text = printable(std::string(text, ::strnlen(text, RdmaOffer::text_bytes)));
  if (offer.status != RdmaOffer::Status::offer) return offer;
  if (offer.version != RdmaOffer::current_version) {
    offer.status = RdmaOffer::Status::refusal;
    offer.text = "it sets RDMA up by version " + std::to_string(offer.version) + ", not " +
                 std::to_string(RdmaOffer::current_version);
    return offer;
  }
  const std::uint32_t lid = number_at(bytes, 28), layer = number_at(bytes, 32);
  offer.pair = number_at(bytes, 16);
  offer.sequence = number_at(bytes, 20);
  offer.packet_bytes = number_at(bytes, 24);
  offer.pieces = number_at(bytes, 36);
  offer.piece_bytes = number_at(bytes, 40);
  offer.shares_receives = number_at(bytes, 44) & 1;
  if (std::string fault = fault_of(offer, lid, layer); !fault.empty())
    return corrupt(std::move(fault));
  offer.lid = static_cast<std::uint16_t>(lid);
  offer.layer = static_cast<VerbsLayer>(layer);
  std::memcpy(offer.address.data(), bytes.data() + address_at, offer.address.size());
  return offer;
}

}  // namespace hyperframes::net::detail
