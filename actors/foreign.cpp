#include <hyperframes/actors/foreign.hpp>

#include <hyperframes/actors/detail/home_shard.hpp>
#include <hyperframes/actors/detail/node_shard.hpp>

namespace hyperframes::detail {

ForeignStart foreign_start(const Destination& to) {
  NodeShard* const part = home_part(to);
  if (!part)
    throw Error(Errc::invalid_argument, "call an actor from a foreign thread",
                "the reference is empty", "find or spawn the actor first");
  return {part->shard, part->foreign_calls};
}

Error too_many_foreign_calls() {
  return Error(Errc::overloaded, "call an actor from a foreign thread",
               std::to_string(most_foreign_calls) + " such calls are pending on its shard",
               "wait for some of them first");
}

Error runtime_stopped() {
  return Error(Errc::shutting_down, "call an actor from a foreign thread",
               "the runtime stopped before the call had ended");
}

Error no_foreign_call() {
  return Error(Errc::invalid_argument, "take the outcome of a call to an actor",
               "there is none: it was taken, moved elsewhere, or never asked for",
               "keep the Pending that submit returns, and take its outcome once");
}

Segments copy_out(const Segments& segments) {
  Segments copies;
  for (const Buffer& buffer : segments) copies.push_back(Buffer::copy_of(buffer.bytes()));
  return copies;
}

}  // namespace hyperframes::detail
