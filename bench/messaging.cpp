// Figures of sessions between two processes, over loopback TCP and over shared memory, beside other
// libraries that do the same.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "floors.hpp"
#include "harness.hpp"
#include "messenger.hpp"
#include "sessions.hpp"
#if HYPERFRAMES_BENCH_NNG
#include "peers/nng.hpp"
#endif
#if HYPERFRAMES_BENCH_UCX
#include "peers/ucx.hpp"
#endif
#if HYPERFRAMES_BENCH_ZMQ
#include "peers/zmq.hpp"
#endif

namespace hyperframes::bench {
namespace {

using Measure = std::function<double()>;

/// Who is measured: the project or a peer, in one of its modes.
struct Subject {
  std::string name;  ///< Another one has another name.
  MakeMessenger make;
};

/// Pairs of processes are made at need, and ended when another one is wanted: those that poll take
/// a core each.
class Current {
 public:
  Messenger& of(const Subject& subject) {
    if (!messenger_ || name_ != subject.name) {
      messenger_.reset();
      messenger_ = subject.make();
      name_ = subject.name;
      messenger_->round_trips(64, 500);
    }
    return *messenger_;
  }
  void end() { messenger_.reset(); }

 private:
  std::unique_ptr<Messenger> messenger_;
  std::string name_;
};

/// What is done, and what of it is told.
struct Figure {
  enum class Load : std::uint8_t { round_trips, stream };
  enum class What : std::uint8_t { time_us, rate, gb_per_s, cpu_us, cpu_s_per_gb };
  std::string name;
  Load load = Load::round_trips;
  std::size_t size = 64;
  int count = 0;
  What what = What::time_us;

  const char* unit() const {
    switch (what) {
      case What::time_us: return "us";
      case What::rate: return "msg/s";
      case What::gb_per_s: return "GB/s";
      case What::cpu_us: return "CPU us";
      case What::cpu_s_per_gb: return "CPU s/GB";
    }
    return "";
  }
  Better better() const {
    return what == What::rate || what == What::gb_per_s ? Better::higher : Better::lower;
  }
  double of(Messenger& messenger) const {
    const double cpu = messenger.both_cpu_seconds();
    const double start = now_ns();
    if (load == Load::round_trips)
      messenger.round_trips(size, count);
    else
      messenger.stream(size, count);
    const double seconds = (now_ns() - start) / 1e9;
    const double used = messenger.both_cpu_seconds() - cpu;
    const double gb = static_cast<double>(size) * count / 1e9;
    switch (what) {
      case What::time_us: return seconds / count * 1e6;
      case What::rate: return count / seconds;
      case What::gb_per_s: return gb / seconds;
      case What::cpu_us: return used / count * 1e6;
      case What::cpu_s_per_gb: return used / gb;
    }
    return 0;
  }
};

Figure trip(std::string name, int count, Figure::What what = Figure::What::time_us) {
  return {std::move(name), Figure::Load::round_trips, 64, count, what};
}
Figure stream(std::string name, std::size_t size, int count, Figure::What what) {
  return {std::move(name), Figure::Load::stream, size, count, what};
}

/// All rows of one transport have these in common.
class Rows {
 public:
  Rows(Runner& runner, std::shared_ptr<Current> current, Carrier carrier)
      : runner_(runner), current_(std::move(current)), carrier_(carrier) {}

  struct Beside {
    std::optional<Subject> peer = std::nullopt;
    double peer_goal = 0;
    std::string floor = {};
    Measure floor_measure = {};
    double floor_goal = 0;
    std::string note = {};
  };
  void add(const Figure& figure, bool polling, const Beside& beside) {
    Row row{.group = name(carrier_),
            .name = figure.name,
            .unit = figure.unit(),
            .better = figure.better(),
            .subject = measure(own(polling), figure),
            .note = beside.note,
            .finish = [current = current_] { current->end(); }};
    if (beside.peer)
      row.peer = Rival{beside.peer->name, measure(*beside.peer, figure), beside.peer_goal};
    if (beside.floor_measure)
      row.floor = Rival{beside.floor, alone(beside.floor_measure), beside.floor_goal};
    runner_.add(std::move(row));
  }
  /// The same figure once more, beside another peer, without a goal.
  void add_beside(Figure figure, bool polling, const std::optional<Subject>& peer,
                  const char* short_name) {
    if (!peer) return;
    figure.name += std::string(", beside ") + short_name;
    add(figure, polling, {.peer = peer});
  }
  void add_pings_beside_bulk() {
    const auto measure = [this](std::uint64_t bulk_bytes) {
      return [current = current_, carrier = carrier_, bulk_bytes] {
        current->end();
        return make_sessions(carrier, false)->p99_of_pings_us(bulk_bytes);
      };
    };
    runner_.add(
        {.group = name(carrier_),
         .name = "64 B ping p99 while 1 GiB moves",
         .unit = "us",
         .subject = measure(1u << 30),
         .peer = {{"the same session without the 1 GiB", measure(0), 10}},
         .note = "pings on the normal lane, 4 MiB messages on the bulk lane of one session"});
  }

