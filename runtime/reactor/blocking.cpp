#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <hyperframes/runtime/offload.hpp>
#include <hyperframes/runtime/reactor/blocking.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/shard.hpp>

namespace hyperframes::detail {
namespace {

std::int64_t result_of(int returned) noexcept { return returned < 0 ? -errno : returned; }

std::int64_t sync_directory(const std::string& path) noexcept {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return -errno;
  const auto result = result_of(::fsync(descriptor));
  ::close(descriptor);
  return result;
}

std::int64_t size_of_file(int descriptor) noexcept {
  struct stat status;
  return ::fstat(descriptor, &status) < 0 ? -errno : status.st_size;
}

std::int64_t write_file(Operation& operation) noexcept {
  std::array<iovec, 64> vectors;
  int count = 0;
  for (const Buffer& buffer : operation.memory) {
    if (count == static_cast<int>(vectors.size())) break;
    vectors[static_cast<std::size_t>(count++)] = {buffer.data(), buffer.size()};
  }
  const auto written =
      ::pwritev(operation.descriptor, vectors.data(), count, static_cast<off_t>(operation.offset));
  return written < 0 ? -errno : written;
}

std::int64_t read_file(Operation& operation) noexcept {
  const Buffer& into = operation.memory[0];
  const auto got =
      ::pread(operation.descriptor, into.data(), into.size(), static_cast<off_t>(operation.offset));
  return got < 0 ? -errno : got;
}

std::int64_t make_directory(const std::string& path) {
  std::error_code failure;
  std::filesystem::create_directories(path, failure);
  return -failure.value();
}

std::int64_t list_directory(Operation& operation) {
  std::error_code failure;
  std::filesystem::directory_iterator at(operation.path, failure), end;
  for (; !failure && at != end; at.increment(failure))
    operation.names.push_back(at->path().filename().string());
  std::ranges::sort(operation.names);
  return -failure.value();
}

// getaddrinfo has its own error numbers; "no such host" is the one that users meet.
std::int64_t resolve(Operation& operation) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int failure = ::getaddrinfo(operation.path.c_str(), nullptr, &hints, &found))
    return failure == EAI_SYSTEM ? -errno : failure == EAI_AGAIN ? -EAGAIN : -ENXIO;
  for (addrinfo* at = found; at; at = at->ai_next) {
    const auto port = operation.address.port();
    if (at->ai_family == AF_INET) {
      std::array<std::uint8_t, 4> bytes;
      std::memcpy(bytes.data(), &reinterpret_cast<sockaddr_in*>(at->ai_addr)->sin_addr, 4);
      operation.addresses.push_back(Address::v4(bytes, port));
    } else if (at->ai_family == AF_INET6) {
      std::array<std::uint8_t, 16> bytes;
      std::memcpy(bytes.data(), &reinterpret_cast<sockaddr_in6*>(at->ai_addr)->sin6_addr, 16);
      operation.addresses.push_back(Address::v6(bytes, port));
    }
  }
  ::freeaddrinfo(found);
  return static_cast<std::int64_t>(operation.addresses.size());
}

/// Works on a duplicate of the operation's descriptor, if it has one: whoever started it may be
/// gone and have closed its own, whose number another file may have got meanwhile.
struct BlockingCall final : OffloadJob {
  BlockingCall(Operation* operation, Shard& shard, std::size_t& in_flight) noexcept
      : OffloadJob(&BlockingCall::execute),
        operation(operation),
        shard(shard),
        gate(shard.runtime().offload_gate()),
        in_flight(in_flight) {
    if (operation->descriptor < 0) return;
    operation->descriptor = ::fcntl(operation->descriptor, F_DUPFD_CLOEXEC, 0);
    if (operation->descriptor < 0) result = -errno;
  }
  std::string description() const override {
    const std::string name = name_of(operation->kind);
    return operation->path.empty() ? name : name + " '" + operation->path + "'";
  }
  static void execute(Work* work) noexcept {
    auto* call = static_cast<BlockingCall*>(work);
    if (call->result == 0) call->result = run_blocking(*call->operation);
    if (call->operation->descriptor >= 0) ::close(call->operation->descriptor);
    call->run = &BlockingCall::arrive;
    const auto gate = call->gate;
    gate->bring_back(call, call->shard);
  }
  static void arrive(Work* work) noexcept {
    std::unique_ptr<BlockingCall> call(static_cast<BlockingCall*>(work));
    --call->in_flight;
    finish_operation(call->operation, call->result, call->shard.reactor());
  }
  Operation* operation;
  Shard& shard;
  std::shared_ptr<OffloadGate> gate;
  std::size_t& in_flight;
  std::int64_t result = 0;
};

}  // namespace

bool is_blocking(Operation::Kind kind) noexcept {
  using enum Operation::Kind;
  return kind == sync_directory || kind == truncate || kind == size || kind == rename ||
         kind == remove || kind == make_directory || kind == list_directory || kind == resolve;
}

bool is_of_file(Operation::Kind kind) noexcept {
  using enum Operation::Kind;
  return kind == open || kind == read || kind == write || kind == sync;
}

std::int64_t run_blocking(Operation& operation) noexcept try {
  switch (operation.kind) {
    case Operation::Kind::open:
      return result_of(::open(operation.path.c_str(), operation.flags | O_CLOEXEC, 0644));
    case Operation::Kind::read: return read_file(operation);
    case Operation::Kind::write: return write_file(operation);
    case Operation::Kind::sync: return result_of(::fdatasync(operation.descriptor));
    case Operation::Kind::sync_directory: return sync_directory(operation.path);
    case Operation::Kind::truncate:
      return result_of(::ftruncate(operation.descriptor, static_cast<off_t>(operation.offset)));
    case Operation::Kind::size: return size_of_file(operation.descriptor);
    case Operation::Kind::rename:
      return result_of(::rename(operation.path.c_str(), operation.second_path.c_str()));
    case Operation::Kind::remove: return result_of(std::remove(operation.path.c_str()));
    case Operation::Kind::make_directory: return make_directory(operation.path);
    case Operation::Kind::list_directory: return list_directory(operation);
    case Operation::Kind::resolve: return resolve(operation);
    default: return -EINVAL;
  }
} catch (const std::exception&) {
  return -ENOMEM;
}

void start_blocking(Operation* operation, std::size_t& in_flight) noexcept {
  Shard& shard = *Shard::current();
  shard.offload().execute(new BlockingCall(operation, shard, in_flight));
}

void finish_operation(Operation* operation, std::int64_t result, Reactor& reactor) noexcept {
  if (operation->owner) {
    operation->owner->on_complete(*operation, result, false);
  } else if (result >= 0 && brings_descriptor(operation->kind)) {
    reactor.close_now(static_cast<int>(result));
  }
  Operation::destroy(operation);
}

}  // namespace hyperframes::detail
