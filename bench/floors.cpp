#include "floors.hpp"

#include <liburing.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <thread>

#include "harness.hpp"

namespace hyperframes::bench {

namespace {

void pin(unsigned core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  ::pthread_setaffinity_np(::pthread_self(), sizeof set, &set);
}

}  // namespace

double bare_cache_line_round_trip() {
  constexpr int count = 200'000;
  struct alignas(64) Line {
    std::atomic<int> value{0};
  };
  static Line ping, pong;
  ping.value = pong.value = 0;
  std::thread other([&] {
    pin(1);
    for (int i = 1; i <= count; ++i) {
      while (ping.value.load(std::memory_order_acquire) != i) {
      }
      pong.value.store(i, std::memory_order_release);
    }
  });
  double took = 0;
  std::thread self([&] {
    pin(0);
    const double start = now_ns();
    for (int i = 1; i <= count; ++i) {
      ping.value.store(i, std::memory_order_release);
      while (pong.value.load(std::memory_order_acquire) != i) {
      }
    }
    took = now_ns() - start;
  });
  self.join();
  other.join();
  return took / count;
}

double bare_ring_messages_per_second(int count) {
  constexpr std::uint64_t slots = 1024;
  struct alignas(64) Slot {
    std::uint64_t words[8];
  };
  struct alignas(128) Index {
    std::atomic<std::uint64_t> value{0};
  };
  static Slot ring[slots];
  static Index head, tail;
  head.value = tail.value = 0;
  const auto messages = static_cast<std::uint64_t>(count);
  std::uint64_t sum = 0;
  std::thread reader([&] {
    pin(1);
    for (std::uint64_t at = 0, there = 0; at < messages; ++at) {
      while (at == there) there = tail.value.load(std::memory_order_acquire);
      for (const std::uint64_t word : ring[at % slots].words) sum += word;
      if (at % 32 == 31) head.value.store(at + 1, std::memory_order_release);
    }
  });
  double took = 0;
  std::thread writer([&] {
    pin(0);
    const double start = now_ns();
    for (std::uint64_t at = 0, taken = 0; at < messages; ++at) {
      while (at - taken == slots) taken = head.value.load(std::memory_order_acquire);
      for (std::uint64_t& word : ring[at % slots].words) word = at;
      tail.value.store(at + 1, std::memory_order_release);
    }
    reader.join();
    took = now_ns() - start;
  });
  writer.join();
  if (sum != messages * (messages - 1) / 2 * 8) throw std::runtime_error("the bare ring broke");
  return static_cast<double>(count) / took * 1e9;
}

double memcpy_bytes_per_second(std::size_t block_bytes, int count) {
  std::vector<char> from(block_bytes, 1), to(block_bytes, 2);
  const double start = now_ns();
  for (int i = 0; i < count; ++i) {
    from[static_cast<std::size_t>(i) % block_bytes] = static_cast<char>(i);
    std::memcpy(to.data(), from.data(), block_bytes);
    asm volatile("" : : "r"(to.data()) : "memory");
  }
  const double took = now_ns() - start;
  return static_cast<double>(block_bytes) * count / took * 1e9;
}

double aes_gcm_bytes_per_second(std::size_t block_bytes, int count) {
  std::vector<unsigned char> from(block_bytes, 1), to(block_bytes);
  unsigned char key[16] = {1}, nonce[12] = {}, tag[16];
  EVP_CIPHER_CTX* const context = ::EVP_CIPHER_CTX_new();
  ::EVP_EncryptInit_ex(context, ::EVP_aes_128_gcm(), nullptr, key, nonce);
  int size = 0;
  bool fine = true;
  const double start = now_ns();
  for (int i = 0; i < count; ++i) {
    std::memcpy(nonce, &i, sizeof i);
    fine &= ::EVP_EncryptInit_ex(context, nullptr, nullptr, nullptr, nonce) == 1 &&
            ::EVP_EncryptUpdate(context, to.data(), &size, from.data(),
                                static_cast<int>(block_bytes)) == 1 &&
            ::EVP_EncryptFinal_ex(context, to.data() + size, &size) == 1 &&
            ::EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, sizeof tag, tag) == 1;
  }
  const double took = now_ns() - start;
  ::EVP_CIPHER_CTX_free(context);
  if (!fine) throw std::runtime_error("libcrypto has no AES-128-GCM");
  return static_cast<double>(block_bytes) * count / took * 1e9;
}

