#include <hyperframes/net/rdma/device.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <hyperframes/net/rdma/receives.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/log.hpp>
#include <optional>

namespace hyperframes::net {

Duration retry_time(const RdmaOptions& options) noexcept {
  return Duration((std::int64_t{4096} << options.timeout) * (options.retries + 1));
}

namespace detail {
namespace {

// Memory is mapped, and registered, in so much at a time.
constexpr std::size_t region_bytes = 32u << 20, huge_page = 2u << 20;
// A landing that is smaller is not worth it.
constexpr std::size_t least_landing = 256u << 10;

void check(bool fine, const char* what, const char* range) {
  if (fine) return;
  throw Error(Errc::invalid_argument, std::string("use RDMA option ") + what,
              std::string("it must be ") + range);
}

void check_options(const RdmaOptions& options) {
  check(options.piece_bytes >= 1024 && options.piece_bytes <= 1u << 20, "piece_bytes",
        "from 1 KiB to 1 MiB");
  check(options.pieces >= 8 && options.pieces <= 4096, "pieces", "from 8 to 4096");
  check(options.landing_bytes < std::size_t{4} << 30, "landing_bytes", "less than 4 GiB");
  check(options.timeout >= 1 && options.timeout <= 31, "timeout", "from 1 to 31");
  check(options.retries <= 7, "retries", "from 0 to 7");
  check(options.pool_bytes >=
            std::size_t{2} * (options.pieces + RdmaDevice::words) * options.piece_bytes,
        "pool_bytes", "what one link takes, or more: (pieces + 4) * 2 * piece_bytes");
}

/// As a GID says it.
std::optional<VerbsAddress> address_of(const std::string& text) {
  VerbsAddress address{};
  if (::inet_pton(AF_INET6, text.c_str(), address.data()) == 1) return address;
  if (::inet_pton(AF_INET, text.c_str(), address.data() + 12) != 1) return std::nullopt;
  address[10] = address[11] = std::byte{0xff};
  return address;
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

/// Null: there is no memory. Children do not get it: their writes would move pages away.
std::byte* map(std::size_t size) {
  void* const at =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  ::madvise(at, size, MADV_HUGEPAGE);
  ::madvise(at, size, MADV_DONTFORK);
  return static_cast<std::byte*>(at);
}

Error not_registered(const std::string& tried, int failure) {
  const int number = failure ? failure : EIO;
  return Error::system(
      number, tried,
      std::string(std::strerror(number)) + "; the limit of locked memory is " + memlock_limit(),
      "raise it: ulimit -l unlimited, or LimitMEMLOCK=infinity in the service's unit file");
}

}  // namespace

std::string memlock_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  return limit.rlim_cur == RLIM_INFINITY ? "no limit"
                                         : std::to_string(limit.rlim_cur >> 10) + " KiB";
}

RdmaDevice::RdmaDevice(const RdmaOptions& options, std::shared_ptr<VerbsDevice> verbs)
    : options_(options), verbs_(std::move(verbs)) {}

/// What of a host's ports will do.
struct RdmaDevice::Wanted {
  std::string name;       ///< Empty: any.
  std::uint8_t port = 0;  ///< 0: any.
  std::optional<VerbsAddress> address;

