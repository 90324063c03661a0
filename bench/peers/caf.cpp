#include "caf.hpp"

#include <malloc.h>
#include <unistd.h>
#include <caf/all.hpp>
#include <fstream>
#include <future>

#include "../harness.hpp"
#include "caf_config.hpp"

namespace hyperframes::bench::caf_peer {
namespace {

constexpr int messages = 400'000;
// What may be in flight, so that an unbounded mailbox does not turn this into a measure of memory.
constexpr int window = 256;

using Integer = caf::atom_constant<caf::atom("int")>;
using Text = caf::atom_constant<caf::atom("text")>;
using Done = caf::atom_constant<caf::atom("done")>;
using Go = caf::atom_constant<caf::atom("go")>;

/// Tells its peer when it has seen a window of messages.
caf::behavior counter(caf::event_based_actor* self, caf::actor peer) {
  auto seen = std::make_shared<int>(0);
  auto count = [self, peer, seen] {
    if (++*seen % window == 0) self->send(peer, Done::value);
  };
  return {[count](Integer, std::int64_t) { count(); },
          [count](Text, const std::string&) { count(); }};
}

caf::behavior sender(caf::event_based_actor* self, unsigned size, std::promise<double>* done) {
  auto receiver = self->spawn(counter, caf::actor_cast<caf::actor>(self));
  auto left = std::make_shared<int>(messages / window);
  auto start = std::make_shared<double>(0);
  const std::string text(size, 'x');
  auto send_window = [=] {
    for (int i = 0; i < window; ++i) {
      if (size <= 8) {
        self->send(receiver, Integer::value, std::int64_t{i});
      } else {
        self->send(receiver, Text::value, text);
      }
    }
  };
  return {[=](Go) {
            *start = now_ns();
            send_window();
          },
          [=](Done) {
            if (--*left > 0) return send_window();
            done->set_value((now_ns() - *start) / (messages / window * window));
            self->send_exit(receiver, caf::exit_reason::user_shutdown);
            self->quit();
          }};
}

caf::behavior echo() {
  return {[](Integer, std::int64_t value) { return value; },
          [](Text, const std::string& value) { return value; }};
}

void ask_again(caf::event_based_actor* self, caf::actor peer, std::shared_ptr<int> left,
               std::string text, double start, std::promise<double>* done) {
  auto next = [=] {
    if (--*left > 0) return ask_again(self, peer, left, text, start, done);
    done->set_value((now_ns() - start) / messages);
    self->send_exit(peer, caf::exit_reason::user_shutdown);
    self->quit();
  };
  if (text.size() <= 8) {
    self->request(peer, caf::infinite, Integer::value, std::int64_t{*left}).then([=](std::int64_t) {
      next();
    });
  } else {
    self->request(peer, caf::infinite, Text::value, text).then([=](const std::string&) { next(); });
  }
}

caf::behavior asker(caf::event_based_actor* self, unsigned size, std::promise<double>* done) {
  auto peer = self->spawn(echo);
  return {[=](Go) {
    ask_again(self, peer, std::make_shared<int>(messages), std::string(size, 'x'), now_ns(), done);
  }};
}

long resident_bytes() {
  std::ifstream file("/proc/self/statm");
  long total = 0, resident = 0;
  file >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace

std::string version() {
  return std::to_string(CAF_VERSION / 10000) + "." + std::to_string(CAF_VERSION / 100 % 100) + "." +
         std::to_string(CAF_VERSION % 100);
}

double one_way_ns(unsigned threads, unsigned size) {
  auto config = config_for(threads);
  caf::actor_system system{config};
  std::promise<double> done;
  auto ended = done.get_future();
  caf::anon_send(system.spawn(sender, size, &done), Go::value);
  return ended.get();
}

double round_trip_ns(unsigned threads, unsigned size) {
  auto config = config_for(threads);
  caf::actor_system system{config};
  std::promise<double> done;
  auto ended = done.get_future();
  caf::anon_send(system.spawn(asker, size, &done), Go::value);
  return ended.get();
}

double spawn_join_ns(unsigned threads) {
  constexpr int count = 100'000;
  auto config = config_for(threads);
  caf::actor_system system{config};
  const double start = now_ns();
  system.spawn([](caf::event_based_actor* self) {
    for (int i = 0; i < count; ++i) self->spawn([](caf::event_based_actor*) {});
  });
  system.await_all_actors_done();
  return (now_ns() - start) / count;
}

double idle_actor_bytes(unsigned count) {
  auto config = config_for(1);
  caf::actor_system system{config};
  std::vector<caf::actor> actors;
  actors.reserve(count);
  actors.push_back(system.spawn(echo));
  ::malloc_trim(0);  // what earlier rounds have freed would be used again, and not be seen
  const long before = resident_bytes();
  for (unsigned i = 1; i < count; ++i) actors.push_back(system.spawn(echo));
  const long after = resident_bytes();
  for (auto& actor : actors) caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  return static_cast<double>(after - before) / (count - 1);
}

}  // namespace hyperframes::bench::caf_peer
