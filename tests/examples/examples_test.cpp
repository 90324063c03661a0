// Runs the example programs, and compares what they print.
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "program.hpp"

using example_test::Program;

TEST_CASE("the counter example serves a client in another process") {
  Program server({EXAMPLE_COUNTER, "serve", "tcp://127.0.0.1:0"});
  const std::string listening = server.line();
  REQUIRE(listening.starts_with("listening on tcp://127.0.0.1:"));
  const std::string address = listening.substr(listening.find("tcp://"));

  Program client({EXAMPLE_COUNTER, "ask", address});
  CHECK(client.rest() ==
        "added 1: 1\nadded 2: 3\nadded 3: 6\nMy name is Ada\n"
        "rename the counter: the name is empty [invalid_argument]; give it one\n");
  CHECK(client.wait() == 0);

  Program second({EXAMPLE_COUNTER, "ask", address});
  CHECK(second.line() == "added 1: 7");
  second.rest();
  CHECK(second.wait() == 0);
  CHECK(server.end() == 0);
}

TEST_CASE("the counter example runs over shared memory, or what serves best, by its URI alone") {
  for (const std::string& uri :
       {"shm://counter-" + std::to_string(::getpid()), std::string("auto://127.0.0.1:0")}) {
    INFO(uri);
    Program server({EXAMPLE_COUNTER, "serve", uri});
    const std::string listening = server.line();
    REQUIRE(listening.starts_with("listening on " + uri.substr(0, uri.size() - 1)));
    Program client({EXAMPLE_COUNTER, "ask", listening.substr(listening.find(uri.substr(0, 6)))});
    CHECK(client.rest() ==
          "added 1: 1\nadded 2: 3\nadded 3: 6\nMy name is Ada\n"
          "rename the counter: the name is empty [invalid_argument]; give it one\n");
    CHECK(client.wait() == 0);
    CHECK(server.end() == 0);
  }
}

TEST_CASE("the duplex example talks both ways over whatever its URI says") {
  const std::string name = "shm://duplex-" + std::to_string(::getpid());
  for (const std::string& uri :
       {std::string("tcp://127.0.0.1:0"), name, std::string("auto://127.0.0.1:0")}) {
    INFO(uri);
    Program listener({EXAMPLE_CHANNEL_DUPLEX, "listen", uri});
    const std::string listening = listener.line();
    REQUIRE(listening.starts_with("listening on "));
    std::string address = listening.substr(std::string("listening on ").size());
    if (uri.starts_with("auto")) address = "auto" + address.substr(address.find("://"));
    Program caller({EXAMPLE_CHANNEL_DUPLEX, "connect", address});
    CHECK(caller.rest() == "the listener sent 1000 lines\n");
    CHECK(listener.rest() == "the caller sent 2000 lines\n");
    CHECK(caller.wait() == 0);
    CHECK(listener.wait() == 0);
  }
}

TEST_CASE("the plain example adds numbers up without a coroutine") {
  Program server({EXAMPLE_CHANNEL_PLAIN, "sum", "tcp://127.0.0.1:0"});
  const std::string listening = server.line();
  REQUIRE(listening.starts_with("listening on tcp://"));
  Program client(
      {EXAMPLE_CHANNEL_PLAIN, "add", listening.substr(listening.find("tcp://")), "1", "20", "300"});
  CHECK(client.rest() == "total 321\n");
  CHECK(client.wait() == 0);
  CHECK(server.wait() == 0);
}

TEST_CASE("the counter example says what is wrong when nobody listens") {
  Program client({EXAMPLE_COUNTER, "ask", "tcp://127.0.0.1:1"});
  CHECK(client.rest().empty());
  CHECK(client.wait() == 1);
}

TEST_CASE("the examples explain themselves") {
  for (const char* program :
       {EXAMPLE_CHANNEL_DUPLEX, EXAMPLE_CHANNEL_PLAIN, EXAMPLE_COUNTER, EXAMPLE_INBOX,
        EXAMPLE_PRIMER, EXAMPLE_READINGS, EXAMPLE_SUPERVISED, EXAMPLE_SUPERVISION_TREE}) {
    Program help({program, "--help"});
    CHECK(help.line().starts_with("usage: "));
    help.rest();
    CHECK(help.wait() == 0);
    Program wrong({program, "--nosuch"});
    CHECK(wrong.rest().empty());
    CHECK(wrong.wait() == 2);
  }
}

TEST_CASE("the inbox example counts words") {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "to be or not to be\n";
  Program words({EXAMPLE_INBOX, "be"}, text);
  CHECK(words.rest() == "be: 200\nthe actor knew 4 words\n");
  CHECK(words.wait() == 0);
}

