// Figures of the parameter server from end to end: a client here, a server in its own process.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <hyperframes/actors/node.hpp>
#include <hyperframes/apps/ps/client.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/semaphore.hpp>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "floors.hpp"
#include "harness.hpp"

namespace hyperframes::bench {
namespace {

constexpr std::uint32_t width = 128;  // 512-byte rows
constexpr std::size_t rows = 65'536, rows_a_pull = 2048;
constexpr std::size_t block_bytes = rows_a_pull * width * sizeof(float);
constexpr int pulls_in_flight = 4, pulls = 512;

/// hyperframes_server beside this program, with a work folder that goes with it.
class ServerProcess {
 public:
  explicit ServerProcess(const std::string& program) {
    char name[] = "/tmp/hyperframes-bench-XXXXXX";
    if (!::mkdtemp(name)) throw std::runtime_error("could not make a folder in /tmp");
    folder_ = name;
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("could not make a pipe");
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    const char* arguments[] = {program.c_str(), "--role", "ps",           "--workdir", name,
                               "--num_shards",  "4",      "--durability", "none",      "--listen",
                               "127.0.0.1:0",   nullptr};
    const int failure = ::posix_spawn(&process_, program.c_str(), &actions, nullptr,
                                      const_cast<char**>(arguments), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    std::string line;
    for (char byte; failure == 0 && ::read(ends[0], &byte, 1) == 1 && byte != '\n';) line += byte;
    ::close(ends[0]);
    if (!line.starts_with("coordinator "))
      throw std::runtime_error("could not start " + program + "; build it first");
    address_ = line.substr(line.find(' ') + 1);
  }
  ~ServerProcess() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  const std::string& address() const { return address_; }

 private:
  pid_t process_ = -1;
  std::string folder_, address_;
};

std::string server_program() {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "hyperframes_server")
      .string();
}

/// A client whose server holds `rows` rows.
class Pulling {
 public:
  Pulling()
      : server_(server_program()),
        runtime_(Runtime::Options{.shards = 1}),
        node_(runtime_, {.name = "bench", .network = net::Network::Options()}) {
    runtime_.run([this](Runtime&) { return fill(); });
  }
  ~Pulling() {
    runtime_.run([this](Runtime&) { return end(); });
  }
  double bytes_per_second() {
    return runtime_.run([this](Runtime&) { return pull_all(); });
  }

 private:
  Task<void> fill() {
    client_ = std::make_unique<ps::PsClient>(
        node_,
        ps::PsClient::Options{.coordinator = net::Endpoint::parse("tcp://" + server_.address())});
    co_await client_->start();
    std::vector<ps::TableSpec> specs{
        {.id = 1, .name = "bench", .width = width, .optimizer = ps::OptimizerKind::sgd}};
    co_await client_->create_tables(specs);
    table_ = co_await client_->table("bench");
    std::mt19937_64 random(11);
    std::uint64_t sequence = 0;
    for (std::uint64_t first = 0; first < rows; first += rows_a_pull) {
      std::vector<std::uint64_t> ids(rows_a_pull);
      for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = first + i;
      auto prepared =
          co_await client_->prepare_push(table_, ps::PushKey::of_client(1, 1, ++sequence), ids,
                                         std::vector<float>(rows_a_pull * width, 1.0f));
      co_await client_->push(std::move(prepared));
    }
    for (auto& ids : batches_) {
      ids.resize(rows);
      for (std::size_t i = 0; i < rows; ++i) ids[i] = i;
      std::shuffle(ids.begin(), ids.end(), random);
      ids.resize(rows_a_pull);
    }
  }
  Task<void> pull_some(int index) {
    for (int i = index; i < pulls; i += pulls_in_flight) {
      const std::vector<float> got =
          co_await client_->pull(table_, batches_[static_cast<std::size_t>(i) % batches_.size()]);
      if (got.size() * sizeof(float) != block_bytes || got[0] == 0)
        throw std::runtime_error("a pull brought the wrong rows");
    }
  }
  Task<double> pull_all() {
    const double start = now_ns();
    std::vector<Task<void>> tasks;
    for (int i = 0; i < pulls_in_flight; ++i) tasks.push_back(pull_some(i));
    co_await when_all(std::move(tasks));
    co_return pulls* static_cast<double>(block_bytes) / (now_ns() - start) * 1e9;
  }
  Task<void> end() {
    co_await client_->close();
    client_.reset();
    co_await node_.close(1s);
  }

  ServerProcess server_;
  Runtime runtime_;
  Node node_;
  std::unique_ptr<ps::PsClient> client_;
  ps::TableSpec table_;
  std::vector<std::vector<std::uint64_t>> batches_{16};
};

}  // namespace

void add_parameter_server_rows(Runner& runner) {
  auto pulling = std::make_shared<std::unique_ptr<Pulling>>();
  runner.add(
      {.group = "ps",
       .name = "pulled rows over TCP, end to end",
       .unit = "B/s",
       .better = Better::higher,
       .subject =
           [pulling] {
             if (!*pulling) *pulling = std::make_unique<Pulling>();
             return (*pulling)->bytes_per_second();
           },
       .floor = {{"a raw socket pair that moves such blocks",
                  [] { return raw_blocks_bytes_per_second(block_bytes, pulls); }, 0.7}},
       .note = fmt::format(
           "{} KiB blocks: {} random 512-byte rows a pull out of {} MiB, {} pulls in flight; "
           "client "
           "and server in a process and on a core shard each; what the caller gets is a plain "
           "vector in the order of its ids",
           block_bytes >> 10, rows_a_pull, rows * width * sizeof(float) >> 20, pulls_in_flight)});
}

}  // namespace hyperframes::bench
