#include <hyperframes/net/rdma/verbs.hpp>

#include <dlfcn.h>
#include <endian.h>
#include <fcntl.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <hyperframes/runtime/error.hpp>
#include <mutex>
#include <utility>

// Macros of the same name would call what is linked.
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

namespace hyperframes::net::detail {
namespace {

// Looked up by name. What is called as ::ibv_... below is inline, and calls the device's own table.
#define HYPERFRAMES_VERBS(X)  \
  X(ibv_fork_init)            \
  X(ibv_get_device_list)      \
  X(ibv_free_device_list)     \
  X(ibv_get_device_name)      \
  X(ibv_open_device)          \
  X(ibv_close_device)         \
  X(ibv_query_device)         \
  X(ibv_query_port)           \
  X(ibv_query_gid)            \
  X(ibv_alloc_pd)             \
  X(ibv_dealloc_pd)           \
  X(ibv_reg_mr)               \
  X(ibv_dereg_mr)             \
  X(ibv_create_comp_channel)  \
  X(ibv_destroy_comp_channel) \
  X(ibv_create_cq)            \
  X(ibv_destroy_cq)           \
  X(ibv_get_cq_event)         \
  X(ibv_ack_cq_events)        \
  X(ibv_create_qp)            \
  X(ibv_modify_qp)            \
  X(ibv_destroy_qp)           \
  X(ibv_create_srq)           \
  X(ibv_destroy_srq)          \
  X(ibv_wc_status_str)

/// The library's functions, looked up once.
struct Functions {
#define HYPERFRAMES_DECLARE(function) decltype(&::function) function = nullptr;
  HYPERFRAMES_VERBS(HYPERFRAMES_DECLARE)
#undef HYPERFRAMES_DECLARE
  // Null in old releases.
  decltype(&::_ibv_query_gid_ex) query_gid_ex = nullptr;
  ibv_mr* (*reg_dmabuf_mr)(ibv_pd*, std::uint64_t offset, std::size_t bytes, std::uint64_t address,
                           int descriptor, int access) = nullptr;

  Functions() {
    const std::string tried = "use RDMA";
    void* const library = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      const char* const why = ::dlerror();
      throw Error(Errc::unsupported, tried, why ? why : "libibverbs.so.1 was not found",
                  "install libibverbs1 and ibverbs-providers");
    }
    const auto find = [&]<class Function>(Function& into, const char* name) {
      into = reinterpret_cast<Function>(::dlsym(library, name));
      if (!into)
        throw Error(Errc::unsupported, tried, std::string("libibverbs has no ") + name,
                    "install a newer libibverbs1");
    };
#define HYPERFRAMES_FIND(function) find(function, #function);
    HYPERFRAMES_VERBS(HYPERFRAMES_FIND)
#undef HYPERFRAMES_FIND
    query_gid_ex = reinterpret_cast<decltype(query_gid_ex)>(::dlsym(library, "_ibv_query_gid_ex"));
    reg_dmabuf_mr =
        reinterpret_cast<decltype(reg_dmabuf_mr)>(::dlsym(library, "ibv_reg_dmabuf_mr"));
    // A child that writes to a page which the device has must not take it away from its parent.
    ibv_fork_init();
  }
};

// Vendors of what Linux itself emulates.
constexpr std::uint32_t soft_roce = 0xffffff, soft_iwarp = 0x626d74;

std::uint32_t bytes_of(ibv_mtu mtu) noexcept { return 128u << static_cast<unsigned>(mtu); }
ibv_mtu mtu_of(std::uint32_t bytes) noexcept {
  return static_cast<ibv_mtu>(std::bit_width(bytes / 128) - 1);
}

VerbsStatus status_of(ibv_wc_status status) noexcept {
  switch (status) {
    case IBV_WC_SUCCESS: return VerbsStatus::success;
    case IBV_WC_WR_FLUSH_ERR: return VerbsStatus::flushed;
    case IBV_WC_RETRY_EXC_ERR: return VerbsStatus::retries_exceeded;
    case IBV_WC_RNR_RETRY_EXC_ERR: return VerbsStatus::receiver_not_ready;
    default: return VerbsStatus::other;
  }
}

/// An open device and its protection domain.
struct Opened {
  Opened(const Functions& functions, ibv_context* context) noexcept
      : functions(functions), context(context) {}
  ~Opened() {
    if (domain) functions.ibv_dealloc_pd(domain);
    functions.ibv_close_device(context);
  }
  Opened(const Opened&) = delete;

