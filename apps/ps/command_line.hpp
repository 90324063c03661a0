// What the command lines of all programs of this tree have in common. Not installed.
//
//   take_whole(app.add_option("--epochs", epochs, "Passes over the data"), 1, 100'000);
//   if (const auto status = parse_command_line(app, argc, argv)) return *status;
//   // ... the program
//
// Whatever is wrong with a command line is said in one line that names it, and ends in status 2.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace hyperframes::ps {

struct SecurityOptions;
struct TransportOptions;

inline constexpr int usage_error_status = 2;

/// Parses and runs the callbacks; adds --version. Empty: go on. Otherwise the status to end with: 0
/// after help or the version, `usage_error_status`, or what a callback threw as CLI::RuntimeError.
/// Other exceptions of callbacks pass.
std::optional<int> parse_command_line(CLI::App& app, int argc, const char* const* argv);

/// One line to standard error that says what is wrong and where help is; returns
/// `usage_error_status`.
int refuse_usage(const std::string& program, const std::string& what);

/// The option takes whole numbers from `low` to `high` in decimal, and refuses signs and numbers
/// that are too large. Returns the option.
CLI::Option* take_whole(CLI::Option* option, std::uint64_t low = 0,
                        std::uint64_t high = std::numeric_limits<std::uint64_t>::max());
/// The option takes numbers from `low` to `high`. Returns the option.
CLI::Option* take_number(CLI::Option* option, double low, double high);
/// The option takes a number of bytes from `low` to `high`, also with B, KB, MB, GB or TB behind it
/// (powers of 1,024, with or without an i). Returns the option.
CLI::Option* take_bytes(CLI::Option* option, std::uint64_t low, std::uint64_t high);
/// The option takes HOST:PORT, also as logs print it ("tcp://HOST:PORT"), and keeps it without the
/// scheme. Returns the option.
CLI::Option* take_address(CLI::Option* option);

/// --key_file, --certificate and so on; `options` outlives the parsing.
void add_security_options(CLI::App& app, SecurityOptions& options);
/// --rdma, --buffer_pool_size and so on; the same.
void add_transport_options(CLI::App& app, TransportOptions& options);
/// --cores, for bind_to_cores: refuses what is no list of cores with the command line.
void add_core_option(CLI::App& app, std::string& text);

}  // namespace hyperframes::ps
