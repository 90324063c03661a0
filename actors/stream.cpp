#include <hyperframes/actors/stream.hpp>

#include <algorithm>
#include <hyperframes/actors/detail/node_core.hpp>
#include <hyperframes/actors/detail/node_shard.hpp>
#include <hyperframes/actors/detail/remote.hpp>

namespace hyperframes::detail {
namespace {

net::Lane lane_of(bool bulk) noexcept { return bulk ? net::Lane::bulk : net::Lane::normal; }

}  // namespace

StreamPlace place_of_handler(const Letter& letter, Time deadline) noexcept {
  const bool remote = letter.kind == Letter::Kind::remote_ask;
  return {.home = letter.cell->home,
          .peer = remote ? &letter.route->peer->peer : nullptr,
          .lane = lane_of(letter.method->bulk),
          .deadline = deadline,
          .owner = letter.cell->owner};
}

void answer_opened(Letter* letter, StreamSink& sink, StreamSource* source) noexcept {
  auto* opened = new (letter->payload<StreamOpened>()) StreamOpened;
  opened->core = &letter->cell->home->core;
  opened->sink = sink.number();
  if (source) {
    opened->source = source->number();
    opened->window = source->window();
  }
  letter->content = Letter::Content::answer;
  RemotePeer* const peer = sink.peer();
  if (peer && !peer->on(letter->cell->home->shard.index()).connected()) {
    // It ended while the letter waited, so nobody will tell these ends.
    const Error lost(Errc::peer_lost, "open a stream for the node at " + peer->address,
                     "its connection ended before the handler began");
    sink.fail(lost);
    if (source) source->fail(lost);
  }
  send_back(letter);
}

NodeCore* core_of(const Letter& letter) noexcept { return &letter.origin->core; }

StreamPlace place_of_caller(const Destination& to, const PromiseBase& caller,
                            const StreamOptions& options, bool bulk) noexcept {
  StreamPlace place{
      .peer = to.peer, .lane = lane_of(bulk), .deadline = options.deadline, .owner = caller.owner};
  if (!options.within.outlasts) place.deadline = std::min(place.deadline, caller.deadline);
  auto* shard = static_cast<Shard*>(caller.core);
  if (!shard || !to.id) return place;
  NodeCore& core = to.peer ? to.peer->core : to.cell->home->core;
  if (&core.runtime == &shard->runtime()) place.home = &core.at(shard->index());
  return place;
}

StreamWindow checked(StreamWindow window) noexcept {
  return {std::max(1u, window.messages), std::clamp(window.bytes, 1u, 1u << 30)};
}

}  // namespace hyperframes::detail
