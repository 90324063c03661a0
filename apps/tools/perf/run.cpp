#include <hyperframes/apps/tools/perf/run.hpp>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <future>
#include <hyperframes/apps/ps/signal_watch.hpp>
#include <hyperframes/apps/tools/perf/client.hpp>
#include <hyperframes/apps/tools/perf/journal.hpp>
#include <hyperframes/apps/tools/perf/report.hpp>
#include <hyperframes/apps/tools/perf/server.hpp>
#include <hyperframes/apps/tools/process.hpp>
#include <hyperframes/apps/tools/progress.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <optional>
#include <sstream>
#include <utility>

namespace hyperframes::tools::perf {
namespace {

namespace fs = std::filesystem;

// A part of `seconds`, on top of them.
constexpr double self_loop_share = .25;

Runtime::Options runtime_options(const Setup& setup) {
  Runtime::Options options;
  options.shards = 1;
  options.shard.spin_always = setup.polling;
  // Two bodies of the largest message, and what is on its way back.
  options.shard.send_quota_bytes = 8 * largest_size;
  return options;
}

/// The words by which a process is given the same options.
std::vector<std::string> words_of(const ps::SecurityOptions& security) {
  std::vector<std::string> words;
  const auto add = [&words](const char* option, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {option, value});
  };
  add("--key_file", security.key_file);
  add("--certificate", security.encryption.certificate_file);
  add("--certificate_key", security.encryption.certificate_key_file);
  add("--authority", security.encryption.authority_file);
  add("--peer_name", security.encryption.peer_name);
  if (security.encryption.plaintext) words.push_back("--plaintext");
  if (security.insecure) words.push_back("--insecure");
  return words;
}

/// In memory, so that nothing is left of it however this process ends.
class TextFile {
 public:
  explicit TextFile(const char* what)
      : file_(::memfd_create(what, MFD_CLOEXEC)),
        path_(fmt::format("/proc/{}/fd/{}", ::getpid(), file_)) {
    if (file_ < 0) throw Error::system(errno, std::string("make a file in memory for ") + what);
  }
  ~TextFile() { ::close(file_); }
  TextFile(const TextFile&) = delete;
  const fs::path& path() const { return path_; }

 private:
  int file_;
  fs::path path_;
};

std::string first_line_after(const std::string& text, std::string_view beginning) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(beginning)) return line.substr(beginning.size());
  return {};
}

constexpr std::string_view listening = "listening at ";

/// This program once more, as the other end.
class ServerProcess {
 public:
  ServerProcess(ProcessKeeper& keeper, const Setup& setup, const net::Endpoint& endpoint,
                const std::string& name)
      : keeper_(keeper), process_(keeper.start(spec(setup, endpoint, name))) {
    const Time limit = Clock::read_system() + timing().scaled(30s);
    std::string bound;
    while (bound.empty()) {
      bound = first_line_after(process_.output(), listening);
      if (!bound.empty()) break;
      if (!process_.running() || Clock::read_system() > limit)
        throw Error(Errc::unreachable, "start the other end at " + endpoint.to_string(), why(),
                    endpoint.scheme == net::Scheme::shm
                        ? ""
                        : "if that is another host's address, start the other end there with "
                          "--listen, and give --connect here");
      keeper_.step(10ms);
    }
    endpoint_ = net::Endpoint::parse(bound);
  }
  ~ServerProcess() { keeper_.stop(process_, 2s); }
  ServerProcess(const ServerProcess&) = delete;

  const net::Endpoint& endpoint() const { return endpoint_; }
  /// Empty while it runs, or has ended as it should.
  std::string fault() const {
    return process_.running() || process_.ends().back().succeeded() ? std::string() : why();
  }

 private:
  ProcessSpec spec(const Setup& setup, const net::Endpoint& endpoint,
                   const std::string& name) const {
    ProcessSpec spec{.name = name,
                     .command = {fs::read_symlink("/proc/self/exe").string(), "perf",
                                 endpoint.to_string(), "--listen", "--once"},
                     .log = log_.path(),
                     .output = output_.path()};
    if (setup.polling) spec.command.push_back("--polling");
    const auto words = words_of(setup.security);
    spec.command.insert(spec.command.end(), words.begin(), words.end());
    return spec;
  }
  /// What the program said at its end, or how it ended.
  std::string why() const {
    const std::string said = first_line_after(process_.log_tail(), "hyperframes: ");
    if (!said.empty()) return said;
    if (process_.running()) return "it did not say in time where it listens";
    return "its process " + process_.ends().back().text();
  }

