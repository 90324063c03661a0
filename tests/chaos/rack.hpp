// A rack of hosts on this one: each a network namespace, joined by veth pairs to a switch in a
// namespace of its own, with links that nft rules cut and disks that get full.
//
//   Rack rack;
//   const Rack::Host& a = rack.add_host("a");         // 10.77.0.1
//   scene.start("a", {program, ...}, {.within = rack.within(a)});
//   rack.cut("no-b", a, {Rack::drop_to(b)});          // one way; rack.mend("no-b")
//   LoopDisk disk(folder, 64);  disk.fill();  disk.free();
//
// The namespaces have no names and the mounts are in a mount namespace of this process: so all of
// it goes with this process and its children, however they end.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <hyperframes/runtime/error.hpp>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hyperframes::tools {

/// What a shell command line wrote, and its status.
struct CommandResult {
  std::string text;
  int status = 0;
};

inline CommandResult run_shell(const std::string& command) {
  CommandResult result;
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) throw Error::system(errno, "run " + command);
  char piece[4096];
  while (const std::size_t count = ::fread(piece, 1, sizeof piece, pipe))
    result.text.append(piece, count);
  result.status = ::pclose(pipe);
  return result;
}

inline void require_shell(const std::string& command) {
  const CommandResult result = run_shell(command);
  if (result.status != 0) throw Error(Errc::unsupported, "run " + command, result.text);
}

class Rack {
 public:
  struct Host {
    std::string name, address;
    std::string network;  ///< Path of its namespace.
  };

  /// Why there can be none here; empty if there can.
  static std::string why_not() {
    if (::geteuid() != 0) return "network namespaces need root";
    for (const char* program : {"ip", "nft", "nsenter", "unshare", "mkfs.ext4"})
      if (run_shell(fmt::format("command -v {}", program)).status != 0)
        return fmt::format("{} is missing (Debian: iproute2, nftables, util-linux, e2fsprogs)",
                           program);
    const CommandResult probe = run_shell(
        "unshare --net --mount sh -ec 'ip link add name one type veth peer name two; "
        "ip link add name three type bridge; nft add table inet t; losetup --find'");
    return probe.status == 0 ? "" : "this system has no namespaces with nft here: " + probe.text;
  }

  Rack() : switch_(make_namespace()) {
    in(switch_, "ip link set lo up");
    in(switch_, "ip link add name rack type bridge && ip link set rack up");
    in(switch_, fmt::format("ip address add {}/24 dev rack", address_of(254)));
  }
  ~Rack() {
    for (const int file : files_) ::close(file);
  }
  Rack(const Rack&) = delete;
  Rack& operator=(const Rack&) = delete;

  const Host& add_host(const std::string& name) {
    const auto number = static_cast<unsigned>(hosts_.size() + 1);
    hosts_.push_back({name, address_of(number), make_namespace()});
    const Host& host = hosts_.back();
    const std::string port = fmt::format("port{}", number);
    in(switch_, fmt::format("ip link add name {} type veth peer name eth0 netns {}", port,
                            hosts_.back().network));
    in(switch_, fmt::format("ip link set {} master rack up", port));
    in(host.network, "ip link set lo up");
    in(host.network, fmt::format("ip address add {}/24 dev eth0", host.address));
    in(host.network, "ip link set eth0 up");
    return host;
  }
  /// What is put before a command that runs on a host, or beside the switch, where nothing is cut.
  std::vector<std::string> within(const Host& host) const { return enter(host.network); }
  std::vector<std::string> beside() const { return enter(switch_); }

  // ---- Cuts

  /// Rules, each for a chain of a host: what is dropped on its way in, or out.
  struct Rule {
    std::string chain, match;
  };
  static Rule drop_from(const Host& other) { return {"input", "ip saddr " + other.address}; }
  static Rule drop_to(const Host& other) { return {"output", "ip daddr " + other.address}; }
  static Rule drop_all_in() { return {"input", "iifname eth0"}; }
  static Rule drop_all_out() { return {"output", "oifname eth0"}; }
  static Rule lose_in(unsigned percent) {
    return {"input", fmt::format("iifname eth0 numgen random mod 100 < {}", percent)};
  }