// ---- A 64-byte message over a loopback TCP connection and back
// ------------------------------------

int connected_pair(int& accepted) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(listener, 1) != 0)
    throw std::runtime_error("no loopback listener");
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  const int client = ::socket(AF_INET, SOCK_STREAM, 0);
  if (::connect(client, reinterpret_cast<sockaddr*>(&address), length) != 0)
    throw std::runtime_error("no loopback connection");
  accepted = ::accept(listener, nullptr, nullptr);
  ::close(listener);
  const int on = 1;
  for (int socket : {client, accepted})
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return client;
}

namespace {

/// A raw ring with one receive outstanding for each socket; polls or blocks.
class RawRing {
 public:
  RawRing() {
    io_uring_params parameters{};
    parameters.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    if (::io_uring_queue_init_params(64, &ring_, &parameters) < 0)
      throw std::runtime_error("no io_uring");
  }
  ~RawRing() { ::io_uring_queue_exit(&ring_); }

  void receive(int socket, char* into) {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    ::io_uring_prep_recv(entry, socket, into, raw_message_bytes, MSG_WAITALL);
    ::io_uring_sqe_set_data64(entry, static_cast<std::uint64_t>(socket));
  }
  void send(int socket, const char* from) {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    ::io_uring_prep_send(entry, socket, from, raw_message_bytes, MSG_NOSIGNAL);
    ::io_uring_sqe_set_data64(entry, 0);
  }
  /// The socket whose receive completed.
  int next(bool poll) {
    while (true) {
      io_uring_cqe* entry = nullptr;
      if (poll) {
        ::io_uring_submit_and_get_events(&ring_);
        if (::io_uring_peek_cqe(&ring_, &entry) != 0) continue;
      } else {
        ::io_uring_submit_and_wait(&ring_, 1);
        if (::io_uring_peek_cqe(&ring_, &entry) != 0) continue;
      }
      const auto socket = static_cast<int>(entry->user_data);
      ::io_uring_cqe_seen(&ring_, entry);
      if (socket) return socket;
    }
  }

 private:
  io_uring ring_{};
};

}  // namespace

double raw_round_trip_us(bool poll, int count) {
  int server = -1;
  const int client = connected_pair(server);
  std::thread echo([&] {
    RawRing ring;
    char bytes[raw_message_bytes];
    for (int i = 0; i < count; ++i) {
      ring.receive(server, bytes);
      ring.next(poll);
      ring.send(server, bytes);
    }
    ring.receive(server, bytes);  // submits the last answer; ends with the client's close
    ring.next(poll);
  });
  double took = 0;
  {
    RawRing ring;
    char bytes[raw_message_bytes] = {};
    const double start = now_ns();
    for (int i = 0; i < count; ++i) {
      ring.send(client, bytes);
      ring.receive(client, bytes);
      ring.next(poll);
    }
    took = now_ns() - start;
  }
  ::close(client);
  echo.join();
  ::close(server);
  return took / count / 1000;
}

double raw_round_trip_one_ring_us(int count) {
  int server = -1;
  const int client = connected_pair(server);
  double took = 0;
  {
    RawRing ring;
    char there[raw_message_bytes] = {}, here[raw_message_bytes];
    ring.receive(server, there);
    const double start = now_ns();
    for (int i = 0; i < count; ++i) {
      ring.receive(client, here);
      ring.send(client, here);
      while (ring.next(true) != server) {
      }
      ring.receive(server, there);
      ring.send(server, there);
      while (ring.next(true) != client) {
      }
    }
    took = now_ns() - start;
  }
  ::close(client);
  ::close(server);
  return took / count / 1000;
}

// ---- Many connections that each echo 64 bytes
// ---------------------------------------------------

namespace {

/// A ring that keeps one receive, or one send and the receive after it, on each of many sockets.
/// Successful sends leave no completion.
class ManyRing {
 public:
  explicit ManyRing(std::vector<int> sockets) : sockets_(std::move(sockets)) {
    io_uring_params parameters{};
    parameters.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    if (::io_uring_queue_init_params(1024, &ring_, &parameters) < 0)
      throw std::runtime_error("no io_uring");
    bytes_.resize(sockets_.size() * raw_message_bytes);
  }
  ~ManyRing() { ::io_uring_queue_exit(&ring_); }

