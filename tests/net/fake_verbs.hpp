// An RDMA device that exists in this process only, and does what real ones do once a year.
//
//   FakeVerbs verbs;
//   options.rdma.verbs = &verbs;                 // its pairs reach each other, on all shards
//   verbs.set([](FakeVerbs::Faults& faults) { faults.registration = ENOMEM; });
//
// It keeps the rules of the real ones, and counts who breaks them: a queue takes only so many
// requests, what was not signalled takes a place until a later one completes, what is sent lies in
// registered memory, and a message without a receive at the other end waits for one.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <hyperframes/net/rdma/verbs.hpp>
#include <hyperframes/runtime/error.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace net_test {

namespace verbs = hyperframes::net::detail;

class FakeVerbs final : public verbs::VerbsLibrary {
 public:
  /// What goes wrong, from now on.
  struct Faults {
    std::vector<std::string> devices{"fake0"};
    bool port_is_up = true;
    /// What these fail with; `landing` is the registration of what peers may write into.
    int registration = 0, landing = 0, completions = 0, pair = 0, connect = 0;
    int shared = 0;            ///< The same of another device's memory.
    bool lose = false;         ///< What is sent is never acknowledged, and fails at once for that.
    bool swallow = false;      ///< The same, and never fails.
    bool hold = false;         ///< What is sent stays in the queue until this is taken back.
    bool no_receives = false;  ///< A receiver looks as if it had posted nothing.
    std::uint32_t queue_entries = 4096;
    std::uint32_t message_bytes = 1u << 30;
    std::uint32_t shared_receives = 4096;  ///< 0: the device has none.
    int receives = 0;                      ///< What making such a queue fails with.
    /// Called each time before a queue of completions is armed, without any lock.
    std::function<void()> before_arm;
  };
  struct Counts {
    int pairs = 0, queues = 0, memories = 0, shared_queues = 0;  ///< That there are.
    int full_sends = 0, full_receives = 0;                       ///< Posts to a full queue.
    int stray = 0;               ///< Posts of memory that is not registered.
    int waited_for_receive = 0;  ///< Messages that found none.
    int sends = 0, signalled = 0, inlined = 0, written = 0;
    // Of another device's memory: how often that was asked for, and what was registered last.
    int shared_registrations = 0;
    verbs::VerbsShared last_shared{};
  };

  FakeVerbs() : world_(std::make_shared<World>()) {}

  void set(const std::function<void(Faults&)>& change) {
    const std::scoped_lock lock(world_->mutex);
    change(world_->faults);
    if (!world_->faults.hold)
      for (auto& [number, pair] : world_->pairs) pair->send_pending();
  }
  Counts counts() const {
    const std::scoped_lock lock(world_->mutex);
    return world_->counts;
  }
  /// Whether that is memory into which a peer may write.
  bool is_landing(std::span<const std::byte> bytes) const {
    const std::scoped_lock lock(world_->mutex);
    for (const auto& [key, memory] : world_->memories)
      if (memory.writable && world_->is_registered(bytes, key)) return true;
    return false;
  }
  /// Posted, of all queues that pairs share.
  std::size_t shared_receives() const {
    const std::scoped_lock lock(world_->mutex);
    std::set<const Receives*> queues;
    for (const auto& [number, pair] : world_->pairs)
      if (pair->shared) queues.insert(pair->shared.get());
    std::size_t count = 0;
    for (const Receives* queue : queues) count += queue->waiting.size();
    return count;
  }
  int landings() const {
    const std::scoped_lock lock(world_->mutex);
    return static_cast<int>(std::ranges::count_if(
        world_->memories, [](const auto& memory) { return memory.second.writable; }));
  }
  /// Every pair that is connected fails, as if its device had been told to.
  void fail_all() {
    const std::scoped_lock lock(world_->mutex);
    for (auto& [number, pair] : world_->pairs)
      if (pair->peer) pair->fail_with(verbs::VerbsStatus::flushed);
  }

  std::vector<std::string> devices() override {
    const std::scoped_lock lock(world_->mutex);
    return world_->faults.devices;
  }
  std::shared_ptr<verbs::VerbsDevice> open(const std::string& name) override {
    for (const std::string& known : devices())
      if (known == name) return std::make_shared<Device>(name, world_);
    throw hyperframes::Error(hyperframes::Errc::not_found, "open the RDMA device " + name,
                             "there is no such device on this host");
  }

 private:
  struct Pair;
  struct Receives;
  struct World {
    std::mutex mutex;
    Faults faults;
    Counts counts;
    std::map<std::uint32_t, Pair*> pairs;
    struct Registered {
      std::span<std::byte> bytes;
      bool writable = false;
    };
    std::map<std::uint32_t, Registered> memories;

