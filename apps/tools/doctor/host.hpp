// A host to examine: its files, and what no file tells but a try does.
//
//   Host host = this_host();
//   host.files.read("proc/version");
//   if (auto refusal = host.probes.try_io_uring()) std::puts(refusal->error.what());
//
// Tests give a folder as the root, and probes that answer what they like.
#pragma once

#include <cstdint>
#include <functional>
#include <hyperframes/apps/tools/doctor/host_files.hpp>
#include <hyperframes/runtime/error.hpp>
#include <optional>
#include <string>
#include <vector>

namespace hyperframes::tools::doctor {

/// Why io_uring is not to be had.
struct UringRefusal {
  Error error;           ///< As a program of this project gets it.
  int error_number = 0;  ///< Of the bare system call; 0 if that one succeeds.
};

struct Space {
  std::uint64_t total = 0, free = 0;  ///< Bytes.
};

/// Descriptors of a card's rings, now and at most.
struct Rings {
  unsigned receive = 0, receive_most = 0, transmit = 0, transmit_most = 0;
};

/// Pairs of queues that a card uses, and that it has.
struct Queues {
  unsigned now = 0, most = 0;
};

struct Pause {
  bool receive = false, transmit = false;
};

struct ClockState {
  bool synchronised = false;
  std::uint64_t error_us = 0;  ///< At most, as the kernel reckons.
};

struct Probes {
  /// Sets up a ring as a shard does, and takes it down. Empty: it works.
  std::function<std::optional<UringRefusal>()> try_io_uring;
  /// Makes, seals and maps a piece of shared memory as the transport does. Empty: it works.
  std::function<std::optional<Error>()> try_shared_memory;
  std::function<std::optional<Space>(const std::string& folder)> space_of;
  std::function<std::optional<Rings>(const std::string& interface)> rings_of;
  std::function<std::optional<Queues>(const std::string& interface)> queues_of;
  std::function<std::optional<Pause>(const std::string& interface)> pause_of;
  /// The priorities with flow control of their own (PFC).
  std::function<std::optional<std::vector<unsigned>>(const std::string& interface)> priorities_of;
  std::function<std::optional<ClockState>()> clock_state;
  std::function<double()> clock_read_ns;
  /// Whether this user may read and write it; empty: it may. Otherwise the errno.
  std::function<std::optional<int>(const std::string& path)> refuses_opening;
  bool has_asio = true;  ///< Of this build: then io_uring may be missing.
};

struct Host {
  HostFiles files;
  Probes probes;
};

/// The one that this runs on.
Host this_host();

}  // namespace hyperframes::tools::doctor
