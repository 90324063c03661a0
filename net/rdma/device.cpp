#include <hyperframes/net/rdma/device.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <hyperframes/runtime/error.hpp>
#include <optional>

namespace hyperframes::net {

Duration retry_time(const RdmaOptions& options) noexcept {
  return Duration((std::int64_t{4096} << options.timeout) * (options.retries + 1));
}

namespace detail {
namespace {

// Memory is mapped, and registered, in so much at a time.
constexpr std::size_t region_bytes = 32u << 20, huge_page = 2u << 20;

void check(bool fine, const char* what, const char* range) {
  if (fine) return;
  throw Error(Errc::invalid_argument, std::string("use RDMA option ") + what,
              std::string("it must be ") + range);
}

void check_options(const RdmaOptions& options) {
  check(options.piece_bytes >= 1024 && options.piece_bytes <= 1u << 20, "piece_bytes",
        "from 1 KiB to 1 MiB");
  check(options.pieces >= 8 && options.pieces <= 4096, "pieces", "from 8 to 4096");
  check(options.timeout >= 1 && options.timeout <= 31, "timeout", "from 1 to 31");
  check(options.retries <= 7, "retries", "from 0 to 7");
  check(options.pool_bytes >=
            std::size_t{2} * (options.pieces + RdmaDevice::words) * options.piece_bytes,
        "pool_bytes", "what one link takes, or more: (pieces + 4) * 2 * piece_bytes");
}

/// "mlx5_0:2" is a device and its port; the port is 0 if it is not said.
std::pair<std::string, std::uint8_t> split_device(const std::string& text) {
  const auto colon = text.find(':');
  if (colon == text.npos) return {text, std::uint8_t{0}};
  unsigned port = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + colon + 1, end, port);
  check(read.ec == std::errc() && read.ptr == end && port >= 1 && port <= 255, "device",
        "a name, or a name, ':' and a port from 1 to 255");
  return {text.substr(0, colon), static_cast<std::uint8_t>(port)};
}

bool is_zero(const VerbsAddress& address) {
  return std::ranges::all_of(address, [](std::byte byte) { return byte == std::byte{0}; });
}

bool is_ipv4(const VerbsAddress& address) {
  static constexpr unsigned char head[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(address.data(), head, sizeof head) == 0;
}

bool is_link_local(const VerbsAddress& address) {
  return address[0] == std::byte{0xfe} && (address[1] & std::byte{0xc0}) == std::byte{0x80};
}

/// The higher, the better reached by others.
int rank_of(const VerbsAddressEntry& entry) {
  if (entry.kind != VerbsAddressEntry::Kind::roce_2) return 0;
  if (is_ipv4(entry.address)) return 3;
  return is_link_local(entry.address) ? 1 : 2;
}

std::string text_of(const VerbsAddress& address) {
  char text[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(AF_INET6, address.data(), text, sizeof text);
  return text;
}

std::string memlock_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  return limit.rlim_cur == RLIM_INFINITY ? "no limit"
                                         : std::to_string(limit.rlim_cur >> 10) + " KiB";
}

}  // namespace

RdmaDevice::RdmaDevice(const RdmaOptions& options, std::shared_ptr<VerbsDevice> verbs)
    : options_(options), verbs_(std::move(verbs)) {}

std::shared_ptr<RdmaDevice> RdmaDevice::open(const RdmaOptions& options) {
  check_options(options);
  const auto [wanted, port] = split_device(options.device);
  VerbsLibrary& library = options.verbs ? *options.verbs : system_verbs();
  const std::vector<std::string> names =
      wanted.empty() ? library.devices() : std::vector<std::string>{wanted};
  const std::string tried = "use RDMA";
  if (names.empty())
    throw Error(Errc::unsupported, tried, "this host has no RDMA device",
                "see ibv_devices, and whether its driver is loaded");
  std::string failures;
  for (const std::string& name : names) {
    std::shared_ptr<RdmaDevice> device(new RdmaDevice(options, library.open(name)));
    if (!device->choose_port(port)) {
      failures += (failures.empty() ? "" : ", ") + name;
      continue;
    }
    device->choose_address();
    device->set_sizes();
    device->add_region();
    return device;
  }
  throw Error(Errc::unsupported, tried,
              "no port is up of " + failures + (port ? ", port " + std::to_string(port) : ""),
              "see rdma link show, or ibv_devinfo");
}

RdmaDevice::~RdmaDevice() {
  for (Region& region : regions_) {
    region.registration.reset();
    ::munmap(region.memory.data(), region.memory.size());
  }
}

/// The first that is up, or only that one. False: none is.
bool RdmaDevice::choose_port(std::uint8_t only) {
  VerbsLimits limits;
  if (const int failure = verbs_->limits(limits))
    throw Error::system(failure, "ask what the RDMA device " + verbs_->name() + " can do");
  for (std::uint32_t number = 1; number <= std::min(limits.ports, 255u); ++number) {
    if (only && number != only) continue;
    VerbsPort found;
    if (verbs_->port(static_cast<std::uint8_t>(number), found) != 0 || !found.active) continue;
    port_number_ = static_cast<std::uint8_t>(number);
    port_ = found;
    return true;
  }
  return false;
}

void RdmaDevice::choose_address() {
  const auto look = [this](int index) -> std::optional<VerbsAddressEntry> {
    VerbsAddressEntry entry;
    const bool there = verbs_->address(port_number_, index, entry) == 0 && !is_zero(entry.address);
    return there ? std::optional(entry) : std::nullopt;
  };
  const bool any = options_.address_index < 0;
  int best = -1;
  for (int i = any ? 0 : options_.address_index;
       i < (any ? port_.addresses : options_.address_index + 1); ++i) {
    const auto entry = look(i);
    if (!entry || rank_of(*entry) <= best) continue;
    best = rank_of(*entry);
    address_ = *entry;
    address_index_ = i;
  }
  if (best >= 0) return;
  throw Error(Errc::unsupported, "use RDMA",
              "port " + std::to_string(port_number_) + " of " + verbs_->name() + " has no address" +
                  (any ? "" : " " + std::to_string(options_.address_index)),
              "give its network interface an IP address; show_gids lists what there is");
}

void RdmaDevice::set_sizes() {
  VerbsLimits limits;
  if (const int failure = verbs_->limits(limits))
    throw Error::system(failure, "ask what the RDMA device " + verbs_->name() + " can do");
  requests_ =
      std::min({options_.pieces + words, limits.queue_entries, limits.completion_entries / 2});
  if (requests_ < 8 + words)
    throw Error(Errc::unsupported, "use RDMA",
                verbs_->name() + " has queues of " + std::to_string(limits.queue_entries) +
                    " requests and " + std::to_string(limits.completion_entries) + " completions");
}

std::string RdmaDevice::to_string() const {
  return verbs_->name() + " port " + std::to_string(port_number_) + ", address " +
         text_of(address_.address);
}

/// With the lock held, or before anybody else has the device.
void RdmaDevice::add_region() {
  const std::size_t left = options_.pool_bytes - std::min(options_.pool_bytes, registered_);
  const std::size_t slot = slot_bytes();
  const std::size_t count = std::min(std::max(region_bytes, slot), left) / slot;
  if (count == 0)
    throw Error(
        Errc::exhausted, "get memory of " + verbs_->name() + " for one more link",
        "all of the " + std::to_string(registered_) + " bytes that are registered are in use",
        "raise the RDMA option pool_bytes");
  const std::size_t size = (count * slot + huge_page - 1) / huge_page * huge_page;
  const std::string tried =
      "register " + std::to_string(size) + " bytes of memory with " + verbs_->name();
  void* const at =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw Error::system(errno, tried, "there is no memory to map");
  ::madvise(at, size, MADV_HUGEPAGE);
  ::madvise(at, size, MADV_DONTFORK);
  Region region{{static_cast<std::byte*>(at), size}, nullptr};
  int failure = 0;
  region.registration = verbs_->register_memory(region.memory, failure);
  if (!region.registration) {
    ::munmap(at, size);
    throw Error::system(failure ? failure : EIO, tried,
                        std::string(std::strerror(failure ? failure : EIO)) +
                            "; the limit of locked memory is " + memlock_limit(),
                        "raise it: ulimit -l unlimited, or LimitMEMLOCK=infinity in the service's "
                        "unit file");
  }
  for (std::size_t i = 0; i < count; ++i)
    free_.push_back({region.memory.subspan(i * slot, slot), region.registration->key()});
  registered_ += size;
  slots_ += count;
  free_.reserve(slots_);
  regions_.push_back(std::move(region));
}

RdmaDevice::Lease RdmaDevice::lease() {
  const std::scoped_lock lock(mutex_);
  if (free_.empty()) add_region();
  Lease lease;
  lease.device_ = shared_from_this();
  lease.bytes_ = free_.back().bytes;
  lease.key_ = free_.back().key;
  free_.pop_back();
  return lease;
}

RdmaDevice::Lease::~Lease() {
  if (device_) device_->give_back({bytes_, key_});
}

// There was room for it when the region was added.
void RdmaDevice::give_back(const Slot& slot) noexcept {
  const std::scoped_lock lock(mutex_);
  free_.push_back(slot);
}

std::size_t RdmaDevice::registered() const {
  const std::scoped_lock lock(mutex_);
  return registered_;
}

std::size_t RdmaDevice::leased() const {
  const std::scoped_lock lock(mutex_);
  return (slots_ - free_.size()) * slot_bytes();
}

}  // namespace detail
}  // namespace hyperframes::net
