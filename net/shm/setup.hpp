// How two processes meet under a name, and exchange their segments.
//
//   OwnDescriptor listener = listen_at("counter");
//   ShmOffer offer = ...;   pass(socket, offer, segment.descriptor());
//   Passed passed = receive_passed(socket);         // when there is something to receive
//
// The meeting point is a Unix socket in the abstract namespace: it ends with its process, and is
// seen by whoever shares the network namespace. Three messages of 256 bytes are exchanged: the
// accepting side says that it has accepted, then each offers its segment, with the descriptor of
// it, the connecting one first. So nobody makes memory for a process that is stopped:
//
//    0 u64 magic         8 u32 version   12 u32 status   16 u32 descriptors   20 u32 data bytes
//   24 u64 arena bytes  32 boot id, 64 bytes with zeros behind it   96 text, the same, 160 bytes
//
// Status 0 is an offer; 1 a refusal, with the reason as text; 2 says "go on"; 3 is a refusal for
// lack of memory or descriptors, which may be over soon. Only an offer has a descriptor: that of
// its segment. Behind that the socket carries nothing but doorbells, a byte each, and its end is
// the end of the peer's process (or of the last child that it has forked, if one of them lives on
// without an exec: then heartbeats tell). One of the bytes has the descriptor of the arena out of
// which its sender lends: others' memory lies there, so it goes to who has proved who it is, which
// the handshake that passes through the segments finds out.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <hyperframes/net/shm/segment.hpp>
#include <hyperframes/runtime/error.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes::net::detail {

struct ShmOffer {
  static constexpr std::size_t size = 256, boot_id_bytes = 64, text_bytes = 160;
  static constexpr std::uint64_t magic = 0x006d68736d617266;  ///< "framshm" and a zero.
  static constexpr std::uint32_t current_version = 1;

  enum class Status : std::uint32_t { offer = 0, refusal = 1, go_on = 2, lack = 3 };

  std::uint32_t version = current_version;
  Status status = Status::offer;
  ShmLayout layout;
  std::uint64_t arena_bytes = 0;  ///< Of what it lends from, and passes later; 0: it lends nothing.
  std::string boot_id;
  std::string text;  ///< Why it refuses.

  bool refuses() const noexcept { return status == Status::refusal || status == Status::lack; }
  std::array<std::byte, size> encode() const noexcept;
};

/// `peer` is who sent it, for the errors. Errc::corrupt, Errc::version_mismatch.
Result<ShmOffer> decode_offer(std::span<const std::byte> bytes, const std::string& peer);

/// Of the running system; empty if it can't be read. Read once.
const std::string& system_boot_id();

/// Who is at the other end of a Unix socket.
struct ShmPeer {
  pid_t process = 0;  ///< 0: of another process namespace.
  uid_t user = 0;
  std::string to_string() const;  ///< "process 7 of user 1000".
  /// Empty if this process may share memory with it, or what is in the way: another user.
  std::string objection() const;
};
ShmPeer peer_of(int socket);

/// A process whose socket has ended, to see whether it has ended too: the system closes what a
/// process has open some moments before that process is gone.
class ShmProcess {
 public:
  ShmProcess() = default;
  explicit ShmProcess(pid_t process) noexcept;
  /// That at the other end of a socket that has not ended, in whatever namespace where the kernel
  /// tells (Linux 6.5); `process`: its number, or 0.
  ShmProcess(int socket, pid_t process) noexcept;
  /// `lives` will tell the truth.
  bool is_known() const noexcept { return is_this_one() || handle_; }
  /// Why it is not known, and what helps.
  std::string why_unknown() const;
  /// False as well for one that is not known. True if the system would not say at the moment.
  bool lives() const noexcept;
  bool is_this_one() const noexcept;
  /// True as well for two of other namespaces, where the kernel tells them apart no more (before
  /// Linux 6.9).
  bool is_same(const ShmProcess& other) const noexcept;

 private:
  void open(pid_t process) noexcept;

  pid_t process_ = 0;
  OwnDescriptor handle_;
  int failure_ = 0;  ///< What kept it from being known: an errno.
};

/// Throws Errc::invalid_argument for a name that none can have.
void check_shm_name(const std::string& name);
/// `flags`: of socket(2), as the driver wants them. Throws with who has the name already.
OwnDescriptor listen_at(const std::string& name, int flags = 0);
/// A connected socket; none if the listener has no room for one more at the moment. Throws if there
/// is no listener.
OwnDescriptor try_connect_to(const std::string& name);

/// What came in one message.
struct Passed {
  std::vector<std::byte> bytes;  ///< Empty: the peer has ended.
  std::vector<OwnDescriptor> descriptors;
  bool too_many = false;  ///< Descriptors, more than there was room for.
};
/// `descriptor` -1: none. Never blocks. 0, or the errno of what failed: EPIPE and ECONNRESET if the
/// peer is gone, which may have left word of why.
int pass(int socket, std::span<const std::byte> bytes, int descriptor) noexcept;
/// Never blocks: the socket must be readable. Throws what the system says.
Passed receive_passed(int socket, std::size_t most_bytes);
/// The one that an offer comes with, and an arena. Throws Errc::corrupt for none or more, and what
/// the system says (EMFILE) if this process may open no more.
OwnDescriptor only_descriptor(Passed& passed, const std::string& tried);

}  // namespace hyperframes::net::detail