  /// "mlx5_0", "mlx5_0:2", "10.0.0.7", or nothing.
  static Wanted read(const std::string& text) {
    if (const auto address = address_of(text)) return {{}, 0, address};
    const auto colon = text.find(':');
    if (colon == text.npos) return {text, 0, {}};
    unsigned port = 0;
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + colon + 1, end, port);
    check(read.ec == std::errc() && read.ptr == end && port >= 1 && port <= 255, "device",
          "a name, or a name, ':' and a port from 1 to 255, or an IP address");
    return {text.substr(0, colon), static_cast<std::uint8_t>(port), {}};
  }
  std::string to_string() const {
    if (address) return ", with the address " + text_of(*address);
    return port ? ", port " + std::to_string(port) : "";
  }
};

std::shared_ptr<RdmaDevice> RdmaDevice::open(const RdmaOptions& options, const std::string& near) {
  check_options(options);
  const Wanted wanted = Wanted::read(options.device);
  std::shared_ptr<RdmaDevice> device;
  if (const auto address = address_of(near); address && options.device.empty()) {
    try {
      device = find(options, {{}, 0, address});
    } catch (const Error& error) {
      if (!error.is(Errc::unsupported)) throw;
    }
  }
  if (!device) device = find(options, wanted);
  device->set_sizes();
  device->add_region();
  return device;
}

std::shared_ptr<RdmaDevice> RdmaDevice::find(const RdmaOptions& options, const Wanted& wanted) {
  VerbsLibrary& library = options.verbs ? *options.verbs : system_verbs();
  const std::vector<std::string> names =
      wanted.name.empty() ? library.devices() : std::vector<std::string>{wanted.name};
  const std::string tried = "use RDMA";
  if (names.empty())
    throw Error(Errc::unsupported, tried, "this host has no RDMA device",
                "see ibv_devices, and whether its driver is loaded");
  std::string failures;
  for (const std::string& name : names) {
    std::shared_ptr<RdmaDevice> device(new RdmaDevice(options, library.open(name)));
    if (device->choose_port(wanted)) {
      if (!wanted.address) device->choose_address();
      return device;
    }
    failures += (failures.empty() ? "" : ", ") + name;
  }
  throw Error(Errc::unsupported, tried, "no port is up of " + failures + wanted.to_string(),
              "see rdma link show, or ibv_devinfo");
}

RdmaDevice::~RdmaDevice() {
  for (Region& region : regions_) {
    region.registration.reset();
    ::munmap(region.memory.data(), region.memory.size());
  }
  for (const std::span<std::byte> memory : free_landings_) ::munmap(memory.data(), memory.size());
}

/// The first that is up and will do. False: none does.
bool RdmaDevice::choose_port(const Wanted& wanted) {
  VerbsLimits limits;
  if (const int failure = verbs_->limits(limits))
    throw Error::system(failure, "ask what the RDMA device " + verbs_->name() + " can do");
  for (std::uint32_t number = 1; number <= std::min(limits.ports, 255u); ++number) {
    if (wanted.port && number != wanted.port) continue;
    VerbsPort found;
    if (verbs_->port(static_cast<std::uint8_t>(number), found) != 0 || !found.active) continue;
    port_number_ = static_cast<std::uint8_t>(number);
    port_ = found;
    if (!wanted.address || has_address(*wanted.address)) return true;
  }
  return false;
}

std::optional<VerbsAddressEntry> RdmaDevice::address_at(int index) const {
  VerbsAddressEntry entry;
  const bool there = verbs_->address(port_number_, index, entry) == 0 && !is_zero(entry.address);
  return there ? std::optional(entry) : std::nullopt;
}

/// An address stands in the table once for each version of RoCE.
bool RdmaDevice::has_address(const VerbsAddress& address) {
  int best = -1;
  for (int i = 0; i < port_.addresses; ++i) {
    const auto entry = address_at(i);
    if (!entry || entry->address != address || rank_of(*entry) <= best) continue;
    best = rank_of(*entry);
    address_ = *entry;
    address_index_ = i;
  }
  return best >= 0;
}

void RdmaDevice::choose_address() {
  const bool any = options_.address_index < 0;
  int best = -1;
  for (int i = any ? 0 : options_.address_index;
       i < (any ? port_.addresses : options_.address_index + 1); ++i) {
    const auto entry = address_at(i);
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
  emulated_ = limits.emulated;
  shared_receives_ = std::min(options_.shared_pieces, limits.shared_receives);
  requests_ =
      std::min({options_.pieces + words, limits.queue_entries, limits.completion_entries / 2});
  if (requests_ < 8 + words)
    throw Error(Errc::unsupported, "use RDMA",
                verbs_->name() + " has queues of " + std::to_string(limits.queue_entries) +
                    " requests and " + std::to_string(limits.completion_entries) + " completions");
}

std::string RdmaDevice::to_string() const {
  return verbs_->name() + " port " + std::to_string(port_number_) + ", address " +
         text_of(address_.address) + (emulated_ ? ", emulated in software" : "");
}

/// With the lock held, or before anybody else has the device.
void RdmaDevice::add_region() {
  const std::size_t taken = registered_ + landing_bytes_;
  const std::size_t left = options_.pool_bytes - std::min(options_.pool_bytes, taken);
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
  std::byte* const at = map(size);
  if (!at) throw Error::system(errno, tried, "there is no memory to map");
  Region region{{at, size}, nullptr};
  int failure = 0;
  region.registration = verbs_->register_memory(region.memory, false, failure);
  if (!region.registration) {
    ::munmap(at, size);
    throw not_registered(tried, failure);
  }
  for (std::size_t i = 0; i < count; ++i)
    free_.push_back({region.memory.subspan(i * slot, slot), region.registration->key()});
  registered_ += size;
  slots_ += count;
  free_.reserve(slots_);
  regions_.push_back(std::move(region));
}

// A device that says that it has them, and makes none, is one without.
std::shared_ptr<RdmaReceives> RdmaDevice::receives(unsigned shard) {
  const std::scoped_lock lock(receives_mutex_);
  if (shared_receives_ < requests_) return nullptr;
  std::weak_ptr<RdmaReceives>& known = receives_[shard];
  if (auto receives = known.lock()) return receives;
  try {
    auto receives = std::make_shared<RdmaReceives>(shared_from_this());
    known = receives;
    return receives;
  } catch (const Error& error) {
    log::info(std::string("each RDMA link has receives of its own: ") + error.what());
    shared_receives_ = 0;
    return nullptr;
  }
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

// ---- Landings

/// Three quarters of the pool, at most, so that links find memory for their pieces. What is free
/// goes first, whatever its size.
std::span<std::byte> RdmaDevice::take_landing() {
  const std::scoped_lock lock(mutex_);
  if (options_.landing_bytes == 0) return {};
  if (!free_landings_.empty()) {
    const std::span<std::byte> memory = free_landings_.back();
    free_landings_.pop_back();
    ++landings_out_;
    return memory;
  }
  const auto left = [](std::size_t most, std::size_t taken) {
    return most - std::min(most, taken);
  };
  std::size_t size =
      std::min({options_.landing_bytes, left(options_.pool_bytes / 4 * 3, landing_bytes_),
                left(options_.pool_bytes, registered_ + landing_bytes_)});
  size -= size % least_landing;
  if (size == 0) return {};
  std::byte* const at = map(size);
  if (!at) return {};
  free_landings_.reserve(++landings_out_ + free_landings_.size());
  landing_bytes_ += size;
  return {at, size};
}

std::shared_ptr<RdmaDevice::Landing> RdmaDevice::land() {
  const std::span<std::byte> memory = take_landing();
  if (memory.empty()) return nullptr;
  int failure = 0;
  auto registration = verbs_->register_memory(memory, true, failure);
  if (registration)
    return std::make_shared<Landing>(shared_from_this(), memory, std::move(registration));
  give_back_landing(memory);
  throw not_registered(
      "register " + std::to_string(memory.size()) + " bytes of memory with " + verbs_->name(),
      failure);
}

RdmaDevice::Landing::~Landing() {
  close();
  device_->give_back_landing(bytes_);
}

// There was room for it when it was mapped.
void RdmaDevice::give_back_landing(std::span<std::byte> memory) noexcept {
  const std::scoped_lock lock(mutex_);
  free_landings_.push_back(memory);
  --landings_out_;
}

std::size_t RdmaDevice::landings() const {
  const std::scoped_lock lock(mutex_);
  return landings_out_;
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
