#include <hyperframes/actors/detail/sampler.hpp>

#include <hyperframes/runtime/runtime.hpp>

namespace hyperframes::detail {
namespace {

constexpr Duration interval = 1ms;
constexpr Duration interest = 5s;            // after the last question
constexpr std::size_t most_owners = 65'536;  // then it begins anew

std::uint64_t key_of(unsigned shard, std::uint32_t owner) noexcept {
  return std::uint64_t{shard} << 32 | owner;
}

}  // namespace

Sampler::Sampler(Runtime& runtime)
    : runtime_(runtime), samples_(runtime.shard_count()), thread_([this] { run(); }) {}

Sampler::~Sampler() {
  {
    std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Sampler::look() {
  if (busy_.size() > most_owners) busy_.clear();
  for (unsigned i = 0; i < runtime_.shard_count(); ++i) {
    ++samples_[i];
    const auto owner = runtime_.shard(i).running_owner.load(std::memory_order_relaxed);
    if (owner) ++busy_[key_of(i, owner)];
  }
}

void Sampler::run() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (asked_ == Time{} || Clock::read_system() - asked_ > interest) {
      changed_.wait(lock);
    } else {
      changed_.wait_for(lock, interval);
      look();
    }
  }
}

void Sampler::add_to(NodeReport& report) {
  std::scoped_lock lock(mutex_);
  asked_ = Clock::read_system();
  changed_.notify_all();
  for (ShardReport& shard : report.shards) shard.samples = samples_[shard.index];
  for (ActorReport& actor : report.actors) {
    const auto found = busy_.find(key_of(actor.shard, actor.owner));
    if (actor.owner && found != busy_.end()) actor.busy_samples = found->second;
  }
}

}  // namespace hyperframes::detail