  ProcessKeeper& keeper_;
  TextFile log_{"log"}, output_{"output"};
  Process& process_;
  net::Endpoint endpoint_;
};

/// One measurement from its start to its end, with what is shown meanwhile.
class Measurement {
 public:
  explicit Measurement(const Setup& setup)
      : setup_(setup),
        runtime_(runtime_options(setup)),
        client_(runtime_, setup.security.network()),
        wants_self_loop_(setup.self_loop && setup.endpoint.scheme != net::Scheme::shm),
        journal_((wants_self_loop_ ? self_loop_plan().all() : Duration::zero()) + plan().all()),
        screen_({}) {
    outcome_.run = describe_this_host();
    outcome_.run.uri = setup.endpoint.to_string();
    outcome_.run.seconds = setup.seconds;
    outcome_.run.polling = setup.polling;
    signals_.start([] {});
  }
  ~Measurement() {
    try {
      runtime_.run([this](Runtime&) { return client_.close(); });
    } catch (const Error&) {
      // What did not close in order ends with the network.
    }
  }
  Measurement(const Measurement&) = delete;

  Outcome run(const std::function<void(const Run&, bool)>& finished);

 private:
  Plan plan() const { return Plan::over(setup_.sizes, setup_.seconds, false); }
  Plan self_loop_plan() const {
    return Plan::over(setup_.sizes, setup_.seconds * self_loop_share, true);
  }
  Line* connect(const net::Endpoint& endpoint);
  void make_sure_of_the_other_end();
  void measure_self_loop();
  void measure_endpoint();
  void measure_with(const ServerProcess* server, const net::Endpoint& endpoint, Line* line,
                    Plan plan);
  std::exception_ptr wait_for(std::future<void> measuring, bool self_loop);
  std::optional<Error> other_end_went() const;
  void finish(bool self_loop, const std::function<void(const Run&, bool)>& finished);
  void end_early(const ServerProcess* server, std::exception_ptr failure);
  void take_over() {
    const auto state = journal_.look();
    outcome_.run.rows = state.rows;
    outcome_.run.problem = state.problem;
  }
  void show(bool self_loop);

  Setup setup_;
  ps::SignalWatch signals_;
  ProcessKeeper keeper_;
  Runtime runtime_;
  Client client_;
  bool wants_self_loop_;
  Journal journal_;
  Screen screen_;
  Outcome outcome_;
  Line* line_ = nullptr;  ///< With somebody else's server.
};

Line* Measurement::connect(const net::Endpoint& endpoint) {
  Line* const line = runtime_.run(
      [&](Runtime&) { return client_.connect(endpoint, after(timing().scaled(10s))); });
  outcome_.run.peer_host = peer_of(*line).host;
  return line;
}

/// Before the self-loop takes its time.
void Measurement::make_sure_of_the_other_end() {
  if (setup_.connect_only)
    line_ = connect(setup_.endpoint);
  else if (wants_self_loop_)
    ServerProcess(keeper_, setup_, setup_.endpoint, "first-try");
}

void Measurement::measure_self_loop() {
  const auto endpoint =
      net::Endpoint::parse(fmt::format("shm://hyperframes-perf-{}-self-loop", ::getpid()));
  std::optional<ServerProcess> server;
  Line* line = nullptr;
  try {
    server.emplace(keeper_, setup_, endpoint, "self-loop");
    line = connect(endpoint);
  } catch (const Error& error) {
    outcome_.left_out.push_back(std::string("the self-loop over shared memory: ") + error.what());
    journal_.begin({}, self_loop_plan().all());
    return journal_.end();
  }
  measure_with(&*server, endpoint, line, self_loop_plan());
}

void Measurement::measure_endpoint() {
  if (line_) return measure_with(nullptr, setup_.endpoint, line_, plan());
  const ServerProcess server(keeper_, setup_, setup_.endpoint, "server");
  outcome_.run.uri = server.endpoint().to_string();
  measure_with(&server, server.endpoint(), connect(server.endpoint()), plan());
}

void Measurement::measure_with(const ServerProcess* server, const net::Endpoint& endpoint,
                               Line* line, Plan plan) {
  const bool self_loop = plan.self_loop;
  auto measuring = std::async(std::launch::async, [&] {
    runtime_.run([&](Runtime&) { return client_.measure(line, plan, &journal_); });
  });
  const std::exception_ptr failure = wait_for(std::move(measuring), self_loop);
  take_over();
  if (failure) end_early(server, failure);
}

