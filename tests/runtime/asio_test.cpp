#include <catch2/catch_test_macros.hpp>

#ifndef HYPERFRAMES_HAS_ASIO

TEST_CASE("shards run on an io_context") { SKIP("asio is not installed (Debian: libasio-dev)"); }

#else

#include <hyperframes/runtime/asio.hpp>

#include <dirent.h>
#include <signal.h>

#include <asio/awaitable.hpp>
#include <asio/bind_cancellation_slot.hpp>
#include <asio/bind_executor.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/steady_timer.hpp>
#include <asio/strand.hpp>
#include <asio/thread_pool.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/use_future.hpp>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <future>
#include <hyperframes/runtime/call_on.hpp>
#include <hyperframes/runtime/offload.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <hyperframes/runtime/socket.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>
#if __has_include(<asio/deferred.hpp>)
#include <asio/deferred.hpp>
#define HYPERFRAMES_TEST_DEFERRED asio::deferred
#else
#include <asio/experimental/deferred.hpp>
#define HYPERFRAMES_TEST_DEFERRED asio::experimental::deferred
#endif

using namespace hyperframes;

namespace {

/// An io_context's executor whose `post` comes back only after a while.
struct SlowExecutor {
  asio::io_context::executor_type inner;
  std::atomic<bool>* came_back;

  asio::execution_context& context() const noexcept { return inner.context(); }
  void on_work_started() const noexcept { inner.on_work_started(); }
  void on_work_finished() const noexcept { inner.on_work_finished(); }
  template <class Function, class Allocator>
  void dispatch(Function&& function, const Allocator& allocator) const {
    post(std::forward<Function>(function), allocator);
  }
  template <class Function, class Allocator>
  void defer(Function&& function, const Allocator& allocator) const {
    post(std::forward<Function>(function), allocator);
  }
  template <class Function, class Allocator>
  void post(Function&& function, const Allocator& allocator) const {
    inner.post(std::forward<Function>(function), allocator);
    std::this_thread::sleep_for(50ms);
    came_back->store(true);
  }
};

Task<int> answer_after(Duration span, int value) {
  co_await sleep_for(span);
  co_return value;
}

Task<int> fail_after(Duration span) {
  co_await sleep_for(span);
  throw Error(Errc::not_found, "look for it", "it is not there");
}

Task<void> pause(Duration span) { co_await sleep_for(span); }
Task<void> sleep_long() { co_await sleep_for(1h); }

std::error_code code_of(const std::exception_ptr& failure) {
  if (!failure) return {};
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error.code();
  }
}

/// Stops the runtime in order, by handlers alone, and runs the context to its end.
Runtime::StopReport stop(asio::io_context& context, AsioRuntime& embedded, Duration grace = 5s) {
  Runtime::StopReport report;
  bool told = false;
  embedded.async_stop(grace, [&](Runtime::StopReport got) {
    report = std::move(got);
    told = true;
  });
  context.restart();
  context.run();
  CHECK(told);
  return report;
}

std::size_t count_of(const char* folder) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    count += !entry.path().empty();
  return count;
}

std::vector<struct sigaction> signal_handlers() {
  std::vector<struct sigaction> all;
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction now;
    std::memset(&now, 0, sizeof now);
    ::sigaction(signal, nullptr, &now);
    all.push_back(now);
  }
  return all;
}

bool same(const std::vector<struct sigaction>& a, const std::vector<struct sigaction>& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].sa_handler != b[i].sa_handler || a[i].sa_flags != b[i].sa_flags) return false;
  return true;
}

}  // namespace

// ---- The shards

TEST_CASE("embedded shards add no thread and no signal handler, and return the caller's run") {
  const auto before = signal_handlers();
  const std::size_t threads = count_of("/proc/self/task");
  asio::io_context context;
  AsioRuntime embedded(context, {.shards = 2});
  int got = 0;
  std::size_t threads_meanwhile = 0;
  async_run(
      context.get_executor(), embedded.shard(1),
      []() -> Task<int> {
        const int value = co_await offload([] { return 40; });
        co_return co_await answer_after(2ms, value + 2);
      },
      [&](std::exception_ptr failure, int value) {
        CHECK_FALSE(failure);
        got = value;
        threads_meanwhile = count_of("/proc/self/task");
        embedded.async_stop(5s, [](Runtime::StopReport report) { CHECK(report.clean); });
      });
  context.run();  // returns when the runtime has stopped, since nothing else is left
  CHECK(got == 42);
  CHECK(threads_meanwhile == threads);
  CHECK(same(before, signal_handlers()));
}