  void receive(std::size_t index) {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    ::io_uring_prep_recv(entry, sockets_[index], at(index), raw_message_bytes, MSG_WAITALL);
    ::io_uring_sqe_set_data64(entry, index + 1);
  }
  void send(std::size_t index) {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    ::io_uring_prep_send(entry, sockets_[index], at(index), raw_message_bytes, MSG_NOSIGNAL);
    entry->flags |= IOSQE_CQE_SKIP_SUCCESS;
    ::io_uring_sqe_set_data64(entry, 0);
  }
  /// Waits, then calls received(index, whole) for each message, or end of stream, that has come.
  template <class Received>
  void turn(Received received) {
    ::io_uring_submit_and_wait(&ring_, 1);
    io_uring_cqe* entries[256];
    const unsigned count = ::io_uring_peek_batch_cqe(&ring_, entries, 256);
    for (unsigned i = 0; i < count; ++i)
      if (entries[i]->user_data)
        received(entries[i]->user_data - 1, entries[i]->res == static_cast<int>(raw_message_bytes));
    ::io_uring_cq_advance(&ring_, count);
  }
  std::size_t count() const { return sockets_.size(); }

 private:
  char* at(std::size_t index) { return bytes_.data() + index * raw_message_bytes; }
  io_uring ring_{};
  std::vector<int> sockets_;
  std::vector<char> bytes_;
};

}  // namespace

double thread_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

void serve_echo_raw(const std::vector<int>& sockets) {
  ManyRing ring(sockets);
  for (std::size_t i = 0; i < ring.count(); ++i) ring.receive(i);
  for (std::size_t open = ring.count(); open > 0;)
    ring.turn([&](std::size_t index, bool whole) {
      if (!whole) {
        --open;
        return;
      }
      ring.send(index);
      ring.receive(index);
    });
}

double echo_server_cpu_us(int connections, int count,
                          void (*serve)(const std::vector<int>& sockets)) {
  std::vector<int> clients, servers;
  for (int i = 0; i < connections; ++i) {
    int server = -1;
    clients.push_back(connected_pair(server));
    servers.push_back(server);
  }
  double used = 0;
  std::thread server([&] {
    const double before = thread_cpu_seconds();
    serve(servers);
    used = thread_cpu_seconds() - before;
  });
  std::thread load([&] {
    ManyRing ring(clients);
    int sent = 0, received = 0;
    const auto send_next = [&](std::size_t index) {
      if (sent++ >= count) return;
      ring.send(index);
      ring.receive(index);
    };
    for (std::size_t i = 0; i < ring.count(); ++i) send_next(i);
    while (received < count)
      ring.turn([&](std::size_t index, bool) {
        ++received;
        send_next(index);
      });
    for (const int client : clients) ::shutdown(client, SHUT_WR);
  });
  load.join();
  server.join();
  for (const int client : clients) ::close(client);
  for (const int accepted : servers) ::close(accepted);
  return used / count * 1e6;
}

// ---- Blocks over a loopback TCP connection, one way
// ------------------------------------------------------------------

double raw_blocks_bytes_per_second(std::size_t block_bytes, int count) {
  int receiver = -1;
  const int sender = connected_pair(receiver);
  std::thread source([&] {
    std::vector<char> block(block_bytes, 1);
    for (int i = 0; i < count; ++i)
      for (std::size_t done = 0; done < block_bytes;) {
        const ssize_t sent = ::send(sender, block.data() + done, block_bytes - done, MSG_NOSIGNAL);
        if (sent <= 0) return;
        done += static_cast<std::size_t>(sent);
      }
  });
  std::vector<char> into(block_bytes);
  const double start = now_ns();
  for (int i = 0; i < count; ++i)
    if (::recv(receiver, into.data(), block_bytes, MSG_WAITALL) !=
        static_cast<ssize_t>(block_bytes))
      throw std::runtime_error("the raw socket pair broke");
  const double took = now_ns() - start;
  source.join();
  ::close(sender);
  ::close(receiver);
  return static_cast<double>(block_bytes) * count / took * 1e9;
}

}  // namespace hyperframes::bench
