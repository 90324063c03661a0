// The rules of the tree, checked on its files: which folder may include which, where third-party
// headers may stand, how a header begins, and what must stand in no file at all.
//
//   for (const Violation& violation : check_layout("/path/of/the/clone"))
//     std::cout << describe(violation) << '\n';
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace hyperframes::layout {

struct Violation {
  std::string file;  // relative to the root
  std::size_t line;  // from 1; 0 when the whole file is meant
  std::string what;  // the rule that is broken, with what broke it
};

// Reads every file below `root` but build folders and Git's own, and returns what breaks a rule,
// in the order of the files' names. Throws std::filesystem::filesystem_error when it can't read.
std::vector<Violation> check_layout(const std::filesystem::path& root);

std::string describe(const Violation& violation);

}  // namespace hyperframes::layout
