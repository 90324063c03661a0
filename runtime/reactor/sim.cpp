#include <hyperframes/runtime/reactor/sim.hpp>

#include <algorithm>
#include <cassert>
#include <hyperframes/runtime/reactor/sim_clockwork.hpp>
#include <hyperframes/runtime/reactor/sim_host.hpp>
#include <hyperframes/runtime/reactor/sim_streams.hpp>

namespace hyperframes {

// Not zero, which means "now" to a shard, and a day that no code should depend on.
static constexpr Time start_of_time{Duration(1000s)};

// ---- SimNetwork

void SimNetwork::set_link(const SimNode& from, const SimNode& to, Link link) {
  streams_->links[{from.index(), to.index()}] = link;
}
void SimNetwork::cut(const SimNode& from, const SimNode& to) {
  streams_->cut(from.index(), to.index());
}
void SimNetwork::partition(const SimNode& a, const SimNode& b) {
  cut(a, b);
  cut(b, a);
}
void SimNetwork::isolate(const SimNode& node) {
  for (const detail::SimHost* host : streams_->hosts) {
    streams_->cut(node.index(), host->index);
    streams_->cut(host->index, node.index());
  }
}
void SimNetwork::heal(const SimNode& a, const SimNode& b) {
  streams_->heal(a.index(), b.index());
  streams_->heal(b.index(), a.index());
  streams_->retry_all();
}
void SimNetwork::heal() {
  streams_->heal_all();
  streams_->retry_all();
}
std::size_t SimNetwork::reset(const SimNode& a, const SimNode& b) {
  return streams_->reset_between(a.index(), b.index());
}
bool SimNetwork::reset_any() { return streams_->reset_any(); }
std::size_t SimNetwork::connection_count() const noexcept { return streams_->connection_count(); }

// ---- SimNode

SimNode::SimNode(SimWorld& world, SimNodeOptions options, unsigned index)
    : world_(world),
      options_(std::move(options)),
      host_(std::make_unique<detail::SimHost>(*world.clockwork_, *world.streams_)) {
  host_->index = index;
  host_->name = options_.name.empty() ? "node" + std::to_string(index) : options_.name;
  host_->address = Address::v4({10, 0, 0, static_cast<std::uint8_t>(index + 1)}, 0);
  host_->descriptor_limit = options_.descriptor_limit;
  world.streams_->hosts.push_back(host_.get());
  boot();
}

SimNode::~SimNode() = default;

unsigned SimNode::index() const noexcept { return host_->index; }
const std::string& SimNode::name() const noexcept { return host_->name; }
SimDisk& SimNode::disk() noexcept { return host_->disk; }
std::size_t SimNode::descriptor_count() const noexcept { return host_->descriptors.size(); }

Address SimNode::address(std::uint16_t port) const noexcept {
  Address address = host_->address;
  address.set_port(port);
  return address;
}

Runtime& SimNode::runtime() noexcept {
  assert(runtime_ && "the node is down");
  return *runtime_;
}

void SimNode::boot() {
  assert(!runtime_ && "the node is up");
  ++boots_;
  ++host_->incarnation;
  host_->running = host_->reachable = true;
  paused_ = false;
  std::vector<std::unique_ptr<Reactor>> reactors;
  for (unsigned i = 0; i < options_.shards; ++i) {
    detail::SimReactor::Options options;
    options.receive_chunks = options_.receive_chunks;
    options.receive_chunk_bytes = options_.receive_chunk_bytes;
    auto reactor = std::make_unique<detail::SimReactor>(*host_, i, options);
    host_->reactors.push_back(reactor.get());
    reactors.push_back(std::move(reactor));
  }
  Runtime::Options options;
  options.shards = options_.shards;
  options.shard = options_.shard;
  runtime_ = std::make_unique<Runtime>(options, std::move(reactors),
                                       std::make_unique<detail::SimOffload>(*host_));
  busy_until_.assign(options_.shards, world_.now());
}

void SimNode::set_main(std::function<Task<void>(Runtime&)> main) {
  mains_.push_back(std::move(main));
  start_main();
}

void SimNode::start_main() {
  if (mains_.empty()) return;
  detail::start_on(runtime().shard(0), [this] { return mains_.back()(*runtime_); });
}

void SimNode::restart() {
  boot();
  world_.clockwork_->record("boots", index(), 0, boots_, 0);
  start_main();
  world_.streams_->retry_all();
}

void SimNode::crash(SimCrash what) {
  if (world_.running_node() != this) return crash_now(what);
  // Its own stack is still in use.
  world_.after(Duration(0), [this, what, boots = boots_] {
    if (boots_ == boots) crash_now(what);
  });
}

void SimNode::crash_now(SimCrash what) {
  if (!runtime_) return;
  world_.clockwork_->record("crashes", index(), 0, boots_, what.lose_unsynced);
  if (what.lose_unsynced) host_->lose_power();
  host_->reachable = what.peers == SimCrash::Peers::told;
  destroy_process();
}

// The kernel first, so that nothing which the process still does has an effect.
void SimNode::destroy_process() noexcept {
  host_->running = false;
  ++host_->incarnation;
  host_->crash_countdown = 0;
  host_->descriptors.clear();
  world_.streams_->host_gone(*host_, !host_->reachable);
  runtime_->destroy_tasks();
  while (!owned_.empty()) owned_.pop_back();
  runtime_.reset();
  host_->reactors.clear();
}

Runtime::StopReport SimNode::stop(Duration deadline) {
  Runtime::StopReport report;
  if (!runtime_) return report;
  runtime_->cancel_tasks();
  report.clean =
      world_.run_until([this] { return !runtime_ || runtime_->task_count() == 0; }, deadline);
  if (!runtime_) return report;
  if (!report.clean) report.stragglers.push_back(runtime_->dump());
  destroy_process();
  return report;
}

void SimNode::jump_clock(Duration by) noexcept {
  assert(by >= Duration(0) && "a monotonic clock");
  host_->clock_offset += by;
}

void SimNode::crash_at_disk_operation(std::uint64_t count, SimCrash what) {
  host_->crash_countdown = count;
  host_->on_crash_point = [this, what] { crash_now(what); };
}

// ---- SimWorld

SimWorld::SimWorld(Options options)
    : options_(options),
      clockwork_(std::make_unique<detail::SimClockwork>(options.seed, start_of_time)),
      streams_(std::make_unique<detail::SimStreams>(*clockwork_, network_)) {
  network_.streams_ = streams_.get();
}

SimWorld::~SimWorld() {
  for (auto& node : nodes_)
    if (node->runtime_) node->destroy_process();
}

SimNode& SimWorld::add_node(SimNodeOptions options) {
  assert(nodes_.size() < 254 && "addresses are 10.0.0.1 to 10.0.0.254");
  const auto index = static_cast<unsigned>(nodes_.size());
  nodes_.push_back(std::unique_ptr<SimNode>(new SimNode(*this, std::move(options), index)));
  return *nodes_.back();
}

Time SimWorld::now() const noexcept { return clockwork_->now(); }
SimRandom& SimWorld::random() noexcept { return clockwork_->user; }
std::uint64_t SimWorld::trace_hash() const noexcept { return clockwork_->hash(); }
std::uint64_t SimWorld::event_count() const noexcept { return clockwork_->event_count; }

void SimWorld::set_trace(std::function<void(const std::string&)> listener) {
  clockwork_->listener = std::move(listener);
}

void SimWorld::at(Time time, std::function<void()> function) {
  clockwork_->at(time, std::move(function));
}
void SimWorld::after(Duration span, std::function<void()> function) {
  clockwork_->after(span, std::move(function));
}

Time SimWorld::next_turn_of(SimNode& node, unsigned shard) {
  if (!node.runtime_ || node.paused_) return Time::max();
  const Time busy_until = node.busy_until_[shard];
  if (node.host_->reactors[shard]->has_work()) return busy_until;
  const Time wanted = node.runtime_->shard(shard).next_turn();
  if (wanted == Time::max()) return wanted;
  // The shard's clock may be ahead of the world's.
  return std::max(busy_until, wanted == Time{} ? busy_until : wanted - node.host_->clock_offset);
}

bool SimWorld::step(Time limit) {
  Time next = clockwork_->next_event();
  candidates_.clear();
  Time earliest = Time::max();
  const Time now = clockwork_->now();
  for (auto& node : nodes_) {
    for (unsigned shard = 0; shard < node->busy_until_.size(); ++shard) {
      const Time time = std::max(now, next_turn_of(*node, shard));
      if (time > earliest || time == Time::max()) continue;
      if (time < earliest) candidates_.clear();
      earliest = time;
      candidates_.push_back({node.get(), shard});
    }
  }
  next = std::min(next, earliest);
  stuck_ = next == Time::max();
  if (stuck_ || next > limit) return false;
  clockwork_->advance_to(next);
  if (clockwork_->run_due()) return true;  // what is next may have changed
  const Candidate chosen = candidates_[clockwork_->schedule.below(candidates_.size())];
  turn(*chosen.node, chosen.shard);
  return true;
}

void SimWorld::turn(SimNode& node, unsigned shard) {
  ++turns_;
  running_ = &node;
  node.runtime_->shard(shard).turn();
  running_ = nullptr;
  SimRandom& random = clockwork_->schedule;
  Duration cost = random.between(options_.turn_min, options_.turn_max);
  if (random.chance(options_.long_turn))
    cost += random.between(Duration(0), options_.long_turn_max);
  node.busy_until_[shard] = clockwork_->now() + cost;
  clockwork_->fold(static_cast<std::uint64_t>(node.busy_until_[shard].time_since_epoch().count()) ^
                   (std::uint64_t{node.index()} << 48 | std::uint64_t{shard} << 40));
}

void SimWorld::run_until_done(const std::function<bool()>& done) {
  const Time limit = now() + options_.run_limit;
  const std::uint64_t turn_limit = turns_ + options_.turn_limit;
  while (!done()) {
    if (turns_ < turn_limit && step(limit)) continue;
    const std::string found =
        turns_ >= turn_limit ? std::to_string(options_.turn_limit) + " turns were not enough"
        : !stuck_
            ? std::to_string(
                  std::chrono::duration_cast<std::chrono::seconds>(options_.run_limit).count()) +
                  " virtual seconds were not enough"
            : "nothing can happen any more";
    throw Error(Errc::deadline_exceeded,
                "run a simulated task (seed " + std::to_string(options_.seed) + ")",
                found + ", and these still wait:\n" + dump());
  }
}

void SimWorld::run_for(Duration span) {
  const Time limit = now() + span;
  while (step(limit)) {
  }
  clockwork_->advance_to(limit);
}

bool SimWorld::run_until(std::function<bool()> condition, Duration limit) {
  const Time end = now() + limit;
  while (!condition()) {
    if (step(end)) continue;
    clockwork_->advance_to(end);
    return condition();
  }
  return true;
}

std::string SimWorld::dump() {
  std::string text;
  for (auto& node : nodes_)
    text += node->name() + (node->runtime_ ? "\n" + node->runtime_->dump() : " is down\n");
  return text;
}

}  // namespace hyperframes
