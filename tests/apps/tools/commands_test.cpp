// The commands of the built tool, run as a user runs them.
#include <hyperframes/apps/tools/commands.hpp>

#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "tool.hpp"

namespace fs = std::filesystem;
using tools_test::contains;
using tools_test::Outcome;
using tools_test::run;
using tools_test::run_example;
using tools_test::succeed;
using tools_test::WorkFolder;

namespace {

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

TEST_CASE("the tool says which version it is") {
  const WorkFolder folder;
  CHECK(succeed(folder, "hyperframes --version").text == "hyperframes 0.1.0\n");
  CHECK(contains(succeed(folder, "hyperframes --help").text, "--version"));
}

TEST_CASE("the help of publish csv teaches with an example that runs") {
  const WorkFolder folder;
  folder.write("ratings.csv", made_up_ratings());
  run_example(folder, "hyperframes publish csv");
  const std::string text = succeed(folder, "hyperframes inspect data/test --rows 1 --verify").text;
  CHECK(contains(text, "400 samples in 1 shard"));
  CHECK(contains(text, "genres = Comedy|Drama"));
  CHECK(contains(text, "every shard fits the hashes"));
}

TEST_CASE("the examples of inspect, movielens and baseline run", "[plain]") {
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
  folder.write("good.csv", "a,b\n1,2\n");
  fails("hyperframes publish csv good.csv --out bad.csv/out", "directory that this user can make");
  folder.write("gap.csv", "a,b\n1,2\n,3\n");
  fails("hyperframes publish csv gap.csv --out gap --column a:int", "--missing NAME=VALUE");
}

TEST_CASE("a command line that is not understood is answered in one line, with status 2",
          "[plain]") {
  const WorkFolder folder;
  const auto refuses = [&](const std::string& command, const std::string& part) {
    const Outcome outcome = run(folder, command);
    INFO(command << "\n" << outcome.text);
    CHECK(outcome.status == 2);
    CHECK(contains(outcome.text, part));
    CHECK(contains(outcome.text, "--help` explains"));
    CHECK(outcome.text.find('\n') == outcome.text.size() - 1);
    CHECK((outcome.text.starts_with(command.substr(0, command.find(' ')) + ": ") ||
           outcome.text.starts_with("hyperframes ")));
  };
  refuses("hyperframes", "a command is missing; there are: demo, publish");
  refuses("hyperframes nonsense", "no command is named 'nonsense'; there are: demo");
  refuses("hyperframes publish nonsense", "hyperframes publish: no command is named 'nonsense'");
  refuses("hyperframes publish csv", "FILE is required");
  refuses("hyperframes publish csv --nosuch", "there is no option --nosuch");
  refuses("hyperframes inspect data --nosuch", "there is no option --nosuch");
  refuses("hyperframes actors", "ADDRESS is required");
  refuses("hyperframes actors a:1 --interval -1", "'-1' is no number from 0 to 3600");
  refuses("hyperframes events", "ADDRESS is required");
  refuses("hyperframes events a:1 --interval 0", "'0' is no number from 0.05 to 3600");
  refuses("hyperframes events a:1 --after -1", "'-1' is no whole number");
  refuses("hyperframes top", "ADDRESS is required");
  refuses("hyperframes perf nonsense://x", "there is no scheme 'nonsense'");
  refuses("hyperframes perf tcp://a:1 --listen --connect", "--listen");
  refuses("hyperframes perf --connect", "URI");
  refuses("hyperframes perf tcp://a:1 --listen --json perf.json", "--json excludes --listen");
  refuses("hyperframes perf --sizes 8,4kb", "read the size '4kb'");
  refuses("hyperframes perf --seconds 0", "'0' is no number from 0.01 to 86400");
  refuses("hyperframes inspect data --rows -1", "'-1' is no whole number");
  refuses("hyperframes inspect data --rows 99999999999999999999", "is no whole number");
  refuses("hyperframes inspect data --rows 0x10", "is no whole number");
  refuses("hyperframes publish csv a --out b --seed -1", "'-1' is no whole number");
  refuses("hyperframes audit --coordinator_addr a:1 --ledger /dev/null --timeout 0",
          "'0' is no number from 0.1 to 86400");
  const std::string server = "hyperframes_server ", worker = "hyperframes_worker ";
  refuses(server + "--nosuch", "there is no option --nosuch");
  refuses(server + "--workdir w --role nonsense", "nonsense not in {ps,coordinator}");
  refuses(server + "--workdir w --num_shards 0", "'0' is no whole number from 1 to 4096");
  refuses(server + "--workdir w --role coordinator --coordinator_addr 127.0.0.1:1",
          "a coordinator has no --coordinator_addr");
  refuses(server + "--workdir w --listen 0.0.0.0:0 --insecure", "--advertise_addr");
  refuses(server + "--workdir w --listen [::]:0 --insecure", "--advertise_addr");
  refuses(server + "--workdir w --advertise_addr 0.0.0.0:7000", "--advertise_addr");
  refuses(server + "--workdir w --cores 0-x", "'x' is no number of a core");
  refuses(server + "--workdir w --cores 0 --threads 2", "--threads 2 needs a core for each");
  const std::string needed = "--coordinator_addr a:1 --data_dir d --model_config m ";
  refuses(worker + needed + "--epochs 0", "'0' is no whole number from 1 to 100000");
  refuses(worker + needed + "--seed -1", "'-1' is no whole number");
  refuses(worker + needed + "--batch_size 4294967297", "is no whole number");
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("the helps fit a terminal, and name what may be chosen") {
  const WorkFolder folder;
  for (const std::string command :
       {"hyperframes_server", "hyperframes_worker", "hyperframes", "hyperframes demo",
        "hyperframes publish csv", "hyperframes inspect", "hyperframes movielens",
        "hyperframes baseline", "hyperframes audit", "hyperframes cert", "hyperframes actors",
        "hyperframes events", "hyperframes top", "hyperframes perf", "hyperframes doctor",
        "hyperframes sim"}) {
    std::istringstream lines(succeed(folder, command + " --help").text);
    for (std::string line; std::getline(lines, line);) {
      INFO(command << " --help: " << line);
      CHECK(line.size() <= 100);
    }
  }
  const std::string text = succeed(folder, "hyperframes_server --help").text;
  CHECK(contains(text, "--role TEXT:{ps,coordinator}"));
  CHECK(contains(text, "--advertise_addr"));
  CHECK(contains(succeed(folder, "hyperframes_worker --help").text, "--epochs UINT:1 to 100000"));
}

TEST_CASE("workers say what became of their job, and a server misses a begun shard's folder") {
  const WorkFolder folder;
  folder.write("ratings.csv", made_up_ratings());
  folder.write("model.yaml",
               "model: logistic_regression\nfields: [{name: user}]\nlabel: liked\nepochs: 2\n");
  succeed(folder,
          "hyperframes publish csv ratings.csv --out data --column user=userId:int "
          "--label 'liked=rating>=4'");
  const std::string text = succeed(folder, R"(
hyperframes_server --workdir ps --listen 127.0.0.1:0 --num_shards 4 > address 2> server.log &
server=$!
trap 'kill -9 $server' EXIT
for i in $(seq 600); do grep -q coordinator address && break; sleep 0.05; done
worker="hyperframes_worker --coordinator_addr $(cut -d' ' -f2 address) --data_dir data"
worker="$worker --model_config model.yaml --batch_size 100"
echo first; $worker 2> worker.log
echo second; $worker 2> worker.log
trap - EXIT
kill -9 $server; wait $server
rm -r ps/shard-0002
echo again; ! hyperframes_server --workdir ps --listen 127.0.0.1:0
echo alone; timeout -s TERM 2 $worker 2>&1 || test $? = 124
)")
                               .text;
  INFO(text);
  const auto between = [&](const std::string& from, const std::string& to) {
    const std::size_t begin = text.find(from + "\n");
    return text.substr(begin, text.find(to + "\n", begin) - begin);
  };
  const std::string first = between("first", "second"), second = between("second", "again");
  CHECK(contains(first, "job 'default' is done: 2 epochs; this worker pushed 40 batches (4000"));
  CHECK(contains(first, "AUC 0."));
  CHECK(contains(first, "hyperframes_worker --evaluate --coordinator_addr 127.0.0.1:"));
  CHECK(contains(second, "was done before this worker came"));
  CHECK(contains(second, "--checkpoint_resume none"));
  CHECK(contains(between("again", "alone"), "shard-0002' is gone, or its log is empty"));
  CHECK(contains(text.substr(text.find("alone\n")), "leaving before it has joined"));
}

namespace {

// Starts a server that shows what it does, waits for its page, runs `commands` with its address in
// $page and its process in $server, and ends it.
Outcome beside_a_server(const WorkFolder& folder, const std::string& commands) {
  return run(folder, R"(
hyperframes_server --workdir ps --listen 127.0.0.1:0 --num_shards 2 --http_addr 127.0.0.1:0 \
  > address 2> server.log &
server=$!
trap 'kill -9 $server' EXIT
for i in $(seq 600); do
  grep -q 'all shards have recovered' server.log && break
  if grep -q 'has no HTTP' server.log; then echo NO HTTP; trap - EXIT; exit 0; fi
  sleep 0.05
done
page=$(sed -n 's|.*shows what it does at http://||p' server.log)
)" + commands);
}

void require_http(const Outcome& outcome) {
  if (contains(outcome.text, "NO HTTP"))
    SKIP("this build has no HTTP: libcpp-httplib-dev is missing");
}

}  // namespace

TEST_CASE("a server that is given cores runs its shard on the first of them") {
  const WorkFolder folder;
  const std::string text = succeed(folder, R"sh(
core=$(sed -n 's/^Cpus_allowed_list:[^0-9]*\([0-9]*\).*/\1/p' /proc/self/status)
hyperframes_server --workdir ps --listen 127.0.0.1:0 --num_shards 1 --cores $core \
  > address 2> server.log &
server=$!
trap 'kill -9 $server' EXIT
for i in $(seq 600); do grep -q coordinator address && break; sleep 0.05; done
for task in /proc/$server/task/*; do
  echo "$(cat $task/comm) on $(sed -n 's/^Cpus_allowed_list:[^0-9]*//p' $task/status)"
done
echo "given $core"
)sh")
                               .text;
  INFO(text);
  const std::string core = text.substr(text.find("given ") + 6);
  CHECK(contains(text, "hf-shard-0 on " + core));
}

TEST_CASE("a server shows its actors as a table, with their chains, and as JSON") {
  const WorkFolder folder;
  const Outcome outcome = beside_a_server(folder, R"(
echo table; hyperframes actors $page --interval 0.1 --chains
echo json; hyperframes actors $page --json
echo top; hyperframes top $page < /dev/null
echo elsewhere; hyperframes actors 127.0.0.1:1
)");
  require_http(outcome);
  INFO(outcome.text);
  CHECK(outcome.status == 1);  // the last one
  const std::string table = outcome.text.substr(0, outcome.text.find("json\n"));
  CHECK(contains(table, "actor "));
  CHECK(contains(table, "messages/s"));
  CHECK(contains(table, "ps/shard/0"));
  CHECK(contains(table, "coordinator"));
  CHECK(contains(table, ".cpp:"));
  const std::string json = outcome.text.substr(outcome.text.find("json\n"));
  CHECK(contains(json, "\"name\":\"ps/shard/1\""));
  const std::string top = outcome.text.substr(outcome.text.find("top\n"));
  CHECK(contains(top, "shard 0"));
  CHECK(!contains(top, "\x1b"));
  CHECK(contains(outcome.text, "ask the node at http://127.0.0.1:1/actors"));
}

TEST_CASE("top gives the terminal back, whether it is left by a key or by a signal") {
  const WorkFolder folder;
  if (run(folder, "command -v script").status != 0)
    SKIP("script, which makes terminals, is missing");
  const Outcome outcome = beside_a_server(folder, R"(
export TERM=xterm
shown() { for i in $(seq 1200); do grep -q ps/shard/0 "$1" 2> /dev/null && break; sleep 0.05; done; }
echo by key
( shown key.log; printf 'j'; printf 'q' ) |
  script -qefc "stty rows 30 cols 100; hyperframes top $page; echo status \$?; stty -a" key.log
echo by signal
( for i in $(seq 2400); do test -e over && break; sleep 0.05; done ) 2> /dev/null |
  script -qefc "sh -c 'echo \$\$ > pid; exec hyperframes top $page'; echo status \$?; stty -a" \
  signal.log &
shown signal.log; kill -TERM $(cat pid)
for i in $(seq 1200); do kill -0 $(cat pid) 2> /dev/null || break; sleep 0.05; done
touch over; wait $!
)");
  require_http(outcome);
  INFO(outcome.text);
  const auto signal = outcome.text.find("by signal");
  for (const std::string& part : {outcome.text.substr(0, signal), outcome.text.substr(signal)}) {
    const auto taken = part.find("\x1b[?1049h"), given_back = part.rfind("\x1b[?1049l");
    REQUIRE(taken != std::string::npos);
    REQUIRE(given_back != std::string::npos);
    CHECK(taken < given_back);
    CHECK(contains(part, "ps/shard/0"));
    CHECK(contains(part.substr(given_back), "\x1b[?25h") == false);  // shown before it
    CHECK(part.rfind("\x1b[?25l") < part.rfind("\x1b[?25h"));
    CHECK(contains(part.substr(given_back), " echo "));  // stty's words for a usual terminal
    CHECK(contains(part.substr(given_back), " icanon "));
  }
  CHECK(contains(outcome.text.substr(0, signal), "status 0"));
  CHECK(contains(outcome.text.substr(signal), "status 143"));
}

TEST_CASE("SIGUSR1 has a server write what its actors do to its log, and go on") {
  const WorkFolder folder;
  const Outcome outcome = beside_a_server(folder, R"(
kill -USR1 $server
for i in $(seq 600); do grep -q 'ps/shard/0 (' server.log && break; sleep 0.05; done
cat server.log
kill -TERM $server; trap - EXIT; wait $server; echo status $?
)");
  require_http(outcome);
  INFO(outcome.text);
  CHECK(contains(outcome.text, "shard 0: "));
  CHECK(contains(outcome.text, "ps/shard/0 ("));
  CHECK(contains(outcome.text, "status 0"));
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