    /// No two in one process, so that pairs of two devices never find each other.
    static std::uint32_t next_number() {
      static std::atomic<std::uint32_t> last{0};
      return ++last & 0xffffff;
    }
    bool is_registered(std::span<const std::byte> bytes, std::uint32_t key) const {
      const auto found = memories.find(key);
      if (found == memories.end()) return false;
      const std::span<std::byte> all = found->second.bytes;
      return bytes.data() >= all.data() && bytes.data() + bytes.size() <= all.data() + all.size();
    }
    /// Where a peer may write; null: it may not.
    std::byte* target(const verbs::VerbsTarget& into, std::size_t size) const {
      auto* const at = reinterpret_cast<std::byte*>(into.address);
      const auto found = memories.find(into.key);
      const bool may = found != memories.end() && found->second.writable;
      return may && is_registered({at, size}, into.key) ? at : nullptr;
    }
  };
  using WorldRef = std::shared_ptr<World>;

  struct Memory final : verbs::VerbsMemory {
    Memory(WorldRef world, std::span<std::byte> bytes, bool writable) : world(std::move(world)) {
      const std::scoped_lock lock(this->world->mutex);
      number = World::next_number();
      this->world->memories[number] = {bytes, writable};
      ++this->world->counts.memories;
    }
    ~Memory() override {
      const std::scoped_lock lock(world->mutex);
      world->memories.erase(number);
      --world->counts.memories;
    }
    std::uint32_t key() const noexcept override { return number; }
    std::uint32_t remote_key() const noexcept override { return number; }
    WorldRef world;
    std::uint32_t number = 0;
  };

  struct Queue final : verbs::VerbsCompletions {
    explicit Queue(WorldRef world)
        : world(std::move(world)), event(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
      const std::scoped_lock lock(this->world->mutex);
      ++this->world->counts.queues;
    }
    ~Queue() override {
      ::close(event);
      const std::scoped_lock lock(world->mutex);
      --world->counts.queues;
    }
    struct Entry {
      verbs::VerbsCompletion completion;
      std::uint32_t pair = 0, places = 0;  ///< That it frees in the pair's send queue.
    };
    void add(Entry entry) {
      entries.push_back(entry);
      if (!std::exchange(armed, false)) return;
      const std::uint64_t one = 1;
      [[maybe_unused]] const auto written = ::write(event, &one, sizeof one);
    }
    int descriptor() const noexcept override { return event; }
    int poll(std::span<verbs::VerbsCompletion> into) noexcept override {
      const std::scoped_lock lock(world->mutex);
      std::size_t count = 0;
      for (; count < into.size() && !entries.empty(); ++count) {
        const Entry entry = entries.front();
        entries.pop_front();
        into[count] = entry.completion;
        const auto found = world->pairs.find(entry.pair);
        if (found != world->pairs.end()) found->second->places += entry.places;
      }
      return static_cast<int>(count);
    }
    int arm() noexcept override {
      std::function<void()> before;
      {
        const std::scoped_lock lock(world->mutex);
        before = world->faults.before_arm;
      }
      if (before) before();
      const std::scoped_lock lock(world->mutex);
      armed = true;
      return 0;
    }
    void take_events() noexcept override {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto got = ::read(event, &count, sizeof count);
    }
    WorldRef world;
    int event;
    std::deque<Entry> entries;
    bool armed = false;
  };

  struct Receive {
    std::uint64_t id;
    std::span<std::byte> into;
  };

  struct Receives final : verbs::VerbsReceives {
    Receives(WorldRef world, std::uint32_t most) : world(std::move(world)), most(most) {
      const std::scoped_lock lock(this->world->mutex);
      ++this->world->counts.shared_queues;
    }
    ~Receives() override {
      const std::scoped_lock lock(world->mutex);
      --world->counts.shared_queues;
    }
    int post(std::uint64_t id, std::span<std::byte> into, std::uint32_t key) noexcept override {
      const std::scoped_lock lock(world->mutex);
      if (waiting.size() >= most) {
        ++world->counts.full_receives;
        return ENOMEM;
      }
      if (!world->is_registered(into, key)) ++world->counts.stray;
      waiting.push_back({id, into});
      for (auto& [number, pair] : world->pairs) pair->send_pending();
      return 0;
    }
    WorldRef world;
    std::uint32_t most;
    std::deque<Receive> waiting;
  };

  struct Pair final : verbs::VerbsPair {
    struct Pending {
      std::uint64_t id;
      std::vector<std::byte> inlined;
      std::span<const std::byte> bytes;
      std::uint32_t immediate;
      bool signalled;
      std::optional<verbs::VerbsTarget> into;
    };

