// What the doctor reads of /proc and /sys, out of a tree that the test makes.
#include <hyperframes/apps/tools/doctor/cgroup.hpp>
#include <hyperframes/apps/tools/doctor/host_files.hpp>
#include <hyperframes/apps/tools/doctor/interfaces.hpp>
#include <hyperframes/apps/tools/doctor/kernel_version.hpp>
#include <hyperframes/apps/tools/doctor/numa.hpp>

#include "host_tree.hpp"

using namespace hyperframes::tools::doctor;
using tools_test::HostTree;

TEST_CASE("files, fields and folders of a host are read, and what is missing is empty") {
  const HostTree tree;
  const HostFiles files = tree.files();
  tree.write("a/number", "42\n");
  tree.write("a/words", "many words\n");
  CHECK(files.read("a/words") == "many words");
  CHECK(files.number("a/number") == 42);
  CHECK(!files.number("a/words"));
  CHECK(!files.read("a/none"));
  CHECK(!files.read("a"));
  CHECK(files.field("proc/self/status", "Seccomp") == "0");
  CHECK(!files.field("proc/self/status", "Sec"));
  tree.write("b/eth10", "");
  tree.write("b/eth2", "");
  CHECK(files.list("b") == std::vector<std::string>{"eth2", "eth10"});
  CHECK(files.list("none").empty());
  tree.link("c", "b");
  CHECK(files.resolve("c/eth2") == "b/eth2");
  CHECK(!files.resolve("c/eth3"));
}

TEST_CASE("lists of numbers are read and written as the kernel does, nonsense left out") {
  CHECK(read_list("0-3,8\n") == std::vector<unsigned>{0, 1, 2, 3, 8});
  CHECK(read_list("").empty());
  CHECK(read_list("a-b,5,3-1,-2,0-99999999999") == std::vector<unsigned>{5});
  CHECK(list_text({0, 1, 2, 3, 8, 10, 11}) == "0-3,8,10-11");
  CHECK(list_text({}).empty());
  CHECK(binary_text(512) == "512 B");
  CHECK(binary_text(64 << 10) == "64 KiB");
  CHECK(binary_text(25'275'990'016) == "23.5 GiB");
}

TEST_CASE("a kernel's version is compared by its numbers, not by its letters") {
  const HostTree tree;
  const auto version_of = [&](const char* text) {
    tree.write("proc/sys/kernel/osrelease", text);
    return kernel_version(tree.files());
  };
  CHECK(version_of("6.1.0-28-amd64\n") == KernelVersion{6, 1});
  CHECK(version_of("5.9.1") < KernelVersion{5, 12});
  CHECK(version_of("10.0-rc1") > KernelVersion{9, 99});
  CHECK(!version_of("nonsense"));
  CHECK(!version_of("6"));
}

TEST_CASE("the narrowest of the groups around a process decides, in both versions of cgroups") {
  const HostTree tree;
  CHECK(!read_cgroup(tree.files()).memory);
  tree.write("proc/self/cgroup", "0::/system.slice/ps.service\n");
  tree.write("sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
  tree.write("sys/fs/cgroup/system.slice/memory.max", "1000000\n");
  tree.write("sys/fs/cgroup/system.slice/memory.current", "1000\n");
  tree.write("sys/fs/cgroup/system.slice/ps.service/memory.max", "max\n");
  tree.write("sys/fs/cgroup/system.slice/ps.service/cpu.max", "150000 100000\n");
  tree.write("sys/fs/cgroup/system.slice/ps.service/cpu.stat", "nr_periods 9\nnr_throttled 7\n");
  tree.write("sys/fs/cgroup/system.slice/cpu.max", "max 100000\n");
  Cgroup group = read_cgroup(tree.files());
  CHECK(group.memory == 1'000'000);
  CHECK(group.memory_used == 1000);
  CHECK(group.cores == 1.5);
  CHECK(group.throttled == 7);

  tree.write("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/made/elsewhere\n0::/\n");
  tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n");
  tree.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n");
  tree.write("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "200000\n");
  tree.write("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  tree.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  group = read_cgroup(tree.files());
  CHECK(group.memory == 2'000'000);
  CHECK(group.memory_used == 5);
  CHECK(group.cores == 2);
  tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  CHECK(!read_cgroup(tree.files()).memory);
}

TEST_CASE("nodes without cores are none, and those of a process are those of its cores") {
  const HostTree tree;
  tree.write("sys/devices/system/node/node1/cpulist", "4-7\n");
  tree.write("sys/devices/system/node/node2/cpulist", "\n");
  tree.write("sys/devices/system/node/possible", "0-2\n");
  CHECK(numa_nodes(tree.files()).size() == 2);
  REQUIRE(usable_nodes(tree.files()).size() == 1);
  CHECK(usable_nodes(tree.files())[0].number == 0);
  tree.write("proc/self/status", "Cpus_allowed_list:\t3-4\n");
  REQUIRE(usable_nodes(tree.files()).size() == 2);
  CHECK(usable_nodes(tree.files())[1].cores == std::vector<unsigned>{4});
}

TEST_CASE("cards that are up are found, and without any the interface of the default route") {
  const HostTree tree;
  tree.write("sys/class/net/lo/mtu", "65536\n");
  tree.write("sys/class/net/veth0/mtu", "1450\n");
  tree.write("sys/class/net/veth0/operstate", "up\n");
  CHECK(interfaces(tree.files()).empty());
  tree.write("proc/net/route",
             "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
             "veth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n"
             "veth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\n");
  auto found = interfaces(tree.files());
  REQUIRE(found.size() == 1);
  CHECK(found[0].name == "veth0");
  CHECK(!found[0].physical);
  CHECK(found[0].mtu == 1450);

  tree.add_card("eth2", "pci0000:3a/0000:3b:00.0", 9000, 100'000, 1);
  tree.add_card("eth3", "pci0000:3a/0000:3b:00.1", 1500, -1);
  tree.write("sys/class/net/eth3/operstate", "down\n");
  found = interfaces(tree.files());
  REQUIRE(found.size() == 1);
  CHECK(found[0].name == "eth2");
  CHECK(found[0].physical);
  CHECK(found[0].speed_mbit == 100'000);
  REQUIRE(found[0].device);
  CHECK(found[0].device->address == "0000:3b:00.0");
  CHECK(found[0].device->node == 1);
}
