// What links through queue pairs need of an RDMA device, call by call.
//
//   VerbsLibrary& library = system_verbs();                  // libibverbs, loaded when first asked for
//   auto device = library.open(library.devices().at(0));
//   auto queue = device->make_completions(128);
//
// Everything above this is written against it, so that tests can put a device in place that does
// what a real one does once a year. Failures are numbers of the system, as the library has them,
// and no call throws but where that is said. Each object keeps alive what it was made from. Calls
// may block for as long as the kernel and the device take, but for those that say "never blocks".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hyperframes::net::detail {

using VerbsAddress = std::array<std::byte, 16>;  ///< A GID.

enum class VerbsLayer : std::uint8_t { infiniband = 1, ethernet = 2 };

struct VerbsPort {
  bool active = false;
  VerbsLayer layer = VerbsLayer::ethernet;
  std::uint16_t lid = 0;  ///< Where it is on InfiniBand.
  std::uint32_t packet_bytes = 0;
  std::uint32_t message_bytes = 0;  ///< Of one request, at most.
  int addresses = 0;                ///< Length of its table of GIDs.
};

struct VerbsAddressEntry {
  enum class Kind : std::uint8_t { infiniband, roce_1, roce_2 };
  VerbsAddress address{};
  Kind kind = Kind::roce_2;
};

struct VerbsLimits {
  std::uint32_t ports = 0;
  std::uint32_t queue_entries = 0;       ///< Of each queue of a pair.
  std::uint32_t completion_entries = 0;  ///< Of a queue of completions.
  /// Of a queue of receives that pairs share; 0: the device has none.
  std::uint32_t shared_receives = 0;
  bool emulated = false;  ///< By the kernel, without a card.
};

enum class VerbsStatus : std::uint8_t {
  success,
  flushed,             ///< The pair had failed before, or was told to.
  retries_exceeded,    ///< The peer's device acknowledged nothing.
  receiver_not_ready,  ///< The peer had no memory posted, each time.
  other,
};

struct VerbsCompletion {
  std::uint64_t id = 0;  ///< Of the request, as it was posted.
  VerbsStatus status = VerbsStatus::success;
  const char* text = "";        ///< The library's words for it; a literal.
  std::uint32_t bytes = 0;      ///< Received.
  std::uint32_t immediate = 0;  ///< Received with them.
  bool written = false;         ///< They lie where the peer said, not in what was posted.
};

/// Memory that the device may read and write, until it is destroyed.
class VerbsMemory {
 public:
  virtual ~VerbsMemory() = default;
  virtual std::uint32_t key() const noexcept = 0;         ///< For requests of this end.
  virtual std::uint32_t remote_key() const noexcept = 0;  ///< For those of peers.
};

/// Memory of another device, which its driver shares with other drivers.
struct VerbsShared {
  int descriptor = -1;  ///< A dma-buf.
  std::uint64_t offset = 0, bytes = 0;
  std::uint64_t address = 0;  ///< By which requests name the byte at `offset`.
};

/// Where completions arrive, and a descriptor that tells of the first one after `arm`.
class VerbsCompletions {
 public:
  virtual ~VerbsCompletions() = default;
  /// Readable once there is an event. Never blocks on a read.
  virtual int descriptor() const noexcept = 0;
  /// How many were filled in, or a negative number of the system. Never blocks.
  virtual int poll(std::span<VerbsCompletion> into) noexcept = 0;
  /// The next completion makes an event. One that is there already does not. Never blocks.
  virtual int arm() noexcept = 0;
  /// Takes all events that are there. Never blocks.
  virtual void take_events() noexcept = 0;
};

/// Receives that many pairs take from. From any thread.
class VerbsReceives {
 public:
  virtual ~VerbsReceives() = default;
  /// Never blocks.
  virtual int post(std::uint64_t id, std::span<std::byte> into, std::uint32_t key) noexcept = 0;
};

struct VerbsPairSettings {
  std::uint32_t sends = 0, receives = 0;  ///< Requests that may be posted.
  std::uint32_t inline_bytes = 0;         ///< Wanted; the device may have less.
  /// Where it takes receives from; null: it has some of its own.
  std::shared_ptr<VerbsReceives> shared = {};
};