  void cut(const std::string& name, const Host& host, const std::vector<Rule>& rules) {
    std::string script = fmt::format("table inet {} {{\n", name);
    for (const char* chain : {"input", "output"}) {
      script += fmt::format("chain {0} {{\ntype filter hook {0} priority 0\n", chain);
      for (const Rule& rule : rules)
        if (rule.chain == chain) script += rule.match + " drop\n";
      script += "}\n";
    }
    in(host.network, fmt::format("nft '{}}}'", script));
    cuts_.emplace(name, host.network);
  }
  /// On all hosts where there is one of that name.
  void mend(const std::string& name) {
    const auto [first, last] = cuts_.equal_range(name);
    for (auto cut = first; cut != last; ++cut) in(cut->second, "nft delete table inet " + name);
    cuts_.erase(first, last);
  }

 private:
  static std::string address_of(unsigned number) { return fmt::format("10.77.0.{}", number); }
  static std::vector<std::string> enter(const std::string& network) {
    return {"nsenter", "--net=" + network, "--"};
  }
  static void in(const std::string& network, const std::string& command) {
    require_shell(fmt::format("nsenter --net={} -- sh -ec \"{}\"", network, command));
  }
  /// Held by a descriptor of this process, and named by that.
  std::string make_namespace() {
    const auto here = [] { return ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC); };
    const int before = here();
    if (before < 0 || ::unshare(CLONE_NEWNET) != 0)
      throw Error::system(errno, "make a network namespace");
    files_.push_back(here());
    const int back = ::setns(before, CLONE_NEWNET);
    ::close(before);
    if (back != 0) throw Error::system(errno, "go back to the first network namespace");
    return fmt::format("/proc/{}/fd/{}", ::getpid(), files_.back());
  }

  std::vector<int> files_;
  std::string switch_;
  std::deque<Host> hosts_;
  std::multimap<std::string, std::string> cuts_;  // their namespaces, by name
};

/// A small disk of its own: ext4 in a file, which syncs and gets full as one does.
class LoopDisk {
 public:
  /// Mounted on `folder`, which is made; its file lies beside that.
  LoopDisk(std::filesystem::path folder, unsigned size_mib) : folder_(std::move(folder)) {
    hide_mounts();
    std::filesystem::create_directories(folder_);
    const std::string image = folder_.string() + ".disk";
    require_shell(
        fmt::format("truncate --size={}M {} && mkfs.ext4 -q -m 0 {}", size_mib, image, image));
    require_shell(fmt::format("mount -o loop {} {}", image, folder_.string()));
  }
  LoopDisk(LoopDisk&& other) noexcept : folder_(std::exchange(other.folder_, {})) {}
  ~LoopDisk() {
    if (!folder_.empty()) ::umount2(folder_.c_str(), MNT_DETACH);
  }

  /// To the last byte, but for `left`.
  void fill(std::uint64_t left) {
    const auto space = std::filesystem::space(folder_).available;
    std::ofstream filler(folder_ / "filler", std::ios::binary);
    const std::string piece(64 << 10, 'x');
    for (std::uint64_t rest = space - std::min(space, left); filler && rest != 0;) {
      const std::uint64_t size = std::min<std::uint64_t>(rest, piece.size());
      filler.write(piece.data(), static_cast<std::streamsize>(size));
      rest -= size;
    }
  }
  void free() {
    std::error_code ignored;
    std::filesystem::remove(folder_ / "filler", ignored);
  }

 private:
  /// What this process and its children mount from now on is seen by no other, and goes with them.
  static void hide_mounts() {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      throw Error::system(errno, "make a mount namespace");
  }

  std::filesystem::path folder_;
};

}  // namespace hyperframes::tools
