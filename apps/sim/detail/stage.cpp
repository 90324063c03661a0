#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <hyperframes/apps/ps/detail/retry.hpp>
#include <hyperframes/apps/sim/detail/sqlite_files.hpp>
#include <hyperframes/apps/sim/detail/stage.hpp>
#include <hyperframes/runtime/log.hpp>
#include <utility>

namespace hyperframes::sim::detail {
namespace {

constexpr Duration watch_pause = 100ms;
constexpr std::uint64_t whole_disk = std::uint64_t{1} << 40;

std::string time_text(Duration span) {
  return fmt::format("{:9.6f}", std::chrono::duration<double>(span).count());
}

/// A clock that leaps does so at once.
Duration lasting(const Fault& fault) {
  const bool at_once =
      fault.kind == FaultKind::clock_jump || fault.kind == FaultKind::calendar_back;
  return at_once ? Duration(0) : fault.span;
}

std::vector<std::size_t> all_places(std::size_t count) {
  std::vector<std::size_t> places(count);
  for (std::size_t i = 0; i < count; ++i) places[i] = i;
  return places;
}

}  // namespace

Stage::Stage(const RunOptions& options, Setup setup)
    : options_(options),
      setup_(std::move(setup)),
      machines_(setup_.names.size()),
      cuts_(setup_.names.size(), std::vector<unsigned>(setup_.names.size())),
      ways_(setup_.names.size(), std::vector<Way>(setup_.names.size())),
      world_(std::make_unique<SimWorld>(SimWorld::Options{.seed = options.seed})),
      begin_(world_->now()) {
  report_.seed = options.seed;
  report_.names = setup_.names;
  setup_.menu.nodes = static_cast<unsigned>(setup_.names.size());
  report_.plan = make_plan(options.seed, setup_.menu);
  for (const std::string& each : options.planted)
    planted_.push_back(std::make_unique<ArmedFailpoint>(each));
  // What is the process's, and not the world's, begins anew with each run.
  ps::detail::pause_chance().seed(static_cast<unsigned>(SimRandom::mix(options.seed)));
  SqliteFiles::seed_chance(options.seed);
  log::set_sink([this](log::Level, std::string_view text) {
    if (traced()) note(text);
  });
  if (options.trace && options.trace_all)
    world_->set_trace([this](const std::string& line) { options_.trace(line); });
  for (const std::string& name : setup_.names)
    world_->add_node({.shards = setup_.shards, .name = name});
}

Stage::~Stage() {
  close();
  log::set_sink({});
}

void Stage::note(std::string_view text) {
  if (traced()) options_.trace(time_text(now()) + "  " + std::string(text));
}

void Stage::after(Duration span, std::function<void()> act) {
  world_->after(span, [this, act = std::move(act)] {
    if (!over_) act();
  });
}

void Stage::start() {
  for (unsigned node = 0; node < machines_.size(); ++node) boot_node(node);
  for (const std::size_t place : options_.faults.value_or(all_places(report_.plan.size()))) {
    const Fault fault = only(report_.plan, std::span(&place, 1))[0];
    after(fault.at, [this, place] { strike(place); });
  }
  // A run without some of its faults lasts as long as one with them.
  for (const Fault& fault : report_.plan)
    storm_end_ = std::max(storm_end_, fault.at + lasting(fault));
  keep_watch();
}

bool Stage::run_until(const std::function<bool()>& done, Duration limit, const std::string& what) {
  const bool ended = world_->run_until([&] { return violated() || done(); }, limit);
  if (violated()) return false;
  if (!ended)
    violate(fmt::format("{:.0f} s after the last fault this still waits: {}",
                        std::chrono::duration<double>(limit).count(), what));
  return ended;
}

void Stage::run_for(Duration span) {
  world_->run_until([this] { return violated(); }, span);
}

void Stage::violate(std::string text) {
  if (violated()) return;
  note("VIOLATION: " + text);
  report_.violation = Violation{now(), std::move(text)};
}

RunReport Stage::take_report() {
  report_.span = now();
  report_.trace_hash = world_->trace_hash();
  report_.turns = world_->turn_count();
  close();
  return std::move(report_);
}

// ---- Processes

void Stage::boot_node(unsigned index) {
  note_ways();
  Machine& machine = machines_[index];
  machine.up_at.reset();
  machine.was_up = true;
  machine.frozen = 0;
  if (!node(index).is_up()) node(index).restart();
  note(fmt::format("{} starts, for the {}. time", setup_.names[index], node(index).incarnation()));
  try {
    boot(index);
  } catch (const std::exception& error) {
    process_ended(index, error.what());
  }
  note_ways();
}

void Stage::process_ended(unsigned index, const std::string& why, bool stay_down) {
  note(fmt::format("{} has ended{}{}", setup_.names[index], why.empty() ? "" : ": ", why));
  machines_[index].stays_down = stay_down;
  // From a task its stack is in use, from an event it is not; crash() knows.
  after(Duration(0), [this, index, boots = node(index).incarnation()] {
    if (node(index).is_up() && node(index).incarnation() == boots)
      crash(index, SimCrash::kill(), setup_.restart_pause);
  });
}

void Stage::crash(unsigned index, SimCrash what, Duration down) {
  node(index).crash(what);
  machines_[index].up_at = world_->now() + down;
}

// Starts what is down and whose time has come; also what went down at a disk operation.
void Stage::keep_watch() {
  for (unsigned index = 0; index < machines_.size(); ++index) {
    Machine& machine = machines_[index];
    if (node(index).is_up()) continue;
    if (std::exchange(machine.was_up, false)) went_down(index);
    if (machine.stays_down) continue;
    if (!machine.up_at) machine.up_at = world_->now() + setup_.restart_pause;
    if (world_->now() >= *machine.up_at) boot_node(index);
  }
  note_ways();
  watch();
  after(watch_pause, [this] { keep_watch(); });
}

void Stage::changing_ways(const std::function<void()>& change) {
  note_ways();
  change();
  note_ways();
}

void Stage::note_ways() {
  for (unsigned from = 0; from < machines_.size(); ++from)
    for (unsigned to = 0; to < machines_.size(); ++to) {
      const bool silent = is_silent(from, to), listens = is_awake(to);
      Way& way = ways_[from][to];
      const bool same = way.listener == node(to).incarnation();
      if (!same || is_disturbed(from, to)) way.disturbed_at = world_->now();
      if (silent && listens && way.silent_since && same) continue;
      way.silent_since.reset();
      way.listener = node(to).incarnation();
      if (silent && listens) way.silent_since = world_->now();
    }
}

bool Stage::is_disturbed(unsigned from, unsigned to) const noexcept {
  const SimNetwork::Faults& faults = world_->network().faults();
  return is_silent(from, to) || !is_awake(to) ||
         faults.loss + faults.spike + faults.reset + faults.refuse > 0;
}

Duration Stage::silence(unsigned from, unsigned to) const {
  const Way& way = ways_[from][to];
  return way.silent_since ? world_->now() - *way.silent_since : Duration(0);
}

Duration Stage::calm(unsigned a, unsigned b) const {
  if (is_disturbed(a, b) || is_disturbed(b, a)) return Duration(0);
  return world_->now() - std::max(ways_[a][b].disturbed_at, ways_[b][a].disturbed_at);
}

void Stage::cut(unsigned from, unsigned to) {
  if (from == to) return;
  if (++cuts_[from][to] == 1) world_->network().cut(node(from), node(to));
}

// Another fault may still cut it, or the way back. The network then delivers what it has kept back,
// also for a process that stands still, and in return there is room for more on the way back.
void Stage::mend_cut(unsigned from, unsigned to) {
  if (from == to || cuts_[from][to] == 0) return;
  changing_ways([&] {
    if (--cuts_[from][to] != 0) return;
    world_->network().heal(node(from), node(to));
    if (cuts_[to][from] != 0) world_->network().cut(node(to), node(from));
    ways_[from][to].silent_since.reset();
    ways_[to][from].silent_since.reset();
  });
}

// ---- Faults

void Stage::strike(std::size_t place) {
  const Fault fault = report_.plan[place];
  const std::string met = state(fault);
  bool struck = false;
  switch (fault.kind) {
    using enum FaultKind;
    case kill:
    case power_cut:
    case power_cut_at:
    case kill_at:
    case pause:
    case clock_jump:
    case calendar_back: struck = strike_process(fault); break;
    case partition:
    case one_way:
    case isolate:
    case reset:
    case reset_burst:
    case loss:
    case delay:
    case refuse:
    case reply_lost: struck = strike_network(fault); break;
    case slow_disk:
    case full_disk:
    case sync_error:
    case write_error:
    case read_error: struck = strike_disk(fault); break;
    case code_throws: struck = strike_code(fault); break;
    case no_memory:
      arm_for(fault.span, "pool-memory=plant");
      struck = true;
      break;
    case actor_throws: struck = this->actor_throws(fault); break;
  }
  note_ways();
  report_.struck += struck;
  if (struck) ++report_.coverage[{std::string(name(fault.kind)), met}];
  if (traced())
    note(fmt::format("fault {}{}: {} (while {})", place, struck ? "" : " (no effect)",
                     describe(fault, setup_.names), met));
}

bool Stage::strike_process(const Fault& fault) {
  SimNode& victim = node(fault.node);
  if (!victim.is_up()) return false;
  Machine& machine = machines_[fault.node];
  switch (fault.kind) {
    using enum FaultKind;
    case kill: crash(fault.node, SimCrash::kill(), fault.span); break;
    case power_cut: crash(fault.node, SimCrash::power_cut(), fault.span); break;
    case power_cut_at: victim.crash_at_disk_operation(fault.amount + 1); break;
    case kill_at: victim.crash_at_disk_operation(fault.amount + 1, SimCrash::kill()); break;
    case pause:
      victim.pause();
      ++machine.frozen;
      after(fault.span, [this, index = fault.node, boots = victim.incarnation()] {
        if (node(index).incarnation() != boots) return;
        changing_ways([&] {
          if (--machines_[index].frozen == 0) node(index).resume();
        });
      });
      break;
    case clock_jump:
      victim.jump_clock(fault.span);
      for (auto& way : ways_[fault.node]) way.disturbed_at = world_->now();
      break;
    default: calendar_set_back(fault.node, fault.span);
  }
  return true;
}

bool Stage::strike_network(const Fault& fault) {
  SimNetwork& network = world_->network();
  SimNode &from = node(fault.node), &to = node(fault.other);
  const double share = static_cast<double>(fault.amount) / 100;
  const auto cut_for = [this, &fault](unsigned sender, unsigned receiver) {
    cut(sender, receiver);
    after(fault.span, [this, sender, receiver] { mend_cut(sender, receiver); });
  };
  switch (fault.kind) {
    using enum FaultKind;
    case partition:
      cut_for(fault.node, fault.other);
      cut_for(fault.other, fault.node);
      return true;
    case one_way: cut_for(fault.node, fault.other); return true;
    case isolate:
      for (unsigned other = 0; other < machines_.size(); ++other) {
        cut_for(fault.node, other);
        cut_for(other, fault.node);
      }
      return true;
    case reset: return network.reset(from, to) != 0;
    case reply_lost:
      cut(fault.node, fault.other);
      after(fault.span, [this, fault] {
        world_->network().reset(node(fault.node), node(fault.other));
        mend_cut(fault.node, fault.other);
      });
      return true;
    case reset_burst:
      network.faults().reset = 0.01;
      after(fault.span, [this] { world_->network().faults().reset = 0; });
      return true;
    case loss:
      network.faults().loss = share;
      after(fault.span, [this] { world_->network().faults().loss = 0; });
      return true;
    case delay:
      network.faults().spike = share;
      after(fault.span, [this] { world_->network().faults().spike = 0; });
      return true;
    default:
      network.faults().refuse = share;
      after(fault.span, [this] { world_->network().faults().refuse = 0; });
      return true;
  }
}

bool Stage::strike_disk(const Fault& fault) {
  SimDisk& disk = node(fault.node).disk();
  const auto fail = [&](Operation::Kind kind) {
    disk.fail_next(kind, EIO, {}, static_cast<unsigned>(fault.amount));
  };
  switch (fault.kind) {
    using enum FaultKind;
    case slow_disk:
      disk.faults().slow = 0.3;
      disk.faults().slow_max = 500ms;
      after(fault.span, [&disk] { disk.faults().slow = 0; });
      break;
    case full_disk:
      disk.set_capacity(disk.used_bytes() + fault.amount);
      after(fault.span, [&disk] { disk.set_capacity(whole_disk); });
      break;
    case sync_error: fail(Operation::Kind::sync); break;
    case write_error: fail(Operation::Kind::write); break;
    default: fail(Operation::Kind::read);
  }
  return true;
}

bool Stage::strike_code(const Fault& fault) {
  if (setup_.failpoints.empty()) return false;
  arm_for(fault.span, setup_.failpoints[fault.amount % setup_.failpoints.size()]);
  return true;
}

void Stage::arm_for(Duration span, const std::string& failpoint) {
  armed_.push_back(std::make_unique<ArmedFailpoint>(failpoint));
  after(span, [this, point = armed_.back().get()] {
    std::erase_if(armed_, [point](const auto& each) { return each.get() == point; });
  });
}

void Stage::mend() {
  armed_.clear();
  auto& network = world_->network();
  network.faults() = SimNetwork::Faults();
  network.heal();
  for (auto& row : cuts_) std::ranges::fill(row, 0u);
  for (unsigned index = 0; index < machines_.size(); ++index) {
    SimDisk& disk = node(index).disk();
    disk.faults() = SimDisk::Faults();
    disk.set_capacity(whole_disk);
    disk.forget_planned();
    if (!node(index).is_up()) continue;
    node(index).resume();
    node(index).crash_at_disk_operation(0);
  }
}

}  // namespace hyperframes::sim::detail
