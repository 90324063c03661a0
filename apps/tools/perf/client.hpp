// The end of `hyperframes perf` that measures.
//
//   Client client(runtime, network_options);
//   Line* line = co_await client.connect(endpoint, after(5s));
//   co_await client.measure(line, plan, &journal);          // a row for each size
//   co_await client.close();
//
// All of it on shard 0; one measurement at a time. For round trips one message is under way: the
// time runs from before it is sent until the coroutine that waits for it goes on. For rates the
// client sends as fast as the session takes messages, and the receiver counts between two marks
// that travel with them: its clock alone decides, and what the client used of its processor between
// sending the two belongs to the same messages.
#pragma once

#include <cstdint>
#include <hyperframes/apps/tools/perf/journal.hpp>
#include <hyperframes/apps/tools/perf/protocol.hpp>
#include <hyperframes/net/network.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace hyperframes::tools::perf {

/// What is measured of each size, and for how long each time: round trips, then a stream.
struct Plan {
  std::vector<std::uint64_t> sizes;
  Duration warm_up{0}, steady{0};
  bool self_loop = false;

  /// `seconds` of steady state in all, and warm-ups before.
  static Plan over(std::vector<std::uint64_t> sizes, double seconds, bool self_loop);
  Duration all() const noexcept {
    return 2 * static_cast<std::int64_t>(sizes.size()) * (warm_up + steady);
  }
};

class Line;

class Client final : private net::MessageHandler {
 public:
  Client(Runtime& runtime, net::Network::Options options);
  ~Client();

  /// Throws what stood in the way: Errc::unreachable, overloaded (the server has another client),
  /// version_mismatch.
  Task<Line*> connect(net::Endpoint endpoint, Time deadline);
  /// Throws why the session ended, if it did; the journal has what was measured until then.
  Task<void> measure(Line* line, Plan plan, Journal* journal);
  /// Why its session ended, if it has. On any thread.
  std::optional<Error> end_of(const Line* line) const;
  /// Whatever is being measured ends with an error.
  void interrupt();
  Task<void> close();

 private:
  void on_message(net::Session& session, net::Lane lane, net::Message message) noexcept override;
  void on_session_down(net::Session& session, const Error& reason) noexcept override;
  Line* find(const net::Session& session) const noexcept;

  std::vector<std::unique_ptr<Line>> lines_;
  net::Network network_;
};

/// What is known of the other end.
const Hello& peer_of(const Line& line) noexcept;

}  // namespace hyperframes::tools::perf
