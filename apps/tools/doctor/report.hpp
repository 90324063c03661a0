// The doctor's checks as a table for people, and as JSON for programs.
//
//   Report report{.host = "node3", .kernel = "6.1.0", .checks = check_kernel(host)};
//   std::fputs(report_text(report, screen, 100).c_str(), stdout);
//   std::fputs(report_json(report).c_str(), stdout);
#pragma once

#include <cstddef>
#include <hyperframes/apps/tools/doctor/check.hpp>
#include <hyperframes/apps/tools/progress.hpp>
#include <string>

namespace hyperframes::tools::doctor {

struct Report {
  std::string host = {}, kernel = {}, version = {};
  Checks checks = {};  ///< Those of a group beside each other.
};

/// Lines of at most `columns`, unless a word is longer. What is needed and what mends it stands
/// below a line that warns or fails. Ends in a newline.
std::string report_text(const Report& report, const Screen& screen, std::size_t columns);

/// One object on a line: host, kernel, version, counts by status, and the checks with all members.
std::string report_json(const Report& report);

}  // namespace hyperframes::tools::doctor
