// Savina's benchmarks of messages alone, on CAF. What a handler returns goes to the sender, as a
// message of its own.
#include <memory>
#include <vector>

#include "savina_root.hpp"

namespace hyperframes::bench::savina::caf_peer {
namespace {

using Increment = caf::atom_constant<caf::atom("increment")>;
using Meet = caf::atom_constant<caf::atom("meet")>;
using Pass = caf::atom_constant<caf::atom("pass")>;
using Ping = caf::atom_constant<caf::atom("ping")>;
using Retrieve = caf::atom_constant<caf::atom("retrieve")>;
using Work = caf::atom_constant<caf::atom("work")>;

// ---- ping-pong --------------------------------------------------------------------------------

caf::behavior ponger() {
  return {[](Ping, std::int64_t value) { return value + 1; }};
}

struct PingerState {
  std::int64_t left = 0;
};
caf::behavior pinger(caf::stateful_actor<PingerState>* self, PingPong program, caf::actor root,
                     caf::actor ponger) {
  self->state.left = program.round_trips;
  return {[=](Begin) { self->send(ponger, Ping::value, std::int64_t{0}); },
          [=](std::int64_t value) {
            if (--self->state.left > 0) {
              self->send(ponger, Ping::value, value);
            } else {
              self->send(root, Report::value, value);
            }
          }};
}

// ---- counting ---------------------------------------------------------------------------------

struct CounterState {
  std::int64_t total = 0;
};
caf::behavior counter(caf::stateful_actor<CounterState>* self) {
  return {[=](Increment, std::int64_t value) { self->state.total += value; },
          [=](Retrieve) { return self->state.total; }};
}

// ---- fork-join --------------------------------------------------------------------------------

struct ForkedState {
  std::int64_t count = 0;
  double sum = 0;
};
caf::behavior forked(caf::stateful_actor<ForkedState>* self, std::int64_t messages,
                     caf::actor root) {
  return {[=](Work, double angle) {
    self->state.sum += fork_work(angle);
    if (++self->state.count == messages) self->send(root, Report::value, self->state.count);
  }};
}

caf::behavior short_lived(caf::stateful_actor<ForkedState>* self, caf::actor root) {
  return {[=](Work, double angle) {
    self->state.sum = fork_work(angle);
    self->send(root, Report::value, std::int64_t{self->state.sum >= 0});
    self->quit();
  }};
}

// ---- thread ring ------------------------------------------------------------------------------

caf::behavior ring_node(caf::event_based_actor* self, caf::actor next) {
  return {[=](Pass, std::int64_t hops) { self->send(next, Pass::value, hops + 1); }};
}

struct FirstNodeState {
  caf::actor next;
};
/// Closes the ring when the token first comes, and ends it when it has gone round often enough.
caf::behavior first_ring_node(caf::stateful_actor<FirstNodeState>* self, ThreadRing program,
                              caf::actor root) {
  auto close_ring = [=] {
    caf::actor next = handle_of(self);
    for (std::int64_t i = 1; i < program.actors; ++i)
      next = self->spawn<caf::linked>(ring_node, next);
    self->state.next = next;
  };
  return {[=](Pass, std::int64_t hops) {
    if (!self->state.next) close_ring();
    if (hops == program.messages()) {
      self->send(root, Report::value, hops);
    } else {
      self->send(self->state.next, Pass::value, hops + 1);
    }
  }};
}

// ---- chameneos --------------------------------------------------------------------------------

struct MallState {
  std::int64_t left = 0, colour = 0;
  Ticket waiting;
};
/// Tells each of two that come the colour of the other one.
caf::behavior mall(caf::stateful_actor<MallState>* self, std::int64_t meetings) {
  self->state.left = meetings;
  return {[=](Meet, std::int64_t colour) {
    MallState& state = self->state;
    auto ticket = self->make_response_promise<std::int64_t>();
    if (state.left == 0) {
      ticket.deliver(faded);
    } else if (!state.waiting.pending()) {
      state.waiting = ticket;
      state.colour = colour;
    } else {
      --state.left;
      state.waiting.deliver(colour);
      ticket.deliver(state.colour);
      state.waiting = {};
    }
  }};
}

struct ChameneoState {
  std::int64_t colour = 0, meetings = 0;
};
caf::behavior chameneo(caf::stateful_actor<ChameneoState>* self, std::int64_t colour,
                       caf::actor mall, caf::actor root) {
  self->state.colour = colour;
  return {[=](Begin) { self->send(mall, Meet::value, self->state.colour); },
          [=](std::int64_t other) {
            if (other == faded) return self->send(root, Report::value, self->state.meetings);
            self->state.colour = complement(self->state.colour, other);
            ++self->state.meetings;
            self->send(mall, Meet::value, self->state.colour);
          }};
}

// ---- big --------------------------------------------------------------------------------------

using Peers = std::vector<caf::actor>;

struct PeerState {
  Random random{0};
  std::int64_t sent = 0, pongs = 0;
};
caf::behavior peer(caf::stateful_actor<PeerState>* self, std::int64_t index, std::int64_t pings,
                   std::shared_ptr<const Peers> peers, caf::actor root) {
  self->state.random = Random(static_cast<std::uint64_t>(index));
  auto ping_next = [=] {
    PeerState& state = self->state;
    const auto count = static_cast<std::int64_t>(peers->size());
    const std::int64_t other = (index + 1 + state.random.below(count - 1)) % count;
    self->send((*peers)[static_cast<std::size_t>(other)], Ping::value, state.sent++);
  };
  return {[=](Begin) { ping_next(); },
          [=](std::int64_t pong) {
            PeerState& state = self->state;
            state.pongs += pong == state.sent - 1;
            if (state.sent < pings) return ping_next();
            self->send(root, Report::value, state.pongs);
          },
          [=](Ping, std::int64_t value) { return value; }};
}

}  // namespace

Outcome run(const PingPong& program) {
  return timed([=](RootActor* self) {
    const auto pong = start(self, ponger);
    self->send(start(self, pinger, program, handle_of(self), pong), Begin::value);
    return 1;
  });
}

Outcome run(const Counting& program) {
  return timed([=](RootActor* self) {
    const auto count = start(self, counter);
    for (std::int64_t i = 0; i < program.increments; ++i)
      self->send(count, Increment::value, std::int64_t{1});
    self->request(count, caf::infinite, Retrieve::value).then([=](std::int64_t total) {
      self->send(self, Report::value, total);
    });
    return 1;
  });
}

Outcome run(const ForkJoinThroughput& program) {
  return timed([=](RootActor* self) {
    std::vector<caf::actor> actors;
    for (std::int64_t i = 0; i < program.actors; ++i)
      actors.push_back(start(self, forked, program.messages_each, handle_of(self)));
    for (std::int64_t i = 0; i < program.messages_each; ++i)
      for (const auto& actor : actors) self->send(actor, Work::value, fork_angle);
    return program.actors;
  });
}

Outcome run(const ForkJoinCreate& program) {
  return timed([=](RootActor* self) {
    for (std::int64_t i = 0; i < program.actors; ++i)
      self->send(self->spawn(short_lived, handle_of(self)), Work::value, fork_angle);
    return program.actors;
  });
}

Outcome run(const ThreadRing& program) {
  return timed([=](RootActor* self) {
    const auto first = start(self, first_ring_node, program, handle_of(self));
    self->send(first, Pass::value, std::int64_t{0});
    return 1;
  });
}

Outcome run(const Chameneos& program) {
  return timed([=](RootActor* self) {
    const auto meeting_place = start(self, mall, program.meetings);
    for (std::int64_t i = 0; i < program.chameneos; ++i)
      self->send(start(self, chameneo, i % 3, meeting_place, handle_of(self)), Begin::value);
    return program.chameneos;
  });
}

Outcome run(const Big& program) {
  return timed([=](RootActor* self) {
    auto peers = std::make_shared<Peers>();
    for (std::int64_t i = 0; i < program.actors; ++i)
      peers->push_back(start(self, peer, i, program.pings_each, std::shared_ptr<const Peers>(peers),
                             handle_of(self)));
    for (const auto& each : *peers) self->send(each, Begin::value);
    return program.actors;
  });
}

}  // namespace hyperframes::bench::savina::caf_peer
