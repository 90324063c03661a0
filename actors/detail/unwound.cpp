#include <hyperframes/actors/detail/unwound.hpp>

#include <exception>
#include <hyperframes/actors/detail/cell.hpp>
#include <hyperframes/actors/detail/letter.hpp>
#include <hyperframes/actors/detail/node_shard.hpp>
#include <hyperframes/actors/detail/stream_end.hpp>
#include <utility>

namespace hyperframes::detail {

struct Unwound::Kept {
  Letter* letter = nullptr;  ///< Or else a farewell.
  std::uint32_t owner = 0;
  std::unique_ptr<StreamFrame> farewell;
  RemotePeer* peer = nullptr;
  net::Lane lane = net::Lane::normal;

  bool is_of(const ActorCell& cell) const noexcept {
    return letter ? letter->cell == &cell : owner == cell.owner;
  }
};

Unwound::Unwound(NodeShard& home) noexcept : Work(&Unwound::run), home_(home) {}

Unwound::~Unwound() {
  if (queued_) home_.shard.unschedule(this);
}

bool Unwound::takes() const noexcept {
  return !home_.drop_reason && std::uncaught_exceptions() > 0;
}

void Unwound::keep(Letter* letter) noexcept {
  Kept kept;
  kept.letter = letter;
  add(std::move(kept));
}

void Unwound::keep(std::uint32_t owner, std::unique_ptr<StreamFrame> farewell, RemotePeer* peer,
                   net::Lane lane) noexcept {
  Kept kept;
  kept.owner = owner;
  kept.farewell = std::move(farewell);
  kept.peer = peer;
  kept.lane = lane;
  add(std::move(kept));
}

// Counted as if it were under way, so that a node does not end before it was said.
void Unwound::add(Kept kept) noexcept {
  ++home_.posted;
  kept_.push_back(std::move(kept));
  if (!std::exchange(queued_, true)) home_.shard.schedule(this);
}

void Unwound::end(Kept& kept) noexcept {
  home_.arrived();
  if (kept.letter) return end_unanswered(kept.letter);
  if (home_.drop_reason) kept.farewell->error = std::make_unique<Error>(home_.drop_reason->error());
  static_cast<void>(send(home_, std::move(kept.farewell), kept.peer, kept.lane));
}

void Unwound::end(const ActorCell& cell) noexcept {
  if (kept_.empty()) return;
  std::vector<Kept> others;
  for (Kept& kept : std::exchange(kept_, {})) {
    if (kept.is_of(cell)) {
      end(kept);
    } else {
      others.push_back(std::move(kept));
    }
  }
  kept_.insert(kept_.end(), std::make_move_iterator(others.begin()),
               std::make_move_iterator(others.end()));
}

void Unwound::run(Work* work) noexcept {
  auto& self = *static_cast<Unwound*>(work);
  self.queued_ = false;
  for (Kept& kept : std::exchange(self.kept_, {})) self.end(kept);
}

}  // namespace hyperframes::detail
