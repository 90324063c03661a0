// The end of `hyperframes perf` that sends back what it is asked to, and checks and counts the
// rest.
//
//   Server server(runtime, network_options);
//   net::Endpoint bound = co_await server.listen(endpoint);
//   co_await server.serve();                          // until `stop`, on any thread's behalf
//
// It serves one client at a time, since two would measure each other: a second one is told so.
#pragma once

#include <deque>
#include <functional>
#include <hyperframes/apps/tools/perf/protocol.hpp>
#include <hyperframes/net/network.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <string>

namespace hyperframes::tools::perf {

class Server final : private net::MessageHandler {
 public:
  Server(Runtime& runtime, net::Network::Options options);

  Task<net::Endpoint> listen(net::Endpoint endpoint);
  /// Until `stop`; with `once`, until the first client has left. Then it closes.
  Task<void> serve(bool once);
  /// On shard 0.
  void stop() noexcept { done_.set(); }

  /// Called with a line for each client that comes and goes. On shard 0.
  std::function<void(const std::string&)> note;

 private:
  struct Echo {
    net::SessionRef session;
    net::Lane lane;
    net::Message message;
  };
  void on_message(net::Session& session, net::Lane lane, net::Message message) noexcept override;
  void on_session_down(net::Session& session, const Error& reason) noexcept override;

  void answer(net::Session& session, net::Lane lane, const net::Message& ask) noexcept;
  std::string obey(net::Session& session, const net::Message& ask);
  std::string greet(net::Session& session, const net::Message& ask);
  void begin(const net::Message& ask);
  void count(const net::Message& message);
  double time_check(const net::Message& message) const noexcept;
  void echo(net::Session& session, net::Lane lane, net::Message message);
  Task<void> send_echoes();
  Task<void> wait_for_end();
  void say(const std::string& line) const {
    if (note) note(line);
  }

  net::Session* client_ = nullptr;  ///< That is served.
  Time since_{};
  std::uint64_t size_ = 0, checked_ = 0, found_wrong_ = 0;
  Mark mark_;
  std::deque<Echo> echoes_;  ///< That had no room at once.
  Event echoes_queued_, done_;
  bool once_ = false;
  net::Network network_;
};

}  // namespace hyperframes::tools::perf
