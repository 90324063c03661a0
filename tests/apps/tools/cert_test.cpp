// `hyperframes cert` as its users run it. That its certificates let processes in is shown by
// tests/chaos/programs_test.cpp.
#include <sys/stat.h>

#include "tool.hpp"

using namespace tools_test;

namespace {

class Folder : public WorkFolder {
 public:
  /// With an umask that would let everybody read everything.
  Outcome run(const std::string& arguments) const {
    return tools_test::run(*this, "umask 0 && hyperframes " + arguments);
  }
  std::string succeed(const std::string& arguments) const {
    const Outcome outcome = run(arguments);
    INFO(outcome.text);
    REQUIRE(outcome.status == 0);
    return outcome.text;
  }
  std::string fail(const std::string& arguments) const {
    const Outcome outcome = run(arguments);
    INFO(outcome.text);
    CHECK(outcome.status == 1);
    return outcome.text;
  }
  mode_t mode_of(const std::string& name) const {
    struct stat status = {};
    REQUIRE(::stat((path() / name).c_str(), &status) == 0);
    return status.st_mode & 0777u;
  }
};

}  // namespace

TEST_CASE(
    "cert makes an authority and nodes, keeps their keys to their owner, and says what next") {
  const Folder folder;
  const std::string made = folder.succeed("cert ca trust");
  CHECK(contains(made, "trust/ca.crt  'CN=Hyperframes authority' (an authority's; from "));
  CHECK(contains(made, "hyperframes cert node trust NAME"));
  const std::string node =
      folder.succeed("cert node trust --host localhost db-1 --host 10.0.0.7 --days 7");
  CHECK(contains(node, "'CN=db-1' (for localhost, 10.0.0.7, db-1; from "));
  CHECK(contains(node, "--certificate trust/db-1.crt"));
  CHECK(contains(node, "--certificate_key trust/db-1.key --authority trust/ca.crt"));
  CHECK(contains(folder.succeed("cert node trust db-2"),
                 "(for localhost, 127.0.0.1, ::1, db-2; from "));
  CHECK(folder.mode_of("trust") == 0700);
  for (const char* key : {"trust/ca.key", "trust/db-1.key", "trust/db-2.key"}) {
    CHECK(folder.mode_of(key) == 0600);
    CHECK(folder.read(key).starts_with("-----BEGIN PRIVATE KEY-----"));
    CHECK(!contains(made + node, folder.read(key).substr(28, 40)));
  }
  CHECK(folder.mode_of("trust/ca.crt") == 0644);
}

TEST_CASE("cert overwrites nothing, and leaves nothing half done") {
  const Folder folder;
  folder.succeed("cert ca trust");
  folder.succeed("cert node trust a");
  const std::string authority = folder.read("trust/ca.key"), node = folder.read("trust/a.key");
  CHECK(contains(folder.fail("cert ca trust"), "trust/ca.crt"));
  CHECK(contains(folder.fail("cert node trust a"), "nothing is overwritten"));
  fs::remove(folder.path() / "trust/a.crt");
  CHECK(contains(folder.fail("cert node trust a"), "trust/a.key"));
  CHECK(!fs::exists(folder.path() / "trust/a.crt"));
  CHECK(folder.read("trust/ca.key") == authority);
  CHECK(folder.read("trust/a.key") == node);
}

TEST_CASE("cert says what it can't do, and why") {
  const Folder folder;
  CHECK(contains(folder.fail("cert node nowhere a"), "cert ca DIR"));
  folder.succeed("cert ca trust --name 'The authority of this test' --days 10");
  CHECK(contains(folder.fail("cert node trust ca"), "can't have that name"));
  CHECK(contains(folder.fail("cert node trust ../a"), "can't have that name"));
  CHECK(contains(folder.fail("cert node trust a --days 5 --host http://a"), "http://a"));
  const std::string late = folder.fail("cert node trust a --days 11");
  CHECK(contains(late, "CN=The authority of this test"));
  CHECK(contains(late, "fewer days"));
  CHECK(contains(folder.run("cert").text, "there are: ca, node"));
  CHECK(folder.run("cert node trust a --days 0").status == 2);
  CHECK(!fs::exists(folder.path() / "trust/a.key"));
}

TEST_CASE("the help of cert teaches with an example that runs") {
  const Folder folder;
  const std::string help = folder.succeed("cert --help");
  CHECK(contains(help, "Example:"));
  std::size_t commands = 0;
  for (std::size_t at = help.find("\n  hyperframes cert "); at != std::string::npos;
       at = help.find("\n  hyperframes cert ", at + 1), ++commands) {
    const std::size_t begin = at + std::string("\n  hyperframes ").size();
    folder.succeed(help.substr(begin, help.find('\n', begin) - begin));
  }
  CHECK(commands == 3);
  CHECK(fs::exists(folder.path() / "certificates/worker.key"));
}
