#include <hyperframes/runtime/failpoint.hpp>

#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <filesystem>
#include <hyperframes/runtime/error.hpp>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

/// What this program says to HYPERFRAMES_FAILPOINT before its main begins.
std::string said_to(const std::string& value) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command =
      "HYPERFRAMES_FAILPOINT='" + value + "' '" + program + "' --list-reporters 2>&1 >/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), &::pclose);
  REQUIRE(pipe);
  std::string text;
  char part[256];
  while (std::fgets(part, sizeof part, pipe.get())) text += part;
  return text;
}

}  // namespace

TEST_CASE("a failpoint that can't be understood is said, with what is wrong, and arms nothing") {
  CHECK(said_to("log-after-write").find("no '='") != std::string::npos);
  CHECK(said_to("=kill").find("no '=' behind a name") != std::string::npos);
  CHECK(said_to("log-after-write=explode").find("no action 'explode'") != std::string::npos);
  CHECK(said_to("log-after-write=kill:x").find("'x' is no number") != std::string::npos);
  CHECK(said_to("log-after-write=kill:0").find("'0' is no number") != std::string::npos);
  CHECK(said_to("log-after-write=kill:3,other").find("no '='") != std::string::npos);
  CHECK(said_to("log-after-write=kill:3").empty());
  CHECK(said_to("log-after-write=kill:3,other=plant").empty());
  CHECK(said_to("").empty());
}

TEST_CASE("failpoints that a process arms itself act while they live, each at its passage") {
  using hyperframes::ArmedFailpoint;
  using hyperframes::detail::pass_failpoint_now;
  using hyperframes::detail::planted;
  {
    const ArmedFailpoint second("sim-one=error:2"), bug("sim-two=throw"), wrong("sim-three=plant");
    pass_failpoint_now("sim-one");
    CHECK_FALSE(second.passed());
    CHECK_THROWS_AS(pass_failpoint_now("sim-one"), hyperframes::Error);
    CHECK(second.passed());
    pass_failpoint_now("sim-one");
    CHECK_THROWS_AS(pass_failpoint_now("sim-two"), std::runtime_error);
    CHECK(planted("sim-three"));
    CHECK_FALSE(planted("sim-one"));
    pass_failpoint_now("sim-three");
  }
  pass_failpoint_now("sim-two");
  CHECK_FALSE(planted("sim-three"));
  CHECK_THROWS_AS(ArmedFailpoint("sim-one=explode"), hyperframes::Error);
}