  const Functions& functions;
  ibv_context* context;
  ibv_pd* domain = nullptr;
};

class Memory final : public VerbsMemory {
 public:
  Memory(std::shared_ptr<Opened> opened, ibv_mr* region) noexcept
      : opened_(std::move(opened)), region_(region) {}
  ~Memory() override { opened_->functions.ibv_dereg_mr(region_); }
  std::uint32_t key() const noexcept override { return region_->lkey; }
  std::uint32_t remote_key() const noexcept override { return region_->rkey; }

 private:
  std::shared_ptr<Opened> opened_;
  ibv_mr* region_;
};

class Completions final : public VerbsCompletions {
 public:
  Completions(std::shared_ptr<Opened> opened, ibv_comp_channel* channel, ibv_cq* queue) noexcept
      : opened_(std::move(opened)), channel_(channel), queue_(queue) {}
  ~Completions() override {
    take_events();  // the library waits for each one that it has told of
    opened_->functions.ibv_destroy_cq(queue_);
    opened_->functions.ibv_destroy_comp_channel(channel_);
  }
  ibv_cq* queue() const noexcept { return queue_; }
  int descriptor() const noexcept override { return channel_->fd; }

  int poll(std::span<VerbsCompletion> into) noexcept override {
    ibv_wc some[16];
    const auto most = static_cast<int>(std::min(into.size(), std::size(some)));
    const int count = ::ibv_poll_cq(queue_, most, some);
    for (int i = 0; i < count; ++i) {
      const ibv_wc& from = some[i];
      VerbsCompletion& to = into[static_cast<std::size_t>(i)];
      to = {};
      to.id = from.wr_id;
      to.status = status_of(from.status);
      if (from.status == IBV_WC_SUCCESS) {
        to.bytes = from.byte_len;
        to.immediate = from.wc_flags & IBV_WC_WITH_IMM ? be32toh(from.imm_data) : 0;
        to.written = from.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
      } else {
        to.text = opened_->functions.ibv_wc_status_str(from.status);
      }
    }
    return count < 0 ? -EIO : count;
  }

  int arm() noexcept override { return ::ibv_req_notify_cq(queue_, 0); }

  void take_events() noexcept override {
    unsigned count = 0;
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    while (opened_->functions.ibv_get_cq_event(channel_, &queue, &context) == 0) ++count;
    if (count) opened_->functions.ibv_ack_cq_events(queue_, count);
  }

 private:
  std::shared_ptr<Opened> opened_;
  ibv_comp_channel* channel_;
  ibv_cq* queue_;
};

class Receives final : public VerbsReceives {
 public:
  Receives(std::shared_ptr<Opened> opened, ibv_srq* queue) noexcept
      : opened_(std::move(opened)), queue_(queue) {}
  ~Receives() override { opened_->functions.ibv_destroy_srq(queue_); }
  ibv_srq* queue() const noexcept { return queue_; }

  int post(std::uint64_t id, std::span<std::byte> into, std::uint32_t key) noexcept override {
    ibv_sge piece{reinterpret_cast<std::uint64_t>(into.data()),
                  static_cast<std::uint32_t>(into.size()), key};
    ibv_recv_wr request{};
    request.wr_id = id;
    request.sg_list = &piece;
    request.num_sge = 1;
    ibv_recv_wr* refused = nullptr;
    return ::ibv_post_srq_recv(queue_, &request, &refused);
  }

 private:
  std::shared_ptr<Opened> opened_;
  ibv_srq* queue_;
};

class Pair final : public VerbsPair {
 public:
  Pair(std::shared_ptr<Opened> opened, std::shared_ptr<VerbsCompletions> completions,
       std::shared_ptr<VerbsReceives> shared, ibv_qp* pair, std::uint32_t inline_bytes) noexcept
      : opened_(std::move(opened)),
        completions_(std::move(completions)),
        shared_(std::move(shared)),
        pair_(pair),
        inline_bytes_(inline_bytes) {}
  ~Pair() override { opened_->functions.ibv_destroy_qp(pair_); }