TEST_CASE("the current shard is set in its turns, and in no other handler of the io_context") {
  asio::io_context context;
  AsioRuntime embedded(context, {.shards = 2});
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0}, finished{0};
  constexpr int rounds = 200;
  auto stay = [](unsigned index, std::atomic<int>& wrong) -> Task<void> {
    for (int i = 0; i < rounds; ++i) {
      const Shard* here = Shard::current();
      if (!here || here->index() != index) ++wrong;
      co_await yield();
      if (i % 20 == 0) co_await sleep_for(100us);
    }
  };
  for (unsigned index = 0; index < 2; ++index)
    async_run(
        context.get_executor(), embedded.shard(index), [&, index] { return stay(index, wrong); },
        [&](std::exception_ptr failure) {
          if (failure || Shard::current()) ++wrong;
          if (++finished == 2) embedded.async_stop(5s, asio::detached);
        });
  std::function<void()> look = [&] {
    if (Shard::current()) ++wrong;
    if (finished < 2) asio::post(context, look);
  };
  asio::post(context, look);
  for (int i = 0; i < 3; ++i) threads.emplace_back([&] { context.run(); });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(finished == 2);
}

TEST_CASE("a shard with endless work leaves the io_context's other handlers their turn") {
  asio::io_context context;
  AsioRuntime embedded(context);
  bool busy = true;
  async_run(
      context.get_executor(), embedded.shard(0),
      [&busy]() -> Task<void> {
        while (busy) co_await yield();
      },
      [&](std::exception_ptr) { embedded.async_stop(5s, asio::detached); });
  asio::steady_timer timer(context, std::chrono::milliseconds(5));
  timer.async_wait([&](const asio::error_code&) { busy = false; });
  context.run();
  CHECK_FALSE(busy);
}

TEST_CASE("two runtimes on one io_context know nothing of each other") {
  asio::io_context context;
  AsioRuntime first(context), second(context, {.shards = 2});
  std::vector<const Runtime*> seen;
  auto note = [&seen]() -> Task<void> {
    seen.push_back(&Shard::current()->runtime());
    co_return;
  };
  for (AsioRuntime* embedded : {&first, &second})
    async_run(context.get_executor(), embedded->shard(0), note,
              [embedded](std::exception_ptr) { embedded->async_stop(5s, asio::detached); });
  context.run();
  CHECK(std::set(seen.begin(), seen.end()) ==
        std::set<const Runtime*>{&first.runtime(), &second.runtime()});
}

TEST_CASE("blocking calls run where the embedder says") {
  asio::io_context context;
  asio::thread_pool pool(1);
  const auto id_of_pool = std::make_shared<std::promise<std::thread::id> >();
  asio::post(pool, [id_of_pool] { id_of_pool->set_value(std::this_thread::get_id()); });
  AsioRuntime embedded(context, {.offload = pool.get_executor()});
  std::thread::id where;
  async_run(
      context.get_executor(), embedded.shard(0),
      []() -> Task<std::thread::id> {
        co_return co_await offload([] { return std::this_thread::get_id(); });
      },
      [&](std::exception_ptr, std::thread::id id) {
        where = id;
        embedded.async_stop(5s, asio::detached);
      });
  context.run();
  CHECK(where == id_of_pool->get_future().get());
}

TEST_CASE("an embedded shard talks to a runtime with threads of its own") {
  Runtime threaded({.shards = 1, .driver = Driver::asio});
  asio::io_context context;
  AsioRuntime embedded(context);
  std::promise<Address> where;
  auto serve = [&where](Runtime&) -> Task<std::string> {
    Listener listener = Listener::bind(*Address::parse("127.0.0.1", 0));
    where.set_value(listener.address());
    Socket socket = co_await listener.accept();
    Buffer chunk = co_await socket.receive();
    co_await socket.send(Segments(Buffer::copy_of("you said " + std::string(chunk.text()))));
    co_return "served";
  };
  auto served = std::async(std::launch::async, [&] { return threaded.run(serve); });
  const Address address = where.get_future().get();
  std::string got;
  async_run(
      context.get_executor(), embedded.shard(0),
      [address]() -> Task<std::string> {
        Socket socket = co_await Socket::connect(address);
        co_await socket.send(Segments(Buffer::copy_of("hello")));
        Buffer chunk = co_await socket.receive();
        co_return std::string(chunk.text());
      },
      [&](std::exception_ptr failure, std::string text) {
        CHECK_FALSE(failure);
        got = std::move(text);
        embedded.async_stop(5s, asio::detached);
      });
  context.run();
  CHECK(got == "you said hello");
  CHECK(served.get() == "served");
}

