// The other end of a connection as a plain blocking socket: what says anything, or nothing.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <hyperframes/net/endpoint.hpp>
#include <hyperframes/net/handshake.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace net_test {

class RawPeer {
 public:
  explicit RawPeer(const hf::net::Endpoint& endpoint) {
    descriptor_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(endpoint.port);
    ::inet_pton(AF_INET, endpoint.host.c_str(), &address.sin_addr);
    if (::connect(descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error(std::string("connect: ") + std::strerror(errno));
    limit_waits();
  }
  /// Takes over a connected descriptor.
  explicit RawPeer(int descriptor) : descriptor_(descriptor) { limit_waits(); }
  RawPeer(RawPeer&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  ~RawPeer() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  bool send(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
    return true;
  }
  bool send(const hf::Buffer& buffer) { return send(buffer.bytes()); }

  /// Fewer bytes than asked for: the other side closed.
  std::vector<std::byte> receive(std::size_t size) {
    std::vector<std::byte> bytes(size);
    std::size_t have = 0;
    while (have < size) {
      const auto got = ::recv(descriptor_, bytes.data() + have, size - have, 0);
      if (got <= 0) break;
      have += static_cast<std::size_t>(got);
    }
    bytes.resize(have);
    return bytes;
  }

  struct Frame {
    hf::net::FrameHeader header;
    std::vector<std::byte> payload;
  };
  /// The next frame; throws if there is none.
  Frame receive_frame() {
    const auto bytes = receive(hf::net::FrameHeader::size);
    if (bytes.size() != hf::net::FrameHeader::size) throw std::runtime_error("closed");
    Frame frame;
    if (decode(std::span<const std::byte, 64>(bytes.data(), 64), hf::net::FrameLimits(),
               frame.header) != hf::net::FrameFault::none)
      throw std::runtime_error("bad frame");
    frame.payload = receive(frame.header.length);
    return frame;
  }
  /// Reads until the other side closes or resets. False: it still had the connection after 30 s.
  bool is_closed() {
    std::byte bytes[4096];
    while (true) {
      const auto got = ::recv(descriptor_, bytes, sizeof bytes, 0);
      if (got == 0) return true;
      if (got < 0) return errno != EAGAIN && errno != EWOULDBLOCK;
    }
  }

  /// Shakes hands as a node would, without a key. Throws if it is not welcome.
  hf::net::Challenge enter(std::uint64_t node_id, std::uint64_t incarnation = 1) {
    hf::net::Challenge challenge;
    enter(hello(node_id, incarnation), &challenge);
    return challenge;
  }
  hf::net::Welcome enter(const hf::net::Hello& hello, hf::net::Challenge* challenge = nullptr) {
    const Frame answer = answer_to(hello, challenge);
    if (answer.header.kind != hf::net::FrameKind::welcome) throw std::runtime_error("not welcome");
    return hf::net::decode_welcome(answer.payload).value();
  }
  /// What it gets instead of a welcome.
  hf::net::Reject refused(const hf::net::Hello& hello) {
    const Frame answer = answer_to(hello, nullptr);
    if (answer.header.kind != hf::net::FrameKind::reject) throw std::runtime_error("not refused");
    return hf::net::decode_reject(answer.payload).value();
  }
  /// The accepting side of it.
  hf::net::Hello let_in(hf::net::Challenge challenge,
                        std::optional<std::uint64_t> delivered = std::nullopt) {
    const auto hello = hf::net::decode_hello(receive_frame().payload).value();
    send(encode(challenge));
    if (receive_frame().header.kind == hf::net::FrameKind::proof)
      send(encode(hf::net::Welcome{hello.session, hello.link_index, delivered}));
    return hello;
  }
  /// Closes with a reset.
  void reset() {
    const linger now{1, 0};
    ::setsockopt(descriptor_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    ::close(std::exchange(descriptor_, -1));
  }
  static hf::net::Hello hello(std::uint64_t node_id, std::uint64_t incarnation = 1) {
    hf::net::Hello hello;
    hello.node.node_id = node_id;
    hello.node.incarnation = incarnation;
    hello.node.boot_id = "raw";
    hello.node.max_message_bytes = 1 << 20;
    hello.node.max_fragment_bytes = 256 << 10;
    hello.session = 1;
    return hello;
  }
  int descriptor() const noexcept { return descriptor_; }

 private:
  Frame answer_to(const hf::net::Hello& hello, hf::net::Challenge* challenge) {
    send(encode(hello));
    const auto told = hf::net::decode_challenge(receive_frame().payload).value();
    if (challenge) *challenge = told;
    send(encode(hf::net::Proof{}));
    return receive_frame();
  }
  // A test that would hang fails instead.
  void limit_waits() {
    timeval limit{30, 0};
    ::setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  int descriptor_ = -1;
};

/// Listens as a plain blocking socket.
class RawListener {
 public:
  RawListener() {
    descriptor_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (::bind(descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(descriptor_, 16) != 0 ||
        ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &length) != 0)
      throw std::runtime_error(std::string("listen: ") + std::strerror(errno));
    port_ = ntohs(address.sin_port);
  }
  RawListener(const RawListener&) = delete;
  ~RawListener() { ::close(descriptor_); }
  hf::net::Endpoint endpoint() const { return {hf::net::Scheme::tcp, "127.0.0.1", port_}; }
  RawPeer accept() { return RawPeer(::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC)); }
  int descriptor() const noexcept { return descriptor_; }

 private:
  int descriptor_ = -1;
  std::uint16_t port_ = 0;
};

inline std::vector<std::byte> encoded(const hf::net::FrameHeader& header) {
  std::vector<std::byte> bytes(hf::net::FrameHeader::size);
  header.encode(bytes.data());
  return bytes;
}

}  // namespace net_test
