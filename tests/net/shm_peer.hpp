// The other end of shared memory in the hands of a test: it says and writes what it likes.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <hyperframes/net/handshake.hpp>
#include <hyperframes/net/shm/ring.hpp>
#include <hyperframes/net/shm/setup.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "raw_peer.hpp"

namespace net_test {

namespace shm = hf::net::detail;

/// Mappings of shared memory in this process.
inline int mappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("hyperframes-shm") != line.npos;
  return count;
}

/// A connected socket on which nothing was said yet.
class ShmCaller {
 public:
  explicit ShmCaller(const std::string& name) : socket_(shm::try_connect_to(name)) {}
  /// Takes over what a listener has accepted.
  explicit ShmCaller(shm::OwnDescriptor accepted) : socket_(std::move(accepted)) {}
  int socket() const { return socket_.get(); }
  static shm::ShmOffer offer(const shm::ShmLayout& layout = {}) {
    shm::ShmOffer offer;
    offer.layout = layout;
    offer.boot_id = shm::system_boot_id();
    return offer;
  }
  /// Waits until the listener has accepted, which it says. Throws what it says instead.
  void begin() {
    const shm::ShmOffer said = shm::decode_offer(hear().bytes, "the node").value();
    if (said.status != shm::ShmOffer::Status::go_on) throw std::runtime_error(said.text);
  }
  /// What the listener says next; empty if it hangs up.
  shm::Passed hear() {
    if (!wait()) throw std::runtime_error("it said nothing for 30 s");
    try {
      return shm::receive_passed(socket_.get(), shm::ShmOffer::size);
    } catch (const hf::Error&) {
      return {};  // it hung up with something unread
    }
  }
  bool is_closed() {
    char bytes[64];
    while (wait())
      if (::recv(socket_.get(), bytes, sizeof bytes, 0) <= 0) return true;
    return false;
  }
  bool wait() {
    pollfd look{socket_.get(), POLLIN, 0};
    return ::poll(&look, 1, 30'000) == 1;
  }

 private:
  shm::OwnDescriptor socket_;
};

/// One that has exchanged memory as it should.
class ShmRawPeer {
 public:
  /// `arena_bytes`: what it lends from.
  explicit ShmRawPeer(const std::string& name, const shm::ShmLayout& layout = {},
                      std::size_t arena_bytes = 0)
      : caller(name), own(shm::ShmSegment::create(layout, false)) {
    if (arena_bytes) arena = shm::ShmSegment::create(arena_bytes, false, "lend");
    caller.begin();
    shm::ShmOffer offered = ShmCaller::offer(layout);
    offered.arena_bytes = arena_bytes;
    if (shm::pass(caller.socket(), offered.encode(), own.descriptor()) != 0)
      throw std::runtime_error("the offer did not go");
    shm::Passed passed = caller.hear();
    auto offer = shm::decode_offer(passed.bytes, "the node").value();
    if (offer.refuses()) throw std::runtime_error("refused: " + offer.text);
    others =
        shm::ShmSegment::attach(shm::only_descriptor(passed, "attach"), offer.layout, "attach");
    writer.emplace(own.memory(), others.memory(), layout);
    reader.emplace(own.memory(), others.memory(), offer.layout);
  }
  /// The accepting end of it.
  explicit ShmRawPeer(shm::OwnDescriptor accepted)
      : caller(std::move(accepted)), own(shm::ShmSegment::create({}, false)) {
    shm::ShmOffer go_on;
    go_on.status = shm::ShmOffer::Status::go_on;
    shm::pass(caller.socket(), go_on.encode(), -1);
    shm::Passed passed = caller.hear();
    const auto offer = shm::decode_offer(passed.bytes, "the node").value();
    others =
        shm::ShmSegment::attach(shm::only_descriptor(passed, "attach"), offer.layout, "attach");
    shm::pass(caller.socket(), ShmCaller::offer().encode(), own.descriptor());
    writer.emplace(own.memory(), others.memory(), shm::ShmLayout());
    reader.emplace(own.memory(), others.memory(), offer.layout);
  }

