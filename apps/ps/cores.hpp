// The cores that a process's shards run on, as the option --cores of the programs says it.
//
//   std::string text = "0-3,8";                                    // empty: the system decides
//   runtime_options.pin_threads = bind_to_cores(text, shards);     // before any thread starts
//
// A process that is bound to the cores of one NUMA node also has its memory there, since memory
// lies where it is first touched.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hyperframes::ps {

/// "0-3,8" as {0, 1, 2, 3, 8}, in order and once each. Throws Errc::invalid_argument.
std::vector<unsigned> parse_cores(std::string_view text);

/// Leaves those cores alone to this thread, and to all that are started from now on. Returns false
/// and does nothing where `text` is empty. Throws Errc::invalid_argument for cores that this
/// process may not use, and for fewer of them than `shards`.
bool bind_to_cores(std::string_view text, unsigned shards);

}  // namespace hyperframes::ps
