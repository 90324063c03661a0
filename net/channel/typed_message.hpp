// A message as programs without actors see it: a type, metadata, and data.
//
//   hf::net::TypedMessage message{.type = "ml.splitter.batch", .metadata = {{"step", "12"}}};
//   message.segments.push_back(rows);                    // travels as it is, never copied together
//   co_await channel.send(std::move(message));
//
// It is the spelt-out side of net::Message, the one envelope of the whole system: type and metadata
// become its type id and its metadata, body and segments are the same. Its buffers belong to one
// shard, as buffers do; those made on a plain thread may go anywhere.
#pragma once

#include <hyperframes/net/channel/message_type.hpp>
#include <hyperframes/net/channel/metadata.hpp>
#include <hyperframes/runtime/buffer.hpp>

namespace hyperframes::net {

/// Who sends it gives its bytes away: nothing may write into them until the peer has them. A copy
/// shares the bytes. Segments from Messenger::loan are read where they are by a peer on this host:
/// nothing may write into them until it has done with them, and the peer never.
struct TypedMessage {
  MessageType type;
  Metadata metadata = {};
  Buffer body = {};        ///< Small data: at most 1 GiB.
  Segments segments = {};  ///< Large data: at most 1,024 buffers, which arrive as many. Their sum,
                           ///< and each of them, may exceed 4 GiB if the receiver has the memory.
};

}  // namespace hyperframes::net
