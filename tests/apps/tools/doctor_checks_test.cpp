// Each of the doctor's lines, with a host that passes, one that warns and one that fails.
#include <hyperframes/apps/tools/doctor/checks.hpp>

#include <cerrno>

#include "host_tree.hpp"

using namespace hyperframes::tools::doctor;
using hyperframes::Errc;
using hyperframes::Error;
using tools_test::contains;
using tools_test::find;
using tools_test::HostTree;

namespace {

constexpr std::uint64_t mib = 1 << 20, gib = 1 << 30;

Checks check_all(const HostTree& tree) {
  Checks all;
  for (const auto check : {check_kernel, check_limits, check_memory, check_clock, check_cores,
                           check_cards, check_rdma, check_gpus})
    append(all, check(tree.host()));
  return all;
}

}  // namespace

TEST_CASE("a good host without card and GPU passes, and what it lacks is no complaint") {
  const HostTree tree;
  for (const Check& check : check_all(tree)) {
    INFO(check.name << ": " << check.measured);
    CHECK((check.status == Status::pass || check.status == Status::none));
  }
  CHECK(find(check_all(tree), "devices").status == Status::none);
  CHECK(find(check_all(tree), "card").status == Status::none);
}

TEST_CASE("of a host that shows nothing no line complains, and none is invented") {
  HostTree tree;
  tree.remove("proc");
  tree.remove("sys");
  tree.probes().space_of = [](auto) { return std::nullopt; };
  tree.probes().clock_state = [] { return std::nullopt; };
  const Checks all = check_all(tree);
  CHECK(all.size() > 12);
  CHECK(count(all, Status::warn) == 0);
  CHECK(count(all, Status::fail) == 0);
}

TEST_CASE("a kernel before 6.0 is a warning") {
  HostTree tree;
  const auto kernel = [&] { return find(check_kernel(tree.host()), "kernel"); };
  CHECK(kernel().status == Status::pass);
  CHECK(kernel().measured == "6.1.0-28-amd64");
  tree.write("proc/sys/kernel/osrelease", "5.10.0-30-amd64\n");
  CHECK(kernel().status == Status::warn);
  CHECK(kernel().needed == "Linux 6.0 or newer");
}

TEST_CASE("who refuses io_uring is named: the sysctl, a filter, a limit") {
  HostTree tree;
  int number = EPERM;
  tree.probes().try_io_uring = [&] {
    return UringRefusal{Error(Errc::unsupported, "set up an io_uring", "too little memory", "more"),
                        number};
  };
  const auto io_uring = [&] { return find(check_kernel(tree.host()), "io_uring"); };
  tree.write("proc/sys/kernel/io_uring_disabled", "2\n");
  CHECK(io_uring().status == Status::warn);
  CHECK(contains(io_uring().measured, "io_uring_disabled is 2"));
  CHECK(contains(io_uring().measured, "asio"));
  CHECK(io_uring().remedy == "sysctl -w kernel.io_uring_disabled=0");
  tree.write("proc/sys/kernel/io_uring_disabled", "0\n");
  CHECK(contains(io_uring().measured, "security module"));
  tree.write("proc/self/status", "Seccomp:\t2\n");
  CHECK(contains(io_uring().measured, "seccomp"));
  number = ENOSYS;
  CHECK(contains(io_uring().measured, "seccomp"));
  number = 0;
  CHECK(contains(io_uring().measured, "too little memory"));
  CHECK(io_uring().remedy == "more");
  tree.probes().has_asio = false;
  CHECK(io_uring().status == Status::fail);
}

