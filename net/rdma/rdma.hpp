// Links through queue pairs of RDMA devices, begun over what another transport carries.
//
//   auto device = co_await hf::offload([options] { return hf::net::detail::RdmaDevice::open(options); });
//   auto transport = hf::net::make_rdma_transport(std::move(tcp), device, hf::net::RdmaSide::connecting);
//   transport->start(owner, 256u << 10);     // bytes go by the queue pair once it is shown to work
//
// A Network does that itself, for rdma:// and auto://. Both ends have shaken hands by then, and
// agreed to try: so nobody who has not shown who he is costs a queue pair. The connection below
// stays, and says when the peer's process ends. If the pair can't be set up, for whatever reason,
// the link goes on over that connection as if nothing had been tried, and a line in the log says
// why. If the pair fails later, the link breaks, as by a connection that is reset.
//
// Each byte is copied twice: by the sender into registered memory, by the receiver out of it. What
// the peer's device may write to is only what was posted to receive into.
#pragma once

#include <hyperframes/net/rdma/options.hpp>
#include <hyperframes/net/transport.hpp>
#include <memory>

namespace hyperframes::net {

namespace detail {
class RdmaDevice;
}

enum class RdmaSide : std::uint8_t { connecting, accepting };

/// `below` has not been started. With `first_goes_below` the first batch is sent there: the words
/// of a handshake that its peer reads before it knows what becomes of the connection.
std::unique_ptr<Transport> make_rdma_transport(std::unique_ptr<Transport> below,
                                               std::shared_ptr<detail::RdmaDevice> device,
                                               RdmaSide side, bool first_goes_below = false);

/// Every connection that `below` makes, at both ends, with a queue pair tried at its start: for
/// programs without a Network.
std::unique_ptr<TransportProvider> make_rdma_provider(std::unique_ptr<TransportProvider> below,
                                                      std::shared_ptr<detail::RdmaDevice> device);

}  // namespace hyperframes::net
