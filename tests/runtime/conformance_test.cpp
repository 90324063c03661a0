#include "conformance.hpp"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <catch2/generators/catch_generators.hpp>
#include <hyperframes/runtime/call_on.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/offload.hpp>
#include <hyperframes/runtime/scope.hpp>
#include <thread>

using namespace hyperframes;
using namespace hyperframes::test;

// ---- Sockets

TEST_CASE("an accepted connection knows its peer and carries bytes both ways") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime&) -> Task<void> {
    Listener listener = Listener::bind(loopback());
    CHECK(listener.address().port() != 0);
    auto both = co_await when_all(Socket::connect(listener.address()), listener.accept());
    Socket near = std::move(std::get<0>(both)), far = std::move(std::get<1>(both));
    CHECK(near.peer() == listener.address());
    CHECK(far.peer().host() == "127.0.0.1");
    CHECK(far.peer().port() != 0);
    co_await send_text(near, "there");
    CHECK(co_await receive_some(far, 5) == "there");
    co_await send_text(far, "and back");
    CHECK(co_await receive_some(near, 8) == "and back");
    co_await near.close();
    co_await far.close();
  });
}

TEST_CASE("after a shutdown the peer reads the end, again and again, and may still send") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime&) -> Task<void> {
    Pair pair = co_await connected_pair();
    co_await send_text(pair.near, "last words");
    co_await pair.near.shutdown_send();
    CHECK(co_await receive_all(pair.far) == "last words");
    Buffer again = co_await pair.far.receive();
    CHECK(again.empty());
    co_await send_text(pair.far, "I heard you");
    co_await pair.far.close();
    CHECK(co_await receive_all(pair.near) == "I heard you");
  });
}

TEST_CASE("sending after one's own shutdown fails with EPIPE") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime&) -> Task<void> {
    Pair pair = co_await connected_pair();
    co_await pair.near.shutdown_send();
    CHECK(co_await outcome_of(send_text(pair.near, "more")) == system_error(EPIPE));
  });
}

TEST_CASE("a peer that closes with unread bytes resets the connection") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime&) -> Task<void> {
    Pair pair = co_await connected_pair();
    co_await send_text(pair.near, pattern(100'000));
    co_await sleep_for(5ms);
    {
      Socket gone = std::move(pair.far);
    }
    const auto code = co_await outcome_of(pair.near.receive());
    CHECK(code == system_error(ECONNRESET));
  });
}

TEST_CASE("a connection that is reset on purpose has no end in order for its peer") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime&) -> Task<void> {
    Pair pair = co_await connected_pair();
    Shard::current()->reactor().reset_now(pair.far.release());
    CHECK(co_await outcome_of(pair.near.receive()) == system_error(ECONNRESET));
  });
}

TEST_CASE("sending to a peer that is gone fails in the end") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime&) -> Task<void> {
    Pair pair = co_await connected_pair();
    {
      Socket gone = std::move(pair.far);
    }
    std::error_code code;
    for (int i = 0; i < 1000 && !code; ++i) {
      code = co_await outcome_of(send_text(pair.near, pattern(1000)));
      co_await sleep_for(100us);
    }
    CHECK((code == system_error(EPIPE) || code == system_error(ECONNRESET)));
  });
}

TEST_CASE("a connect to a port that nobody listens on is refused, and says where") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime&) -> Task<void> {
    Address address;
    {
      Listener listener = Listener::bind(loopback());
      address = listener.address();
    }
    CHECK(co_await outcome_of(Socket::connect(address)) == system_error(ECONNREFUSED));
    const std::string text = co_await text_of_failure(Socket::connect(address));
    CHECK(text.find("connect to " + address.to_string()) != std::string::npos);
  });
}