    Pair(WorldRef world, std::shared_ptr<Queue> queue, const verbs::VerbsPairSettings& settings)
        : world(std::move(world)),
          queue(std::move(queue)),
          settings(settings),
          shared(std::static_pointer_cast<Receives>(settings.shared)),
          places(settings.sends) {
      const std::scoped_lock lock(this->world->mutex);
      own = World::next_number();
      this->world->pairs[own] = this;
      ++this->world->counts.pairs;
    }
    ~Pair() override {
      const std::scoped_lock lock(world->mutex);
      world->pairs.erase(own);
      --world->counts.pairs;
    }
    std::uint32_t number() const noexcept override { return own; }
    std::uint32_t inline_bytes() const noexcept override {
      return std::min(settings.inline_bytes, 64u);
    }
    int initialize(std::uint8_t) noexcept override { return 0; }
    int connect(const verbs::VerbsPath& path) noexcept override {
      const std::scoped_lock lock(world->mutex);
      if (world->faults.connect) return world->faults.connect;
      peer = path.peer_pair;
      receive_retries = path.receive_retries;
      return 0;
    }
    int fail() noexcept override {
      const std::scoped_lock lock(world->mutex);
      fail_with(verbs::VerbsStatus::flushed);
      return 0;
    }

    int post_send(const Send& send) noexcept override {
      const std::scoped_lock lock(world->mutex);
      ++world->counts.sends;
      world->counts.signalled += send.signalled;
      world->counts.inlined += send.inlined;
      world->counts.written += send.into.has_value();
      if (places == 0) {
        ++world->counts.full_sends;
        return ENOMEM;
      }
      if (!send.inlined && !send.bytes.empty() && !world->is_registered(send.bytes, send.key))
        ++world->counts.stray;
      --places;
      ++unsignalled;
      Pending pending{send.id, {}, send.bytes, send.immediate, send.signalled, send.into};
      if (send.inlined) pending.inlined.assign(send.bytes.begin(), send.bytes.end());
      waiting.push_back(std::move(pending));
      if (failed) fail_with(verbs::VerbsStatus::flushed);
      send_pending();
      return 0;
    }
    int post_receive(std::uint64_t id, std::span<std::byte> into,
                     std::uint32_t key) noexcept override {
      const std::scoped_lock lock(world->mutex);
      if (receives.size() >= settings.receives) {
        ++world->counts.full_receives;
        return ENOMEM;
      }
      if (!world->is_registered(into, key)) ++world->counts.stray;
      receives.push_back({id, into});
      if (failed) fail_with(verbs::VerbsStatus::flushed);
      if (Pair* const sender = other()) sender->send_pending();
      return 0;
    }

    // With the lock held.
    Pair* other() const {
      const auto found = world->pairs.find(peer);
      return found == world->pairs.end() ? nullptr : found->second;
    }
    void complete(std::uint64_t id, verbs::VerbsStatus status, bool told) {
      ++done;
      if (!told) return;
      queue->add({{id, status, "a fault of a test"}, own, std::exchange(done, 0)});
    }
    void fail_with(verbs::VerbsStatus status) {
      failed = true;
      for (; !waiting.empty(); waiting.pop_front()) {
        complete(waiting.front().id, status, true);
        status = verbs::VerbsStatus::flushed;
      }
      for (const Receive& receive : std::exchange(receives, {}))
        queue->add({{receive.id, verbs::VerbsStatus::flushed, "a fault of a test"}, 0, 0});
    }
    void send_pending() {
      using verbs::VerbsStatus;
      const Faults& faults = world->faults;
      while (!waiting.empty() && !failed && !faults.hold && !faults.swallow) {
        Pair* const to = other();
        // A real device tries for long enough that other ways tell of the end of a peer's.
        if (met && (!to || to->failed) && !faults.lose) return;
        if (faults.lose || !to || to->failed) return fail_with(VerbsStatus::retries_exceeded);
        met = true;
        if (to->peer != own) return;  // it is not connected yet
        if (faults.no_receives && receive_retries == 7) return;
        if (faults.no_receives) return fail_with(VerbsStatus::receiver_not_ready);
        std::deque<Receive>& receives = to->shared ? to->shared->waiting : to->receives;
        if (receives.empty()) {
          ++world->counts.waited_for_receive;
          return;
        }
        Pending& pending = waiting.front();
        const std::span<const std::byte> bytes =
            pending.inlined.empty() ? pending.bytes : std::span<const std::byte>(pending.inlined);
        const Receive receive = receives.front();
        receives.pop_front();
        std::byte* const at = pending.into ? world->target(*pending.into, bytes.size())
                              : bytes.size() <= receive.into.size() ? receive.into.data()
                                                                    : nullptr;
        if (!at) {
          receives.push_front(receive);
          to->fail_with(VerbsStatus::other);  // both ends do, of a real one
          return fail_with(VerbsStatus::other);
        }
        if (!bytes.empty()) std::memcpy(at, bytes.data(), bytes.size());
        to->queue->add(
            {{receive.id, VerbsStatus::success, "", static_cast<std::uint32_t>(bytes.size()),
              pending.immediate, pending.into.has_value()},
             0,
             0});
        complete(pending.id, VerbsStatus::success, pending.signalled);
        waiting.pop_front();
      }
    }