  /// Flat, if no byte is touched.
  void add_lent() {
    const auto measure = [this](std::size_t size) {
      return [current = current_, carrier = carrier_, size] {
        current->end();
        return make_sessions(carrier, true, 128u << 20)->lent_round_trip_us(size, 2'000);
      };
    };
    const std::pair<std::size_t, const char*> sizes[] = {
        {64u << 10, "64 KiB"}, {4u << 20, "4 MiB"}, {64u << 20, "64 MiB"}};
    for (const auto& [size, text] : sizes)
      runner_.add({.group = name(carrier_),
                   .name = fmt::format("lent segment of {}, there and an answer back", text),
                   .unit = "us",
                   .subject = measure(size),
                   .peer = {{"the same with 4 KiB", measure(4096), 2}},
                   .note = "no copies; the writer's fill and the reader's checksum are left out; "
                           "beyond half the window a grant is asked for, one trip more"});
  }
  void add_copied_once(std::size_t size, int count, const char* text) {
    const auto measure = [current = current_, carrier = carrier_, size, count] {
      current->end();
      return make_sessions(carrier, true, 128u << 20)->copied_once_gb_per_s(size, count);
    };
    runner_.add({.group = name(carrier_),
                 .name = fmt::format("{} messages, copied once", text),
                 .unit = "GB/s",
                 .better = Better::higher,
                 .subject = measure,
                 .floor = {{fmt::format("memcpy of {}, one thread", text),
                            [size] { return memcpy_bytes_per_second(size, 500) / 1e9; }, .9}},
                 .note = "one copy a byte, by the sender into memory that it lends"});
  }

 private:
  Subject own(bool polling) const {
    return {fmt::format("sessions over {}, {}", name(carrier_), polling ? "polling" : "blocking"),
            [carrier = carrier_, polling] { return make_sessions(carrier, polling); }};
  }
  Measure measure(Subject subject, Figure figure) const {
    return [current = current_, subject = std::move(subject), figure = std::move(figure)] {
      return figure.of(current->of(subject));
    };
  }
  /// Floors poll too: nobody else's shards must poll beside them.
  Measure alone(Measure measure) const {
    return [current = current_, measure = std::move(measure)] {
      current->end();
      return measure();
    };
  }

  Runner& runner_;
  std::shared_ptr<Current> current_;
  Carrier carrier_;
};

struct Peers {
  std::optional<Subject> zmq, nng, ucx;
};

Peers peers_of([[maybe_unused]] Carrier carrier) {
  Peers peers;
  [[maybe_unused]] const bool tcp = carrier == Carrier::tcp;
  [[maybe_unused]] const std::string between = tcp ? "tcp" : "ipc";
#if HYPERFRAMES_BENCH_ZMQ
  peers.zmq = Subject{"ZeroMQ " + zmq_peer::version() + " over " + between + ", DEALER to DEALER",
                      [between] { return zmq_peer::make(between); }};
#endif
#if HYPERFRAMES_BENCH_NNG
  peers.nng = Subject{"nng " + nng_peer::version() + " over " + between + ", pair to pair",
                      [between] { return nng_peer::make(between); }};
#endif
#if HYPERFRAMES_BENCH_UCX
  const std::string transports = tcp ? "tcp" : "shm";
  peers.ucx = Subject{"UCX " + ucx_peer::version() + " over " + transports + ", tagged, polling",
                      [transports] { return ucx_peer::make(transports); }};
#endif
  return peers;
}

constexpr int quick_trips = 20'000, slow_trips = 3'000;
constexpr std::size_t middle = 32u << 10, large = 4u << 20;
constexpr int small_count = 500'000, middle_count = 40'000, large_count = 256;

using What = Figure::What;
Figure polling_trip() { return trip("64 B round trip, polling", quick_trips); }
Figure blocking_trip() { return trip("64 B round trip, blocking", slow_trips); }
Figure small_rate() { return stream("64 B messages, pipelined", 64, small_count, What::rate); }
Figure middle_rate() { return stream("32 KiB messages", middle, middle_count, What::rate); }
Figure large_rate() { return stream("4 MiB messages", large, large_count, What::gb_per_s); }
Figure large_cpu() { return stream("4 MiB messages: CPU", large, large_count, What::cpu_s_per_gb); }

constexpr const char* session_note =
    "two processes with a core shard each; framed, checked, with credit";

double raw_blocks_cpu_s_per_gb() {
  const double before = cpu_seconds();
  raw_blocks_bytes_per_second(large, large_count);
  return (cpu_seconds() - before) / (static_cast<double>(large) * large_count / 1e9);
}

/// CPU of both processes for each of the four; `large_ones`: what those of 4 MiB are compared with.
void add_cpu_rows(Rows& rows, const std::optional<Subject>& peer, const Rows::Beside& large_ones) {
  rows.add(trip("64 B round trip, blocking: CPU", slow_trips, What::cpu_us), false, {.peer = peer});
  rows.add(stream("64 B messages: CPU", 64, small_count, What::cpu_us), false, {.peer = peer});
  rows.add(stream("32 KiB messages: CPU", middle, middle_count, What::cpu_s_per_gb), false,
           {.peer = peer});
  rows.add(large_cpu(), false, large_ones);
}

void add_tcp_rows(Runner& runner, const std::shared_ptr<Current>& current) {
  Rows rows(runner, current, Carrier::tcp);
  const Peers peers = peers_of(Carrier::tcp);
  rows.add(polling_trip(), true,
           {.peer = peers.ucx,
            .peer_goal = 1,
            .floor = "a raw io_uring loop",
            .floor_measure = [] { return raw_round_trip_us(true, quick_trips); },
            .floor_goal = 1.25,
            .note = session_note});
  rows.add(blocking_trip(), false,
           {.peer = peers.zmq,
            .peer_goal = 1 / 1.3,
            .floor = "a raw io_uring loop",
            .floor_measure = [] { return raw_round_trip_us(false, slow_trips); },
            .floor_goal = 1.1,
            .note = "shards spin for an adaptive time before they sleep"});
  rows.add(small_rate(), false,
           {.peer = peers.zmq,
            .peer_goal = 2,
            .note = "copies beside the kernel's two: one into the frames that leave together, one "
                    "out of those that came"});
  rows.add(
      middle_rate(), false,
      {.peer = peers.zmq,
       .peer_goal = 2,
       .floor = "raw sockets that move such blocks",
       .floor_measure = [] { return raw_blocks_bytes_per_second(middle, middle_count) / middle; },
       .note = "two copies a byte, both the kernel's"});
  rows.add(
      large_rate(), false,
      {.peer = peers.ucx,
       .peer_goal = 1,
       .floor = "raw sockets that move such blocks",
       .floor_measure = [] { return raw_blocks_bytes_per_second(large, large_count) / 1e9; },
       .note = "two copies a byte, both the kernel's; the same memory is sent again and again"});
  add_cpu_rows(rows, peers.zmq,
               {.peer = peers.zmq,
                .peer_goal = .7,
                .floor = "raw sockets that move such blocks",
                .floor_measure = &raw_blocks_cpu_s_per_gb});
  rows.add_beside(blocking_trip(), false, peers.nng, "nng");
  rows.add_beside(small_rate(), false, peers.nng, "nng");
  rows.add_beside(middle_rate(), false, peers.nng, "nng");
  rows.add_beside(large_rate(), false, peers.nng, "nng");
  rows.add_beside(large_rate(), false, peers.zmq, "ZeroMQ");
  rows.add_beside(large_cpu(), false, peers.ucx, "UCX");
  rows.add_beside(large_cpu(), false, peers.nng, "nng");
  rows.add_pings_beside_bulk();
}

void add_shared_memory_rows(Runner& runner, const std::shared_ptr<Current>& current) {
  Rows rows(runner, current, Carrier::shm);
  const Peers peers = peers_of(Carrier::shm);
  rows.add(polling_trip(), true,
           {.peer = peers.ucx,
            .peer_goal = 1,
            .floor = "a cache line there and back",
            .floor_measure = [] { return bare_cache_line_round_trip() / 1000; },
            .floor_goal = 3,
            .note = session_note});
  rows.add(blocking_trip(), false, {.peer = peers.zmq});
  rows.add(
      small_rate(), true,
      {.peer = peers.ucx,
       .peer_goal = 1.5,
       .floor = "a bare ring of cache lines",
       .floor_measure = [] { return bare_ring_messages_per_second(5'000'000); },
       .note = "both ends poll, as UCX does; two copies, one by each end, and one more at each "
               "end through the frames that travel together"});
  rows.add(middle_rate(), true, {.peer = peers.ucx, .note = "two copies a byte, one by each end"});
  rows.add(large_rate(), true,
           {.peer = peers.ucx,
            .floor = "memcpy of 4 MiB, one thread",
            .floor_measure = [] { return memcpy_bytes_per_second(large, 500) / 1e9; },
            .floor_goal = .9,
            .note = "two copies a byte, one by each end; the same memory is sent again and again"});
  add_cpu_rows(rows, peers.zmq, {.peer = peers.zmq});
  rows.add_beside(small_rate(), false, peers.zmq, "ZeroMQ");
  rows.add_beside(large_rate(), false, peers.zmq, "ZeroMQ");
  rows.add_beside(small_rate(), false, peers.nng, "nng");
  rows.add_beside(large_rate(), false, peers.nng, "nng");
  rows.add_beside(large_cpu(), false, peers.ucx, "UCX");
  rows.add_beside(large_cpu(), false, peers.nng, "nng");
  rows.add_pings_beside_bulk();
  rows.add_lent();
  rows.add_copied_once(large, large_count, "4 MiB");
}

/// Beside what the cipher and one copy alone allow.
void add_tls_rows(Runner& runner, const std::shared_ptr<Current>& current) {
  Rows rows(runner, current, Carrier::tls);
  const Subject plain{"sessions over tcp, polling, without encryption",
                      [] { return make_sessions(Carrier::tcp, true); }};
  const Subject plain_blocking{"sessions over tcp, blocking, without encryption",
                               [] { return make_sessions(Carrier::tcp, false); }};
  rows.add(polling_trip(), true, {.peer = plain, .note = "TLS 1.3, TLS_AES_128_GCM_SHA256"});
  const auto cipher_and_copy = [] {
    const double cipher = aes_gcm_bytes_per_second(16 << 10, 20'000);
    const double copy = memcpy_bytes_per_second(large, 200);
    return 1 / (1 / cipher + 1 / copy) / 1e9;
  };
  rows.add(large_rate(), false,
           {.peer = plain_blocking,
            .floor = "AES-128-GCM of 16 KiB blocks, as in openssl speed, and one memcpy of 4 MiB, "
                     "one thread",
            .floor_measure = cipher_and_copy,
            .floor_goal = .8,
            .note = "each end passes over the bytes with the cipher and with two copies of 16 KiB, "
                    "beside the kernel's copy; the same memory is sent again and again"});
  rows.add(large_cpu(), false, {.peer = plain_blocking});
}

}  // namespace

void add_messaging_rows(Runner& runner) {
  const auto current = std::make_shared<Current>();
  add_tcp_rows(runner, current);
  add_shared_memory_rows(runner, current);
  add_tls_rows(runner, current);
#if !HYPERFRAMES_BENCH_ZMQ
  runner.leave_out("ZeroMQ", "libzmq3-dev is not installed");
#endif
#if !HYPERFRAMES_BENCH_NNG
  runner.leave_out("nng", "libnng-dev is not installed");
#endif
#if !HYPERFRAMES_BENCH_UCX
  runner.leave_out("UCX", "libucx-dev is not installed");
#endif
}

}  // namespace hyperframes::bench