TEST_CASE("listening on a taken port or a foreign address fails with what to do") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime&) -> Task<void> {
    Listener listener = Listener::bind(loopback());
    auto failure = [](const Address& address) -> std::string {
      try {
        Listener second = Listener::bind(address);
      } catch (const Error& error) {
        return error.what();
      }
      return "no failure";
    };
    const std::string taken = failure(listener.address());
    CHECK(taken.find("listen on " + listener.address().to_string()) != std::string::npos);
    CHECK(taken.find("choose another port") != std::string::npos);
    CHECK(failure(*Address::parse("192.0.2.1", 0)).find("address of this host") !=
          std::string::npos);
    co_return;
  });
}

TEST_CASE("a closed listener leaves its port to the next one") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime&) -> Task<void> {
    Address address;
    for (int i = 0; i < 5; ++i) {
      Listener listener = Listener::bind(i == 0 ? loopback() : address);
      address = listener.address();
      auto both = co_await when_all(Socket::connect(address), listener.accept());
    }
  });
}

TEST_CASE("streams of all sizes arrive whole and in order, by chunk and in place") {
  Bed bed(GENERATE(beds()));
  const std::size_t direct = 64 << 10;
  for (const std::size_t size : {std::size_t{1}, std::size_t{100}, direct - 1, direct,
                                 3 * direct + 7, std::size_t{3'000'000}}) {
    INFO("size " << size);
    bed.run([size](Runtime&) -> Task<void> {
      Pair pair = co_await connected_pair();
      Scope scope;
      scope.spawn(send_text(pair.near, pattern(2 * size + 11)));
      // Some by chunk first, so that receiving in place begins within a chunk.
      const std::string head = co_await receive_some(pair.far, 1);
      REQUIRE(head.size() <= 2 * size + 11);
      CHECK(head == pattern(head.size()));
      std::size_t at = head.size();
      while (at < 2 * size + 11) {
        const std::size_t count = std::min(size, 2 * size + 11 - at);
        Buffer into = Buffer::heap(count);
        co_await pair.far.receive_exactly(into);
        CHECK(into.text() == pattern(count, at));
        at += count;
      }
      co_await scope.join();
    });
  }
}

TEST_CASE("receiving exactly more than comes says how much is missing") {
  Bed bed(GENERATE(beds()));
  for (const std::size_t size : {std::size_t{1000}, std::size_t{200'000}}) {
    bed.run([size](Runtime&) -> Task<void> {
      Pair pair = co_await connected_pair();
      co_await send_text(pair.near, pattern(600));
      co_await pair.near.shutdown_send();
      const std::string text =
          co_await text_of_failure(pair.far.receive_exactly(Buffer::heap(size)));
      CHECK(text.find(std::to_string(size - 600) + " bytes early") != std::string::npos);
      CHECK(text.find("closed") != std::string::npos);
    });
  }
}

TEST_CASE("many buffers go out in one send, in order") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime&) -> Task<void> {
    Pair pair = co_await connected_pair();
    Segments segments;
    std::size_t size = 0;
    for (std::size_t i = 0; i < 500; ++i) {
      segments.push_back(Buffer::copy_of(pattern(i * 13 % 997, size)));
      size += i * 13 % 997;
    }
    Scope scope;
    scope.spawn(pair.near.send(std::move(segments)));
    const std::string got = co_await receive_some(pair.far, size);
    CHECK(got == pattern(size));
    co_await scope.join();
  });
}

TEST_CASE("a sender is held back while nobody reads, and a deadline ends its wait") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime&) -> Task<void> {
    Pair pair = co_await connected_pair();
    const auto code =
        co_await outcome_of(pair.near.send(Segments(Buffer::heap(64 << 20)), after(50ms)));
    CHECK(code == make_error_code(Errc::deadline_exceeded));
  });
}

TEST_CASE("a sender that was held back goes on when its peer reads") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime&) -> Task<void> {
    const std::size_t size = 12 << 20;
    Pair pair = co_await connected_pair();
    pair.near.set_unsent_backlog(64 << 10);
    Scope scope;
    scope.spawn(send_text(pair.near, pattern(size)));
    co_await sleep_for(10ms);
    CHECK(scope.running() == 1);
    Buffer into = Buffer::heap(size);
    co_await pair.far.receive_exactly(into);
    CHECK((into.text() == pattern(size)));
    co_await scope.join();
  });
}

