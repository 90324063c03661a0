// The CAF actor that every Savina benchmark begins with, and how one is timed.
//
//   Outcome run(const Counting& program) {
//     return timed([=](RootActor* self) { start(self, counter); ...; return 1; });  // one report
//   }
#pragma once

#include <caf/all.hpp>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../harness.hpp"
#include "../savina/kernels.hpp"
#include "caf_config.hpp"
#include "savina.hpp"

namespace hyperframes::bench::savina::caf_peer {

using Begin = caf::atom_constant<caf::atom("begin")>;
using Report = caf::atom_constant<caf::atom("report")>;
using Run = caf::atom_constant<caf::atom("run")>;

/// The right to answer a message with a number.
using Ticket = caf::typed_response_promise<std::int64_t>;

struct Total {
  std::vector<caf::actor> children;
  Ticket answer;
  std::int64_t expected = -1, reports = 0, sum = 0;
};
using RootActor = caf::stateful_actor<Total>;

inline caf::actor handle_of(caf::event_based_actor* self) {
  return caf::actor_cast<caf::actor>(self);
}

/// Starts an actor that ends with this one, and not before: CAF ends one that nobody refers to.
template <class State, class... Arguments>
caf::actor start(caf::stateful_actor<State>* self, Arguments&&... arguments) {
  auto& children = self->state.children;
  children.push_back(self->template spawn<caf::linked>(std::forward<Arguments>(arguments)...));
  return children.back();
}

/// Answers with the sum of the reports, of which `fork(self)` says how many will come.
template <class Fork>
caf::behavior root(RootActor* self, Fork fork) {
  auto answer_when_complete = [self] {
    Total& total = self->state;
    if (total.reports == total.expected) total.answer.deliver(total.sum);
  };
  return {[=](Run) {
            self->state.answer = self->make_response_promise<std::int64_t>();
            self->state.expected = fork(self);
            answer_when_complete();
          },
          [=](Report, std::int64_t value) {
            self->state.sum += value;
            ++self->state.reports;
            answer_when_complete();
          }};
}

template <class Fork>
Outcome timed(Fork fork) {
  auto config = bench::caf_peer::config_for(1);
  caf::actor_system system{config};
  Outcome outcome;
  std::string failure;
  const double start = now_ns();
  {
    caf::scoped_actor self{system};
    const caf::actor first = system.spawn(root<Fork>, std::move(fork));
    self->request(first, caf::infinite, Run::value)
        .receive([&](std::int64_t answer) { outcome.answer = answer; },
                 [&](caf::error& error) { failure = system.render(error); });
    self->send_exit(first, caf::exit_reason::user_shutdown);
  }
  system.await_all_actors_done();
  outcome.seconds = (now_ns() - start) / 1e9;
  if (!failure.empty()) throw std::runtime_error("CAF's actors failed: " + failure);
  return outcome;
}

}  // namespace hyperframes::bench::savina::caf_peer
