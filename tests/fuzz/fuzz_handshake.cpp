#include <cstdint>
#include <cstdlib>
#include <hyperframes/net/handshake.hpp>

// The first byte picks the table; the rest is its payload. What is accepted survives another trip.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hyperframes::net;
  if (size == 0) return 0;
  const std::span<const std::byte> payload(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  const auto again = [](const auto& message) {
    hyperframes::Buffer frame = encode(message);
    frame.remove_prefix(FrameHeader::size);
    return frame;
  };
  const auto same = [](bool is) {
    if (!is) std::abort();
  };
  switch (data[0] % 5) {
    case 0:
      if (auto hello = decode_hello(payload)) {
        same(decode_hello(again(*hello).bytes()).value() == *hello);
        (void)check(*hello, hello->node);
      }
      break;
    case 1:
      if (auto challenge = decode_challenge(payload))
        same(decode_challenge(again(*challenge).bytes()).value() == *challenge);
      break;
    case 2:
      if (auto proof = decode_proof(payload))
        same(decode_proof(again(*proof).bytes()).value() == *proof);
      break;
    case 3:
      if (auto welcome = decode_welcome(payload))
        same(decode_welcome(again(*welcome).bytes()).value() == *welcome);
      break;
    default:
      if (auto reject = decode_reject(payload)) {
        same(decode_reject(again(*reject).bytes()).value() == *reject);
        (void)rejection_error(*reject, "peer");
      }
  }
  return 0;
}
