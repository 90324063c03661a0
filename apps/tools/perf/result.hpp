// What `hyperframes perf` has measured, as rows, as JSON, and as a history of runs.
//
//   Run run{.uri = "tcp://127.0.0.1:6000", .rows = rows};
//   std::string text = to_json(run);                 // read back by read_run
//   std::vector<Run> earlier = read_history("perf.jsonl");   // a file that is not there: none
//   append_history("perf.jsonl", run);               // a line
//
// GB is 10^9 bytes. CPU seconds are those of both processes, user and system.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes::tools::perf {

/// A message there and back, one at a time.
struct RoundTrips {
  double p50_us = 0, p99_us = 0, p999_us = 0, max_us = 0;
  std::uint64_t count = 0;
};

/// Messages one way, as many at a time as the receiver grants.
struct Stream {
  double messages_per_s = 0, gb_per_s = 0;
  double cpu_s_per_gb = 0, cpu_s_per_mmsg = 0;
  /// What of `cpu_s_per_gb` the receiver's checksums took.
  double check_s_per_gb = 0;
  std::uint64_t count = 0;
};

/// One size over one transport.
struct Row {
  std::string transport;   ///< What the session says that it uses: "tcp", "shm".
  bool self_loop = false;  ///< Both ends on this host over shared memory, before the network.
  std::uint64_t size = 0;  ///< Bytes of a message's body.
  std::optional<RoundTrips> round_trips = {};  ///< Empty: the run ended before.
  std::optional<Stream> stream = {};
  std::uint64_t verified = 0;  ///< Messages whose checksum and place in the order were checked.
  std::uint64_t wrong = 0;     ///< Of those, with a wrong byte or in a wrong place; and lost ones.

  bool complete() const noexcept { return round_trips && stream; }
};

struct Run {
  std::string time = {};  ///< When it began, such as "2026-05-01T12:00:00Z".
  std::string version = {}, host = {}, processor = {}, kernel = {};
  unsigned cores = 0;
  std::string uri = {};
  std::string peer_host = {};  ///< Where the other end ran.
  double seconds = 0;          ///< Of steady state that were asked for.
  bool polling = false;
  std::vector<Row> rows = {};
  std::string problem = {};  ///< The first wrong message.
  std::string error = {};    ///< Not empty: it ended early, and the rows are what there was.

  bool partial() const noexcept { return !error.empty(); }
  std::uint64_t wrong() const noexcept;
  std::uint64_t verified() const noexcept;
};

/// A run that is about to be made on this host: time, version, host, processor, kernel, cores.
Run describe_this_host();

/// An object with `rows`, each {transport, size, rtt_p50_us, rtt_p99_us, msgs_per_s, gb_per_s,
/// cpu_s_per_gb, cpu_s_per_mmsg, verified, wrong}, and `details`, which say more of the row in the
/// same place; what was not measured is null. On one line unless `indented`.
std::string to_json(const Run& run, bool indented = false);
/// Throws Errc::corrupt, with `where` and what is wrong.
Run read_run(std::string_view json, const std::string& where);

/// Writes the file anew. Throws the system's error.
void write_json(const std::string& path, const Run& run);

/// Runs, a line each, the oldest first. Throws Errc::corrupt that names the line which is none, and
/// Errc::invalid_argument for what is no regular file.
std::vector<Run> read_history(const std::string& path);
/// Throws the system's error.
void append_history(const std::string& path, const Run& run);

}  // namespace hyperframes::tools::perf
