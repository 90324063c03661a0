#include <hyperframes/actors/foreign.hpp>

#include <hyperframes/actors/detail/node_core.hpp>
#include <hyperframes/actors/detail/remote.hpp>

namespace hyperframes::detail {
namespace {

NodeShard& part_for(const Destination& to) {
  if (!to.id)
    throw Error(Errc::invalid_argument, "call an actor from a foreign thread",
                "the reference is empty", "find or spawn the actor first");
  return to.cell ? *to.cell->home : to.peer->core.at(0);
}

}  // namespace

Shard& shard_for(const Destination& to) { return part_for(to).shard; }

std::shared_ptr<std::atomic<std::uint32_t>> foreign_calls_of(const Destination& to) {
  return part_for(to).foreign_calls;
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

Segments copy_out(const Segments& segments) {
  Segments copies;
  for (const Buffer& buffer : segments) copies.push_back(Buffer::copy_of(buffer.bytes()));
  return copies;
}

}  // namespace hyperframes::detail
