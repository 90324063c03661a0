#include <hyperframes/apps/tools/demo_run.hpp>
//
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

namespace hyperframes::tools {
namespace {

namespace fs = std::filesystem;

constexpr Duration picture_pause = 100ms;
constexpr Duration step_limit = 600s;     // for the cluster to be up, on a busy machine
constexpr Duration idle_limit = 300s;     // for a step to use no CPU time: it works no more
constexpr Duration progress_limit = 60s;  // for a training run to get anywhere
constexpr Duration back_notice = 4s;      // how long "back after" is shown

double ms_of(Duration span) { return std::chrono::duration<double, std::milli>(span).count(); }

// /tmp is in memory on some systems, where a sync would cost nothing and prove nothing.
fs::path new_folder() {
  const char* chosen = std::getenv("TMPDIR");
  const fs::path parent = chosen != nullptr && *chosen != '\0' ? chosen : "/var/tmp";
  std::string name = (parent / "hyperframes-demo-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    throw Error::system(errno, "make a work folder " + name, {},
                        "set TMPDIR to a folder that can be written, or give --workdir");
  return name;
}

std::string number_text(double value, int digits) {
  return std::isnan(value) ? "-" : fmt::format("{:.{}f}", value, digits);
}

std::vector<DemoModel> models_of(const DemoOptions& options) {
  std::vector<DemoModel> models = demo_models();
  if (options.quick) models.resize(1);
  return models;
}

}  // namespace

DemoRun::DemoRun(DemoOptions options, Screen& screen, std::function<bool()> interrupted)
    : options_(std::move(options)),
      screen_(screen),
      interrupted_(std::move(interrupted)),
      begin_(Clock::read_system()) {
  options_.check();
  if (options_.quick) options_.seeds = 1;
  own_folder_ = options_.workdir.empty();
  folder_ = own_folder_ ? new_folder() : options_.workdir;
  folder_ = fs::absolute(folder_);
  cluster_ = std::make_unique<ClusterProcesses>(
      ClusterOptions{.folder = folder_,
                     .programs = program_folder(),
                     .durability = options_.durability,
                     .servers = options_.servers,
                     .workers = options_.workers,
                     .shards = options_.shards,
                     .staleness_bound = options_.staleness_bound},
      keeper_);
  keeper_.on_end = [this](Process& process, const ProcessEnd& end) {
    if (!end.expected) screen_.print(screen_.paint(process.name() + " " + end.text(), Tone::bad));
  };
  const auto splits = static_cast<unsigned>(demo_splits().size());
  const auto choices = static_cast<unsigned>(models_of(options_).size());
  runs_ = splits * (options_.seeds + (choices > 1 ? choices : 0));
}

DemoRun::~DemoRun() = default;

DemoOutcome DemoRun::run() {
  screen_.print(fmt::format("Work folder: {}", folder_.string()));
  outcome_.durability = options_.durability;
  write_models();
  cluster_->start();
  monitor_ = std::make_unique<ClusterMonitor>(cluster_->coordinator_addr());
  make_data();
  measure_baseline();
  wait_for_cluster();
  for (std::size_t i = 0; i < demo_splits().size(); ++i) {
    choose(demo_splits()[i], outcome_.splits[i]);
    fit_finally(demo_splits()[i], outcome_.splits[i]);
  }
  audit();
  screen_.clear();
  monitor_.reset();
  keeper_.stop_all();
  outcome_.unexpected_ends = keeper_.unexpected_ends();
  for (const Kill& kill : kills_)
    outcome_.kills.push_back({kill.server, kill.back ? ms_of(kill.recovery) : -1});
  outcome_.seconds = std::chrono::duration<double>(Clock::read_system() - begin_).count();
  return outcome_;
}

void DemoRun::clean_up(bool passed) {
  screen_.clear();
  monitor_.reset();
  keeper_.stop_all();
  if (!own_folder_ || options_.keep || !passed) return;
  std::error_code ignored;  // what can't be removed does no harm
  fs::remove_all(folder_, ignored);
}

// ---- Before the training
// -------------------------------------------------------------------------

void DemoRun::write_models() {
  fs::create_directories(folder_ / "models");
  for (const DemoModel& model : demo_models())
    std::ofstream(folder_ / "models" / (std::string(model.name) + ".yaml")) << model.yaml;
}

void DemoRun::make_data() {
  std::vector<std::string> arguments = {"movielens", "--out", (folder_ / "data").string(), "--seed",
                                        "1"};
  if (!options_.ratings.empty()) {
    arguments.push_back("--csv");
    arguments.push_back(fs::absolute(options_.ratings).string());
  }
  Process& step = cluster_->start_tool("movielens", std::move(arguments));
  finish(step, options_.ratings.empty()
                   ? "Exporting the MovieLens ratings with R, and dividing them"
                   : "Dividing the ratings");
}

void DemoRun::measure_baseline() {
  Process& step =
      cluster_->start_tool("baseline", {"baseline", "--json", (folder_ / "data").string()});
  const auto json = nlohmann::json::parse(
      finish(step, "Fitting the baseline: user and film biases"), nullptr, false);
  for (const DemoSplit& split : demo_splits()) {
    if (!json.is_object() || !json.contains(split.name))
      fail(step, fmt::format("said nothing of the {} split", split.name));
    outcome_.splits.push_back({.name = split.name,
                               .needed_margin = split.needed_margin,
                               .margin_is_strict = split.margin_is_strict,
                               .baseline = parse_score(json[split.name].dump(), "baseline")});
    const Score& score = outcome_.splits.back().baseline;
    screen_.print(fmt::format("{:<7} baseline          test AUC {:.4f}  logloss {:.4f}", split.name,
                              score.auc, score.logloss));
  }
}

void DemoRun::wait_for_cluster() {
  const Time limit = Clock::read_system() + timing().scaled(step_limit);
  while (true) {
    pump();
    const ClusterReading reading = monitor_->reading();
    const auto up = std::count_if(reading.servers.begin(), reading.servers.end(),
                                  [](const ServerReading& server) { return server.reachable; });
    if (reading.placed && static_cast<unsigned>(up) == options_.servers) return;
    if (Clock::read_system() >= limit)
      throw DemoFailure(fmt::format(
          "the cluster is not up after {:.0f} s: {} of {} servers answer. {}\nThe logs are in {}",
          ms_of(timing().scaled(step_limit)) / 1000, up, options_.servers,
          reading.coordinator_error, logs().string()));
    show("Waiting for the servers", reading);
  }
}

// ---- Training
// ------------------------------------------------------------------------------------

TrainingRun DemoRun::run_of(const std::string& split, const std::string& part,
                            const std::string& model, std::uint64_t seed) const {
  return {.job = fmt::format("{}-{}-{}", split, part == "training" ? "final" : "choice",
                             part == "training" ? fmt::format("seed{}", seed) : model),
          .data = folder_ / "data" / split / part,
          .model = folder_ / "models" / (model + ".yaml"),
          .seed = seed,
          .batch_size = options_.batch_size};
}

void DemoRun::choose(const DemoSplit& split, SplitOutcome& outcome) {
  const std::vector<DemoModel> models = models_of(options_);
  outcome.chosen = models.front().name;
  if (models.size() == 1) return;
  double best = 0;
  for (const DemoModel& model : models) {
    const TrainingRun run = run_of(split.name, "training/fit", model.name, options_.seed);
    train(run, fmt::format("{} split: choosing the hyperparameters, {}", split.name, model.name),
          {});
    const Score score = evaluate(run, folder_ / "data" / split.name / "training/validation");
    outcome.candidates.push_back({model.name, score});
    screen_.print(fmt::format("{:<7} {:<7}     validation AUC {:.4f}  logloss {:.4f}", split.name,
                              model.name, score.auc, score.logloss));
    if (score.auc <= best) continue;
    best = score.auc;
    outcome.chosen = model.name;
  }
}

void DemoRun::fit_finally(const DemoSplit& split, SplitOutcome& outcome) {
  const auto runs = static_cast<unsigned>(demo_splits().size()) * options_.seeds;
  for (unsigned i = 0; i < options_.seeds; ++i) {
    const std::uint64_t seed = options_.seed + i;
    const TrainingRun run = run_of(split.name, "training", outcome.chosen, seed);
    const Trained trained = train(
        run, fmt::format("{} split: final fit with seed {}, {}", split.name, seed, outcome.chosen),
        kill_fractions(options_.kills, runs, final_number_++));
    const Score score = evaluate(run, folder_ / "data" / split.name / "test");
    outcome.runs.push_back({seed, score, trained.samples, trained.seconds});
    screen_.print(fmt::format(
        "{:<7} {:<7} seed {:<3}  test AUC {:.4f}  logloss {:.4f}  {} samples/s", split.name,
        outcome.chosen, seed, score.auc, score.logloss,
        with_separators(
            static_cast<std::uint64_t>(static_cast<double>(trained.samples) / trained.seconds))));
  }
}

DemoRun::Trained DemoRun::train(const TrainingRun& run, const std::string& title,
                                std::vector<double> kill_at) {
  ++run_number_;
  monitor_->watch_job(run.job);
  run_begin_ = Clock::read_system();
  last_progress_ = run_begin_;
  last_samples_ = 0;
  const std::vector<Process*> workers = cluster_->start_workers(run);
  const auto finished = [&] {
    return std::all_of(workers.begin(), workers.end(),
                       [](Process* worker) { return worker->done(); });
  };
  std::uint64_t samples = 0;
  std::size_t next_kill = 0;
  while (!finished()) {
    pump();
    const ClusterReading reading = monitor_->reading();
    check_progress(reading);
    follow_kills();
    if (reading.job) {
      samples = std::max(samples, reading.job->samples);
      const double fraction = static_cast<double>(reading.job->samples_done) /
                              static_cast<double>(std::max<std::uint64_t>(reading.job->samples, 1));
      if (next_kill < kill_at.size() && fraction >= kill_at[next_kill] && all_back()) {
        kill_a_server();
        ++next_kill;
      }
    }
    show(title, reading);
    for (const Process* worker : workers)
      if (worker->done() && !worker->ends().back().succeeded())
        fail(*worker, worker->ends().back().text());
  }
  const Time end = workers.front()->ends().back().time;
  Time last = end;
  for (const Process* worker : workers) last = std::max(last, worker->ends().back().time);
  if (next_kill < kill_at.size())
    throw DemoFailure(
        fmt::format("the run {} was over before a server could be killed in it", run.job));
  const Time limit = Clock::read_system() + timing().scaled(10s);
  while (!all_back() && Clock::read_system() < limit) {
    pump();
    follow_kills();
  }
  return {samples, std::chrono::duration<double>(last - run_begin_).count()};
}

void DemoRun::check_progress(const ClusterReading& reading) {
  const Time now = Clock::read_system();
  if (reading.job && reading.job->samples_done > last_samples_) {
    last_samples_ = reading.job->samples_done;
    last_progress_ = now;
  }
  if (now - last_progress_ < timing().scaled(progress_limit)) return;
  std::string waiting = reading.coordinator_error;
  if (reading.job)
    for (const WorkerReading& worker : reading.job->workers)
      waiting +=
          fmt::format("\n  {} {}", worker.name,
                      worker.waiting.empty() ? "says nothing" : "waits for " + worker.waiting);
  throw DemoFailure(fmt::format("the training has got nowhere for {:.0f} s.{}\nThe logs are in {}",
                                ms_of(timing().scaled(progress_limit)) / 1000, waiting,
                                logs().string()));
}

void DemoRun::kill_a_server() {
  Process& server =
      *cluster_->servers()[(options_.seed + kills_.size()) % cluster_->servers().size()];
  const pid_t pid = server.pid();
  if (pid == 0) return;  // it has just ended by itself, which is reported
  monitor_->expect_recovery(server.name());
  kills_.push_back({.server = server.name(), .time = Clock::read_system()});
  keeper_.kill(server, SIGKILL);
  screen_.print(screen_.paint(fmt::format("{} (process {}) gets SIGKILL", server.name(), pid),
                              Tone::warning));
}

void DemoRun::follow_kills() {
  for (Kill& kill : kills_) {
    if (kill.back) continue;
    const auto recovery = monitor_->recovery_time(kill.server);
    if (!recovery) continue;
    kill.back = true;
    kill.recovery = *recovery;
    kill.back_time = Clock::read_system();
    screen_.print(screen_.paint(
        fmt::format("{} is back: its first acknowledged push came {:.0f} ms after the kill",
                    kill.server, ms_of(*recovery)),
        Tone::good));
  }
}

bool DemoRun::all_back() const {
  return std::all_of(kills_.begin(), kills_.end(), [](const Kill& kill) { return kill.back; });
}

Score DemoRun::evaluate(const TrainingRun& run, const fs::path& data) {
  Process& step = cluster_->start_evaluation(run, data, run.job + "-score");
  return parse_score(finish(step, fmt::format("Scoring {}", run.job)), step.name());
}

void DemoRun::audit() {
  Process& step = cluster_->start_audit("audit");
  // It exits with an error when something is off: what it found is judged, and shown, anyway.
  const std::string text = finish(step, "Audit: comparing every ledger with the servers' rows");
  outcome_.audit = parse_audit(text, "audit");
}

// ---- Processes
// -----------------------------------------------------------------------------------

std::string DemoRun::finish(Process& step, const std::string& title) {
  Duration used{};
  Time worked = Clock::read_system();
  while (!step.done()) {
    pump();
    show(title, monitor_->reading());
    if (const Duration now_used = cpu_time_of(step.pid()); now_used != used) {
      used = now_used;
      worked = Clock::read_system();
    }
    if (Clock::read_system() - worked < timing().scaled(idle_limit)) continue;
    fail(step,
         fmt::format("has done nothing for {:.0f} s", ms_of(timing().scaled(idle_limit)) / 1000));
  }
  const ProcessEnd& end = step.ends().back();
  // A step that says no, as the audit does, has a result; one that crashed has none.
  if (!end.succeeded() && (end.signal != 0 || step.output().empty())) fail(step, end.text());
  return step.output();
}

void DemoRun::pump() {
  if (interrupted_()) throw DemoInterrupted();
  keeper_.step(20ms);
  if (interrupted_()) throw DemoInterrupted();
  for (const auto& process : keeper_.processes())
    if (process->given_up()) fail(*process, "ends again and again");
}

void DemoRun::fail(const Process& process, const std::string& what) const {
  throw DemoFailure(fmt::format("{} {}. Its log, {}, ends with:\n{}\nAll logs are in {}",
                                process.name(), what, process.spec().log.string(),
                                process.log_tail(), logs().string()));
}

// ---- What is shown
// -------------------------------------------------------------------------------

void DemoRun::show(const std::string& title, const ClusterReading& reading) {
  const Time now = Clock::read_system();
  if (now - shown_ < picture_pause) return;
  shown_ = now;
  const std::string clock = minutes_text(now - begin_);
  const std::string head =
      run_number_ == 0 ? title : fmt::format("{}  (run {} of {})", title, run_number_, runs_);
  std::vector<std::string> lines = {
      "", fmt::format("{}  {}", screen_.paint(clock, Tone::dim), screen_.paint(head, Tone::bold))};
  std::string plain = clock + "  " + head;
  if (reading.job && !reading.job->finished) {
    lines.push_back(job_line(*reading.job));
    plain += fmt::format(": {} of {} samples, loss {}, AUC {}",
                         with_separators(reading.job->samples_done),
                         with_separators(reading.job->samples), number_text(reading.job->loss, 3),
                         number_text(reading.job->auc, 3));
  }
  for (std::string& line : server_lines(reading)) lines.push_back(std::move(line));
  screen_.refresh(lines, plain);
}

std::string DemoRun::job_line(const JobReading& job) const {
  const double fraction = static_cast<double>(job.samples_done) /
                          static_cast<double>(std::max<std::uint64_t>(job.samples, 1));
  const double seconds = std::chrono::duration<double>(Clock::read_system() - run_begin_).count();
  return fmt::format("{} {:3.0f} %  {} samples/s  loss {}  AUC {}",
                     screen_.bar(fraction, std::clamp<std::size_t>(screen_.width() / 3, 10, 40)),
                     100 * fraction,
                     with_separators(static_cast<std::uint64_t>(
                         static_cast<double>(job.samples_done) / std::max(seconds, .001))),
                     number_text(job.loss, 3), number_text(job.auc, 3));
}

std::string DemoRun::server_state(const ServerReading& server) const {
  const Process* process = cluster_->server(server.name);
  const Time now = Clock::read_system();
  for (auto kill = kills_.rbegin(); kill != kills_.rend(); ++kill) {
    if (kill->server != server.name) continue;
    if (!kill->back && process != nullptr && !process->running())
      return screen_.paint("killed", Tone::bad);
    if (!kill->back)
      return screen_.paint(fmt::format("recovering, {:.0f} ms", ms_of(now - kill->time)),
                           Tone::warning);
    if (now - kill->back_time < back_notice)
      return screen_.paint(fmt::format("back after {:.0f} ms", ms_of(kill->recovery)), Tone::good);
    break;
  }
  if (process != nullptr && !process->running()) return screen_.paint("down", Tone::bad);
  return server.reachable ? screen_.paint("up", Tone::good)
                          : screen_.paint("starting", Tone::warning);
}

std::vector<std::string> DemoRun::server_lines(const ClusterReading& reading) const {
  using Align = Table::Align;
  Table table({{"server", Align::left},
               {"state", Align::left},
               {"rows"},
               {"pushes/s"},
               {"log"},
               {"restarts"}});
  for (const ServerReading& server : reading.servers) {
    const Process* process = cluster_->server(server.name);
    table.add_row({server.name, server_state(server), with_separators(server.rows),
                   with_separators(static_cast<std::uint64_t>(server.pushes_per_s)),
                   bytes_text(server.log_bytes),
                   std::to_string(process != nullptr ? process->restarts() : 0)});
  }
  std::vector<std::string> lines;
  if (reading.servers.empty()) return lines;
  std::string text = table.render(screen_);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

}  // namespace hyperframes::tools
