#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <hyperframes/apps/ps/command_line.hpp>
#include <hyperframes/apps/ps/security.hpp>
#include <hyperframes/net/endpoint.hpp>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <vector>

namespace hyperframes::ps {
namespace {

constexpr std::uint64_t no_limit = std::numeric_limits<std::uint64_t>::max();

template <class T>
bool read_number(std::string_view text, T& number) noexcept {
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  return failure == std::errc() && end == text.data() + text.size();
}

/// Lines of at most 100 characters, which go on at `indent`: CLI11 leaves a description as it is.
std::string wrap_help(const std::string& help, std::size_t indent) {
  constexpr std::size_t most = 100;
  std::istringstream lines(help);
  std::string wrapped;
  for (std::string line; std::getline(lines, line);) {
    while (line.size() > most) {
      const std::size_t space = line.rfind(' ', most);
      if (space == std::string::npos || space <= indent) break;
      wrapped += line.substr(0, space) + '\n';
      line = std::string(indent, ' ') + line.substr(space + 1);
    }
    wrapped += line + '\n';
  }
  return wrapped;
}

/// The innermost command that was chosen.
const CLI::App& chosen(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? app : chosen(*commands.back());
}

std::string full_name(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return parent == nullptr ? app.get_name() : full_name(*parent) + " " + app.get_name();
}

std::string commands_of(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands({}))
    names += (names.empty() ? "" : ", ") + command->get_name();
  return names;
}

std::string unknown_text(const CLI::App& app, const std::string& argument) {
  if (argument.starts_with('-')) return fmt::format("there is no option {}", argument);
  if (const auto names = commands_of(app); !names.empty())
    return fmt::format("no command is named '{}'; there are: {}", argument, names);
  return fmt::format("'{}' was not expected", argument);
}

/// What was not understood says more than what is missing because of it.
std::string text_of(const CLI::App& app, const CLI::ParseError& error) {
  const auto unknown = app.remaining(true);
  const CLI::App& command = chosen(app);
  if (!unknown.empty()) return unknown_text(command, unknown.front());
  if (const auto names = commands_of(command); !names.empty())
    return "a command is missing; there are: " + names;
  return error.what();
}

}  // namespace

int refuse_usage(const std::string& program, const std::string& what) {
  fmt::print(stderr, "{}: {}; `{} --help` explains\n", program, what, program);
  return usage_error_status;
}

std::optional<int> parse_command_line(CLI::App& app, int argc, const char* const* argv) try {
  if (app.get_name().empty()) {
    const std::string_view path = argc > 0 ? argv[0] : "";
    app.name(std::string(path.substr(path.rfind('/') + 1)));
  }
  app.set_version_flag("--version", app.get_name() + " " HYPERFRAMES_VERSION,
                       "Print which version this is, and exit");
  app.parse(argc, argv);
  return std::nullopt;
} catch (const CLI::RuntimeError& error) {
  return error.get_exit_code();
} catch (const CLI::Success& success) {
  std::ostringstream text;
  const int status = app.exit(success, text, text);
  std::cout << wrap_help(text.str(), app.get_formatter()->get_column_width());
  return status;
} catch (const CLI::ParseError& error) {
  return refuse_usage(full_name(chosen(app)), text_of(app, error));
}

CLI::Option* take_whole(CLI::Option* option, std::uint64_t low, std::uint64_t high) {
  const std::string range = low == 0 && high == no_limit ? "" : fmt::format("{} to {}", low, high);
  const auto read = [low, high](std::string& text) -> std::string {
    std::uint64_t number = 0;
    if (!read_number(text, number) || number < low || number > high)
      return fmt::format("'{}' is no whole number from {} to {}", text, low, high);
    text = std::to_string(number);  // a leading zero would make it octal
    return {};
  };
  return option->transform(CLI::Validator(read, range));
}

CLI::Option* take_number(CLI::Option* option, double low, double high) {
  const auto read = [low, high](std::string& text) -> std::string {
    double number = 0;
    if (read_number(text, number) && number >= low && number <= high) return {};
    return fmt::format("'{}' is no number from {:g} to {:g}", text, low, high);
  };
  return option->transform(CLI::Validator(read, fmt::format("{:g} to {:g}", low, high)));
}

CLI::Option* take_bytes(CLI::Option* option, std::uint64_t low, std::uint64_t high) {
  const auto read = [low, high](std::string& text) -> std::string {
    static constexpr std::string_view units[] = {"", "K", "M", "G", "T"};
    std::string_view unit(text);
    unit.remove_prefix(std::min(unit.find_first_not_of("0123456789"), unit.size()));
    const std::string_view digits = std::string_view(text).substr(0, text.size() - unit.size());
    if (unit.ends_with('B')) unit.remove_suffix(1);
    if (unit.ends_with('i')) unit.remove_suffix(1);
    const auto found = std::ranges::find(units, unit);
    const auto shift = static_cast<unsigned>(10 * (found - std::begin(units)));
    std::uint64_t number = 0;
    const bool right = found != std::end(units) && read_number(digits, number) &&
                       number <= no_limit >> shift && number << shift >= low &&
                       number << shift <= high;
    if (!right)
      return fmt::format("'{}' is no number of bytes from {} to {}, such as 512MB or 8GB", text,
                         low, high);
    text = std::to_string(number << shift);
    return {};
  };
  return option->transform(CLI::Validator(read, "BYTES"));
}

CLI::Option* take_address(CLI::Option* option) {
  const auto read = [](std::string& text) -> std::string {
    constexpr std::string_view scheme = "tcp://", rdma = "rdma://";
    const std::string address = text.starts_with(scheme) ? text.substr(scheme.size())
                                : text.starts_with(rdma) ? text.substr(rdma.size())
                                                         : text;
    const auto endpoint = net::Endpoint::try_parse(std::string(scheme) + address);
    if (!endpoint || address.find("://") != address.npos)
      return fmt::format("'{}' is no HOST:PORT{}", text,
                         endpoint ? "" : ": " + endpoint.error().found());
    text = address;
    return {};
  };
  return option->transform(CLI::Validator(read, ""));
}

void add_security_options(CLI::App& app, SecurityOptions& options) {
  net::Encryption& encryption = options.encryption;
  app.add_option("--key_file", options.key_file,
                 "Secret that all processes share: they show each other that they have it, and "
                 "encrypt. Any address but loopback needs this or certificates");
  app.add_option("--certificate", encryption.certificate_file,
                 "This process's certificate (PEM; 'hyperframes cert' makes it)");
  app.add_option("--certificate_key", encryption.certificate_key_file,
                 "The private key of --certificate");
  app.add_option("--authority", encryption.authority_file,
                 "Certificate of the authority whose processes are let in");
  app.add_option("--peer_name", encryption.peer_name,
                 "Name that the certificates of those have that this process connects to "
                 "(default: the host that it calls)");
  app.add_flag("--plaintext", encryption.plaintext, "With --key_file: do not encrypt");
  app.add_flag("--insecure", options.insecure,
               "Listen on any address without a key or certificates");
}

}  // namespace hyperframes::ps
