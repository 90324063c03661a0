#include <hyperframes/net/shm/setup.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <hyperframes/net/detail/little_endian.hpp>
#include <hyperframes/net/detail/text.hpp>
#include <hyperframes/net/endpoint.hpp>

namespace hyperframes::net::detail {
namespace {

constexpr std::size_t boot_id_at = 32, text_at = 96;
constexpr int backlog = 512;
constexpr std::uint64_t page_bytes = 4096;
// More than an offer may have, so that a surplus is seen.
constexpr std::size_t most_descriptors = 4;

void put_text(std::byte* at, std::string_view text, std::size_t most) noexcept {
  std::memcpy(at, text.data(), std::min(text.size(), most));
}

std::string get_text(const std::byte* at, std::size_t most) {
  const auto* text = reinterpret_cast<const char*>(at);
  return printable(std::string(text, ::strnlen(text, most)));
}

std::string uri_of(const std::string& name) { return "shm://" + name; }

/// An abstract name begins with a zero and has no end mark: its length is in that of the address.
socklen_t address_of(const std::string& name, sockaddr_un& address) {
  check_shm_name(name);
  address = {};
  address.sun_family = AF_UNIX;
  const std::string path = "hyperframes/shm/" + name;
  static_assert(sizeof address.sun_path > 1 + 16 + 64);
  std::memcpy(address.sun_path + 1, path.data(), path.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
}

OwnDescriptor unix_socket(int flags, const std::string& tried) {
  OwnDescriptor made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!made) throw Error::system(errno, tried, {}, "raise the open-files limit (ulimit -n)");
  return made;
}

Error name_taken(const std::string& name, const std::string& tried) {
  std::string found = "a process listens under that name";
  try {
    if (const OwnDescriptor other = try_connect_to(name))
      found = peer_of(other.get()).to_string() + " listens under that name";
  } catch (const Error&) {
    // It has ended this moment.
  }
  return Error::system(EADDRINUSE, tried, found, "stop it, or choose another name");
}

}  // namespace

std::array<std::byte, ShmOffer::size> ShmOffer::encode() const noexcept {
  std::array<std::byte, size> bytes{};
  store_little(bytes.data(), magic);
  store_little(bytes.data() + 8, version);
  store_little(bytes.data() + 12, static_cast<std::uint32_t>(status));
  if (status == Status::offer) {
    store_little(bytes.data() + 16, layout.descriptors);
    store_little(bytes.data() + 20, layout.data_bytes);
    store_little(bytes.data() + 24, arena_bytes);
  }
  put_text(bytes.data() + boot_id_at, boot_id, boot_id_bytes);
  put_text(bytes.data() + text_at, text, text_bytes);
  return bytes;
}

// Magic, version, status and text stand where they stand in every version: so a refusal is
// understood by all.
Result<ShmOffer> decode_offer(std::span<const std::byte> bytes, const std::string& peer) {
  const std::string tried = "exchange memory with " + peer;
  const auto corrupt = [&](std::string found) {
    return Error(Errc::corrupt, tried, std::move(found),
                 "the connection was closed; run the same release on both ends");
  };
  if (bytes.size() != ShmOffer::size)
    return corrupt("its message has " + std::to_string(bytes.size()) + " bytes instead of 256");
  if (load_little<std::uint64_t>(bytes.data()) != ShmOffer::magic)
    return corrupt("its message does not begin as one of this project does");
  ShmOffer offer;
  offer.version = load_little<std::uint32_t>(bytes.data() + 8);
  const auto status = load_little<std::uint32_t>(bytes.data() + 12);
  offer.status = static_cast<ShmOffer::Status>(status);
  offer.layout.descriptors = load_little<std::uint32_t>(bytes.data() + 16);
  offer.layout.data_bytes = load_little<std::uint32_t>(bytes.data() + 20);
  offer.arena_bytes = load_little<std::uint64_t>(bytes.data() + 24);
  offer.boot_id = get_text(bytes.data() + boot_id_at, ShmOffer::boot_id_bytes);
  offer.text = get_text(bytes.data() + text_at, ShmOffer::text_bytes);
  if (offer.refuses()) return offer;
  if (offer.version != ShmOffer::current_version)
    return Error(Errc::version_mismatch, tried,
                 "it lays memory out by version " + std::to_string(offer.version) +
                     ", this process by version " + std::to_string(ShmOffer::current_version),
                 "run the same release on both ends");
  if (offer.status == ShmOffer::Status::go_on) return offer;
  if (offer.status != ShmOffer::Status::offer)
    return corrupt("its message has status " + std::to_string(status));
  if (auto fault = offer.layout.fault(); !fault.empty()) return corrupt(std::move(fault));
  if (offer.arena_bytes % page_bytes || offer.arena_bytes > ShmLayout::most_arena)
    return corrupt("it lends out of " + std::to_string(offer.arena_bytes) +
                   " bytes, which must be whole pages of 4 KiB, up to 256 GiB");
  return offer;
}

const std::string& system_boot_id() {
  static const std::string text = [] {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string line;
    std::getline(file, line);
    return line.substr(0, ShmOffer::boot_id_bytes);
  }();
  return text;
}

// ---- Who is there

std::string ShmPeer::to_string() const {
  return (process ? "process " + std::to_string(process) : "a process of another container") +
         " of user " + std::to_string(user);
}

std::string ShmPeer::objection() const {
  const uid_t own = ::geteuid();
  if (user == own) return {};
  return "that is " + to_string() + ", and this process is one of user " + std::to_string(own);
}

ShmPeer peer_of(int socket) {
  ucred found{};
  socklen_t length = sizeof found;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &found, &length) < 0)
    throw Error::system(errno, "ask who is at the other end of a Unix socket");
  return {found.pid, found.uid};
}

