// Sockets of the system, as the drivers that have such make them.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <hyperframes/runtime/address.hpp>

namespace hyperframes::detail {

/// Fills `storage`; returns how much of it counts.
socklen_t to_system(const Address& address, sockaddr_storage& storage) noexcept;
Address from_system(const sockaddr_storage& storage) noexcept;

/// A listening socket; `flags` are socket(2)'s. Throws with the address, the cause and the remedy.
int listen_on(const Address& address, int backlog, int flags);
Address local_address_of(int descriptor);
/// See Reactor::tune_socket.
void tune(int descriptor, std::size_t unsent_backlog_bytes) noexcept;
/// Closing the connection will reset it.
void reset_on_close(int descriptor) noexcept;

}  // namespace hyperframes::detail