    WorldRef world;
    std::shared_ptr<Queue> queue;
    verbs::VerbsPairSettings settings;
    std::shared_ptr<Receives> shared;
    std::uint32_t own = 0, peer = 0;
    unsigned receive_retries = 6;
    std::uint32_t places, done = 0, unsignalled = 0;
    std::deque<Pending> waiting;
    std::deque<Receive> receives;
    bool failed = false, met = false;
  };

  struct Device final : verbs::VerbsDevice {
    Device(std::string name, WorldRef world) : own_name(std::move(name)), world(std::move(world)) {}
    const std::string& name() const noexcept override { return own_name; }
    int limits(verbs::VerbsLimits& into) noexcept override {
      const std::scoped_lock lock(world->mutex);
      into = {1, world->faults.queue_entries, 65536, world->faults.shared_receives, false};
      return 0;
    }
    int port(std::uint8_t, verbs::VerbsPort& into) noexcept override {
      const std::scoped_lock lock(world->mutex);
      into = {world->faults.port_is_up,
              verbs::VerbsLayer::ethernet,
              0,
              1024,
              world->faults.message_bytes,
              3};
      return 0;
    }
    /// An old address, one of this link only, and an IPv4 address.
    int address(std::uint8_t, int index, verbs::VerbsAddressEntry& into) noexcept override {
      using Kind = verbs::VerbsAddressEntry::Kind;
      into.address = {};
      into.kind = index == 0 ? Kind::roce_1 : Kind::roce_2;
      if (index < 2) {
        into.address[0] = std::byte{0xfe};
        into.address[1] = std::byte{0x80};
        return 0;
      }
      into.address[10] = into.address[11] = std::byte{0xff};
      into.address[12] = std::byte{10};
      into.address[15] = std::byte{7};
      return 0;
    }
    std::unique_ptr<verbs::VerbsMemory> register_memory(std::span<std::byte> memory, bool writable,
                                                        int& failure) noexcept override {
      failure = fault(writable ? &Faults::landing : &Faults::registration);
      if (failure) return nullptr;
      return std::make_unique<Memory>(world, memory, writable);
    }
    /// Who asks with a descriptor that is none learns whether any are taken.
    std::unique_ptr<verbs::VerbsMemory> register_shared(const verbs::VerbsShared& memory,
                                                        bool writable,
                                                        int& failure) noexcept override {
      {
        const std::scoped_lock lock(world->mutex);
        ++world->counts.shared_registrations;
        failure = world->faults.shared;
        if (failure == 0 && memory.descriptor < 0) failure = EBADF;
        if (failure) return nullptr;
        world->counts.last_shared = memory;
      }
      return std::make_unique<Memory>(
          world, std::span(reinterpret_cast<std::byte*>(memory.address), memory.bytes), writable);
    }
    std::shared_ptr<verbs::VerbsCompletions> make_completions(std::uint32_t,
                                                              int& failure) noexcept override {
      if ((failure = fault(&Faults::completions)) != 0) return nullptr;
      return std::make_shared<Queue>(world);
    }
    std::shared_ptr<verbs::VerbsReceives> make_receives(std::uint32_t entries,
                                                        int& failure) noexcept override {
      if ((failure = fault(&Faults::receives)) != 0) return nullptr;
      return std::make_shared<Receives>(world, entries);
    }
    std::unique_ptr<verbs::VerbsPair> make_pair(std::shared_ptr<verbs::VerbsCompletions> queue,
                                                const verbs::VerbsPairSettings& settings,
                                                int& failure) noexcept override {
      if ((failure = fault(&Faults::pair)) != 0) return nullptr;
      return std::make_unique<Pair>(world, std::static_pointer_cast<Queue>(queue), settings);
    }
    int fault(int Faults::* which) const {
      const std::scoped_lock lock(world->mutex);
      return world->faults.*which;
    }
    std::string own_name;
    WorldRef world;
  };

  WorldRef world_;
};

}  // namespace net_test