TEST_CASE("lockable memory is asked for where RDMA or old rings need it") {
  HostTree tree;
  const auto memlock = [&] { return find(check_limits(tree.host()), "memlock"); };
  tree.set_limits("8388608", "1024", "1048576");
  CHECK(memlock().status == Status::pass);
  CHECK(contains(memlock().measured, "8 MiB"));
  tree.write("proc/sys/kernel/osrelease", "5.10.0\n");
  CHECK(memlock().status == Status::warn);
  CHECK(contains(memlock().remedy, "ulimit -l 65536"));
  tree.write("proc/sys/kernel/osrelease", "6.1.0\n");
  tree.write("sys/class/infiniband/mlx5_0/node_type", "1: CA\n");
  CHECK(memlock().status == Status::warn);
  CHECK(contains(memlock().remedy, "ulimit -l unlimited"));
  tree.write("proc/self/status", "CapEff:\t0000000000004000\n");
  CHECK(memlock().status == Status::pass);
  CHECK(contains(memlock().measured, "CAP_IPC_LOCK"));
}

TEST_CASE("the hard limit of open files decides, since servers raise the soft one") {
  const HostTree tree;
  const auto files = [&] { return find(check_limits(tree.host()), "open files"); };
  CHECK(files().status == Status::pass);
  CHECK(files().measured == "1024, and servers raise it to 1048576");
  tree.set_limits("unlimited", "1024", "1024");
  CHECK(files().status == Status::warn);
  CHECK(files().measured == "1024");
  tree.set_limits("unlimited", "64", "64");
  CHECK(files().status == Status::fail);
  CHECK(contains(files().remedy, "ulimit -n 65536"));
}

TEST_CASE("memory is the host's or the control group's, whichever is less") {
  const HostTree tree;
  const auto memory = [&] { return find(check_memory(tree.host()), "memory"); };
  CHECK(memory().status == Status::pass);
  CHECK(memory().measured == "16 GiB, 8 GiB of it free");
  tree.write("proc/self/cgroup", "0::/a\n");
  tree.write("sys/fs/cgroup/cgroup.controllers", "memory\n");
  tree.write("sys/fs/cgroup/a/memory.max", std::to_string(512 * mib));
  tree.write("sys/fs/cgroup/a/memory.current", std::to_string(128 * mib));
  CHECK(memory().status == Status::warn);
  CHECK(contains(memory().measured, "512 MiB, 384 MiB of it free, by the control group"));
  tree.write("sys/fs/cgroup/a/memory.max", std::to_string(128 * mib));
  CHECK(memory().status == Status::fail);
  tree.write("sys/fs/cgroup/a/memory.max", std::to_string(4 * gib));
  CHECK(memory().status == Status::pass);
  tree.write("sys/fs/cgroup/a/memory.current", std::to_string(4 * gib - 1));
  CHECK(memory().status == Status::warn);
}

TEST_CASE("huge pages that are never given are a warning") {
  const HostTree tree;
  const auto pages = [&] { return find(check_memory(tree.host()), "huge pages"); };
  CHECK(pages().measured == "transparent: madvise");
  tree.write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  CHECK(pages().status == Status::warn);
  tree.write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "1024\n");
  CHECK(contains(pages().measured, "1,024 of 2 MiB reserved"));
}

TEST_CASE("shared memory is tried, and a small or full /dev/shm is named") {
  HostTree tree;
  CHECK(find(check_memory(tree.host()), "shared memory").status == Status::pass);
  tree.probes().try_shared_memory = [] { return Error::system(EPERM, "seal shared memory"); };
  const Check refused = find(check_memory(tree.host()), "shared memory");
  CHECK(refused.status == Status::warn);
  CHECK(contains(refused.measured, "seal shared memory: Operation not permitted"));

  const auto shm = [&](std::uint64_t total, std::uint64_t free) {
    tree.probes().space_of = [=](auto) { return Space{total, free}; };
    return find(check_memory(tree.host()), "/dev/shm");
  };
  CHECK(shm(8 * gib, gib).status == Status::pass);
  CHECK(contains(shm(64 * mib, 64 * mib).remedy, "--shm-size"));
  CHECK(contains(shm(8 * gib, 0).remedy, "ls -lt /dev/shm"));
}

