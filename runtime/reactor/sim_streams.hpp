// The simulator's inside: listening and connected stream sockets of all hosts, and the pieces of
// their streams that are under way.
//
//   streams.start(reactor, operation, handle);   // accept, connect, receive, send, ...
//   streams.cancel(reactor, operation);
//   streams.host_gone(host, /*silently=*/true);
#pragma once

#include <deque>
#include <hyperframes/runtime/reactor/sim_host.hpp>
#include <hyperframes/runtime/reactor/sim_network.hpp>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace hyperframes::detail {

/// Bytes in, bytes out, at the other end.
class SimBytes {
 public:
  std::size_t size() const noexcept { return bytes_.size() - begin_; }
  bool empty() const noexcept { return size() == 0; }
  void append(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  std::size_t take(std::span<std::byte> into) noexcept;
  std::vector<std::byte> take(std::size_t count);
  void clear() noexcept {
    bytes_.clear();
    begin_ = 0;
  }

 private:
  void drop(std::size_t count) noexcept;
  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;
};

/// What travels from one end of a connection to the other, in order.
struct SimPiece {
  std::uint64_t number = 0;
  std::vector<std::byte> bytes;
  bool opens = false;  // the last step of the handshake
  bool ends = false;   // nothing follows
};

class SimListener {
 public:
  Address address;
  SimHost* host = nullptr;
  std::size_t backlog = 0;
  std::deque<std::shared_ptr<SimStream>> waiting;  // connected, not accepted
  std::deque<OperationKey> accepters;
  std::size_t operations = 0;
  bool closed = false;
};

class SimStream {
 public:
  std::uint64_t id = 0, peer_id = 0;
  SimHost* host = nullptr;
  SimHost* peer_host = nullptr;
  Address local, remote;
  std::size_t operations = 0;  // in flight; they keep it open after its descriptor is closed
  bool closed = false;         // by the program
  bool broken = false;         // reset or timed out
  int error = 0;               // told to the program once

  // What goes out.
  SimBytes queued;         // taken from the program, not under way
  std::size_t credit = 0;  // the peer's window, as far as known here
  std::size_t unsent_limit = 0;
  Time line_free_at{}, last_arrival{};
  bool pump_planned = false, end_wanted = false, end_sent = false, end_arrived = false;
  std::uint64_t sent_pieces = 0;
  std::deque<SimPiece> held;  // could not arrive, and is sent again
  bool retry_planned = false, watched = false;
  std::uint64_t progress = 0;
  struct Sender {
    OperationKey key;
    std::size_t done = 0;
  };
  std::deque<Sender> senders;

  // What comes in.
  SimBytes received;
  std::uint64_t arrived_pieces = 0;
  bool end_received = false;
  std::size_t owed_credit = 0;  // read by the program, not yet known to the peer
  struct Receiver {
    OperationKey key;
    std::size_t done = 0;
  };
  std::deque<Receiver> receivers;

  bool readable() const noexcept { return !received.empty() || end_received || broken; }
};

class SimStreams {
 public:
  SimStreams(SimClockwork& clockwork, SimNetwork& settings) noexcept
      : clockwork_(clockwork), settings_(settings) {}

  std::vector<SimHost*> hosts;

  std::shared_ptr<SimListener> listen(SimHost& host, const Address& address, int backlog);
  void start(SimReactor& reactor, Operation& operation, const SimHandle& handle);
  void cancel(const OperationKey& key);
  /// The descriptor that stood for it was closed.
  void close(const SimHandle& handle);
  /// Its program breaks it: the other end is told so, if that can reach it.
  void reset(SimStream& stream);
  /// The listener is being closed: who waits in accept gets -EINVAL.
  void end_accepts(SimListener& listener);
  /// An operation on it has ended.
  void operation_ended(const SimHandle& handle);
  /// All sockets of a host whose process or whose power is gone.
  void host_gone(SimHost& host, bool silently);

  /// Takes what has arrived, as one read would; 0 with nothing there.
  std::size_t take(SimStream& stream, std::span<std::byte> into);
  int take_error(SimStream& stream) noexcept;

  // ---- Faults
  std::map<std::pair<unsigned, unsigned>, SimNetwork::Link> links;
  void cut(unsigned from, unsigned to) { cuts_.emplace(from, to); }
  void heal(unsigned from, unsigned to) { cuts_.erase({from, to}); }
  void heal_all() { cuts_.clear(); }
  /// Some path may be open again.
  void retry_all();
  std::size_t reset_between(unsigned a, unsigned b);
  bool reset_any();
  std::size_t connection_count() const noexcept { return streams_.size() / 2; }

 private:
  using StreamPointer = std::shared_ptr<SimStream>;
  struct Dial;  // a connect under way

  bool reachable(const SimHost& from, const SimHost& to) const noexcept;
  Duration delay(const SimHost& from, const SimHost& to);
  SimHost* host_of(const SimHost& from, const Address& address) const noexcept;
  std::shared_ptr<SimListener> listener_at(SimHost& host, const Address& address) const;
  SimStream* find(std::uint64_t id) const noexcept;
  std::uint16_t ephemeral_port(SimHost& host);

  void start_connect(const OperationKey& key, Operation& operation);
  void start_resolve(const OperationKey& key, const Operation& operation);
  void end_early(const OperationKey& key);
  void remove_listener(std::shared_ptr<SimListener> listener);

  void knock(std::shared_ptr<Dial> dial);
  void knock_again(std::shared_ptr<Dial> dial);
  void answer(std::shared_ptr<Dial> dial, bool refused);
  void establish(Dial& dial);
  void open_far_end(SimStream& near);

  void match_accepts(SimListener& listener);
  void match_receives(SimStream& stream);
  void feed(SimStream& stream);
  void pump(SimStream& stream);
  bool depart(SimStream& stream, SimPiece piece);
  void arrive(std::uint64_t from, std::uint64_t to, SimHost& from_host, SimHost& to_host,
              SimPiece piece);
  void arrive_now(SimStream* sender, std::uint64_t from, std::uint64_t to, SimHost& from_host,
                  SimHost& to_host, SimPiece piece);
  void deliver(SimStream& to, SimPiece piece);
  void hold(SimStream& from, SimPiece piece);
  void plan_retry(SimStream& from);
  void retry(std::uint64_t id);
  void watch_progress(SimStream& stream);
  void return_credit(SimStream& reader);
  void send_reset(SimHost& from, SimHost& to, std::uint64_t to_id);
  void break_stream(SimStream& stream, int error);
  void finish_close(SimStream& stream);
  void forget_if_done(SimStream& stream);

  SimClockwork& clockwork_;
  SimNetwork& settings_;
  std::map<std::uint64_t, StreamPointer> streams_;  // those that the network still knows
  std::map<std::pair<unsigned, std::uint16_t>, std::vector<std::shared_ptr<SimListener>>>
      listeners_;
  std::set<std::pair<unsigned, unsigned>> cuts_;
  std::uint64_t stream_count_ = 0;
};

}  // namespace hyperframes::detail