TEST_CASE("accept and receive end at their deadlines and work afterwards") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime&) -> Task<void> {
    const auto passed = make_error_code(Errc::deadline_exceeded);
    Listener listener = Listener::bind(loopback());
    CHECK(co_await outcome_of(listener.accept(after(5ms))) == passed);
    auto both = co_await when_all(Socket::connect(listener.address()), listener.accept());
    Socket near = std::move(std::get<0>(both)), far = std::move(std::get<1>(both));
    CHECK(co_await outcome_of(far.receive(after(5ms))) == passed);
    CHECK(co_await outcome_of(far.receive(Clock::now())) == passed);
    co_await send_text(near, "late");
    CHECK(co_await receive_some(far, 4) == "late");
  });
}

TEST_CASE("a connect that is never answered ends at its deadline") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime&) -> Task<void> {
    // A backlog that is full drops further requests.
    Listener listener = Listener::bind(loopback(), 1);
    std::vector<Socket> connected;
    std::error_code code;
    for (int i = 0; i < 8 && !code; ++i) {
      try {
        connected.push_back(co_await Socket::connect(listener.address(), after(30ms)));
      } catch (const Error& error) {
        code = error.code();
      }
    }
    CHECK(code == make_error_code(Errc::deadline_exceeded));
  });
}

TEST_CASE("a connection moves to another shard before it was used") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime& runtime) -> Task<void> {
    Pair pair = co_await connected_pair();
    const Address peer = pair.far.peer();
    const int descriptor = pair.far.release();
    CHECK_FALSE(pair.far.is_open());
    Scope scope;
    scope.spawn(send_text(pair.near, pattern(50'000)));
    const std::string got =
        co_await call_on(runtime.shard(1), [descriptor, peer]() -> Task<std::string> {
          Socket socket = Socket::adopt(descriptor, peer);
          const std::string text = co_await receive_some(socket, 50'000);
          co_await socket.close();
          co_return text;
        });
    CHECK(got == pattern(50'000));
    co_await scope.join();
  });
}

TEST_CASE("numbers resolve to themselves, localhost to a loopback address, nonsense to an error") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime&) -> Task<void> {
    const auto numeric = co_await resolve("192.0.2.7", 80);
    REQUIRE(numeric.size() == 1);
    CHECK(numeric[0].to_string() == "192.0.2.7:80");
    const auto local = co_await resolve("localhost", 81);
    REQUIRE_FALSE(local.empty());
    CHECK(local[0].is_loopback());
    CHECK(local[0].port() == 81);
    const std::string text = co_await text_of_failure(resolve("no such host", 1));
    CHECK(text.find("'no such host'") != std::string::npos);
  });
}

TEST_CASE("when all receive memory is held, streams wait, and go on once some is released") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime&) -> Task<void> {
    const std::size_t size = 12 << 20;  // several times what a shard's receive memory holds
    Pair pair = co_await connected_pair();
    Pair other = co_await connected_pair();
    Scope scope;
    scope.spawn(send_text(pair.near, pattern(size)));
    scope.spawn(send_text(other.near, "meanwhile"));
    std::vector<Buffer> held;
    std::string got;
    int stalls = 0;
    while (got.size() < size) {
      try {
        Buffer chunk = co_await pair.far.receive(after(20ms));
        REQUIRE_FALSE(chunk.empty());
        got += chunk.text();
        held.push_back(std::move(chunk));
      } catch (const Error& error) {
        REQUIRE(error.is(Errc::deadline_exceeded));
        ++stalls;
        held.clear();
      }
    }
    held.clear();
    CHECK(stalls > 0);
    CHECK((got == pattern(size)));
    CHECK(co_await receive_some(other.far, 9) == "meanwhile");
    co_await scope.join();
  });
}

