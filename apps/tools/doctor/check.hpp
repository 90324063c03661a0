// One line of the doctor's report: what was looked at, what was found, what is needed, what mends
// it.
//
//   Check check{.group = "system", .name = "open files", .measured = "256"};
//   check.status = Status::warn;
//   check.needed = "4096 or more", check.remedy = "ulimit -n 65536";
//
// `measured` is never empty. Whoever warns or fails also says what is needed and what mends it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes::tools::doctor {

enum class Status : std::uint8_t {
  pass,  ///< As it should be.
  warn,  ///< Works, but slower than it could, or something that could be had is not to be had.
  fail,  ///< A program that needs this does not start, or ends.
  none,  ///< There is no such thing here, or it can't be seen.
};

struct Check {
  std::string group = {};    ///< "system", "cores", "network", "rdma", "gpu", "peer".
  std::string name = {};     ///< What was looked at, such as "receive ring".
  std::string subject = {};  ///< Of which device or peer; empty: of the host.
  Status status = Status::pass;
  std::string measured = {};
  std::string needed = {};  ///< May be empty where nothing is asked for.
  std::string remedy = {};  ///< A command, or what to do by hand.
};

using Checks = std::vector<Check>;

/// "pass", "warn", "fail", "none".
std::string_view name(Status status) noexcept;
/// How many checks have that status.
std::size_t count(const Checks& checks, Status status) noexcept;
/// `checks` after those that `all` has.
void append(Checks& all, Checks checks);

}  // namespace hyperframes::tools::doctor
