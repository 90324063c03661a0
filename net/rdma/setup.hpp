// What two ends of a link tell each other about their queue pairs, over the connection that the
// link began on.
//
//   RdmaOffer offer;                                  // which pair, where it is, what it takes
//   transport.send(Segments(Buffer::copy_of(offer.encode())));
//   Result<RdmaOffer> peers = decode_rdma_offer(bytes, "tcp://10.0.0.7:6000");
//
// Behind the handshake the side that had connected sends an offer of its pair, or 2: "I have none,
// go on here". The other side answers an offer with one of its own, or with a refusal. When the
// first side has had a word through the pair, and one back, the next word there says that the
// link's bytes follow; should it come to nothing it sends 2, and the link's bytes. An answer that
// was on its way then comes before the other side's, and is known by its magic, as no frame begins
// so. All numbers little-endian:
//
//    0 u64 magic     8 u32 version   12 u32 status: 0 an offer, 1 a refusal, 2 "go on here"
//   16 u32 pair     20 u32 first packet's number   24 u32 bytes of a packet   28 u32 LID
//   32 u32 layer: 1 InfiniBand, 2 Ethernet         36 u32 pieces   40 u32 bytes of a piece
//   44 u32 flags: 1 its receives are shared        48 zeros        64 GID, 16 bytes
//   80 zeros        96 text, 160 bytes
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <hyperframes/net/rdma/verbs.hpp>
#include <hyperframes/runtime/error.hpp>
#include <span>
#include <string>

namespace hyperframes::net::detail {

struct RdmaOffer {
  static constexpr std::size_t size = 256, text_bytes = 160;
  static constexpr std::uint64_t magic = 0x00616d6472617266;  ///< "frardma" and a zero.
  static constexpr std::uint32_t current_version = 1;

  enum class Status : std::uint32_t { offer = 0, refusal = 1, go_on_here = 2 };

  std::uint32_t version = current_version;
  Status status = Status::offer;
  std::uint32_t pair = 0, sequence = 0;
  std::uint32_t packet_bytes = 0;
  std::uint16_t lid = 0;
  VerbsLayer layer = VerbsLayer::ethernet;
  std::uint32_t pieces = 0;  ///< That it has memory for.
  std::uint32_t piece_bytes = 0;
  bool shares_receives = false;  ///< With other links, so that there may be none for a moment.
  VerbsAddress address{};
  std::string text;  ///< Why not.

  std::array<std::byte, size> encode() const noexcept;
};

/// `peer` is who sent it, for the errors. Errc::corrupt. Of an offer of another version only the
/// status is read, which is then a refusal.
Result<RdmaOffer> decode_rdma_offer(std::span<const std::byte> bytes, const std::string& peer);

}  // namespace hyperframes::net::detail