TEST_CASE("a chunk may be kept when its connection is long gone") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime&) -> Task<void> {
    Buffer kept;
    {
      Pair pair = co_await connected_pair();
      co_await send_text(pair.near, "keep me");
      kept = co_await pair.far.receive();
    }
    co_await sleep_for(2ms);
    CHECK(std::string("keep me").starts_with(kept.text()));
    CHECK_FALSE(kept.empty());
  });
}

// ---- Files

TEST_CASE("what is written is read, with zeros in the gaps and an end") {
  Bed bed(GENERATE(beds()));
  bed.run([&bed](Runtime&) -> Task<void> {
    const std::string path = bed.folder() + "/data";
    File file = co_await File::open(path, File::Mode::create_new);
    CHECK(co_await file.size() == 0);
    Segments segments;
    for (int i = 0; i < 200; ++i) segments.push_back(Buffer::copy_of(pattern(997, 997u * i)));
    co_await file.write_at(0, std::move(segments));
    co_await file.write_at(300'000, Segments(Buffer::copy_of("end")));
    CHECK(co_await file.size() == 300'003);
    co_await file.sync();
    Buffer body = co_await file.read_exactly(0, 997u * 200);
    CHECK((body.text() == pattern(997u * 200)));
    Buffer gap = co_await file.read_exactly(997u * 200, 300'000 - 997u * 200);
    CHECK(std::ranges::all_of(gap.bytes(), [](std::byte byte) { return byte == std::byte{0}; }));
    Buffer tail = co_await file.read_at(300'000, Buffer::heap(100));
    CHECK(tail.text() == "end");
    Buffer beyond = co_await file.read_at(400'000, Buffer::heap(100));
    CHECK(beyond.empty());
    const std::string text = co_await text_of_failure(file.read_exactly(299'990, 20));
    CHECK(text.find("'" + path + "'") != std::string::npos);
    CHECK(text.find("after 13") != std::string::npos);
    co_await file.close();
  });
}

TEST_CASE("truncating cuts and extends with zeros") {
  Bed bed(GENERATE(beds()));
  bed.run([&bed](Runtime&) -> Task<void> {
    File file = co_await File::open(bed.folder() + "/cut", File::Mode::create);
    co_await file.write_at(0, Segments(Buffer::copy_of("0123456789")));
    co_await file.truncate(4);
    CHECK(co_await file.size() == 4);
    co_await file.truncate(6);
    Buffer contents = co_await file.read_at(0, Buffer::heap(100));
    CHECK(contents.text() == std::string("0123\0\0", 6));
    co_await file.close();
  });
}

TEST_CASE("each mode of opening does what it says") {
  Bed bed(GENERATE(beds()));
  bed.run([&bed](Runtime&) -> Task<void> {
    const std::string path = bed.folder() + "/modes";
    CHECK(co_await outcome_of(File::open(path, File::Mode::read)) == system_error(ENOENT));
    CHECK_FALSE(co_await file_exists(path));
    {
      File file = co_await File::open(path, File::Mode::create);
      co_await file.write_at(0, Segments(Buffer::copy_of("old")));
    }
    CHECK(co_await file_exists(path));
    CHECK(co_await outcome_of(File::open(path, File::Mode::create_new)) == system_error(EEXIST));
    {
      File file = co_await File::open(path, File::Mode::create);
      CHECK(co_await file.size() == 3);
    }
    {
      File file = co_await File::open(path, File::Mode::read);
      CHECK(co_await outcome_of(file.write_at(0, Segments(Buffer::copy_of("x")))) ==
            system_error(EBADF));
    }
    {
      File file = co_await File::open(path, File::Mode::create_empty);
      CHECK(co_await file.size() == 0);
    }
    CHECK(co_await outcome_of(File::open(bed.folder(), File::Mode::create)) ==
          system_error(EISDIR));
    const std::string text = co_await text_of_failure(File::open(path + "/x", File::Mode::read));
    CHECK(text.find("open '" + path + "/x'") != std::string::npos);
  });
}

TEST_CASE("folders are made with their parents, listed in order, and removed when empty") {
  Bed bed(GENERATE(beds()));
  bed.run([&bed](Runtime&) -> Task<void> {
    const std::string deep = bed.folder() + "/a/b/c";
    co_await make_directory(deep);
    co_await make_directory(deep);
    for (const char* name : {"zeta", "alpha", "Mid"}) {
      File file = co_await File::open(deep + "/" + name, File::Mode::create_new);
      co_await file.close();
    }
    const auto names = co_await list_directory(deep);
    CHECK(names == std::vector<std::string>{"Mid", "alpha", "zeta"});
    co_await sync_directory(deep);
    CHECK(co_await outcome_of(remove_file(deep)) == system_error(ENOTEMPTY));
    CHECK(co_await outcome_of(list_directory(deep + "/zeta")) == system_error(ENOTDIR));
    CHECK(co_await outcome_of(list_directory(deep + "/none")) == system_error(ENOENT));
    CHECK(co_await outcome_of(sync_directory(deep + "/none")) == system_error(ENOENT));
    CHECK(co_await outcome_of(make_directory(deep + "/zeta/x")) == system_error(ENOTDIR));
    for (const auto& name : names) co_await remove_file(deep + "/" + name);
    co_await remove_file(deep);
    CHECK(co_await outcome_of(remove_file(deep)) == system_error(ENOENT));
  });
}

TEST_CASE("a rename replaces its target, and a file that is open lives on") {
  Bed bed(GENERATE(beds()));
  bed.run([&bed](Runtime&) -> Task<void> {
    const std::string from = bed.folder() + "/from", to = bed.folder() + "/to";
    co_await write_whole_file(from, Buffer::copy_of("new"));
    co_await write_whole_file(to, Buffer::copy_of("old"));
    File old = co_await File::open(to, File::Mode::read);
    co_await rename_file(from, to);
    Buffer contents = co_await read_whole_file(to);
    CHECK(contents.text() == "new");
    Buffer still = co_await old.read_at(0, Buffer::heap(10));
    CHECK(still.text() == "old");
    CHECK_FALSE(co_await file_exists(from));
    const std::string text = co_await text_of_failure(rename_file(from, to));
    CHECK(text.find("rename '" + from + "' to '" + to + "'") != std::string::npos);
    const std::string limit = co_await text_of_failure(read_whole_file(to, 2));
    CHECK(limit.find("the limit is 2") != std::string::npos);
  });
}

// ---- Time, offload, other shards

TEST_CASE("sleepers wake in the order of their deadlines") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime&) -> Task<void> {
    std::vector<int> woken;
    const Time start = Clock::now();
    int passed = 0;  // before they began, on a machine that is busy: these do not sleep
    auto sleeper = [](Time deadline, int ms, std::vector<int>& woken, int& passed) -> Task<void> {
      const bool sleeps = Clock::now() < deadline;
      co_await sleep_until(deadline);
      CHECK(Clock::now() >= deadline);
      if (sleeps) {
        woken.push_back(ms);
      } else {
        ++passed;
      }
    };
    Scope scope;
    for (int i = 0; i < 40; ++i) {
      const int ms = i * 17 % 41 + 1;
      scope.spawn(sleeper(start + std::chrono::milliseconds(ms), ms, woken, passed));
    }
    co_await scope.join();
    CHECK(std::ranges::is_sorted(woken));
    CHECK(passed + static_cast<int>(woken.size()) == 40);
  });
}

TEST_CASE("an offloaded call gives back its value or its exception") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime&) -> Task<void> {
    const Shard* const here = Shard::current();
    const bool elsewhere = co_await offload([] { return Shard::current() == nullptr; });
    CHECK(elsewhere);
    CHECK(Shard::current() == here);
    const auto code = co_await outcome_of(
        offload([]() -> int { throw Error(Errc::corrupt, "compute", "it fails"); }));
    CHECK(code == make_error_code(Errc::corrupt));
  });
}

TEST_CASE("a shard that sleeps is woken by another") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime& runtime) -> Task<void> {
    for (int i = 0; i < 20; ++i) {
      co_await sleep_for(1ms);  // long enough for the other one to go to sleep
      const unsigned index =
          co_await call_on(runtime.shard(1), [] { return Shard::current()->index(); });
      CHECK(index == 1);
    }
  });
}