  std::uint32_t number() const noexcept override { return pair_->qp_num; }
  std::uint32_t inline_bytes() const noexcept override { return inline_bytes_; }

  int initialize(std::uint8_t port) noexcept override {
    ibv_qp_attr wanted{};
    wanted.qp_state = IBV_QPS_INIT;
    wanted.pkey_index = 0;
    wanted.port_num = port;
    // Only into what is posted, and what is registered for it: nobody reads here.
    wanted.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    return modify(wanted, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  }

  int connect(const VerbsPath& path) noexcept override {
    const int failure = begin_to_receive(path);
    return failure ? failure : begin_to_send(path);
  }

  int fail() noexcept override {
    ibv_qp_attr wanted{};
    wanted.qp_state = IBV_QPS_ERR;
    return modify(wanted, IBV_QP_STATE);
  }

  int post_send(const Send& send) noexcept override {
    ibv_sge piece{reinterpret_cast<std::uint64_t>(send.bytes.data()),
                  static_cast<std::uint32_t>(send.bytes.size()), send.key};
    ibv_send_wr request{};
    request.wr_id = send.id;
    request.sg_list = &piece;
    request.num_sge = send.bytes.empty() ? 0 : 1;
    request.opcode = send.into ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND_WITH_IMM;
    if (send.into) {
      request.wr.rdma.remote_addr = send.into->address;
      request.wr.rdma.rkey = send.into->key;
    }
    request.send_flags = static_cast<unsigned>((send.signalled ? IBV_SEND_SIGNALED : 0) |
                                               (send.inlined ? IBV_SEND_INLINE : 0));
    request.imm_data = htobe32(send.immediate);
    ibv_send_wr* refused = nullptr;
    return ::ibv_post_send(pair_, &request, &refused);
  }

  int post_receive(std::uint64_t id, std::span<std::byte> into,
                   std::uint32_t key) noexcept override {
    ibv_sge piece{reinterpret_cast<std::uint64_t>(into.data()),
                  static_cast<std::uint32_t>(into.size()), key};
    ibv_recv_wr request{};
    request.wr_id = id;
    request.sg_list = &piece;
    request.num_sge = 1;
    ibv_recv_wr* refused = nullptr;
    return ::ibv_post_recv(pair_, &request, &refused);
  }

 private:
  int modify(ibv_qp_attr& wanted, int which) noexcept {
    return opened_->functions.ibv_modify_qp(pair_, &wanted, which);
  }

  int begin_to_receive(const VerbsPath& path) noexcept {
    ibv_qp_attr wanted{};
    wanted.qp_state = IBV_QPS_RTR;
    wanted.path_mtu = mtu_of(path.packet_bytes);
    wanted.dest_qp_num = path.peer_pair;
    wanted.rq_psn = path.peer_sequence;
    wanted.max_dest_rd_atomic = 0;
    wanted.min_rnr_timer = 12;  // 0.64 ms
    ibv_ah_attr& to = wanted.ah_attr;
    to.dlid = path.peer_lid;
    to.port_num = path.port;
    to.is_global = path.layer == VerbsLayer::ethernet;
    if (to.is_global) {
      std::memcpy(to.grh.dgid.raw, path.peer_address.data(), path.peer_address.size());
      to.grh.sgid_index = static_cast<std::uint8_t>(path.address_index);
      to.grh.hop_limit = 64;
    }
    return modify(wanted, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  }

  int begin_to_send(const VerbsPath& path) noexcept {
    ibv_qp_attr wanted{};
    wanted.qp_state = IBV_QPS_RTS;
    wanted.timeout = path.timeout;
    wanted.retry_cnt = path.retries;
    wanted.rnr_retry = path.receive_retries;
    wanted.sq_psn = path.own_sequence;
    wanted.max_rd_atomic = 0;
    return modify(wanted, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  }

  std::shared_ptr<Opened> opened_;
  std::shared_ptr<VerbsCompletions> completions_;
  std::shared_ptr<VerbsReceives> shared_;
  ibv_qp* pair_;
  std::uint32_t inline_bytes_;
};

class Device final : public VerbsDevice {
 public:
  Device(std::string name, std::shared_ptr<Opened> opened)
      : name_(std::move(name)), opened_(std::move(opened)) {}
  const std::string& name() const noexcept override { return name_; }

  int limits(VerbsLimits& into) noexcept override {
    ibv_device_attr found{};
    if (const int failure = functions().ibv_query_device(opened_->context, &found)) return failure;
    into.ports = found.phys_port_cnt;
    into.queue_entries = static_cast<std::uint32_t>(found.max_qp_wr);
    into.completion_entries = static_cast<std::uint32_t>(found.max_cqe);
    into.shared_receives = found.max_srq > 0 ? static_cast<std::uint32_t>(found.max_srq_wr) : 0;
    into.emulated = found.vendor_id == soft_roce || found.vendor_id == soft_iwarp;
    return 0;
  }

  // Old libraries fill in less than the whole, so the rest is zero before.
  int port(std::uint8_t number, VerbsPort& into) noexcept override {
    ibv_port_attr found{};
    auto* const short_one = reinterpret_cast<_compat_ibv_port_attr*>(&found);
    if (const int failure = functions().ibv_query_port(opened_->context, number, short_one))
      return failure;
    into.active = found.state == IBV_PORT_ACTIVE;
    into.layer =
        found.link_layer == IBV_LINK_LAYER_ETHERNET ? VerbsLayer::ethernet : VerbsLayer::infiniband;
    into.lid = found.lid;
    into.packet_bytes = bytes_of(found.active_mtu);
    into.message_bytes = found.max_msg_sz;
    into.addresses = found.gid_tbl_len;
    return 0;
  }

  int address(std::uint8_t port, int index, VerbsAddressEntry& into) noexcept override {
    using Kind = VerbsAddressEntry::Kind;
    if (functions().query_gid_ex) {
      ibv_gid_entry found{};
      if (const int failure = functions().query_gid_ex(
              opened_->context, port, static_cast<std::uint32_t>(index), &found, 0, sizeof found))
        return failure;
      std::memcpy(into.address.data(), found.gid.raw, into.address.size());
      into.kind = found.gid_type == IBV_GID_TYPE_IB        ? Kind::infiniband
                  : found.gid_type == IBV_GID_TYPE_ROCE_V1 ? Kind::roce_1
                                                           : Kind::roce_2;
      return 0;
    }
    ibv_gid found{};
    if (functions().ibv_query_gid(opened_->context, port, index, &found)) return EIO;
    std::memcpy(into.address.data(), found.raw, into.address.size());
    into.kind = Kind::roce_2;
    return 0;
  }

  std::unique_ptr<VerbsMemory> register_memory(std::span<std::byte> memory, bool writable,
                                               int& failure) noexcept override {
    return registered(
        functions().ibv_reg_mr(opened_->domain, memory.data(), memory.size(), access_for(writable)),
        failure);
  }

  // EPROTONOSUPPORT: the kernel does not know the call.
  std::unique_ptr<VerbsMemory> register_shared(const VerbsShared& memory, bool writable,
                                               int& failure) noexcept override {
    failure = EOPNOTSUPP;
    if (!functions().reg_dmabuf_mr) return nullptr;
    auto made = registered(
        functions().reg_dmabuf_mr(opened_->domain, memory.offset, memory.bytes, memory.address,
                                  memory.descriptor, access_for(writable)),
        failure);
    if (failure == EPROTONOSUPPORT) failure = EOPNOTSUPP;
    return made;
  }

  std::shared_ptr<VerbsCompletions> make_completions(std::uint32_t entries,
                                                     int& failure) noexcept override {
    ibv_comp_channel* const channel = functions().ibv_create_comp_channel(opened_->context);
    failure = channel ? 0 : errno;
    if (!channel) return nullptr;
    ::fcntl(channel->fd, F_SETFL, ::fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
    ibv_cq* const queue =
        functions().ibv_create_cq(opened_->context, static_cast<int>(entries), nullptr, channel, 0);
    if (queue) return std::make_shared<Completions>(opened_, channel, queue);
    failure = errno;
    functions().ibv_destroy_comp_channel(channel);
    return nullptr;
  }

  std::shared_ptr<VerbsReceives> make_receives(std::uint32_t entries,
                                               int& failure) noexcept override {
    ibv_srq_init_attr attributes{};
    attributes.attr.max_wr = entries;
    attributes.attr.max_sge = 1;
    ibv_srq* const queue = functions().ibv_create_srq(opened_->domain, &attributes);
    failure = queue ? 0 : errno;
    if (!queue) return nullptr;
    return std::make_shared<Receives>(opened_, queue);
  }

  std::unique_ptr<VerbsPair> make_pair(std::shared_ptr<VerbsCompletions> completions,
                                       const VerbsPairSettings& settings,
                                       int& failure) noexcept override {
    ibv_cq* const queue = static_cast<Completions&>(*completions).queue();
    // A device that has less room for bytes inline than was wanted refuses.
    for (std::uint32_t wanted = settings.inline_bytes;; wanted /= 2) {
      ibv_qp_init_attr attributes{};
      attributes.send_cq = attributes.recv_cq = queue;
      attributes.qp_type = IBV_QPT_RC;
      attributes.cap = {settings.sends, settings.shared ? 0 : settings.receives, 1, 1, wanted};
      if (settings.shared) attributes.srq = static_cast<Receives&>(*settings.shared).queue();
      ibv_qp* const pair = functions().ibv_create_qp(opened_->domain, &attributes);
      failure = pair ? 0 : errno;
      if (pair)
        return std::make_unique<Pair>(opened_, std::move(completions), settings.shared, pair,
                                      attributes.cap.max_inline_data);
      if (failure != EINVAL || wanted == 0) return nullptr;
    }
  }

 private:
  const Functions& functions() const noexcept { return opened_->functions; }
  static int access_for(bool writable) noexcept {
    return IBV_ACCESS_LOCAL_WRITE | (writable ? IBV_ACCESS_REMOTE_WRITE : 0);
  }
  std::unique_ptr<VerbsMemory> registered(ibv_mr* region, int& failure) noexcept {
    failure = region ? 0 : errno;
    return region ? std::make_unique<Memory>(opened_, region) : nullptr;
  }
  std::string name_;
  std::shared_ptr<Opened> opened_;
};

class Library final : public VerbsLibrary {
 public:
  std::vector<std::string> devices() override {
    std::vector<std::string> names;
    const List list(functions_);
    for (int i = 0; i < list.count; ++i)
      names.emplace_back(functions_.ibv_get_device_name(list.devices[i]));
    return names;
  }

  std::shared_ptr<VerbsDevice> open(const std::string& name) override {
    const std::string tried = "open the RDMA device " + name;
    const List list(functions_);
    for (int i = 0; i < list.count; ++i) {
      if (functions_.ibv_get_device_name(list.devices[i]) != name) continue;
      ibv_context* const context = functions_.ibv_open_device(list.devices[i]);
      if (!context)
        throw Error::system(errno ? errno : EIO, tried, {},
                            "see whether this user may open /dev/infiniband/uverbs*");
      auto opened = std::make_shared<Opened>(functions_, context);
      opened->domain = functions_.ibv_alloc_pd(context);
      if (!opened->domain) throw Error::system(errno ? errno : EIO, tried);
      return std::make_shared<Device>(name, std::move(opened));
    }
    throw Error(Errc::not_found, tried, "there is no such device on this host",
                "see ibv_devices, or leave the name out");
  }

 private:
  struct List {
    explicit List(const Functions& functions) : functions(functions) {
      devices = functions.ibv_get_device_list(&count);
      // A kernel without the modules says ENOSYS, which is no more than that there is none.
      if (!devices && errno != ENOSYS)
        throw Error::system(errno ? errno : EIO, "list this host's RDMA devices", {},
                            "see /sys/class/infiniband_verbs");
    }
    ~List() {
      if (devices) functions.ibv_free_device_list(devices);
    }
    List(const List&) = delete;
    const Functions& functions;
    int count = 0;
    ibv_device** devices = nullptr;
  };
  Functions functions_;
};

}  // namespace

// Never unloaded: threads may be in it to the end.
VerbsLibrary& system_verbs() {
  static Library& library = *new Library;
  return library;
}

}  // namespace hyperframes::net::detail
