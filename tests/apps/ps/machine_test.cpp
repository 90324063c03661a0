#include <hyperframes/apps/ps/machine.hpp>

#include <fcntl.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>

#include "temporary_folder.hpp"

using namespace hyperframes::ps;

TEST_CASE("the real machine does to files what the system calls do, and says their errors") {
  test::TemporaryFolder folder;
  Machine& machine = Machine::real();
  const std::string path = folder.path().string() + "/a/b";
  CHECK(machine.make_directories(path) == 0);
  CHECK(machine.size_of(path) == -EISDIR);
  CHECK(machine.size_of(path + "/none") == -ENOENT);
  const std::string text = "hello";
  {
    const MachineFile file(machine, path + "/c", O_RDWR | O_CREAT);
    REQUIRE(file.number() >= 0);
    CHECK(machine.write(file.number(), 0, std::as_bytes(std::span(text))) == 5);
    CHECK(machine.truncate(file.number(), 4) == 0);
    CHECK(machine.sync(file.number()) == 0);
    CHECK(machine.try_lock(file.number()) == 0);
    const MachineFile other(machine, path + "/c", O_RDWR);
    CHECK(machine.try_lock(other.number()) == -EWOULDBLOCK);
  }
  CHECK(machine.rename(path + "/c", path + "/d") == 0);
  CHECK(machine.rename(path + "/c", path + "/d") == -ENOENT);
  std::string found;
  CHECK(read_all(machine, path + "/d", found) == 0);
  CHECK(found == "hell");
  CHECK(read_all(machine, path + "/c", found) == -ENOENT);
  std::vector<std::string> names;
  CHECK(machine.list(path, names) == 0);
  CHECK(names == std::vector<std::string>{"d"});
  CHECK(machine.list(path + "/none", names) == -ENOENT);
}

TEST_CASE("the real machine's numbers are no two alike") {
  Machine& machine = Machine::real();
  CHECK(machine.random_number() != 0);
  CHECK(machine.random_number() != machine.random_number());
  CHECK(machine.calendar_ns() > 1'600'000'000'000'000'000);
  CHECK(machine.database_files() == nullptr);
}