TEST_CASE("a program that was compiled with another asio is refused with both versions") {
  std::string text;
  try {
    detail::check_asio_build({.version = 101800});
  } catch (const Error& error) {
    CHECK(error.is(Errc::version_mismatch));
    text = error.what();
  }
  CHECK(text.find("1.18.0") != std::string::npos);
  CHECK(text.find(std::to_string(ASIO_VERSION / 100000) + "." +
                  std::to_string(ASIO_VERSION / 100 % 1000)) != std::string::npos);
}

// ---- Its end

TEST_CASE("stopping cancels and joins tasks without blocking the one thread there is") {
  asio::io_context context;
  AsioRuntime embedded(context, {.shards = 2});
  std::vector<std::error_code> codes;
  bool cleaned_up = false;
  auto tidy = [&cleaned_up]() -> Task<void> {
    try {
      co_await sleep_long();
    } catch (const Error&) {
    }
    co_await shielded(pause(3ms));  // what a task does when it is cancelled
    cleaned_up = true;
  };
  auto note = [&](std::exception_ptr failure) { codes.push_back(code_of(failure)); };
  async_run(context.get_executor(), embedded.shard(0), tidy, note);
  async_run(context.get_executor(), embedded.shard(1), [] { return sleep_long(); }, note);
  for (int i = 0; i < 20; ++i) context.poll();  // they begin
  const auto report = stop(context, embedded);
  CHECK(report.clean);
  CHECK(cleaned_up);
  REQUIRE(codes.size() == 2);
  CHECK((codes[0] == std::error_code()) != (codes[1] == std::error_code()));
}

TEST_CASE("a task that does not end is named when the grace is over") {
  asio::io_context context;
  AsioRuntime embedded(context);
  std::error_code code;
  auto stubborn = []() -> Task<void> {
    while (true) {
      try {
        co_await shielded(pause(1ms));
      } catch (const Error&) {
      }
    }
  };
  async_run(context.get_executor(), embedded.shard(0), stubborn,
            [&](std::exception_ptr failure) { code = code_of(failure); });
  const auto report = stop(context, embedded, 20ms);
  CHECK_FALSE(report.clean);
  REQUIRE(report.stragglers.size() == 1);
  CHECK(report.stragglers[0].find("asio_test.cpp") != std::string::npos);
  CHECK(code == make_error_code(Errc::shutting_down));
  // A second stop has nothing to do, and says the same.
  CHECK_FALSE(stop(context, embedded).clean);
}

TEST_CASE(
    "a runtime that is destroyed without a stop ends its tasks, and their callers hear of it") {
  asio::io_context context;
  std::error_code code;
  auto embedded = std::make_unique<AsioRuntime>(context);
  async_run(
      context.get_executor(), embedded->shard(0), [] { return sleep_long(); },
      [&](std::exception_ptr failure) { code = code_of(failure); });
  context.poll();
  embedded.reset();
  context.run();
  CHECK(code == make_error_code(Errc::shutting_down));
}

TEST_CASE("what is run on a runtime that has stopped is refused") {
  asio::io_context context;
  AsioRuntime embedded(context);
  CHECK(stop(context, embedded).clean);
  std::error_code code;
  async_run(
      context.get_executor(), embedded.shard(0), [] { return answer_after(0ms, 1); },
      [&](std::exception_ptr failure, int) { code = code_of(failure); });
  context.restart();
  context.run();
  CHECK(code == make_error_code(Errc::shutting_down));
}

TEST_CASE("a foreign thread runs tasks on embedded shards") {
  asio::io_context context;
  AsioRuntime embedded(context, {.shards = 2});
  std::thread thread([&] { context.run(); });
  auto ask = [&](Runtime& runtime) -> Task<int> {
    co_return co_await call_on(runtime.shard(1), [] { return answer_after(1ms, 7); });
  };
  CHECK(embedded.runtime().run(ask) == 7);
  CHECK_THROWS_AS(embedded.runtime().run([](Runtime&) { return fail_after(1ms); }), Error);
  embedded.async_stop(5s, asio::use_future).get();
  thread.join();
}

