#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <fstream>
#include <hyperframes/runtime/call_on.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/file.hpp>
#include <hyperframes/runtime/offload.hpp>
#include <hyperframes/runtime/reactor/sim.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <hyperframes/runtime/socket.hpp>
#include <thread>

using namespace hyperframes;

extern char** environ;

namespace {

std::string pattern(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + i * 7 % 23);
  return text;
}

Task<void> echo_one(Socket socket) {
  while (true) {
    Buffer chunk = co_await socket.receive();
    if (chunk.empty()) break;
    co_await socket.send(Segments(std::move(chunk)));
  }
  co_await socket.close();
}

/// Echoes on port 7 of its node until it is cancelled.
Task<void> serve_echo(Runtime&) {
  Listener listener = Listener::bind(*Address::parse("0.0.0.0", 7));
  Scope scope;
  while (true) scope.spawn(echo_one(co_await listener.accept()));
}

Task<std::string> ask(Address address, std::string text) {
  Socket socket = co_await Socket::connect(address);
  Scope scope;
  scope.spawn(socket.send(Segments(Buffer::copy_of(text))));
  std::string got;
  while (got.size() < text.size()) {
    Buffer chunk = co_await socket.receive();
    if (chunk.empty()) break;
    got += chunk.text();
  }
  co_await scope.join();
  co_return got;
}

