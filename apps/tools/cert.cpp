#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <hyperframes/apps/ps/command_line.hpp>
#include <hyperframes/apps/tools/commands.hpp>
#include <hyperframes/net/tls/authority.hpp>
#include <hyperframes/runtime/error.hpp>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* example =
    R"(Processes with certificates of one authority encrypt all that they say over TCP, and
let in nobody else. One authority for the cluster, one certificate for each process or
host, with every name and number by which others connect to it.

Example:

  hyperframes cert ca certificates
  hyperframes cert node certificates server --host localhost --host 127.0.0.1 --days 30
  hyperframes cert node certificates worker

Then each process gets its own two files and the authority's certificate:

  hyperframes_server --role ps --workdir ps --certificate certificates/server.crt \
      --certificate_key certificates/server.key --authority certificates/ca.crt

Nothing is ever overwritten. A certificate can't be revoked: give it few days, and make the
next one in time, in another folder or under another name. docs/design/encryption.md has
the rest.
)";

constexpr mode_t secret_mode = 0600, public_mode = 0644;

std::string read_file(const fs::path& path, const char* remedy) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw Error::system(errno, "read '" + path.string() + "'", {}, remedy);
  return {std::istreambuf_iterator<char>(stream), {}};
}

Error is_there(const fs::path& path) {
  return {Errc::already_exists, "write '" + path.string() + "'", "there is such a file already",
          "nothing is overwritten: choose another name or folder, or remove it yourself"};
}

/// A new file with just that mode, whatever the umask is.
void write_file(const fs::path& path, std::string_view text, mode_t mode) {
  const std::string tried = "write '" + path.string() + "'";
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (file < 0 && errno == EEXIST) throw is_there(path);
  if (file < 0)
    throw Error::system(errno, tried, {}, "give a folder that this user can write into");
  int failure = ::fchmod(file, mode) == 0 ? 0 : errno;
  while (!text.empty() && !failure) {
    const auto written = ::write(file, text.data(), text.size());
    if (written < 0) {
      failure = errno == EINTR ? 0 : errno;
    } else {
      text.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  ::close(file);
  if (!failure) return;
  ::unlink(path.c_str());
  throw Error::system(failure, tried);
}

/// What was made lies in DIR/NAME.crt and DIR/NAME.key, or nothing does.
void write_pair(const fs::path& stem, net::Issued& made) {
  const fs::path certificate = stem.string() + ".crt", key = stem.string() + ".key";
  for (const auto& path : {certificate, key})
    if (fs::exists(path)) throw is_there(path);
  write_file(key, made.key, secret_mode);
  ::OPENSSL_cleanse(made.key.data(), made.key.size());
  try {
    write_file(certificate, made.certificate, public_mode);
  } catch (...) {
    ::unlink(key.c_str());
    throw;
  }
}

void make_folder(const fs::path& folder) {
  std::error_code failure;
  if (fs::create_directories(folder, failure))
    fs::permissions(folder, fs::perms::owner_all, failure);
  if (failure)
    throw Error(failure, "make the folder '" + folder.string() + "'", {},
                "give one that this user can make");
}

struct AuthorityFlags {
  std::string folder, name = "Hyperframes authority";
  std::uint64_t days = 3650;
};

void make_authority(const AuthorityFlags& flags) {
  const fs::path folder = flags.folder;
  make_folder(folder);
  auto made = net::make_authority({.name = flags.name, .lifetime = std::chrono::days(flags.days)});
  write_pair(folder / "ca", made);
  fmt::print(
      "{0}/ca.crt  {1}: all nodes get it (--authority)\n"
      "{0}/ca.key  its private key: who has it can make nodes, so keep it where none runs\n"
      "\nNext, for each node, with every name and number by which others connect to it:\n"
      "  hyperframes cert node {0} NAME --host HOST --host 10.0.0.7 --days 30\n",
      folder.string(), net::describe_certificate(made.certificate));
}

struct NodeFlags {
  std::string folder, name;
  std::vector<std::string> hosts;
  std::uint64_t days = 30;
};

/// It names files too.
void check_name(const std::string& name) {
  const bool fine = !name.starts_with('.') && name != "ca" &&
                    std::ranges::none_of(name, [](char c) { return c == '/' || c == ' '; });
  if (!fine)
    throw Error(Errc::invalid_argument, "make a certificate for '" + name + "'",
                "its files can't have that name", "give one such as server-1");
}

void make_node(const NodeFlags& flags) {
  const fs::path folder = flags.folder;
  const char* const remedy = "make an authority first: hyperframes cert ca DIR";
  check_name(flags.name);
  net::Issued authority{read_file(folder / "ca.crt", remedy), read_file(folder / "ca.key", remedy)};
  std::vector<std::string> hosts = flags.hosts;
  if (hosts.empty()) hosts = {"localhost", "127.0.0.1", "::1"};
  // Others can name the node that they mean, wherever it runs.
  if (std::ranges::find(hosts, flags.name) == hosts.end()) hosts.push_back(flags.name);
  auto made = net::issue(
      authority,
      {.name = flags.name, .hosts = std::move(hosts), .lifetime = std::chrono::days(flags.days)});
  ::OPENSSL_cleanse(authority.key.data(), authority.key.size());
  write_pair(folder / flags.name, made);
  fmt::print(
      "{0}/{1}.crt  {2}\n"
      "{0}/{1}.key  its private key, for that node alone\n"
      "\nNext, on that node, with the authority's certificate beside the two:\n"
      "  hyperframes_server --role ps --workdir ps --certificate {0}/{1}.crt \\\n"
      "      --certificate_key {0}/{1}.key --authority {0}/ca.crt\n"
      "and the same three options for hyperframes_worker and hyperframes audit.\n",
      folder.string(), flags.name, net::describe_certificate(made.certificate));
}

void add_authority_command(CLI::App& command) {
  auto* ca = command.add_subcommand("ca", "Makes an authority: DIR/ca.crt and DIR/ca.key");
  const auto flags = std::make_shared<AuthorityFlags>();
  ca->add_option("DIR", flags->folder, "Folder for it; made if it is not there")->required();
  ca->add_option("--name", flags->name, "What its certificate calls it")->capture_default_str();
  ps::take_whole(ca->add_option("--days", flags->days, "Days until it ends"), 1, 36'500)
      ->capture_default_str();
  ca->callback([flags] { make_authority(*flags); });
}

void add_node_command(CLI::App& command) {
  auto* node = command.add_subcommand(
      "node", "Makes a node's certificate by that authority: DIR/NAME.crt and DIR/NAME.key");
  const auto flags = std::make_shared<NodeFlags>();
  node->add_option("DIR", flags->folder, "Folder with the authority")->required();
  node->add_option("NAME", flags->name, "The node's name, and its files'")->required();
  node->add_option("--host", flags->hosts,
                   "A name or number by which others connect to it; repeat it for more (default: "
                   "localhost, 127.0.0.1 and ::1)")
      ->allow_extra_args(false);
  ps::take_whole(node->add_option("--days", flags->days, "Days until it ends"), 1, 36'500)
      ->capture_default_str();
  node->callback([flags] { make_node(*flags); });
}

}  // namespace

void add_cert_command(CLI::App& app) {
  auto* command =
      app.add_subcommand("cert", "Makes certificates, by which processes know and encrypt");
  command->require_subcommand(1);
  command->footer(example);
  add_authority_command(*command);
  add_node_command(*command);
}

}  // namespace hyperframes::tools