TEST_CASE("stopping an embedded runtime as if it had threads is refused, not called clean") {
  asio::io_context context;
  AsioRuntime embedded(context);
  try {
    embedded.runtime().stop(1s);
    FAIL("it was not refused");
  } catch (const Error& error) {
    CHECK(error.is(Errc::invalid_argument));
    CHECK(error.remedy().find("async_stop") != std::string::npos);
  }
}

// ---- Completion tokens

TEST_CASE("a callback gets the value or the exception, later and on its executor") {
  asio::io_context context;
  AsioRuntime embedded(context);
  auto strand = asio::make_strand(context);
  int calls = 0;
  const auto count = [&] {
    if (++calls == 2) embedded.async_stop(5s, asio::detached);
  };
  async_run(
      context.get_executor(), embedded.shard(0), [] { return answer_after(1ms, 5); },
      asio::bind_executor(strand, [&](std::exception_ptr failure, int value) {
        CHECK_FALSE(failure);
        CHECK(value == 5);
        CHECK(strand.running_in_this_thread());
        count();
      }));
  async_run(
      context.get_executor(), embedded.shard(0), [] { return fail_after(0ms); },
      [&](std::exception_ptr failure, int value) {
        CHECK(code_of(failure) == make_error_code(Errc::not_found));
        CHECK(value == 0);
        count();
      });
  CHECK(calls == 0);
  context.run();
  CHECK(calls == 2);
}

TEST_CASE("a handler may be moved only, and so may the value") {
  asio::io_context context;
  AsioRuntime embedded(context);
  auto mark = std::make_unique<int>(1);
  int got = 0;
  async_run(
      context.get_executor(), embedded.shard(0),
      [what = std::make_unique<int>(6)]() mutable -> Task<std::unique_ptr<int> > {
        auto taken = std::move(what);
        return co_invoke([taken = std::move(taken)]() mutable -> Task<std::unique_ptr<int> > {
          co_await sleep_for(1ms);
          co_return std::move(taken);
        });
      },
      [&, mark = std::move(mark)](std::exception_ptr, std::unique_ptr<int> value) {
        got = *value + *mark;
        embedded.async_stop(5s, asio::detached);
      });
  context.run();
  CHECK(got == 7);
}

TEST_CASE("a future holds the value or throws the exception") {
  asio::io_context context;
  AsioRuntime embedded(context);
  std::thread thread([&] { context.run(); });
  const auto executor = context.get_executor();
  auto value =
      async_run(executor, embedded.shard(0), [] { return answer_after(1ms, 9); }, asio::use_future);
  CHECK(value.get() == 9);
  auto failure =
      async_run(executor, embedded.shard(0), [] { return fail_after(1ms); }, asio::use_future);
  CHECK_THROWS_AS(failure.get(), Error);
  embedded.async_stop(5s, asio::use_future).get();
  thread.join();
}

TEST_CASE("an asio coroutine awaits the value or catches the exception") {
  asio::io_context context;
  AsioRuntime embedded(context);
  auto main = [](asio::io_context& context, AsioRuntime& embedded) -> asio::awaitable<std::string> {
    const int value = co_await async_run(
        context.get_executor(), embedded.shard(0), [] { return answer_after(1ms, 3); },
        asio::use_awaitable);
    std::string text = std::to_string(value);
    try {
      co_await async_run(
          context.get_executor(), embedded.shard(0), [] { return fail_after(1ms); },
          asio::use_awaitable);
    } catch (const Error& error) {
      text += error.is(Errc::not_found) ? ", not found" : ", another error";
    }
    const auto report = co_await embedded.async_stop(5s, asio::use_awaitable);
    co_return text + (report.clean ? ", clean" : ", not clean");
  };
  auto got = asio::co_spawn(context, main(context, embedded), asio::use_future);
  context.run();
  CHECK(got.get() == "3, not found, clean");
}

