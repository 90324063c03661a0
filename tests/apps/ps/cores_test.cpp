// Which cores a process's shards run on.
#include <hyperframes/apps/ps/cores.hpp>

#include <sched.h>

#include <catch2/catch_test_macros.hpp>
#include <exception>
#include <functional>
#include <hyperframes/apps/ps/server.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <string>
#include <thread>
#include <vector>

using namespace hyperframes;
using ps::bind_to_cores;
using ps::parse_cores;
using Cores = std::vector<unsigned>;

namespace {

Cores usable() {
  cpu_set_t set;
  CPU_ZERO(&set);
  REQUIRE(::sched_getaffinity(0, sizeof set, &set) == 0);
  Cores cores;
  for (unsigned core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

/// On a thread of its own, since a thread that was bound stays so.
void apart(const std::function<void()>& function) {
  std::exception_ptr failure;
  std::thread([&] {
    try {
      function();
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
}

std::string refusal(const std::function<void()>& function) {
  try {
    function();
  } catch (const Error& error) {
    CHECK(error.is(Errc::invalid_argument));
    CHECK(!error.remedy().empty());
    return error.found();
  }
  return "nothing was refused";
}

std::string joined(const Cores& cores) {
  std::string text;
  for (const unsigned core : cores) text += (text.empty() ? "" : ",") + std::to_string(core);
  return text;
}

Task<Cores> cores_of_this_shard() { co_return usable(); }

}  // namespace

TEST_CASE("a list of cores is numbers and ranges, each core once and in order") {
  CHECK(parse_cores("3") == Cores{3});
  CHECK(parse_cores("8,0-3,2") == Cores{0, 1, 2, 3, 8});
  for (const char* text : {"", "a", "1,", "-1", "0-", "0x1", " 1", "1-2-3"})
    CHECK(refusal([&] { (void)parse_cores(text); }).find("is no number of a core") !=
          std::string::npos);
  CHECK(refusal([] { (void)parse_cores("3-1"); }) == "the range 3-1 ends before it begins");
  CHECK(refusal([] { (void)parse_cores("0-4000000000"); }).starts_with("there is no core"));
}

TEST_CASE("each shard is bound to a core of the list, and all threads to the list") {
  const Cores all = usable();
  const Cores mine(all.begin(), all.begin() + (all.size() > 1 ? 2 : 1));
  const auto shards = static_cast<unsigned>(mine.size());
  apart([&] {
    Runtime::Options options;
    options.shards = shards;
    options.pin_threads = bind_to_cores(joined(mine), shards);
    Runtime runtime(options);
    for (unsigned i = 0; i < shards; ++i)
      CHECK(runtime.run([](Runtime&) { return cores_of_this_shard(); }, i) == Cores{mine[i]});
    CHECK(usable() == mine);
  });
}

TEST_CASE("without a list nothing is bound") {
  const Cores before = usable();
  CHECK(!bind_to_cores("", 4));
  CHECK(usable() == before);
}

TEST_CASE("cores that the process may not use, and fewer than its shards, are refused") {
  const std::string first = std::to_string(usable().front());
  apart([&] {
    REQUIRE(bind_to_cores(first, 1));
    const unsigned other = usable().front() + 1;
    CHECK(refusal([&] { bind_to_cores(std::to_string(other), 1); }) ==
          "this process may use " + first + " only");
    CHECK(refusal([&] { bind_to_cores(first, 2); }) == "2 shards need a core each");
  });
  ps::ServerOptions options{.workdir = "w", .threads = 2, .cores = first};
  CHECK(refusal([&] { options.check(); }) ==
        "--threads 2 needs a core for each, and --cores " + first + " has 1");
  options.threads = 1;
  CHECK_NOTHROW(options.check());
}
