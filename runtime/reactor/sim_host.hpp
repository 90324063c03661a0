// The simulator's inside: what a node's kernel would hold, and the drivers of its shards.
//
//   SimReactor reactor(host, shard_index);         // one for each shard; gone with the crash
//   host.reactors[0]->finish(id, -EIO);            // completed; delivered by its next turn
//
// A host lives as long as its world; a crash empties it. Whatever is to happen later refers to an
// operation by an OperationKey, which finds nothing once the operation has ended or its node has
// crashed.
#pragma once

#include <deque>
#include <hyperframes/runtime/offload.hpp>
#include <hyperframes/runtime/reactor.hpp>
#include <hyperframes/runtime/reactor/sim_clockwork.hpp>
#include <hyperframes/runtime/reactor/sim_disk.hpp>
#include <hyperframes/runtime/reactor/sim_file_system.hpp>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace hyperframes::detail {

class SimReactor;
class SimStreams;
class SimListener;
class SimStream;

/// What a descriptor stands for.
struct SimHandle {
  std::shared_ptr<SimListener> listener;
  std::shared_ptr<SimStream> stream;
  std::shared_ptr<SimInode> file;
  bool writable = false;
  std::string path;
};

struct SimHost {
  SimHost(SimClockwork& clockwork, SimStreams& streams) noexcept
      : clockwork(clockwork), streams(streams) {}

  SimClockwork& clockwork;
  SimStreams& streams;
  unsigned index = 0;
  std::string name;
  Address address;        // port 0
  bool reachable = true;  // false from a silent crash to the restart
  bool running = false;
  std::uint64_t incarnation = 0;
  Duration clock_offset{0};
  std::size_t descriptor_limit = 65536;
  std::vector<SimReactor*> reactors;
  std::map<int, SimHandle> descriptors;
  SimDisk disk;
  std::uint64_t crash_countdown = 0;  // disk operations until `on_crash_point`; 0: never
  std::function<void()> on_crash_point;

  /// The lowest free number, as a kernel gives; or -EMFILE.
  int add_descriptor(SimHandle handle);
  /// Takes it out; what it stood for goes when the last operation on it has ended.
  std::int64_t close_descriptor(int descriptor);
  SimHandle* find_descriptor(int descriptor);

  void start_on_disk(SimReactor& reactor, Operation& operation);
  /// What was not synced is lost, writes under way among it.
  void lose_power();
  /// With what an operation on that path fails, by the disk's faults; 0 if it does not.
  int fault_of(Operation::Kind kind, const std::string& path);

 private:
  Duration duration_of(const Operation& operation);
  std::int64_t perform(Operation& operation);
  std::int64_t perform_transfer(Operation& operation);
  std::size_t cut_short(std::size_t size);
};

struct OperationKey {
  SimHost* host = nullptr;
  std::uint64_t incarnation = 0;
  unsigned shard = 0;
  std::uint64_t id = 0;
};

class SimReactor final : public Reactor {
 public:
  struct Options {
    unsigned receive_chunks = 256;
    std::size_t receive_chunk_bytes = 16 << 10;
  };
  SimReactor(SimHost& host, unsigned shard, Options options);
  ~SimReactor() override;

  std::string_view name() const noexcept override { return "sim"; }
  Time now() const noexcept override;
  void start(Operation* operation) noexcept override;
  void cancel(Operation* operation) noexcept override;
  std::size_t poll() noexcept override;
  void wait(Time) noexcept override { poll(); }
  void wake() noexcept override { woken_ = true; }
  int listen(const Address& address, int backlog) override;
  Address local_address(int descriptor) const override;
  void tune_socket(int descriptor, std::size_t unsent_backlog_bytes) noexcept override;
  void close_now(int descriptor) noexcept override;
  void reset_now(int descriptor) noexcept override;
  void close_listener(int descriptor) noexcept override;
  std::size_t in_flight() const noexcept override { return in_flight_; }
  bool drain(Time until) noexcept override;

  // ---- For the rest of the simulator
  bool has_work() const noexcept { return woken_ || !due_.empty() || !readable_.empty(); }
  OperationKey key_of(const Operation& operation) const noexcept;
  static Operation* find(const OperationKey& key) noexcept;
  static SimReactor* reactor_of(const OperationKey& key) noexcept;
  /// What the operation's descriptor stood for when it began; null before that.
  static const SimHandle* handle_of(const Operation& operation) noexcept;
  /// Ends the operation with `result`, at the shard's next turn. No effect if it has ended.
  static void finish(const OperationKey& key, std::int64_t result);
  /// The stream operation has something to take from its socket.
  static void notify_readable(const OperationKey& key);
  SimHost& host() noexcept { return host_; }
  unsigned shard() const noexcept { return shard_; }
  const Options& options() const noexcept { return options_; }
  template <class Visit>
  void for_each_in_flight(Visit visit) {
    flying_.for_each(visit);
  }

 private:
  friend class SimStreams;
  struct Chunk;
  /// Outlives the reactor while chunks of it are out.
  struct ChunkCount {
    std::size_t out = 0;
    SimReactor* reactor = nullptr;
  };
  struct Due {
    Operation* operation;
    std::int64_t result;
  };
  void end(Operation& operation, std::int64_t result);
  void deliver_stream(std::uint64_t id);
  Buffer take_chunk(SimStream& stream);
  void chunk_came_back();

  SimHost& host_;
  const unsigned shard_;
  const std::uint64_t incarnation_;
  const Options options_;
  std::uint64_t operation_count_ = 0;
  std::size_t in_flight_ = 0;
  List<Operation> flying_;
  std::unordered_map<std::uint64_t, Operation*> unfinished_;  // by id; never iterated
  std::deque<Due> due_;
  std::deque<std::uint64_t> readable_;
  std::unordered_set<std::uint64_t> readable_set_;
  std::deque<std::uint64_t> starved_;
  std::shared_ptr<ChunkCount> chunks_;
  bool woken_ = false;
  bool drained_ = false;
};

/// Runs jobs on the world's thread, off every shard, after a while.
class SimOffload final : public Offload {
 public:
  explicit SimOffload(SimHost& host) noexcept : host_(host) {}
  void execute(OffloadJob* job) noexcept override;
  /// What has not begun never does: the process it belonged to is gone.
  std::vector<std::string> end(Time until) override;

 private:
  SimHost& host_;
  std::deque<OffloadJob*> waiting_;
};

}  // namespace hyperframes::detail