TEST_CASE("a shard that sleeps is woken by a foreign thread") {
  Bed bed(GENERATE(beds(0)));
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> calls{0};
    std::thread other([&] {
      bed.run(
          [&calls](Runtime&) -> Task<void> {
            ++calls;
            co_return;
          },
          1);
    });
    other.join();
    CHECK(calls == 1);
  }
}

TEST_CASE("closing a listener ends who waits in accept, and nothing listens there any more") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime&) -> Task<void> {
    Listener listener = Listener::bind(loopback());
    const Address address = listener.address();
    std::error_code accepted;
    auto wait = [](Listener& listener, std::error_code& accepted) -> Task<void> {
      accepted = co_await outcome_of(listener.accept(after(2s)));
    };
    Scope scope;
    scope.spawn(wait(listener, accepted));
    co_await sleep_for(3ms);
    listener.close();
    const auto connected = co_await outcome_of(Socket::connect(address));
    CHECK(connected == system_error(ECONNREFUSED));
    co_await scope.join();
    CHECK(accepted == make_error_code(Errc::closed));
  });
}

TEST_CASE("a stream whose bytes a cancelled receive took away can't be read any further") {
  Bed bed(GENERATE(beds()));
  bed.run([](Runtime&) -> Task<void> {
    for (const std::size_t wanted : {std::size_t{1000}, std::size_t{200'000}}) {
      for (const bool part : {false, true}) {
        Pair pair = co_await connected_pair();
        if (part) co_await send_text(pair.near, pattern(500));
        const auto cancelled = co_await outcome_of(
            with_deadline(pair.far.receive_exactly(Buffer::heap(wanted)), after(50ms)));
        CHECK(cancelled == make_error_code(Errc::deadline_exceeded));
        co_await send_text(pair.near, "next");
        co_await sleep_for(5ms);
        std::string got;
        std::error_code failed;
        try {
          got = co_await receive_some(pair.far, 4);
        } catch (const Error& error) {
          failed = error.code();
        }
        INFO(wanted << " wanted, a part has come: " << part);
        CHECK(got == (part ? "" : "next"));
        CHECK((failed == system_error(ECANCELED)) == part);
      }
    }
  });
}

namespace {

Task<void> write_soon(int descriptor) {
  co_await sleep_for(10ms);
  CHECK(::write(descriptor, "x", 1) == 1);
}

/// Of anything that can be polled, not of sockets only.
Task<void> wait_until_readable() {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const auto wait = [&ends] { return Operation::create(Operation::Kind::receive, ends[0]); };
  detail::OperationAwaiter in_vain(wait(), after(10ms));
  std::error_code code;
  try {
    (void)co_await in_vain;
  } catch (const Error& error) {
    code = error.code();
  }
  CHECK(code == Errc::deadline_exceeded);
  Scope scope;
  scope.spawn(write_soon(ends[1]));
  for (int i = 0; i < 2; ++i) {  // nothing is taken
    detail::OperationAwaiter readable(wait(), after(20s));
    const std::int64_t result = co_await readable;
    CHECK(result > 0);
  }
  co_await scope.join();
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace

TEST_CASE("a receive without memory ends when there is something to receive, and takes nothing") {
  Bed bed(GENERATE(Catch::Generators::range(first_bed, 1)));
  INFO(bed.name());
  bed.run([](Runtime&) { return wait_until_readable(); });
}
