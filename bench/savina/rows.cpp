// The rows of the Savina benchmarks: what each is run with, here and on CAF, and what is checked.
#include <fmt/format.h>

#include <stdexcept>
#include <string>

#include "../harness.hpp"
#include "actors.hpp"
#if HYPERFRAMES_BENCH_CAF
#include "../peers/caf.hpp"
#include "../peers/savina.hpp"
#endif

namespace hyperframes::bench {
namespace {

using namespace savina;

// What is within the goals: a ratio of times, ours to CAF's.
constexpr double six_times_as_fast = 1.0 / 6;
constexpr double nearly_as_fast = 1 / 0.95;
constexpr const char* by_messages = "bound by messages";
constexpr const char* by_computing = "bound by computing";

template <class Program>
double checked_seconds(const std::string& name, const Program& program, const Outcome& outcome) {
  const std::int64_t expected = program.expected();
  if (outcome.answer == expected) return outcome.seconds;
  throw std::runtime_error(
      fmt::format("savina/{} answers {} instead of {}", name, outcome.answer, expected));
}

template <class Program>
std::optional<Rival> caf(const std::string& name, const Program& program, double a_second,
                         double goal) {
#if HYPERFRAMES_BENCH_CAF
  return Rival{"CAF " + bench::caf_peer::version() + ", 1 worker",
               [=] {
                 return a_second *
                        checked_seconds(name + " on CAF", program, savina::caf_peer::run(program));
               },
               goal};
#else
  return std::nullopt;
#endif
}

/// `a_second`: what a second of one run is in the row's unit.
template <class Program>
Row make_row(const std::string& name, const Program& program, double a_second, double goal) {
  return {.group = "savina",
          .name = name,
          .unit = {},
          .subject = [=] { return a_second * checked_seconds(name, program, run(program)); },
          .peer = caf(name, program, a_second, goal)};
}

class Rows {
 public:
  explicit Rows(Runner& runner) : runner_(runner) {}
  template <class Program>
  void messages(const std::string& name, const Program& full, const Program& tiny) {
    const Program& program = runner_.tiny ? tiny : full;
    Row row = make_row(name, program, 1e9 / static_cast<double>(program.messages()), 0);
    row.unit = "ns";
    row.family = by_messages;
    row.note = fmt::format("a message; {} of them", program.messages());
    runner_.add(std::move(row));
  }
  template <class Program>
  void computing(const std::string& name, const Program& full, const Program& tiny) {
    Row row = make_row(name, runner_.tiny ? tiny : full, 1e3, nearly_as_fast);
    row.unit = "ms";
    row.family = by_computing;
    runner_.add(std::move(row));
  }

 private:
  Runner& runner_;
};

void add_messages(Rows rows) {
  rows.messages("ping-pong", PingPong{400'000}, PingPong{10});
  rows.messages("counting", Counting{1'000'000}, Counting{100});
  rows.messages("fork-join, throughput", ForkJoinThroughput{60, 10'000}, ForkJoinThroughput{3, 20});
  rows.messages("fork-join, create", ForkJoinCreate{100'000}, ForkJoinCreate{100});
  rows.messages("thread ring", ThreadRing{100, 5'000}, ThreadRing{5, 20});
  rows.messages("chameneos", Chameneos{100, 100'000}, Chameneos{5, 100});
  rows.messages("big", Big{120, 3'000}, Big{5, 20});
  rows.messages("concurrent dictionary", ConcurrentDictionary{20, 10'000, 10},
                ConcurrentDictionary{3, 50, 10});
  rows.messages("bounded buffer", BoundedBuffer{40, 40, 2'500, 50}, BoundedBuffer{4, 3, 25, 2});
  rows.messages("banking", Banking{1'000, 100'000}, Banking{10, 100});
}

void add_computing(Rows rows) {
  rows.computing("radix sort", RadixSort{30'000, 30}, RadixSort{50, 8});
  rows.computing("filter bank", FilterBank{8, 2'048, 3'000}, FilterBank{2, 16, 50});
  rows.computing("sieve of primes", Sieve{100'000, 1'000}, Sieve{1'000, 20});
  rows.computing("recursive matrix product", MatrixProduct{512, 64, 20}, MatrixProduct{32, 8, 3});
  rows.computing("n queens", NQueens{13, 10, 20, 73'712}, NQueens{6, 4, 3, 4});
  rows.computing("trapezoid", Trapezoid{2'000'000, 100}, Trapezoid{1'000, 7});
  rows.computing("quicksort", Quicksort{300'000, 2'048}, Quicksort{500, 32});
}

}  // namespace

void add_savina_rows(Runner& runner) {
  add_messages(Rows(runner));
  runner.add_mean({.group = "savina",
                   .name = "geometric mean, bound by messages",
                   .family = by_messages,
                   .unit = "ns",
                   .goal = six_times_as_fast});
  add_computing(Rows(runner));
  runner.add_mean({.group = "savina",
                   .name = "geometric mean, bound by computing",
                   .family = by_computing,
                   .unit = "ms",
                   .goal = nearly_as_fast});
}

}  // namespace hyperframes::bench
