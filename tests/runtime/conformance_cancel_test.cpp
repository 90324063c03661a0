#include "conformance.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <cstdlib>
#include <functional>
#include <hyperframes/runtime/call_on.hpp>
#include <hyperframes/runtime/offload.hpp>
#include <vector>

using namespace hyperframes;
using namespace hyperframes::test;

namespace {

/// What the subjects below work on; made anew for each round.
struct Stage {
  std::string folder;
  Pair idle;  // nothing is sent on it
  Pair busy;  // bytes arrive while the subject begins
  Listener quiet, visited;
  File file;
};

/// One kind of operation, as a program would use it.
struct Subject {
  std::string name;
  std::function<Task<void>(Stage&)> act;
  std::function<void(Stage&, Scope&)> provoke;  // makes it complete, at about now
};

template <class T>
Task<void> dropping(Task<T> task) {
  co_await std::move(task);
}

Task<void> connect_and_go(Address address) {
  Socket socket = co_await Socket::connect(address);
  co_await socket.close();
}

std::vector<Subject> subjects() {
  const auto nothing = [](Stage&, Scope&) {};
  const auto visit = [](Stage& stage, Scope& scope) {
    scope.spawn(connect_and_go(stage.visited.address()));
  };
  const auto send = [](Stage& stage, Scope& scope) {
    scope.spawn(send_text(stage.busy.far, pattern(300'000)));
  };
  std::vector<Subject> all;
  auto add = [&](std::string name, std::function<Task<void>(Stage&)> act,
                 std::function<void(Stage&, Scope&)> provoke = {}) {
    all.push_back({std::move(name), std::move(act), provoke ? std::move(provoke) : nothing});
  };
  add("accept, nobody comes", [](Stage& stage) { return dropping(stage.quiet.accept()); });
  add(
      "accept, somebody comes", [](Stage& stage) { return dropping(stage.visited.accept()); },
      visit);
  add("connect", [](Stage& stage) { return connect_and_go(stage.quiet.address()); });
  add("receive, silence", [](Stage& stage) { return dropping(stage.idle.near.receive()); });
  add(
      "receive, bytes come", [](Stage& stage) { return dropping(stage.busy.near.receive()); },
      send);
  add("receive in place, silence",
      [](Stage& stage) { return stage.idle.near.receive_exactly(Buffer::heap(100'000)); });
  add(
      "receive in place, bytes come",
      [](Stage& stage) { return stage.busy.near.receive_exactly(Buffer::heap(100'000)); }, send);
  add("send without room",
      [](Stage& stage) { return stage.idle.far.send(Segments(Buffer::heap(32 << 20))); });
  add("send", [](Stage& stage) { return send_text(stage.idle.far, pattern(100)); });
  add("shutdown", [](Stage& stage) { return stage.idle.near.shutdown_send(); });
  add("close a socket", [](Stage& stage) { return stage.idle.near.close(); });
  add("open", [](Stage& stage) {
    return dropping(File::open(stage.folder + "/opened", File::Mode::create));
  });
  add("read", [](Stage& stage) { return dropping(stage.file.read_at(0, Buffer::heap(50'000))); });
  add("write", [](Stage& stage) {
    return stage.file.write_at(100, Segments(Buffer::copy_of(pattern(50'000))));
  });
  add("sync", [](Stage& stage) { return stage.file.sync(); });
  add("truncate", [](Stage& stage) { return stage.file.truncate(50); });
  add("size", [](Stage& stage) { return dropping(stage.file.size()); });
  add("close a file", [](Stage& stage) { return stage.file.close(); });
  add("rename",
      [](Stage& stage) { return rename_file(stage.folder + "/file", stage.folder + "/renamed"); });
  add("remove", [](Stage& stage) { return remove_file(stage.folder + "/file"); });
  add("make a folder", [](Stage& stage) { return make_directory(stage.folder + "/made/deep"); });
  add("list a folder", [](Stage& stage) { return dropping(list_directory(stage.folder)); });
  add("sync a folder", [](Stage& stage) { return sync_directory(stage.folder); });
  add("read a whole file",
      [](Stage& stage) { return dropping(read_whole_file(stage.folder + "/file")); });
  add("write a whole file", [](Stage& stage) {
    return write_whole_file(stage.folder + "/whole", Buffer::copy_of(pattern(5000)));
  });
  add("look for a file",
      [](Stage& stage) { return dropping(file_exists(stage.folder + "/file")); });
  add("resolve", [](Stage&) { return dropping(resolve("localhost", 1)); });
  add("offload", [](Stage&) { return dropping(offload([] { return 1; })); });
  return all;
}

Task<void> set_up(Stage& stage, std::string folder) {
  stage.folder = folder;
  stage.idle = co_await connected_pair();
  stage.busy = co_await connected_pair();
  stage.quiet = Listener::bind(loopback());
  stage.visited = Listener::bind(loopback());
  stage.file = co_await File::open(folder + "/file", File::Mode::create_empty);
  co_await stage.file.write_at(0, Segments(Buffer::copy_of(pattern(20'000))));
}

/// Until nothing of this shard's driver is in flight.
Task<bool> comes_to_rest() {
  for (int i = 0; i < 4000; ++i) {
    if (Shard::current()->reactor().in_flight() == 0) co_return true;
    co_await sleep_for(500us);
  }
  co_return false;
}

Task<void> let_turns_pass(int count) {
  for (int i = 0; i < count; ++i) co_await yield();
}

/// How far the operation has come when it is ended.
enum class Moment { before_start, in_flight, racing };

Task<void> bring_to(Moment moment, int turns) {
  if (moment == Moment::racing) co_await let_turns_pass(turns);
  if (moment == Moment::in_flight) co_await sleep_for(3ms);
}

/// Runs the subject, cancels it at the given moment and joins it: it ends, well or as cancelled.
Task<void> cancel_round(const Subject& subject, std::string folder, Moment moment, int turns) {
  Stage stage;
  co_await set_up(stage, folder);
  Scope others, scope;
  if (moment == Moment::before_start) scope.cancel();
  subject.provoke(stage, others);
  scope.spawn(subject.act(stage));
  co_await bring_to(moment, turns);
  scope.cancel();
  const auto code = co_await outcome_of(scope.join());
  CHECK((!code || code == make_error_code(Errc::cancelled)));
  others.cancel();
  co_await outcome_of(others.join());
}

/// Runs the subject and destroys its frame at the given moment.
Task<void> destroy_round(const Subject& subject, std::string folder, Moment moment, int turns) {
  Stage stage;
  co_await set_up(stage, folder);
  Scope others;
  {
    Scope scope;
    subject.provoke(stage, others);
    scope.spawn(subject.act(stage));
    co_await bring_to(moment, turns);
  }
  others.cancel();
  co_await outcome_of(others.join());
}

using Round = Task<void> (*)(const Subject&, std::string, Moment, int);

/// One subject through all moments; afterwards nothing is in flight and no descriptor is left.
void run_rounds(Bed& bed, const Subject& subject, Round round) {
  const std::string folder = bed.folder();
  auto run = [&](Runtime&) -> Task<void> {
    co_await round(subject, folder, Moment::before_start, 0);
    for (int turns = 0; turns <= 6; ++turns) co_await round(subject, folder, Moment::racing, turns);
    co_await round(subject, folder, Moment::in_flight, 0);
    CHECK(co_await comes_to_rest());
  };
  INFO(subject.name << " on " << bed.name());
  const std::size_t before = bed.descriptors();
  bed.run(run);
  // What the kernel closes for an operation is closed a moment after that has ended.
  for (int i = 0; i < 400 && bed.descriptors() != before; ++i)
    bed.run([](Runtime&) -> Task<void> { co_await sleep_for(5ms); });
  CHECK(bed.descriptors() == before);
}

/// Memory that tells when it is let go.
struct Watched : detail::Block {
  explicit Watched(std::size_t size) : memory(size) {
    data = memory.data();
    capacity = size;
    atomic_count = true;
    dispose = [](Block* block) noexcept {
      auto* self = static_cast<Watched*>(block);
      *self->gone = true;
      delete self;
    };
  }
  std::vector<std::byte> memory;
  std::shared_ptr<bool> gone = std::make_shared<bool>(false);
};

struct WatchedBuffer {
  Buffer buffer;
  std::shared_ptr<bool> gone;
};

WatchedBuffer watched(std::size_t size) {
  auto* block = new Watched(size);
  auto gone = block->gone;
  return {Buffer::adopt(block, block->data, size), gone};
}

}  // namespace

TEST_CASE("cancelled at any moment, every operation ends, and leaves nothing behind") {
  Bed bed(GENERATE(beds()));
  for (const Subject& subject : subjects()) run_rounds(bed, subject, cancel_round);
}

TEST_CASE("a frame may be destroyed while any operation is at any moment") {
  Bed bed(GENERATE(beds()));
  for (const Subject& subject : subjects()) run_rounds(bed, subject, destroy_round);
}

TEST_CASE("a runtime may end while every kind of operation is in flight") {
  const int number = GENERATE(beds());
  const auto all = subjects();
  for (std::size_t i = 0; i < all.size(); ++i) {
    Bed bed(number);
    INFO(all[i].name << " on " << bed.name());
    const std::string folder = bed.folder();
    bed.run([&](Runtime&) -> Task<void> {
      struct Round {
        Stage stage;
        Scope others;
      };
      auto abandoned = [](const Subject& subject, std::string folder) -> Task<void> {
        Round round;
        co_await set_up(round.stage, folder);
        subject.provoke(round.stage, round.others);
        co_await shielded(subject.act(round.stage));
        co_await sleep_for(1h);
      };
      Shard::current()->spawn(abandoned(all[i], folder));
      co_await sleep_for(3ms);
    });
  }
}

TEST_CASE("memory of an operation outlives the frame that started it") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime&) -> Task<void> {
    for (const bool sending : {false, true}) {
      INFO("sending: " << sending);
      Pair pair = co_await connected_pair();
      auto [buffer, gone] = watched(sending ? 32 << 20 : 1 << 20);
      {
        Scope scope;
        if (sending) {
          scope.spawn(pair.near.send(Segments(std::move(buffer))));
        } else {
          scope.spawn(pair.near.receive_exactly(std::move(buffer)));
        }
        co_await sleep_for(3ms);
        CHECK_FALSE(*gone);
      }
      // The frame is gone; until the completion has come, the memory is not.
      if (Shard::current()->reactor().in_flight() > 0) CHECK_FALSE(*gone);
      CHECK(co_await comes_to_rest());
      CHECK(*gone);
    }
  });
}

TEST_CASE("bytes that arrive while a receive is being cancelled are not lost") {
  for (int number = first_bed; number <= 20; ++number) {
    Bed bed(number);
    bed.run([](Runtime&) -> Task<void> {
      const std::size_t size = 2'000'000;
      Pair pair = co_await connected_pair();
      Scope scope;
      scope.spawn(send_text(pair.near, pattern(size)));
      std::string got;
      int turns = 0;
      while (got.size() < size) {
        // What a cancelled wait leaves in the socket, the next one finds.
        try {
          Buffer chunk = co_await pair.far.receive(after(std::chrono::microseconds(turns++ % 90)));
          got += chunk.text();
        } catch (const Error& error) {
          REQUIRE(error.is(Errc::deadline_exceeded));
        }
      }
      CHECK((got == pattern(size)));
      co_await scope.join();
    });
  }
}

TEST_CASE("a connection accepted by nobody is closed") {
  for (int number = first_bed; number <= 10; ++number) {
    Bed bed(number);
    const std::size_t before = bed.descriptors();
    bed.run([](Runtime&) -> Task<void> {
      Listener listener = Listener::bind(loopback());
      for (int turns = 0; turns < 30; ++turns) {
        Scope connecting;
        connecting.spawn(connect_and_go(listener.address()));
        {
          Scope accepting;
          accepting.spawn(dropping(listener.accept()));
          co_await let_turns_pass(turns);
        }
        co_await connecting.join();
      }
      CHECK(co_await comes_to_rest());
    });
    CHECK(bed.descriptors() == before);
  }
}

TEST_CASE("streams given up while no receive memory is left end all the same") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime&) -> Task<void> {
    Pair hog = co_await connected_pair();
    Scope sending;
    sending.spawn(send_text(hog.near, pattern(12 << 20)));
    std::vector<Buffer> held;
    while (true) {
      try {
        held.push_back(co_await hog.far.receive(after(20ms)));
      } catch (const Error&) {
        break;  // all receive memory is in use
      }
    }
    const std::size_t before = Shard::current()->reactor().in_flight();
    for (int turns = 0; turns < 12; ++turns) {
      Pair pair = co_await connected_pair();
      Scope waiting;
      waiting.spawn(dropping(pair.far.receive()));
      co_await sleep_for(1ms);
      // The bytes and the cancellation meet in the kernel.
      waiting.spawn(send_text(pair.near, "too late"));
      co_await let_turns_pass(turns % 4);
      {
        Socket gone = std::move(pair.far);
      }
    }
    for (int i = 0; i < 400 && Shard::current()->reactor().in_flight() > before; ++i)
      co_await sleep_for(1ms);
    CHECK(Shard::current()->reactor().in_flight() <= before);
    held.clear();
    sending.cancel();
    co_await outcome_of(sending.join());
  });
}

TEST_CASE("a runtime may end while one shard sends what another received") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime& runtime) -> Task<void> {
    Pair inward = co_await connected_pair();
    co_await send_text(inward.near, pattern(1000));
    // A sole reference to memory of shard 0, in flight on shard 1 when all ends.
    auto chunk = std::make_shared<Buffer>(co_await inward.far.receive());
    co_await call_on(runtime.shard(1), [chunk]() -> Task<void> {
      auto stuck = [](Buffer chunk) -> Task<void> {
        Pair outward = co_await connected_pair();
        Segments segments(Buffer::heap(16 << 20));
        segments.push_back(std::move(chunk));
        co_await shielded(outward.near.send(std::move(segments)));
      };
      Shard::current()->spawn(stuck(std::move(*chunk)));
      co_await sleep_for(5ms);
    });
  });
}
