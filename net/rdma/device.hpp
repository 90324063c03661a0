// A port of an RDMA device, open, and the memory that is registered with it.
//
//   auto device = RdmaDevice::open(options);              // blocks: on an offload thread
//   RdmaDevice::Lease memory = device->lease();           // what one link needs
//   memory.bytes(), memory.key();
//
// Memory is mapped and registered in regions of many links, and stays so until the device is
// closed: to register is slow, and what is never unmapped while the device has it can't be replaced
// under it. Children that a fork makes do not get it. From any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hyperframes/net/rdma/options.hpp>
#include <hyperframes/net/rdma/verbs.hpp>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace hyperframes::net::detail {

class RdmaDevice : public std::enable_shared_from_this<RdmaDevice> {
 public:
  /// Requests of each queue that carry no piece: words between the ends.
  static constexpr std::uint32_t words = 4;

  /// With some memory registered already, so that a limit is found out here. Throws
  /// Errc::unsupported if there is no library, no device, or no port that is up;
  /// Errc::invalid_argument for options out of range; and the system's error.
  static std::shared_ptr<RdmaDevice> open(const RdmaOptions& options);
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
  /// `requests()` pieces to send and as many to receive. Throws Errc::exhausted if the pool is used
  /// up, and what keeps more memory from being registered, with its size and the limit.
  Lease lease();
  /// In bytes; for tests and statistics.
  std::size_t registered() const;
  std::size_t leased() const;

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
  bool choose_port(std::uint8_t only);
  void choose_address();
  void set_sizes();
  std::size_t slot_bytes() const noexcept {
    return std::size_t{2} * requests_ * options_.piece_bytes;
  }
  void add_region();
  void give_back(const Slot& slot) noexcept;

  RdmaOptions options_;
  std::shared_ptr<VerbsDevice> verbs_;
  std::uint8_t port_number_ = 0;
  VerbsPort port_;
  int address_index_ = 0;
  VerbsAddressEntry address_;
  std::uint32_t requests_ = 0;

  mutable std::mutex mutex_;
  std::vector<Region> regions_;
  std::vector<Slot> free_;
  std::size_t registered_ = 0;
  std::size_t slots_ = 0;
};

}  // namespace hyperframes::net::detail