TEST_CASE("a clock that takes system calls is a warning, and so is one that nobody sets") {
  HostTree tree;
  const std::string source = "sys/devices/system/clocksource/clocksource0/";
  const auto clock = [&](const char* name) { return find(check_clock(tree.host()), name); };
  CHECK(clock("clock source").measured == "tsc, 20 ns a reading");
  tree.write(source + "current_clocksource", "hpet\n");
  CHECK(clock("clock source").status == Status::warn);
  CHECK(contains(clock("clock source").remedy, "echo tsc >"));
  tree.write(source + "available_clocksource", "hpet acpi_pm\n");
  CHECK(contains(clock("clock source").remedy, "dmesg"));

  CHECK(clock("clock").measured == "synchronised, within 0.5 ms");
  tree.probes().clock_state = [] { return ClockState{true, 900'000}; };
  CHECK(clock("clock").status == Status::warn);
  tree.probes().clock_state = [] { return ClockState{false, 0}; };
  CHECK(clock("clock").status == Status::warn);
  CHECK(contains(clock("clock").remedy, "chrony"));
}

TEST_CASE("cores are counted with their threads, and a quota below them is a warning") {
  const HostTree tree;
  const auto cores = [&](const char* name) { return find(check_cores(tree.host()), name); };
  CHECK(cores("cores").measured == "4 (0-3)");
  CHECK(cores("CPU quota").status == Status::pass);
  for (int core = 0; core < 4; ++core)
    tree.write(
        "sys/devices/system/cpu/cpu" + std::to_string(core) + "/topology/thread_siblings_list",
        core % 2 == 0 ? "0,2\n" : "1,3\n");
  tree.write("sys/devices/system/cpu/online", "0-7\n");
  CHECK(cores("cores").measured == "4 (0-3), which are threads of 2 cores, of 8 that the host has");
  tree.write("proc/self/cgroup", "0::/a\n");
  tree.write("sys/fs/cgroup/cgroup.controllers", "cpu\n");
  tree.write("sys/fs/cgroup/a/cpu.max", "250000 100000\n");
  tree.write("sys/fs/cgroup/a/cpu.stat", "nr_throttled 1234\n");
  CHECK(cores("CPU quota").status == Status::warn);
  CHECK(cores("CPU quota").measured ==
        "the time of 2.5 cores, on 4 cores; held up 1,234 times so far");
  CHECK(contains(cores("CPU quota").remedy, "--threads 2"));
  tree.write("sys/fs/cgroup/a/cpu.max", "50000 100000\n");
  CHECK(!contains(cores("CPU quota").remedy, "--threads"));
}

TEST_CASE("a process on the cores of two nodes is told the one where its devices are") {
  const HostTree tree;
  const auto numa = [&] { return find(check_cores(tree.host()), "NUMA"); };
  CHECK(numa().status == Status::pass);
  tree.write("sys/devices/system/node/node0/cpulist", "0-1\n");
  tree.write("sys/devices/system/node/node1/cpulist", "2-3\n");
  CHECK(numa().status == Status::warn);
  CHECK(contains(numa().measured, "node 0: cores 0-1; node 1: cores 2-3; this process may use 2"));
  CHECK(contains(numa().remedy, "--cores 0-1 --threads 2"));
  tree.add_card("eth2", "pci0000:3a/0000:3b:00.0", 9000, 100'000, 1);
  CHECK(contains(numa().remedy, "--cores 2-3 --threads 2"));
  tree.write("proc/self/status", "Cpus_allowed_list:\t2-3\n");
  CHECK(numa().status == Status::pass);
}

TEST_CASE("of a card its MTU, queues, rings, place and link are looked at") {
  HostTree tree;
  const std::string device = tree.add_card("eth2", "pci0000:3a/0000:3b:00.0", 9000, 100'000, 1);
  const auto card = [&](const char* name) { return find(check_cards(tree.host()), name, "eth2"); };
  CHECK(card("MTU").measured == "9000 B, at 100 Gb/s");
  CHECK(card("MTU").status == Status::pass);
  tree.write("sys/class/net/eth2/mtu", "1500\n");
  CHECK(card("MTU").status == Status::warn);
  CHECK(contains(card("MTU").remedy, "ip link set eth2 mtu 9000"));
  tree.write("sys/class/net/eth2/speed", "1000\n");
  CHECK(card("MTU").status == Status::pass);
  tree.write(device + "/infiniband/mlx5_0/node_type", "1: CA\n");
  CHECK(contains(card("MTU").needed, "4200 B"));

  CHECK(card("queues").status == Status::none);
  tree.probes().queues_of = [](auto) { return Queues{2, 64}; };
  CHECK(card("queues").status == Status::warn);
  CHECK(card("queues").remedy == "ethtool -L eth2 combined 4");
  tree.probes().queues_of = [](auto) { return Queues{1, 1}; };
  CHECK(card("queues").status == Status::pass);

  CHECK(card("ring depth").status == Status::none);
  tree.probes().rings_of = [](auto) { return Rings{256, 8192, 2048, 8192}; };
  CHECK(card("ring depth").status == Status::warn);
  CHECK(card("ring depth").remedy == "ethtool -G eth2 rx 1024 tx 2048");
  tree.probes().rings_of = [](auto) { return Rings{256, 256, 256, 256}; };
  CHECK(card("ring depth").status == Status::pass);

  CHECK(card("NUMA node").measured == "the host has one node");
  tree.write("sys/devices/system/node/node1/cpulist", "4-7\n");
  CHECK(card("NUMA node").status == Status::warn);
  CHECK(contains(card("NUMA node").remedy, "--cpunodebind=1"));
  tree.write("proc/self/status", "Cpus_allowed_list:\t4-7\n");
  CHECK(card("NUMA node").status == Status::pass);
  tree.set_link(device, 8, 16);
  CHECK(card("PCIe link").status == Status::warn);
}

TEST_CASE("TCP's buffers must hold what a fast line has under way") {
  const HostTree tree;
  const auto buffer = [&](const char* name) { return find(check_cards(tree.host()), name); };
  CHECK(buffer("TCP send buffer").status == Status::pass);
  tree.write("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t1048576\n");
  CHECK(buffer("TCP send buffer").status == Status::warn);
  CHECK(buffer("TCP receive buffer").status == Status::pass);
  tree.add_card("eth2", "pci0000:3a/0000:3b:00.0", 9000, 100'000);
  CHECK(buffer("TCP receive buffer").status == Status::warn);
  CHECK(contains(buffer("TCP receive buffer").needed, "32 MiB or more: 100 Gb/s"));
  CHECK(contains(buffer("TCP receive buffer").remedy,
                 "sysctl -w net.ipv4.tcp_rmem='4096 131072 33554432'"));
}

namespace {

/// A RoCE port that is as it should be.
struct RoceTree : HostTree {
  const std::string port = "sys/class/infiniband/mlx5_0/ports/1/";

  RoceTree() {
    add_card("eth2", "pci0000:3a/0000:3b:00.0", 9000, 100'000);
    write(port + "state", "4: ACTIVE\n");
    write(port + "rate", "100 Gb/sec (4X EDR)\n");
    write(port + "link_layer", "Ethernet\n");
    add_gid(0, "fe80:0000:0000:0000:0202:c9ff:fe00:0001", "IB/RoCE v1");
    add_gid(1, "fe80:0000:0000:0000:0202:c9ff:fe00:0001", "RoCE v2");
    add_gid(3, "0000:0000:0000:0000:0000:ffff:0a00:0007", "RoCE v2");
    write(port + "gids/4", "0000:0000:0000:0000:0000:0000:0000:0000\n");
    write("sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n");
    probes().priorities_of = [](auto) { return std::vector<unsigned>{3}; };
    probes().pause_of = [](auto) { return Pause{}; };
  }
  void add_gid(int index, const std::string& address, const std::string& type) const {
    write(port + "gids/" + std::to_string(index), address + "\n");
    write(port + "gid_attrs/types/" + std::to_string(index), type + "\n");
    write(port + "gid_attrs/ndevs/" + std::to_string(index), "eth2\n");
  }
  Check port_check(const char* name) const { return find(check_rdma(host()), name, "mlx5_0/1"); }
  Check device_file() const { return find(check_rdma(host()), "device file", "mlx5_0"); }
};

}  // namespace

TEST_CASE("an RDMA port must be active, with an address of RoCE v2 that others reach") {
  const RoceTree tree;
  CHECK(tree.port_check("port").status == Status::pass);
  CHECK(tree.port_check("port").measured == "ACTIVE, RoCE, 100 Gb/sec (4X EDR), eth2");
  CHECK(tree.port_check("GID").measured == "number 3: 10.0.0.7, RoCE v2");
  tree.remove(tree.port + "gids/3");
  CHECK(tree.port_check("GID").status == Status::warn);
  CHECK(tree.port_check("GID").measured == "2 GIDs, none of RoCE v2 beyond the link");
  CHECK(tree.port_check("GID").remedy == "ip address add ADDRESS/24 dev eth2");
  tree.write(tree.port + "state", "1: DOWN\n");
  CHECK(tree.port_check("port").status == Status::warn);
  CHECK(contains(tree.port_check("port").remedy, "ip link set eth2 up"));
  tree.write(tree.port + "link_layer", "InfiniBand\n");
  CHECK(tree.port_check("GID").status == Status::pass);
  CHECK(contains(tree.port_check("port").remedy, "subnet manager"));
}

TEST_CASE("flow and congestion control are read where they can be, and asked for where off") {
  RoceTree tree;
  CHECK(tree.port_check("flow control").measured == "PFC priority 3, pause frames off");
  tree.probes().priorities_of = [](auto) { return std::vector<unsigned>{}; };
  CHECK(tree.port_check("flow control").status == Status::warn);
  CHECK(contains(tree.port_check("flow control").remedy, "dcb pfc set dev eth2 prio-pfc 3:on"));
  tree.probes().pause_of = [](auto) { return Pause{true, true}; };
  CHECK(tree.port_check("flow control").status == Status::pass);
  tree.probes().priorities_of = [](auto) { return std::nullopt; };
  tree.probes().pause_of = [](auto) { return std::nullopt; };
  CHECK(tree.port_check("flow control").status == Status::none);

  CHECK(tree.port_check("congestion control").status == Status::none);
  const std::string ecn = "sys/class/net/eth2/ecn/";
  tree.write(ecn + "roce_np/enable/3", "1\n");
  tree.write(ecn + "roce_rp/enable/3", "0\n");
  CHECK(tree.port_check("congestion control").status == Status::warn);
  tree.write(ecn + "roce_rp/enable/3", "1\n");
  CHECK(tree.port_check("congestion control").measured == "DCQCN priority 3");
  CHECK(tree.port_check("congestion control").status == Status::pass);
}

TEST_CASE("a device file that is missing or not this user's is named") {
  RoceTree tree;
  CHECK(tree.device_file().measured == "/dev/infiniband/uverbs0");
  tree.probes().refuses_opening = [](auto) { return EACCES; };
  CHECK(tree.device_file().status == Status::warn);
  CHECK(contains(tree.device_file().remedy, "chmod a+rw /dev/infiniband/uverbs0"));
  tree.probes().refuses_opening = [](auto) { return ENOENT; };
  CHECK(contains(tree.device_file().remedy, "docker run --device /dev/infiniband"));
  tree.remove("sys/class/infiniband_verbs");
  CHECK(contains(tree.device_file().remedy, "modprobe -a ib_uverbs"));
}

namespace {

/// An NVIDIA GPU below the same switch as a card with RDMA, as it should be.
struct GpuTree : HostTree {
  const std::string address = "0000:04:00.0";
  std::string gpu;

  GpuTree() {
    const std::string below = "pci0000:00/0000:00:01.0/0000:01:00.0/";
    gpu = add_pci(below + "0000:02:01.0/" + address, "0x10de", "0x030200");
    const std::string card = add_card("eth2", below + "0000:02:00.0/0000:03:00.0", 9000, 100'000);
    write(card + "/infiniband/mlx5_0/node_type", "1: CA\n");
    write("sys/class/infiniband/mlx5_0/node_type", "1: CA\n");
    write("sys/bus/pci/drivers/nvidia/module/version", "550\n");
    link(gpu + "/driver", "sys/bus/pci/drivers/nvidia");
    write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module  550\n");
    write("proc/driver/nvidia/gpus/" + address + "/information", "Model: \t\t NVIDIA H100\n");
    set_bar("0x0000002000000000 0x0000003fffffffff");
  }
  void set_bar(const std::string& line) const {
    write(gpu + "/resource",
          "0x00000000a0000000 0x00000000a0ffffff 0x0000000000040200\n" + line +
              " 0x000000000014220c\n0x0000000000000000 0x0000000000000000 0x0\n");
  }
  Check check(const char* name) const { return find(check_gpus(host()), name, address); }
  Check peer_memory() const { return find(check_gpus(host()), "peer memory"); }
};

}  // namespace

TEST_CASE("a GPU's driver, BAR and way to a card are looked at") {
  const GpuTree tree;
  CHECK(tree.check("driver").measured == "nvidia, of NVIDIA H100");
  CHECK(tree.check("driver").status == Status::pass);
  CHECK(tree.check("PCIe link").status == Status::pass);
  CHECK(tree.check("NUMA node").status == Status::pass);
  CHECK(tree.check("BAR").measured == "128 GiB");
  CHECK(tree.check("BAR").status == Status::pass);
  tree.set_bar("0x0000000020000000 0x000000002fffffff");
  CHECK(tree.check("BAR").status == Status::warn);
  CHECK(contains(tree.check("BAR").remedy, "Resizable BAR"));
  tree.set_bar("0x0000000040000000 0x000000007fffffff");
  CHECK(tree.check("BAR").status == Status::pass);
  tree.write(tree.gpu + "/resource1_resize", "00000000000fffc0\n");
  CHECK(tree.check("BAR").status == Status::warn);
  CHECK(contains(tree.check("BAR").needed, "512 GiB"));

  CHECK(tree.check("way to a card").measured == "through one PCIe switch, to eth2 (0000:03:00.0)");
  tree.add_card("eth9", "pci0000:80/0000:80:01.0/0000:81:00.0", 9000, 100'000);
  CHECK(contains(tree.check("way to a card").measured, "to eth2"));
  tree.write("sys/class/net/eth2/operstate", "down\n");
  CHECK(tree.check("way to a card").status == Status::warn);
  CHECK(contains(tree.check("way to a card").measured, "through the processor, to eth9"));
  tree.remove(tree.gpu + "/driver");
  CHECK(tree.check("driver").status == Status::warn);
  CHECK(contains(tree.check("driver").measured, "none, of"));
}

TEST_CASE("cards reach a GPU's memory by dma-buf or by a module of their own") {
  const GpuTree tree;
  CHECK(tree.peer_memory().measured == "dma-buf");
  tree.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module\n");
  CHECK(tree.peer_memory().status == Status::warn);
  CHECK(contains(tree.peer_memory().remedy, "modprobe nvidia_peermem"));
  tree.write("sys/module/nvidia_peermem/refcnt", "0\n");
  CHECK(tree.peer_memory().measured == "nvidia_peermem");
  CHECK(tree.peer_memory().status == Status::pass);
  tree.remove("sys/class/infiniband");
  CHECK(tree.peer_memory().status == Status::none);
}