ShmProcess::ShmProcess(pid_t process) noexcept : process_(process) { open(process); }

void ShmProcess::open(pid_t process) noexcept {
  if (is_this_one()) return;
  failure_ = process ? ENOSYS : ENOPROTOOPT;
#ifdef SYS_pidfd_open
  if (!process) return;
  handle_ = OwnDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  failure_ = handle_ ? 0 : errno;
#endif
}

namespace {

bool lacks_descriptors(int failure) noexcept { return failure == EMFILE || failure == ENFILE; }

/// Whether nobody is at the other end any more, whatever is still to be read.
bool has_hung_up(int socket) noexcept {
  pollfd look{socket, POLLRDHUP, 0};
  return ::poll(&look, 1, 0) == 1 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

}  // namespace

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
// Where the kernel has no such option the number has to do: it was that process's if its socket has
// not ended since, and may be another one's by now if it has.
ShmProcess::ShmProcess(int socket, pid_t process) noexcept : process_(process) {
  if (is_this_one()) return;
  int handle = -1;
  socklen_t length = sizeof handle;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &handle, &length) == 0 && handle >= 0) {
    ::fcntl(handle, F_SETFD, FD_CLOEXEC);
    handle_ = OwnDescriptor(handle);
    return;
  }
  const int first_failure = errno;
  open(process);
  if (lacks_descriptors(first_failure)) failure_ = first_failure;
  if (!handle_ || !has_hung_up(socket)) return;
  handle_.reset();
  failure_ = ESRCH;
}

std::string ShmProcess::why_unknown() const {
  if (lacks_descriptors(failure_))
    return "to see when it ends takes a descriptor, and this process may open no more: raise the "
           "open-files limit (ulimit -n)";
  if (failure_ == ESRCH) return "it has ended";
  if (process_ == 0)
    return "it is in another process namespace, and this kernel does not tell when it ends, as "
           "Linux 6.5 does";
  return "the system does not tell when it ends: " +
         std::error_code(failure_, std::generic_category()).message();
}

bool ShmProcess::is_this_one() const noexcept { return process_ == ::getpid(); }

namespace {

/// The number that only a process's own pidfds have; 0: there is none.
std::uint64_t number_behind(int pidfd) noexcept {
  constexpr auto pidfs = 0x50494446;
  struct statfs system{};
  struct stat status{};
  if (pidfd < 0 || ::fstatfs(pidfd, &system) != 0 || system.f_type != pidfs) return 0;
  return ::fstat(pidfd, &status) == 0 ? status.st_ino : 0;
}

}  // namespace