/// An hour in which two nodes talk, write, lose their power and come back.
std::uint64_t hash_of_a_busy_hour(std::uint64_t seed) {
  SimWorld world({.seed = seed});
  SimNode& server = world.add_node({.shards = 2});
  SimNode& client = world.add_node({.shards = 2});
  server.set_main(serve_echo);
  world.network().faults().spike = 0.01;
  world.after(900s, [&] { server.crash(SimCrash::power_cut()); });
  world.after(1000s, [&] { server.restart(); });
  world.run(client, 1, [address = server.address(7)](Runtime& runtime) -> Task<void> {
    for (int minute = 0; minute < 60; ++minute) {
      try {
        co_await with_deadline(ask(address, pattern(50'000)), after(30s));
      } catch (const Error&) {
      }
      co_await write_whole_file("log" + std::to_string(minute), Buffer::copy_of(pattern(3000)));
      co_await call_on(runtime.shard(0), [] { return 1; });
      co_await sleep_for(59s);
    }
  });
  return world.trace_hash();
}

/// The error number of an attempt to connect; 0 if it succeeds.
Task<int> try_connect(Address address) {
  try {
    Socket socket = co_await Socket::connect(address);
    co_await socket.close();
  } catch (const Error& error) {
    co_return error.code().value();
  }
  co_return 0;
}

}  // namespace

TEST_CASE("a simulated task runs and an hour of its sleep takes no time") {
  SimWorld world;
  SimNode& node = world.add_node();
  const Time before = world.now();
  const int answer = world.run(node, 0, [](Runtime&) -> Task<int> {
    co_await sleep_for(59min);
    co_return 42;
  });
  CHECK(answer == 42);
  CHECK(world.now() - before >= 59min);
  CHECK(world.now() - before < 59min + 1s);
}

TEST_CASE("what a node sends by another's name comes back from its echo") {
  SimWorld world({.seed = 3});
  SimNode& server = world.add_node({.name = "parameters"});
  SimNode& client = world.add_node();
  server.set_main(serve_echo);
  const std::string text = pattern(1'000'000);
  const std::string got = world.run(client, 0, [text](Runtime&) -> Task<std::string> {
    const auto addresses = co_await resolve("parameters", 7);
    co_return co_await ask(addresses.at(0), text);
  });
  CHECK(got == text);
}

TEST_CASE("a name that no node has does not resolve") {
  SimWorld world;
  SimNode& node = world.add_node();
  auto look_up = [](Runtime&) -> Task<void> { co_await resolve("nobody", 1); };
  CHECK_THROWS_AS(world.run(node, 0, look_up), Error);
}

TEST_CASE("the same seed gives the same trace, another seed another") {
  const std::uint64_t first = hash_of_a_busy_hour(11);
  CHECK(hash_of_a_busy_hour(11) == first);
  CHECK(hash_of_a_busy_hour(12) != first);
}

// Not a test of its own: what the next one runs in a process of its own.
TEST_CASE("the trace hash of seed 11 for another process", "[.][sim-hash]") {
  const char* const path = std::getenv("SIM_HASH_FILE");
  REQUIRE(path);
  std::ofstream(path) << hash_of_a_busy_hour(11);
}

TEST_CASE("two processes with the same seed have the same trace") {
  const std::string path = "sim_hash_" + std::to_string(::getpid()) + ".tmp";
  ::setenv("SIM_HASH_FILE", path.c_str(), 1);
  std::string program = "/proc/self/exe", tag = "[sim-hash]";
  char* arguments[] = {program.data(), tag.data(), nullptr};
  pid_t child = 0;
  REQUIRE(::posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ) == 0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  std::uint64_t hash = 0;
  std::ifstream(path) >> hash;
  ::unlink(path.c_str());
  CHECK(hash == hash_of_a_busy_hour(11));
}

TEST_CASE("a run that can't go on names what waits, and where") {
  SimWorld world({.seed = 4, .run_limit = 10s});
  SimNode& node = world.add_node();
  auto failure_of = [&](auto run) -> std::string {
    try {
      world.run(node, 0, run);
    } catch (const Error& error) {
      CHECK(error.is(Errc::deadline_exceeded));
      return error.what();
    }
    return {};
  };
  const std::string stuck = failure_of([](Runtime&) -> Task<void> {
    Event never;
    co_await never.wait();
  });
  CHECK(stuck.find("nothing can happen any more") != std::string::npos);
  CHECK(stuck.find("sim_test.cpp") != std::string::npos);
  CHECK(stuck.find("seed 4") != std::string::npos);
  const std::string slow = failure_of([](Runtime&) -> Task<void> { co_await sleep_for(1h); });
  CHECK(slow.find("10 virtual seconds") != std::string::npos);
}

TEST_CASE("a task that only yields meets the limit of turns") {
  SimWorld world({.turn_limit = 1000});
  SimNode& node = world.add_node();
  auto spin = [](Runtime&) -> Task<void> {
    while (true) co_await yield();
  };
  CHECK_THROWS_AS(world.run(node, 0, spin), Error);
}

TEST_CASE("an offloaded call runs on the world's thread, off every shard, and takes a while") {
  SimWorld world;
  SimNode& node = world.add_node();
  const auto here = std::this_thread::get_id();
  auto run = [here](Runtime&) -> Task<bool> {
    const Time before = Clock::now();
    const bool good = co_await offload(
        [here] { return std::this_thread::get_id() == here && !Shard::current(); });
    co_return good&& Clock::now() > before;
  };
  CHECK(world.run(node, 0, run));
}

// ---- Network

TEST_CASE("nobody listening refuses a connect, silence times it out") {
  SimWorld world;
  SimNode& server = world.add_node();
  SimNode& client = world.add_node();
  auto attempt = [address = server.address(7)](Runtime&) { return try_connect(address); };
  CHECK(world.run(client, 0, attempt) == ECONNREFUSED);
  server.crash(SimCrash::kill());
  CHECK(world.run(client, 0, attempt) == ECONNREFUSED);
  server.restart();
  server.crash(SimCrash::power_cut());
  CHECK(world.run(client, 0, attempt) == ETIMEDOUT);
  server.restart();
  server.set_main(serve_echo);
  world.run_for(1ms);
  CHECK(world.run(client, 0, attempt) == 0);
  world.network().faults().refuse = 1;
  CHECK(world.run(client, 0, attempt) == ECONNREFUSED);
}

TEST_CASE("a partition is silence, and what was sent into it arrives once it heals") {
  for (const bool one_way : {false, true}) {
    SimWorld world({.seed = 5});
    SimNode& server = world.add_node();
    SimNode& client = world.add_node();
    server.set_main(serve_echo);
    auto pending = world.start(client, 0, [&](Runtime&) -> Task<std::string> {
      co_await sleep_for(1ms);
      Socket socket = co_await Socket::connect(server.address(7));
      if (one_way) {
        world.network().cut(client, server);
      } else {
        world.network().partition(client, server);
      }
      co_await socket.send(Segments(Buffer::copy_of("are you there?")));
      Buffer answer = co_await socket.receive();
      co_return std::string(answer.text());
    });
    world.run_for(60s);
    CHECK_FALSE(pending.done());
    world.network().heal();
    CHECK_FALSE(world.wait(pending).empty());
  }
}

TEST_CASE("over a connection that is cut one way, the other way is still heard") {
  SimWorld world({.seed = 6});
  SimNode& server = world.add_node();
  SimNode& client = world.add_node();
  server.set_main([](Runtime&) -> Task<void> {
    Listener listener = Listener::bind(*Address::parse("0.0.0.0", 7));
    Socket socket = co_await listener.accept();
    for (int i = 0; i < 20; ++i) {
      co_await sleep_for(1s);
      co_await socket.send(Segments(Buffer::copy_of("x")));
    }
    co_await sleep_for(1h);
  });
  std::size_t heard = 0;
  world.start(client, 0, [&](Runtime&) -> Task<void> {
    co_await sleep_for(1ms);
    Socket socket = co_await Socket::connect(server.address(7));
    co_await sleep_for(1ms);
    world.network().cut(client, server);
    while (true) heard += (co_await socket.receive()).size();
  });
  world.run_for(60s);
  CHECK(heard == 20);
}

TEST_CASE("a stream into silence breaks with a time-out in the end") {
  SimWorld world;
  SimNode& server = world.add_node();
  SimNode& client = world.add_node();
  server.set_main(serve_echo);
  const int error = world.run(client, 0, [&](Runtime&) -> Task<int> {
    co_await sleep_for(1ms);
    Socket socket = co_await Socket::connect(server.address(7));
    world.network().partition(client, server);
    try {
      co_await socket.send(Segments(Buffer::copy_of("lost")));
      co_await socket.receive();
    } catch (const Error& failure) {
      co_return failure.code().value();
    }
    co_return 0;
  });
  CHECK(error == ETIMEDOUT);
}

TEST_CASE("a reset in mid-stream reaches both ends") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    SimWorld world({.seed = seed});
    SimNode& server = world.add_node();
    SimNode& client = world.add_node();
    int server_error = 0;
    auto read_until_it_breaks = [&server_error](Runtime&) -> Task<void> {
      Listener listener = Listener::bind(*Address::parse("0.0.0.0", 7));
      Socket socket = co_await listener.accept();
      try {
        while (!(co_await socket.receive()).empty()) {
        }
      } catch (const Error& error) {
        server_error = error.code().value();
      }
    };
    server.set_main(read_until_it_breaks);
    world.after(3ms, [&] { CHECK(world.network().reset(client, server) == 1); });
    const int client_error = world.run(client, 0, [&](Runtime&) -> Task<int> {
      co_await sleep_for(1ms);
      Socket socket = co_await Socket::connect(server.address(7));
      try {
        while (true) co_await socket.send(Segments(Buffer::heap(10'000)));
      } catch (const Error& error) {
        co_return error.code().value();
      }
    });
    CHECK((client_error == ECONNRESET || client_error == EPIPE));
    world.run_for(1s);
    CHECK(server_error == ECONNRESET);
  }
}

TEST_CASE("a sender waits while its peer does not read") {
  SimWorld world;
  SimNode& server = world.add_node();
  SimNode& client = world.add_node();
  server.set_main([](Runtime&) -> Task<void> {
    Listener listener = Listener::bind(*Address::parse("0.0.0.0", 7));
    Socket socket = co_await listener.accept();
    co_await sleep_for(100s);
    while (!(co_await socket.receive()).empty()) {
    }
  });
  std::size_t sent = 0;
  auto pending = world.start(client, 0, [&](Runtime&) -> Task<void> {
    co_await sleep_for(1ms);
    Socket socket = co_await Socket::connect(server.address(7));
    for (int i = 0; i < 1000; ++i) {
      co_await socket.send(Segments(Buffer::heap(10'000)));
      sent += 10'000;
    }
    co_await socket.close();
  });
  world.run_for(90s);
  const auto& limits = world.network().limits();
  CHECK(sent <= limits.send_buffer + limits.receive_window);
  CHECK(sent >= limits.receive_window);
  world.wait(pending);
  CHECK(sent == 10'000'000);
}

TEST_CASE("a paused node takes bytes but does nothing with them until it goes on") {
  SimWorld world;
  SimNode& server = world.add_node();
  SimNode& client = world.add_node();
  server.set_main(serve_echo);
  world.run_for(1ms);
  server.pause();
  auto pending = world.start(client, 0, [&](Runtime&) { return ask(server.address(7), "hello"); });
  world.run_for(30s);
  CHECK_FALSE(pending.done());
  server.resume();
  CHECK(world.wait(pending) == "hello");
}

TEST_CASE("a clock that leaps makes timers come early by the leap") {
  SimWorld world;
  SimNode& node = world.add_node();
  const Time before = world.now();
  world.after(1s, [&] { node.jump_clock(50s); });
  world.run(node, 0, [](Runtime&) -> Task<void> { co_await sleep_for(60s); });
  CHECK(world.now() - before >= 10s);
  CHECK(world.now() - before < 11s);
}

// ---- Crashes

TEST_CASE("after a crash nothing of the process runs on, and its main starts anew") {
  SimWorld world;
  SimNode& node = world.add_node({.shards = 2});
  int starts = 0, ticks = 0, ended = 0;
  auto tick = [&](Runtime&) -> Task<void> {
    ++starts;
    while (true) {
      co_await sleep_for(1s);
      ++ticks;
    }
  };
  node.set_main(tick);
  auto pending = world.start(node, 1, [&](Runtime& runtime) -> Task<void> {
    co_await call_on(runtime.shard(0), []() -> Task<void> { co_await sleep_for(1h); });
    ++ended;
  });
  world.run_for(10s + 1ms);
  CHECK(starts == 1);
  const int before = ticks;
  node.crash();
  CHECK_FALSE(node.is_up());
  REQUIRE(pending.done());
  CHECK_THROWS_AS(pending.take(), Error);
  world.run_for(100s);
  CHECK(ticks == before);
  CHECK(ended == 0);
  node.restart();
  CHECK(node.incarnation() == 2);
  world.run_for(10s + 1ms);
  CHECK(starts == 2);
  CHECK(ticks > before);
}

TEST_CASE("a node that crashes itself does so at the end of its turn") {
  SimWorld world;
  SimNode& node = world.add_node();
  bool after_crash = false;
  auto pending = world.start(node, 0, [&](Runtime&) -> Task<void> {
    node.crash();
    after_crash = true;
    co_await sleep_for(1s);
    after_crash = false;
  });
  world.run_for(10s);
  CHECK(after_crash);
  CHECK(pending.done());
  CHECK_FALSE(node.is_up());
}

TEST_CASE("what belongs to a process is destroyed after its tasks, in reverse order") {
  struct Note {
    Note(std::string& log, char letter) : log(log), letter(letter) {}
    Note(const Note&) = delete;
    ~Note() { log += letter; }
    std::string& log;
    char letter;
  };
  std::string log;
  SimWorld world;
  SimNode& node = world.add_node();
  node.emplace<Note>(log, '1');
  node.emplace<Note>(log, '2');
  world.start(node, 0, [&log](Runtime&) -> Task<void> {
    Note note(log, 't');
    co_await sleep_for(1h);
  });
  world.run_for(1s);
  node.crash();
  CHECK(log == "t21");
}

TEST_CASE("peers of a killed process are told, peers of a dead machine are not") {
  for (const bool told : {true, false}) {
    SimWorld world({.seed = 8});
    SimNode& server = world.add_node();
    SimNode& client = world.add_node();
    server.set_main(serve_echo);
    auto pending = world.start(client, 0, [&](Runtime&) -> Task<void> {
      co_await sleep_for(1ms);
      Socket socket = co_await Socket::connect(server.address(7));
      try {
        co_await socket.receive();
      } catch (const Error&) {
      }
    });
    world.run_for(1s);
    server.crash(told ? SimCrash::kill() : SimCrash::power_cut());
    world.run_for(1000s);
    CHECK(pending.done() == told);
  }
}

TEST_CASE("a machine that came back resets the connections of its former life") {
  SimWorld world({.seed = 9});
  SimNode& server = world.add_node();
  SimNode& client = world.add_node();
  server.set_main(serve_echo);
  auto pending = world.start(client, 0, [&](Runtime&) -> Task<int> {
    co_await sleep_for(1ms);
    Socket socket = co_await Socket::connect(server.address(7));
    co_await sleep_for(10s);
    try {
      co_await socket.send(Segments(Buffer::copy_of("who are you?")));
      co_await socket.receive();
    } catch (const Error& error) {
      co_return error.code().value();
    }
    co_return 0;
  });
  world.run_for(1s);
  server.crash(SimCrash::power_cut());
  world.run_for(1s);
  server.restart();
  CHECK(world.wait(pending) == ECONNRESET);
}

TEST_CASE("a stop joins the tasks, and names those that do not end") {
  SimWorld world;
  SimNode& node = world.add_node();
  world.start(node, 0, [](Runtime&) -> Task<void> { co_await sleep_for(1h); });
  world.run_for(1s);
  CHECK(node.stop(5s).clean);
  CHECK_FALSE(node.is_up());
  node.restart();
  auto stubborn = [](Runtime&) -> Task<void> {
    auto wait = []() -> Task<void> { co_await sleep_for(1h); };
    co_await shielded(wait());
  };
  world.start(node, 0, stubborn);
  world.run_for(1s);
  const auto report = node.stop(5s);
  CHECK_FALSE(report.clean);
  REQUIRE(report.stragglers.size() == 1);
  CHECK(report.stragglers[0].find("sim_test.cpp") != std::string::npos);
}

TEST_CASE("an offloaded call that had not begun at the crash never does, and keeps nothing") {
  SimWorld world;
  SimNode& node = world.add_node();
  int calls = 0;
  std::weak_ptr<int> of_call;
  world.start(node, 0, [&](Runtime&) -> Task<void> {
    node.crash();
    auto owned = std::make_shared<int>(7);
    of_call = owned;
    co_await offload([&calls, owned = std::move(owned)] { ++calls; });
  });
  world.run_for(10s);
  CHECK_FALSE(node.is_up());
  CHECK(calls == 0);
  CHECK(of_call.expired());
}
