// A port of an RDMA device, open, and the memory that is registered with it.
//
//   auto device = RdmaDevice::open(options);              // blocks: on an offload thread
//   RdmaDevice::Lease memory = device->lease();           // what one link needs
//   memory.bytes(), memory.key();
//
// Memory is mapped in regions, and stays so until the device is closed: what is never unmapped
// while the device has it can't be replaced under it. Regions for pieces are of many links, and are
// registered once, since to register is slow. A landing, into which a peer writes, is registered
// for its link alone, by a key that is good as long as that. Children that a fork makes get none of
// it. From any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hyperframes/net/rdma/options.hpp>
#include <hyperframes/net/rdma/verbs.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace hyperframes::net::detail {

class RdmaReceives;

/// How much memory this process may lock: "64 KiB", or "no limit".
std::string memlock_limit();

class RdmaDevice : public std::enable_shared_from_this<RdmaDevice> {
 public:
  /// Requests of each queue that carry no piece: words between the ends.
  static constexpr std::uint32_t words = 4;

  /// With some memory registered already, so that a limit is found out here. `near`: an address, or
  /// anything else; where the options name no device the port that has it is taken, if there is
  /// one. Throws Errc::unsupported if there is no library, no device, or no port that is up;
  /// Errc::invalid_argument for options out of range; and the system's error.
  static std::shared_ptr<RdmaDevice> open(const RdmaOptions& options, const std::string& near = {});
  ~RdmaDevice();
  RdmaDevice(const RdmaDevice&) = delete;

  const RdmaOptions& options() const noexcept { return options_; }
  VerbsDevice& verbs() const noexcept { return *verbs_; }
  std::uint8_t port_number() const noexcept { return port_number_; }
  const VerbsPort& port() const noexcept { return port_; }
  int address_index() const noexcept { return address_index_; }
  const VerbsAddress& address() const noexcept { return address_.address; }
  /// Requests of each queue of a pair, with those of words: what the options and the device allow.
  std::uint32_t requests() const noexcept { return requests_; }
  /// By the kernel, without a card: its speed says nothing.
  bool is_emulated() const noexcept { return emulated_; }
  /// "rxe0 port 1, address ::ffff:10.77.0.1".
  std::string to_string() const;

  /// Memory of one link, until it is destroyed.
  class Lease {
   public:
    Lease() noexcept = default;
    Lease(Lease&& other) noexcept { swap(other); }
    Lease& operator=(Lease other) noexcept {
      swap(other);
      return *this;
    }
    ~Lease();
    std::span<std::byte> bytes() const noexcept { return bytes_; }
    std::uint32_t key() const noexcept { return key_; }

   private:
    friend class RdmaDevice;
    void swap(Lease& other) noexcept {
      std::swap(device_, other.device_);
      std::swap(bytes_, other.bytes_);
      std::swap(key_, other.key_);
    }
    std::shared_ptr<RdmaDevice> device_;
    std::span<std::byte> bytes_;
    std::uint32_t key_ = 0;
  };
  /// `requests()` pieces: to send from, or to receive into. Throws Errc::exhausted if the pool is
  /// used up, and what keeps more memory from being registered, with its size and the limit.
  Lease lease();

  /// Of the links of that core shard; made for the first of them, and gone with the last. Null:
  /// this device has none, or the options want none.
  std::shared_ptr<RdmaReceives> receives(unsigned shard);
  /// Most of them; 0: none.
  std::uint32_t shared_receives() const noexcept { return shared_receives_; }

  /// Memory into which one peer may write. On destruction it goes back to the pool.
  class Landing {
   public:
    Landing(std::shared_ptr<RdmaDevice> device, std::span<std::byte> bytes,
            std::unique_ptr<VerbsMemory> registration) noexcept
        : device_(std::move(device)), bytes_(bytes), registration_(std::move(registration)) {}
    ~Landing();
    Landing(const Landing&) = delete;
    std::span<std::byte> bytes() const noexcept { return bytes_; }
    std::uint32_t remote_key() const noexcept { return remote_key_; }
    /// From here on nobody writes there. May block.
    void close() noexcept { registration_.reset(); }

   private:
    std::shared_ptr<RdmaDevice> device_;
    std::span<std::byte> bytes_;
    std::unique_ptr<VerbsMemory> registration_;
    std::uint32_t remote_key_ = registration_->remote_key();
  };
  /// Null where the options or the pool have no room for one. Throws what keeps memory from being
  /// registered. Blocks.
  std::shared_ptr<Landing> land();
  // For tests and statistics.
  std::size_t registered() const;  ///< Bytes for pieces.
  std::size_t leased() const;      ///< Bytes of them that links have.
  std::size_t landings() const;    ///< How many there are.

 private:
  struct Region {
    std::span<std::byte> memory;
    std::unique_ptr<VerbsMemory> registration;
  };
  struct Slot {
    std::span<std::byte> bytes;
    std::uint32_t key = 0;
  };

  RdmaDevice(const RdmaOptions& options, std::shared_ptr<VerbsDevice> verbs);
  struct Wanted;
  static std::shared_ptr<RdmaDevice> find(const RdmaOptions& options, const Wanted& wanted);
  bool choose_port(const Wanted& wanted);
  bool has_address(const VerbsAddress& address);
  std::optional<VerbsAddressEntry> address_at(int index) const;
  void choose_address();
  void set_sizes();
  std::size_t slot_bytes() const noexcept { return std::size_t{requests_} * options_.piece_bytes; }
  void add_region();
  void give_back(const Slot& slot) noexcept;
  std::span<std::byte> take_landing();
  void give_back_landing(std::span<std::byte> memory) noexcept;

  RdmaOptions options_;
  std::shared_ptr<VerbsDevice> verbs_;
  std::uint8_t port_number_ = 0;
  VerbsPort port_;
  int address_index_ = 0;
  VerbsAddressEntry address_;
  std::uint32_t requests_ = 0;
  std::uint32_t shared_receives_ = 0;
  bool emulated_ = false;

  std::mutex receives_mutex_;
  std::map<unsigned, std::weak_ptr<RdmaReceives>> receives_;
  mutable std::mutex mutex_;
  std::vector<Region> regions_;
  std::vector<Slot> free_;
  std::size_t registered_ = 0;
  std::size_t slots_ = 0;
  std::vector<std::span<std::byte>> free_landings_;  ///< Mapped, and not registered.
  std::size_t landing_bytes_ = 0;                    ///< Mapped; with those that are free.
  std::size_t landings_out_ = 0;
};

}  // namespace hyperframes::net::detail
