// The commands of the built tool, run as a user runs them.
#include <hyperframes/apps/tools/commands.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

class WorkFolder {
 public:
  WorkFolder() {
    std::string name = (fs::temp_directory_path() / "hyperframes-commands-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~WorkFolder() { fs::remove_all(path_); }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  const fs::path& path() const { return path_; }

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
  }

 private:
  fs::path path_;
};

struct Outcome {
  int status = 0;
  std::string text;  // both outputs
};

// A shell command in `folder`, with the built tool on its PATH.
Outcome run(const WorkFolder& folder, const std::string& command) {
  const fs::path tool = HYPERFRAMES_TOOL;
  const std::string line = "cd '" + folder.path().string() + "' && PATH='" +
                           tool.parent_path().string() + "':$PATH && { " + command + "\n} 2>&1";
  std::FILE* pipe = ::popen(line.c_str(), "r");
  REQUIRE(pipe != nullptr);
  Outcome outcome;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe))
    outcome.text += static_cast<char>(c);
  const int status = ::pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

Outcome succeed(const WorkFolder& folder, const std::string& command) {
  Outcome outcome = run(folder, command);
  INFO(command << "\n" << outcome.text);
  REQUIRE(outcome.status == 0);
  return outcome;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The commands of a help text's example, lines that go on joined.
std::vector<std::string> example_commands(const std::string& help) {
  std::vector<std::string> commands;
  std::istringstream lines(help.substr(help.find("Example:")));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  hyperframes ")) continue;
    while (line.ends_with('\\')) {
      line.pop_back();
      std::string next;
      std::getline(lines, next);
      line += next;
    }
    commands.push_back(line);
  }
  return commands;
}

void run_example(const WorkFolder& folder, const std::string& command) {
  const auto commands = example_commands(succeed(folder, command + " --help").text);
  REQUIRE(!commands.empty());
  for (const std::string& example : commands) succeed(folder, example);
}

// Films of which the odd ones are liked more, by users of whom some like everything.
std::string made_up_ratings() {
  std::string text = "userId,movieId,title,year,genres,rating,timestamp\n";
  unsigned state = 1;
  for (int i = 0; i < 2000; ++i) {
    state = state * 1664525u + 1013904223u;
    const unsigned user = (state >> 8) % 20, movie = (state >> 16) % 30;
    const unsigned rating = 1 + ((state >> 24) + (user % 4) + 2 * (movie % 2)) % 5;
    text += std::to_string(user) + "," + std::to_string(movie) +
            ",\"Film, the\",1999,Comedy|Drama," + std::to_string(rating) + "," + std::to_string(i) +
            "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("the help of publish csv teaches with an example that runs") {
  const WorkFolder folder;
  folder.write("ratings.csv", made_up_ratings());
  run_example(folder, "hyperframes publish csv");
  const std::string text = succeed(folder, "hyperframes inspect data/test --rows 1 --verify").text;
  CHECK(contains(text, "400 samples in 1 shard"));
  CHECK(contains(text, "genres = Comedy|Drama"));
  CHECK(contains(text, "every shard fits the hashes"));
}

TEST_CASE("the examples of inspect, movielens and baseline run") {
  const WorkFolder folder;
  folder.write("data/movielens/ratings.csv", made_up_ratings());
  run_example(folder, "hyperframes movielens");
  CHECK(
      contains(succeed(folder, "hyperframes baseline data/movielens --json").text, "\"logloss\""));
  fs::remove_all(folder.path() / "data/movielens/random");
  fs::remove_all(folder.path() / "data/movielens/time");
  run_example(folder, "hyperframes baseline");
  succeed(folder, "hyperframes publish csv data/movielens/ratings.csv --out data/train");
  run_example(folder, "hyperframes inspect");
}

TEST_CASE("a command that fails says why and returns 1") {
  const WorkFolder folder;
  folder.write("bad.csv", "a,b\n1,2\n3\n");
  const auto fails = [&](const std::string& command, const std::string& part) {
    const Outcome outcome = run(folder, command);
    INFO(command << "\n" << outcome.text);
    CHECK(outcome.status == 1);
    CHECK(contains(outcome.text, part));
    CHECK(outcome.text.starts_with("hyperframes: "));
  };
  fails("hyperframes publish csv none.csv --out out", "no such file");
  fails("hyperframes publish csv bad.csv --out out", "line 3");
  fails("hyperframes publish csv bad.csv --out out --column a:double", "NAME:TYPE");
  fails("hyperframes publish csv bad.csv --out out --column a:int --missing b=0", "no --column");
  fails("hyperframes publish csv bad.csv --out out --separator '::'", "--separator");
  fails("hyperframes publish csv bad.csv --out out --size_limit many", "as a size");
  fails("hyperframes inspect out", "no index.json");
  fails("hyperframes baseline out", "no index.json");
  CHECK(run(folder, "hyperframes publish csv").status > 1);
  CHECK(run(folder, "hyperframes nonsense").status > 1);
}

TEST_CASE("publishing shows a progress bar on a terminal and no control characters elsewhere") {
  const WorkFolder folder;
  folder.write("ratings.csv", made_up_ratings());
  const Outcome outcome = succeed(folder, "hyperframes publish csv ratings.csv --out data");
  CHECK(!contains(outcome.text, "\x1b"));
  CHECK(outcome.text.starts_with("data: 2,000 rows in 1 shard, "));
  if (run(folder, "command -v script").status != 0)
    SKIP("script, which makes terminals, is missing");
  const Outcome terminal = succeed(
      folder, "TERM=xterm script -qec 'hyperframes publish csv ratings.csv --out more' /dev/null");
  CHECK(contains(terminal.text, "\x1b"));
  CHECK(contains(terminal.text, " %"));
}

TEST_CASE("the real ratings give the baseline that is known of them", "[long]") {
  const WorkFolder folder;
  if (run(folder, "Rscript -e 'library(dslabs)'").status != 0)
    SKIP(
        "R or its package dslabs is missing; on Debian: apt-get install r-base-core r-cran-dslabs");
  const std::string made = succeed(folder, "hyperframes movielens --out m").text;
  CHECK(contains(made, "m/random/training/fit: 72,003 ratings"));
  CHECK(contains(made, "m/time/test: 20,001 ratings"));
  const std::string text = succeed(folder, "hyperframes baseline m").text;
  INFO(text);
  double random_auc = 0, time_auc = 0;
  REQUIRE(std::sscanf(text.c_str() + text.find("random: AUC"), "random: AUC %lf", &random_auc) ==
          1);
  REQUIRE(std::sscanf(text.c_str() + text.find("time: AUC"), "time: AUC %lf", &time_auc) == 1);
  CHECK((random_auc > 0.77 && random_auc < 0.79));
  CHECK((time_auc > 0.67 && time_auc < 0.69));
}