/// What a pair is connected to, and how.
struct VerbsPath {
  std::uint8_t port = 1;
  int address_index = 0;  ///< Of the port's own GIDs.
  VerbsLayer layer = VerbsLayer::ethernet;
  std::uint32_t packet_bytes = 0;  ///< The smaller of both ends'.
  std::uint32_t own_sequence = 0, peer_sequence = 0;
  std::uint32_t peer_pair = 0;
  std::uint16_t peer_lid = 0;
  VerbsAddress peer_address{};
  std::uint8_t timeout = 14;  ///< 4.096 µs times two to the power of it.
  std::uint8_t retries = 7;
  /// How often a peer that has no memory posted is asked again; 7: without end.
  std::uint8_t receive_retries = 6;
};

/// Memory of the peer's, in which it lets this end write.
struct VerbsTarget {
  std::uint64_t address = 0;
  std::uint32_t key = 0;
};

/// A reliable connected queue pair.
class VerbsPair {
 public:
  virtual ~VerbsPair() = default;
  virtual std::uint32_t number() const noexcept = 0;
  virtual std::uint32_t inline_bytes() const noexcept = 0;
  /// Of a new one: receives may be posted.
  virtual int initialize(std::uint8_t port) noexcept = 0;
  /// From there to ready to send.
  virtual int connect(const VerbsPath& path) noexcept = 0;
  /// All that is posted completes as flushed.
  virtual int fail() noexcept = 0;

  struct Send {
    std::uint64_t id = 0;
    std::span<const std::byte> bytes;
    std::uint32_t key = 0;
    std::uint32_t immediate = 0;
    bool signalled = false;  ///< Else it completes only if it fails.
    bool inlined = false;    ///< The bytes are taken now.
    /// Where to write them. Such a request takes one of the peer's receives as any other, but uses
    /// none of its memory.
    std::optional<VerbsTarget> into = {};
  };
  /// ENOMEM: the queue is full. Never blocks.
  virtual int post_send(const Send& send) noexcept = 0;
  virtual int post_receive(std::uint64_t id, std::span<std::byte> into,
                           std::uint32_t key) noexcept = 0;
};

class VerbsDevice {
 public:
  virtual ~VerbsDevice() = default;
  virtual const std::string& name() const noexcept = 0;
  virtual int limits(VerbsLimits& into) noexcept = 0;
  virtual int port(std::uint8_t number, VerbsPort& into) noexcept = 0;
  virtual int address(std::uint8_t port, int index, VerbsAddressEntry& into) noexcept = 0;
  // These return null, and set `failure`.
  /// `writable`: by peers too, which get its key.
  virtual std::unique_ptr<VerbsMemory> register_memory(std::span<std::byte> memory, bool writable,
                                                       int& failure) noexcept = 0;
  /// EOPNOTSUPP, before anything else is looked at: the library, the kernel or the device's driver
  /// takes none. EBADF, EINVAL: it is no dma-buf, or the range is not inside.
  virtual std::unique_ptr<VerbsMemory> register_shared(const VerbsShared& memory, bool writable,
                                                       int& failure) noexcept = 0;
  virtual std::shared_ptr<VerbsCompletions> make_completions(std::uint32_t entries,
                                                             int& failure) noexcept = 0;
  virtual std::shared_ptr<VerbsReceives> make_receives(std::uint32_t entries,
                                                       int& failure) noexcept = 0;
  virtual std::unique_ptr<VerbsPair> make_pair(std::shared_ptr<VerbsCompletions> completions,
                                               const VerbsPairSettings& settings,
                                               int& failure) noexcept = 0;
};

class VerbsLibrary {
 public:
  virtual ~VerbsLibrary() = default;
  /// Their names. Throws the system's error.
  virtual std::vector<std::string> devices() = 0;
  /// Throws Errc::not_found, and the system's error.
  virtual std::shared_ptr<VerbsDevice> open(const std::string& name) = 0;
};

/// The system's libibverbs. Throws Errc::unsupported if this build or this host has none.
VerbsLibrary& system_verbs();

}  // namespace hyperframes::net::detail
