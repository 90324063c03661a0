#include <catch2/catch_test_macros.hpp>
#include <hyperframes/apps/ps/clock_table.hpp>
#include <map>
#include <random>

using namespace hyperframes::ps;

namespace {
constexpr std::uint32_t job = 1;
}

TEST_CASE("with bound 0 a pull waits until every live worker has completed the step before") {
  ClockTable clocks(0);
  clocks.set_live(job, std::vector<LiveWorker>{{1, 0}, {2, 0}});
  CHECK(clocks.ready(job, 0));
  bool answered = false;
  clocks.wait(job, 1, {[&] { answered = true; }});
  clocks.tick(job, 1, 1);
  CHECK_FALSE(answered);
  clocks.tick(job, 2, 1);
  CHECK(answered);
  CHECK(clocks.waiting() == 0);
}

TEST_CASE("a worker may be the bound ahead of the slowest, and no step more") {
  ClockTable clocks(3);
  clocks.set_live(job, std::vector<LiveWorker>{{1, 0}, {2, 0}});
  clocks.tick(job, 1, 10);
  CHECK(clocks.ready(job, 3));
  CHECK_FALSE(clocks.ready(job, 4));
  clocks.tick(job, 2, 1);
  CHECK(clocks.ready(job, 4));
  CHECK_FALSE(clocks.ready(job, 5));
}

TEST_CASE("a worker that leaves no longer holds the others up") {
  ClockTable clocks(0);
  clocks.set_live(job, std::vector<LiveWorker>{{1, 0}, {2, 0}});
  bool answered = false;
  clocks.tick(job, 1, 5);
  clocks.wait(job, 5, {[&] { answered = true; }});
  CHECK_FALSE(answered);
  clocks.set_live(job, std::vector<LiveWorker>{{1, 0}});
  CHECK(answered);
}

TEST_CASE("after a restart nobody runs ahead until every live worker has spoken") {
  ClockTable clocks(2);
  clocks.set_live(job, std::vector<LiveWorker>{{1, 0}, {2, 0}});
  clocks.tick(job, 1, 40);
  CHECK_FALSE(clocks.ready(job, 40));
  clocks.tick(job, 2, 39);
  CHECK(clocks.ready(job, 40));
}

TEST_CASE("a clock heard before the view lists its worker counts once it does") {
  ClockTable clocks(0);
  clocks.set_live(job, std::vector<LiveWorker>{{1, 0}});
  clocks.tick(job, 2, 7);
  clocks.set_live(job, std::vector<LiveWorker>{{1, 0}, {2, 3}});
  clocks.tick(job, 1, 7);
  CHECK(clocks.slowest(job) == 7);
}

TEST_CASE("clocks never go back") {
  ClockTable clocks(0);
  clocks.set_live(job, std::vector<LiveWorker>{{1, 0}});
  clocks.tick(job, 1, 9);
  clocks.tick(job, 1, 4);
  CHECK(clocks.slowest(job) == 9);
}

TEST_CASE("what waits may wait again from inside its answer") {
  ClockTable clocks(0);
  clocks.set_live(job, std::vector<LiveWorker>{{1, 0}});
  int answered = 0;
  clocks.wait(job, 1, {[&] {
                ++answered;
                clocks.wait(job, 2, {[&] { ++answered; }});
              }});
  clocks.tick(job, 1, 1);
  CHECK(answered == 1);
  clocks.tick(job, 1, 2);
  CHECK(answered == 2);
}

TEST_CASE("what nobody wants any more, and what an owner has left, is dropped without being run") {
  ClockTable clocks(0);
  clocks.set_live(job, std::vector<LiveWorker>{{1, 0}});
  bool wanted = true;
  int run = 0, owner = 0;
  const auto count = [&] { ++run; };
  clocks.wait(job, 1, {.then = count, .wanted = [&] { return wanted; }, .bytes = 100});
  clocks.wait(job, 2, {.then = count, .owner = &owner, .bytes = 10});
  clocks.wait(job, 3, {.then = count, .bytes = 1});
  clocks.drop_unwanted();
  CHECK((clocks.waiting() == 3 && clocks.waiting_bytes() == 111));
  wanted = false;
  clocks.drop_unwanted();
  CHECK((clocks.waiting() == 2 && clocks.waiting_bytes() == 11));
  clocks.drop_owned(&owner);
  CHECK((clocks.waiting() == 1 && clocks.waiting_bytes() == 1));
  clocks.tick(job, 1, 3);
  CHECK((clocks.waiting() == 0 && clocks.waiting_bytes() == 0));
  CHECK(run == 1);
}

TEST_CASE("jobs and workers that no view lists fill no memory") {
  ClockTable clocks(0);
  clocks.set_live(job, std::vector<LiveWorker>{{1, 0}});
  for (std::uint32_t stranger = 10; stranger < 100'000; ++stranger) {
    clocks.tick(stranger, 1, 5);
    clocks.wait(stranger, 7, {[] {}});
  }
  CHECK(clocks.jobs() == 1 + ClockTable::max_unlisted_jobs);
  clocks.tick(job, 1, 4);
  CHECK(clocks.slowest(job) == 4);
  // A job whose workers spoke before the view came keeps what they said.
  clocks.set_live(10, std::vector<LiveWorker>{{1, 0}});
  CHECK(clocks.slowest(10) == 5);
  clocks.forget_other_jobs(std::vector<std::uint32_t>{job});
  CHECK(clocks.jobs() == 1);
}

TEST_CASE("random workers never see a pull answered beyond the bound") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 50; ++round) {
    const std::uint64_t bound = random() % 5;
    ClockTable clocks(bound);
    std::map<std::uint32_t, std::uint64_t> model;
    std::uint32_t next = 1;
    std::size_t asked = 0, answered = 0;
    auto publish = [&] {
      std::vector<LiveWorker> live;
      for (auto [worker, clock] : model) live.push_back({worker, clock});
      clocks.set_live(job, live);
    };
    auto slowest = [&] {
      std::uint64_t low = UINT64_MAX;
      for (auto [worker, clock] : model) low = std::min(low, clock);
      return low;
    };
    for (int action = 0; action < 400; ++action) {
      const unsigned what = random() % 10;
      if (model.empty() || what == 0) {
        model[next++] = model.empty() ? 0 : slowest();
        publish();
      } else if (what == 1 && model.size() > 1) {
        model.erase(std::next(model.begin(), static_cast<long>(random() % model.size())));
        publish();
      } else {
        auto at = std::next(model.begin(), static_cast<long>(random() % model.size()));
        if (what < 6) {
          clocks.tick(job, at->first, ++at->second);
        } else {
          const std::uint64_t step = at->second;
          ++asked;
          clocks.wait(job, step, {[&, step] {
                        ++answered;
                        CHECK((model.empty() || step <= slowest() + bound));
                      }});
        }
      }
      CHECK(asked - answered == clocks.waiting());
    }
  }
}
