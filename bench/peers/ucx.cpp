#include "ucx.hpp"

#include <fmt/format.h>
#include <ucp/api/ucp.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>

namespace hyperframes::bench::ucx_peer {
namespace {

constexpr ucp_tag_t data_tag = 1, order_tag = 2, done_tag = 3;

/// What the other end is to do next.
struct Order {
  std::uint64_t answers = 0;  ///< 1: sends each message back.
  std::uint64_t size = 0, count = 0;
};

void require(ucs_status_t status, const char* what) {
  if (status != UCS_OK)
    throw std::runtime_error(std::string("UCX could not ") + what + ": " +
                             ::ucs_status_string(status));
}

std::string to_hex(const void* memory, std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i)
    text += fmt::format("{:02x}", static_cast<const unsigned char*>(memory)[i]);
  return text;
}

std::vector<char> from_hex(const std::string& text) {
  std::vector<char> bytes;
  for (std::size_t at = 0; at + 1 < text.size(); at += 2)
    bytes.push_back(static_cast<char>(std::stoi(text.substr(at, 2), nullptr, 16)));
  return bytes;
}

/// How many operations are in flight at a time.
std::size_t window_of(std::size_t size) { return size > 1u << 20 ? 4 : size > 4096 ? 16 : 128; }

class Worker {
 public:
  explicit Worker(const std::string& transports) {
    ucp_config_t* config = nullptr;
    require(::ucp_config_read(nullptr, nullptr, &config), "read its settings");
    require(::ucp_config_modify(config, "TLS", transports.c_str()), "choose transports");
    ucp_params_t parameters{};
    parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
    parameters.features = UCP_FEATURE_TAG;
    const ucs_status_t status = ::ucp_init(&parameters, config, &context_);
    ::ucp_config_release(config);
    require(status, "start");
    ucp_worker_params_t single{};
    single.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    single.thread_mode = UCS_THREAD_MODE_SINGLE;
    require(::ucp_worker_create(context_, &single, &worker_), "make a worker");
  }
  ~Worker() {
    ::ucp_worker_destroy(worker_);
    ::ucp_cleanup(context_);
  }
  Worker(const Worker&) = delete;

  std::string address() const {
    ucp_address_t* address = nullptr;
    std::size_t size = 0;
    require(::ucp_worker_get_address(worker_, &address, &size), "tell its address");
    std::string text = to_hex(address, size);
    ::ucp_worker_release_address(worker_, address);
    return text;
  }
  void connect(const std::string& text) {
    const std::vector<char> address = from_hex(text);
    ucp_ep_params_t parameters{};
    parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    parameters.address = reinterpret_cast<const ucp_address_t*>(address.data());
    require(::ucp_ep_create(worker_, &parameters, &end_), "connect");
  }

  void* begin_send(const void* bytes, std::size_t size, ucp_tag_t tag) {
    const ucp_request_param_t plain{};
    return checked(::ucp_tag_send_nbx(end_, bytes, size, tag, &plain), "send");
  }
  void* begin_receive(void* bytes, std::size_t size, ucp_tag_t tag) {
    const ucp_request_param_t plain{};
    return checked(::ucp_tag_recv_nbx(worker_, bytes, size, tag, ~ucp_tag_t{0}, &plain), "receive");
  }
  void finish(void* request) {
    if (!request) return;
    while (::ucp_request_check_status(request) == UCS_INPROGRESS) ::ucp_worker_progress(worker_);
    const ucs_status_t status = ::ucp_request_check_status(request);
    ::ucp_request_free(request);
    require(status, "finish what it had begun");
  }
  void send(const void* bytes, std::size_t size, ucp_tag_t tag) {
    finish(begin_send(bytes, size, tag));
  }
  void receive(void* bytes, std::size_t size, ucp_tag_t tag) {
    finish(begin_receive(bytes, size, tag));
  }

 private:
  static void* checked(ucs_status_ptr_t request, const char* what) {
    if (UCS_PTR_IS_ERR(request)) require(UCS_PTR_STATUS(request), what);
    return request;
  }
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h end_ = nullptr;
};

class UcxMessenger final : public Messenger {
 public:
  explicit UcxMessenger(const std::string& transport)
      : Messenger({"ucx", transport}), worker_(transport) {
    other_.say(worker_.address());
    worker_.connect(other_.hear());
    round_trips(64, 1);
  }
  void round_trips(std::size_t size, int count) override {
    order({1, size, static_cast<std::uint64_t>(count)});
    std::vector<char> bytes(size, 1), into(size);
    for (int i = 0; i < count; ++i) {
      void* const receiving = worker_.begin_receive(into.data(), size, data_tag);
      worker_.send(bytes.data(), size, data_tag);
      worker_.finish(receiving);
    }
  }
  void stream(std::size_t size, int count) override {
    order({0, size, static_cast<std::uint64_t>(count)});
    std::vector<char> bytes(size, 1);
    std::vector<void*> sending(window_of(size));
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      void*& slot = sending[i % sending.size()];
      worker_.finish(slot);
      slot = worker_.begin_send(bytes.data(), size, data_tag);
    }
    for (void* const request : sending) worker_.finish(request);
    char done = 0;
    worker_.receive(&done, sizeof done, done_tag);
  }

 private:
  void order(Order order) { worker_.send(&order, sizeof order, order_tag); }
  Worker worker_;
};

void answer_all(Worker& worker, const Order& order) {
  std::vector<char> bytes(order.size);
  for (std::uint64_t i = 0; i < order.count; ++i) {
    worker.receive(bytes.data(), bytes.size(), data_tag);
    worker.send(bytes.data(), bytes.size(), data_tag);
  }
}

void take_all(Worker& worker, const Order& order) {
  const std::uint64_t window = std::min<std::uint64_t>(window_of(order.size), order.count);
  std::vector<std::vector<char>> memory(window, std::vector<char>(order.size));
  std::vector<void*> receiving;
  for (auto& bytes : memory)
    receiving.push_back(worker.begin_receive(bytes.data(), bytes.size(), data_tag));
  for (std::uint64_t i = 0; i < order.count; ++i) {
    const std::size_t slot = i % window;
    worker.finish(receiving[slot]);
    receiving[slot] = i + window < order.count
                          ? worker.begin_receive(memory[slot].data(), order.size, data_tag)
                          : nullptr;
  }
  const char done = 1;
  worker.send(&done, sizeof done, done_tag);
}

}  // namespace

std::string version() { return ::ucp_get_version_string(); }

std::unique_ptr<Messenger> make(const std::string& transport) {
  return std::make_unique<UcxMessenger>(transport);
}

void serve(Starter& starter, const std::vector<std::string>& arguments) {
  Worker worker(arguments.at(0));
  const std::string client = starter.hear();
  starter.say(worker.address());
  worker.connect(client);
  starter.attend();
  while (true) {
    Order order;
    worker.receive(&order, sizeof order, order_tag);
    if (order.answers)
      answer_all(worker, order);
    else
      take_all(worker, order);
  }
}

}  // namespace hyperframes::bench::ucx_peer
