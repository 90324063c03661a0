// What the two ends of `hyperframes perf` say to each other, over a session.
//
//   Payload payload = co_await Payload::make(4096);     // before anything is measured
//   net::Message message = payload.next(sequence);
//   std::string fault = check(message, sequence, 4096);   // empty: as it was sent
//
// A data message carries its number in the envelope's correlation and the XXH3 checksum of its body
// in the context. Some bodies are made beforehand and sent in turn, each again and again: sending
// costs what sending costs, and no filling. Commands are asks whose body, and answer's body, is a
// JSON object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hyperframes/net/lane.hpp>
#include <hyperframes/net/message.hpp>
#include <hyperframes/runtime/task.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes::tools::perf {

/// Both ends name it in their first words; they must be equal.
inline constexpr int protocol_version = 1;
inline constexpr std::uint64_t least_size = 8, largest_size = 64u << 20;

/// The envelope's type.
enum class Kind : std::uint64_t {
  hello = 0x6866'7065'7266'0001,  ///< {protocol, program} -> {protocol, program, host, busy}.
  begin = 0x6866'7065'7266'0002,  ///< {size} -> {}: what is counted begins at nothing.
  mark = 0x6866'7065'7266'0003,   ///< {} -> how the receiver stands when it has all before this.
  ping = 0x6866'7065'7266'0004,   ///< Data, sent back as it is.
  data = 0x6866'7065'7266'0005,   ///< Data, checked.
};

/// What the answer to a mark says.
struct Mark {
  std::uint64_t received = 0, wrong = 0;  ///< Since `begin`.
  std::int64_t time_ns = 0;               ///< Of the receiver's monotonic clock.
  double cpu_s = 0;                       ///< Of the receiver's process, user and system.
  double check_s = 0;                     ///< Of that, for checksums.
  std::string problem = {};               ///< The first wrong message.
};
std::string to_text(const Mark& mark);
/// Throws Errc::corrupt.
Mark read_mark(std::string_view text);

/// What two ends tell of themselves.
struct Hello {
  int protocol = protocol_version;
  std::string program = {}, host = {};
  bool busy = false;  ///< It serves somebody else: two would measure each other.
};
std::string to_text(const Hello& hello);
Hello read_hello(std::string_view text);

/// Large ones go by the bulk lane, as programs send them.
net::Lane lane_of(std::uint64_t size) noexcept;

std::uint64_t checksum(std::span<const std::byte> bytes) noexcept;

/// Empty if it is the message of that number and size with its bytes as they were; else what is
/// wrong.
std::string check(const net::Message& message, std::uint64_t sequence, std::uint64_t size);

/// For tests: where the failpoint of that name, armed with `error`, is passed, the message gets
/// another body, in which one byte is wrong.
void spoil_at(const char* failpoint, net::Message& message);

class Payload {
 public:
  /// Of the shard it is made on, which does other work meanwhile. Throws Errc::exhausted if the
  /// send pool has no room.
  static Task<Payload> make(std::uint64_t size);
  net::Message next(Kind kind, std::uint64_t sequence) const;

 private:
  struct Body {
    Buffer bytes;
    std::uint64_t sum = 0;
  };
  std::vector<Body> bodies_;
};

/// Of this process, user and system.
double cpu_seconds() noexcept;

}  // namespace hyperframes::tools::perf