TEST_CASE("a deferred run begins when it is given its handler") {
  asio::io_context context;
  AsioRuntime embedded(context);
  int begun = 0, got = 0;
  auto later = async_run(
      context.get_executor(), embedded.shard(0),
      [&begun] {
        ++begun;
        return answer_after(0ms, 4);
      },
      HYPERFRAMES_TEST_DEFERRED);
  for (int i = 0; i < 50; ++i) context.poll();
  CHECK(begun == 0);
  std::move(later)([&](std::exception_ptr, int value) {
    got = value;
    embedded.async_stop(5s, asio::detached);
  });
  context.run();
  CHECK(begun == 1);
  CHECK(got == 4);
}

TEST_CASE("a cancellation slot ends what the task waits for") {
  asio::io_context context;
  AsioRuntime embedded(context);
  for (const bool started : {false, true}) {
    asio::cancellation_signal signal;
    std::error_code code;
    bool told = false;
    async_run(
        context.get_executor(), embedded.shard(0), [] { return sleep_long(); },
        asio::bind_cancellation_slot(signal.slot(), [&](std::exception_ptr failure) {
          code = code_of(failure);
          told = true;
        }));
    if (started) {
      for (int i = 0; i < 20; ++i) context.poll();
      signal.emit(asio::cancellation_type::total);  // that can't be promised, so nothing happens
      for (int i = 0; i < 20; ++i) context.poll();
    }
    CHECK_FALSE(told);
    signal.emit(asio::cancellation_type::terminal);
    while (!told) context.run_one();
    CHECK(code == make_error_code(Errc::cancelled));
    CHECK_FALSE(signal.slot().has_handler());
    signal.emit(asio::cancellation_type::terminal);  // long over
  }
  CHECK(stop(context, embedded).clean);
}

TEST_CASE("buffers that leave their shard are released by any thread, and go home") {
  asio::io_context context;
  AsioRuntime embedded(context);
  BufferPool& pool = embedded.shard(0).send_pool();
  std::thread thread([&] { context.run(); });
  const auto executor = context.get_executor();
  auto make = [&pool]() -> Task<Segments> {
    Buffer buffer = co_await pool.allocate(1000);
    std::memset(buffer.data(), 'x', buffer.size());
    Buffer shared = buffer.slice(10, 20);
    Segments all;
    all.push_back(std::move(buffer));
    all.push_back(std::move(shared));
    co_return all;
  };
  auto used = [&pool]() -> Task<std::size_t> {
    co_await yield();
    co_return pool.usage().used_bytes;
  };
  {
    Segments got = async_run(executor, embedded.shard(0), make, asio::use_future).get();
    REQUIRE(got.count() == 2);
    CHECK(got[0].text() == std::string(1000, 'x'));
    CHECK(got[1].text() == std::string(20, 'x'));
    Segments copied = got;
    std::thread elsewhere([copied = std::move(copied)]() mutable { copied.clear(); });
    elsewhere.join();
    CHECK(async_run(executor, embedded.shard(0), used, asio::use_future).get() > 0);
  }
  std::size_t left = 1;
  for (int i = 0; i < 1000 && left; ++i)
    left = async_run(executor, embedded.shard(0), used, asio::use_future).get();
  CHECK(left == 0);
  embedded.async_stop(5s, asio::use_future).get();
  thread.join();
}

TEST_CASE("asio code awaits tasks of shards that have threads of their own") {
  Runtime runtime({.shards = 2});
  asio::io_context context;
  auto main = [](Runtime& runtime, asio::io_context& context) -> asio::awaitable<int> {
    int sum = 0;
    for (unsigned shard = 0; shard < 2; ++shard)
      sum += co_await async_run(
          context.get_executor(), runtime.shard(shard),
          [shard] { return answer_after(1ms, static_cast<int>(shard) + 1); }, asio::use_awaitable);
    co_return Shard::current() ? -1 : sum;
  };
  auto got = asio::co_spawn(context, main(runtime, context), asio::use_future);
  context.run();  // has work until the coroutine has its answers
  CHECK(got.get() == 3);
}

TEST_CASE("an io_context runs until the shard's thread has left it, so that it may go then") {
  Runtime runtime({.shards = 1});
  std::atomic<bool> came_back{false};
  asio::io_context context;
  int got = 0;
  async_run(
      context.get_executor(), runtime.shard(0), [] { return answer_after(1ms, 7); },
      asio::bind_executor(SlowExecutor{context.get_executor(), &came_back},
                          [&](std::exception_ptr, int value) { got = value; }));
  context.run();
  CHECK(came_back);
  CHECK(got == 7);
}

#endif