/// Until it is done; what it threw.
std::exception_ptr Measurement::wait_for(std::future<void> measuring, bool self_loop) {
  bool interrupted = false;
  while (measuring.wait_for(0s) != std::future_status::ready) {
    keeper_.step(100ms);
    show(self_loop);
    if (signals_.received() == 0 && !other_end_went()) continue;
    if (std::exchange(interrupted, true)) continue;
    runtime_.run([this](Runtime&) -> Task<void> {
      client_.interrupt();
      co_return;
    });
  }
  screen_.clear();
  try {
    measuring.get();
    if (const auto went = other_end_went()) throw *went;
    return nullptr;
  } catch (...) {
    const auto went = other_end_went();
    return went ? std::make_exception_ptr(*went) : std::current_exception();
  }
}

/// While the self-loop was measured; why.
std::optional<Error> Measurement::other_end_went() const {
  return line_ ? client_.end_of(line_) : std::nullopt;
}

/// Says in the run why; throws that if nothing was measured.
void Measurement::end_early(const ServerProcess* server, std::exception_ptr failure) {
  outcome_.signal = signals_.received();
  if (outcome_.signal != 0) {
    outcome_.run.error = "it was interrupted";
    return;
  }
  // Its process may take a moment to be gone after its connection is.
  keeper_.step(timing().scaled(200ms));
  const std::string fault = server ? server->fault() : std::string();
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    outcome_.run.error = fault.empty()
                             ? error.what()
                             : fmt::format("the other end: {}; here: {}", fault, error.what());
  }
  const bool nothing = std::ranges::none_of(
      outcome_.run.rows, [](const Row& row) { return row.round_trips || row.verified != 0; });
  if (nothing) throw Error(Errc::peer_lost, "measure " + outcome_.run.uri, outcome_.run.error);
}

void Measurement::show(bool self_loop) {
  const auto state = journal_.look();
  constexpr Duration short_run = 2s;  // in which nobody needs a line to know that it goes on
  if (state.what.empty() || (!screen_.terminal() && state.elapsed < short_run)) return;
  // Of large messages some are measured however short the time is.
  const bool late = state.elapsed > state.planned;
  const std::string when =
      minutes_text(state.elapsed) + (late ? "" : " of " + minutes_text(state.planned));
  std::vector<std::string> lines;
  if (screen_.terminal()) {
    std::istringstream table(table_text(state.rows, self_loop, screen_));
    for (std::string line; std::getline(table, line);) lines.push_back(line);
    if (!lines.empty()) lines.emplace_back();
    lines.push_back(fmt::format("{} {:3.0f} %  {}  {}", screen_.bar(state.fraction, 32),
                                100 * state.fraction, when, state.what));
  }
  screen_.refresh(lines,
                  fmt::format("perf: {:3.0f} %, {}: {}", 100 * state.fraction, when, state.what));
}

void Measurement::finish(bool self_loop, const std::function<void(const Run&, bool)>& finished) {
  if (nearest_row(outcome_.run, self_loop, least_size)) finished(outcome_.run, self_loop);
}

Outcome Measurement::run(const std::function<void(const Run&, bool)>& finished) {
  make_sure_of_the_other_end();
  if (wants_self_loop_) {
    measure_self_loop();
    finish(true, finished);
  }
  if (!outcome_.run.partial()) {
    measure_endpoint();
    finish(false, finished);
  }
  return std::move(outcome_);
}

void print_line(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

}  // namespace

Outcome measure(const Setup& setup,
                const std::function<void(const Run& so_far, bool self_loop)>& finished) {
  return Measurement(setup).run(finished);
}

void serve(const Setup& setup, bool once) {
  ps::SignalWatch signals;
  Runtime runtime(runtime_options(setup));
  Server server(runtime, setup.security.network());
  const ps::SignalWatch::Ending ending(signals);
  server.note = print_line;
  const net::Endpoint bound = runtime.run([&](Runtime&) { return server.listen(setup.endpoint); });
  print_line(std::string(listening) + bound.to_string());
  signals.start([&] {
    runtime.run([&server](Runtime&) -> Task<void> {
      server.stop();
      co_return;
    });
  });
  runtime.run([&](Runtime&) { return server.serve(once); });
}

}  // namespace hyperframes::tools::perf