TEST_CASE("the supervised example crashes, comes back, and is given up in the end") {
  Program supervised({EXAMPLE_SUPERVISED});
  CHECK(supervised.rest() ==
        "started\n6 / 3 = 2\n"
        "1 / 0 failed: the actor ended before it answered: division by zero\nstarted\n8 / 2 = 4\n"
        "1 / 0 failed: the actor ended before it answered: division by zero\nstarted\n8 / 2 = 4\n"
        "1 / 0 failed: the actor ended before it answered: division by zero\n"
        "divider is down (exhausted): division by zero\n"
        "8 / 2 failed: the actor has ended\n");
  CHECK(supervised.wait() == 0);
}

TEST_CASE(
    "the supervision tree's parts begin again with what they depend on, up to the root's end") {
  Program tree({EXAMPLE_SUPERVISION_TREE});
  CHECK(tree.rest() ==
        "  store starts\n  index starts\n  answers-1 starts\n  answers-2 starts\n"
        "answers-1, what is there?\n  question 1 to answers-1\n"
        "answers-1, break\n  answers-1 starts\n"
        "index, break\n  answers-2 ends\n  answers-1 ends\n"
        "  index starts\n  answers-1 starts\n  answers-2 starts\n"
        "by hand\nstore, what is there?\n  question 1 to store\n"
        "  store ends\n  store starts, and goes on\n  statistics starts\n"
        "  there is store\n  there is index\n  there is pool\n  there is statistics\n"
        "index, break\n  statistics ends\n  answers-2 ends\n  answers-1 ends\n"
        "  index starts\n  answers-1 starts\n  answers-2 starts\n  statistics starts\n"
        "index, break\n  statistics ends\n  answers-2 ends\n  answers-1 ends\n  store ends\n"
        "actor 'answers-1' crashed: answers-1 is broken; restart 1 of 2 in 10 ms\n"
        "actor 'index' crashed: index is broken; restart 1 of 2 in 10 ms, with 'pool' "
        "(rest_for_one)\n"
        "actor 'store' is restarted by hand\n"
        "actor 'index' crashed: index is broken; restart 2 of 2 in 20 ms, with 'pool', "
        "'statistics' (rest_for_one)\n"
        "actor 'index' is given up after 2 restarts in 60 s; last it crashed: index is broken\n"
        "actor 'root' crashed: child 'index' was given up after 2 restarts in 60 s: "
        "index is broken\n");
  CHECK(tree.wait() == 0);
}

TEST_CASE("a level that the log does not know is named, and turns nothing off") {
  const std::string program = EXAMPLE_SUPERVISED;
  Program loud({"/bin/sh", "-c", "HYPERFRAMES_LOG=loud exec '" + program + "' 2>&1"});
  const std::string said = loud.rest();
  CHECK(said.find("HYPERFRAMES_LOG is 'loud'; it must be trace, debug") != std::string::npos);
  CHECK(said.find("warning") < said.rfind("division by zero"));
  Program off({"/bin/sh", "-c", "HYPERFRAMES_LOG=off exec '" + program + "' 2>&1"});
  CHECK(off.rest().find("warning") == std::string::npos);
}

TEST_CASE("the primer's example prints what the primer says") {
  Program primer({EXAMPLE_PRIMER});
  CHECK(primer.rest() ==
        "3 4 5\nthere: 1, here: 0\n2 books\ntaken, 4 books\nnobody came\nwaited for 7 books\n"
        "book 1\nbook 2\nbook 3\n");
  CHECK(primer.wait() == 0);
}

TEST_CASE("the readings example keeps temperatures and passes them on") {
  Program server({EXAMPLE_READINGS, "serve", "tcp://127.0.0.1:0"});
  const std::string listening = server.line();
  REQUIRE(listening.starts_with("listening on tcp://127.0.0.1:"));
  const std::string address = listening.substr(listening.find("tcp://"));
  const auto outcome = [&](std::vector<std::string> words) {
    words.insert(words.begin(), EXAMPLE_READINGS);
    words.insert(words.begin() + 2, address);
    Program program(words);
    const std::string text = program.rest();
    return text + std::to_string(program.wait());
  };

  Program follower({EXAMPLE_READINGS, "follow", address, "harbour", "2"});
  REQUIRE(follower.line() == "following harbour");
  CHECK(outcome({"record", "harbour", "11.5", "12.5"}) == "recorded 2 of harbour\n0");
  CHECK(outcome({"record", "hill", "8"}) == "recorded 1 of hill\n0");
  CHECK(follower.rest() == "harbour now has 11.5\nharbour now has 12.5\n");
  CHECK(follower.wait() == 0);
  CHECK(outcome({"record", "harbour", "13"}) == "recorded 1 of harbour\n0");  // nobody follows
  CHECK(outcome({"summarize", "harbour"}) == "harbour: 3 readings, 11.5 to 13, mean 12.3333\n0");
  CHECK(outcome({"summarize", "moon"}) == "1");
  CHECK(outcome({"record", "harbour", "-300"}) == "1");
  CHECK(outcome({"record", "harbour", "warm"}) == "1");
  CHECK(server.end() == 0);
}