  void send(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto room = writer->room(bytes.size());
      if (room.empty()) {
        pause();
        continue;
      }
      std::memcpy(room.data(), bytes.data(), room.size());
      bytes = bytes.subspan(room.size());
      writer->publish(room.size());
      ring_if_due(*writer);
    }
  }
  void send(const hf::Buffer& buffer) { send(buffer.bytes()); }
  std::vector<std::byte> receive(std::size_t size) {
    std::vector<std::byte> bytes;
    while (bytes.size() < size) {
      const auto piece = reader->next();
      if (piece.empty()) {
        pause();
        continue;
      }
      const std::size_t part = std::min(piece.size(), size - bytes.size());
      bytes.insert(bytes.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(part));
      reader->take(part);
      if (reader->publish()) ring_if_due(*reader);
    }
    return bytes;
  }
  RawPeer::Frame receive_frame() {
    RawPeer::Frame frame;
    const auto bytes = receive(hf::net::FrameHeader::size);
    if (decode(std::span<const std::byte, 64>(bytes.data(), 64), hf::net::FrameLimits(),
               frame.header) != hf::net::FrameFault::none)
      throw std::runtime_error("bad frame");
    frame.payload = receive(frame.header.length);
    return frame;
  }
  /// Shakes hands as a node would, without a key. Borrows, and lends if it has something.
  void enter(std::uint64_t node_id) { enter(RawPeer::hello(node_id)); }
  hf::net::Welcome enter(const hf::net::Hello& hello) {
    words().borrows = 1;
    send(encode(hello));
    receive_frame();
    if (arena.memory()) pass(arena.descriptor());
    send(encode(hf::net::Proof{}));
    const RawPeer::Frame answer = receive_frame();
    if (answer.header.kind != hf::net::FrameKind::welcome) throw std::runtime_error("not welcome");
    return hf::net::decode_welcome(answer.payload).value();
  }
  /// The accepting side of a handshake.
  void let_in(const hf::net::Challenge& challenge,
              std::optional<std::uint64_t> delivered = std::nullopt) {
    const auto hello = hf::net::decode_hello(receive_frame().payload).value();
    send(encode(challenge));
    receive_frame();
    send(encode(hf::net::Welcome{hello.session, hello.link_index, delivered}));
  }
  /// A frame without payload, or whose payload follows by other means.
  void say(hf::net::FrameHeader header) {
    if (hf::net::is_sequenced(header.kind)) header.sequence = ++said_;
    std::vector<std::byte> bytes(hf::net::FrameHeader::size);
    header.encode(bytes.data());
    send(bytes);
  }
  /// Windows of so many bytes on each lane.
  void lend(std::uint64_t bytes) {
    for (const hf::net::Lane lane :
         {hf::net::Lane::control, hf::net::Lane::normal, hf::net::Lane::bulk}) {
      hf::net::FrameHeader header;
      header.kind = hf::net::FrameKind::credit;
      header.lane = lane;
      header.flags = hf::net::frame_flag::window;
      header.total = bytes;
      say(header);
    }
  }
  /// With a doorbell.
  bool pass(int descriptor) {
    const std::byte bell{1};
    return shm::pass(caller.socket(), std::span(&bell, 1), descriptor) == 0;
  }
  /// Descriptors that have come with doorbells since the last call.
  std::size_t passed() {
    std::size_t count = 0;
    try {
      for (shm::Passed some; !(some = shm::receive_passed(caller.socket(), 64)).bytes.empty();)
        count += some.descriptors.size();
    } catch (const hf::Error&) {
      // No more are there.
    }
    return count;
  }
  template <class End>
  void ring_if_due(End& end) {
    if (end.must_ring()) ring();
  }
  bool ring() {
    const char byte = 1;
    return ::send(caller.socket(), &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
  }
  shm::ShmWords& words() { return *reinterpret_cast<shm::ShmWords*>(own.memory()); }
  shm::ShmDescriptor& descriptor(std::size_t index) {
    return reinterpret_cast<shm::ShmDescriptor*>(own.memory() +
                                                 shm::ShmLayout::descriptors_at)[index];
  }

  ShmCaller caller;
  shm::ShmSegment own, others, arena;
  std::optional<shm::ShmWriter> writer;
  std::optional<shm::ShmReader> reader;

 private:
  void pause() {
    if (std::chrono::steady_clock::now() > limit_) throw std::runtime_error("it takes too long");
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  std::uint64_t said_ = 0;
  std::chrono::steady_clock::time_point limit_ =
      std::chrono::steady_clock::now() + std::chrono::seconds(30);
};

}  // namespace net_test