bool ShmProcess::is_same(const ShmProcess& other) const noexcept {
  if (process_ || other.process_) return process_ == other.process_;
  return number_behind(handle_.get()) == number_behind(other.handle_.get());
}

// Readable once it has ended, also if nobody has waited for it yet.
bool ShmProcess::lives() const noexcept {
  if (is_this_one()) return true;
  pollfd look{handle_.get(), POLLIN, 0};
  return handle_ && ::poll(&look, 1, 0) != 1;
}

// ---- Names

void check_shm_name(const std::string& name) {
  const auto parsed = Endpoint::try_parse(uri_of(name));
  if (!parsed) throw parsed.error();
}

OwnDescriptor listen_at(const std::string& name, int flags) {
  const std::string tried = "listen on " + uri_of(name);
  sockaddr_un address;
  const socklen_t length = address_of(name, address);
  OwnDescriptor listener = unix_socket(flags, tried);
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) < 0)
    throw errno == EADDRINUSE ? name_taken(name, tried)
                              : Error::system(errno, tried, "binding a Unix socket failed",
                                              "see whether this process may use Unix sockets");
  if (::listen(listener.get(), backlog) < 0)
    throw Error::system(errno, tried, "listening on a Unix socket failed",
                        "see whether this process may use Unix sockets");
  return listener;
}

// Only the connect itself must not block: the drivers want a socket as it comes.
OwnDescriptor try_connect_to(const std::string& name) {
  const std::string tried = "connect to " + uri_of(name);
  sockaddr_un address;
  const socklen_t length = address_of(name, address);
  OwnDescriptor socket = unix_socket(SOCK_NONBLOCK, tried);
  int result;
  do {
    result = ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length);
  } while (result < 0 && errno == EINTR);
  if (result == 0) {
    ::fcntl(socket.get(), F_SETFL, 0);
    return socket;
  }
  if (errno == EAGAIN) return OwnDescriptor();
  if (errno == ECONNREFUSED)
    throw Error::system(
        errno, tried, "nobody listens under that name on this host, or in this network namespace",
        "start the server; containers must share the network namespace of the host");
  throw Error::system(errno, tried);
}

// ---- Passing

int pass(int socket, std::span<const std::byte> bytes, int descriptor) noexcept {
  iovec vector{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptor)] = {};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  ssize_t sent;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return errno;
  return sent == static_cast<ssize_t>(bytes.size()) ? 0 : EAGAIN;
}

Passed receive_passed(int socket, std::size_t most_bytes) {
  Passed passed;
  passed.bytes.resize(most_bytes);
  iovec vector{passed.bytes.data(), passed.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * most_descriptors)];
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got;
  do {
    got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0)
    throw Error::system(errno, "receive a peer's memory from a Unix socket", {},
                        "see the peer's log");
  for (cmsghdr* at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at)) {
    if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor;
      std::memcpy(&descriptor, CMSG_DATA(at) + i * sizeof descriptor, sizeof descriptor);
      passed.descriptors.emplace_back(descriptor);
    }
  }
  passed.too_many = message.msg_flags & MSG_CTRUNC;
  passed.bytes.resize(static_cast<std::size_t>(got));
  return passed;
}

OwnDescriptor only_descriptor(Passed& passed, const std::string& tried) {
  const std::size_t found = passed.descriptors.size();
  if (found == 1 && !passed.too_many) return std::move(passed.descriptors.front());
  if (found == 0 && passed.too_many)
    throw Error::system(EMFILE, tried, "a descriptor was passed, and the process may open no more",
                        "raise the open-files limit (ulimit -n)");
  throw Error(Errc::corrupt, tried,
              passed.too_many
                  ? "it passed more descriptors than the one of its memory"
                  : "it passed " + std::to_string(found) + " descriptors instead of one",
              "run the same release on both ends");
}

}  // namespace hyperframes::net::detail
