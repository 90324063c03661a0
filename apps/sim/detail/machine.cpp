#include <fcntl.h>

#include <cerrno>
#include <hyperframes/apps/sim/detail/machine.hpp>
#include <hyperframes/apps/sim/detail/sqlite_files.hpp>

namespace hyperframes::sim::detail {

SimMachine::SimMachine(SimNode& node, std::uint64_t seed, Duration calendar_offset,
                       std::function<void(std::string_view)> said)
    : files_(node),
      random_(SimRandom::mix(seed ^ SimRandom::mix(node.index() * 1000 + node.incarnation()))),
      calendar_offset_(calendar_offset),
      said_(std::move(said)),
      process_id_(std::to_string(node.incarnation())),
      sqlite_(std::make_unique<SqliteFiles>(node.name() + "-" + std::to_string(node.incarnation()),
                                            files_, random_.next())) {}
SimMachine::~SimMachine() = default;

std::int64_t SimMachine::open(const std::string& path, int flags) {
  return files_.open(path, flags);
}
void SimMachine::close(std::int64_t file) noexcept { files_.close(file); }
std::int64_t SimMachine::read(std::int64_t file, std::uint64_t offset, std::span<std::byte> into) {
  return files_.read(file, offset, into);
}
std::int64_t SimMachine::write(std::int64_t file, std::uint64_t offset,
                               std::span<const std::byte> from) {
  return files_.write(file, offset, from);
}
std::int64_t SimMachine::truncate(std::int64_t file, std::uint64_t size) {
  return files_.truncate(file, size);
}
std::int64_t SimMachine::sync(std::int64_t file) { return files_.sync(file); }
// A node runs one process, and a lock ends with its process.
std::int64_t SimMachine::try_lock(std::int64_t) { return 0; }
std::int64_t SimMachine::rename(const std::string& from, const std::string& to) {
  return files_.rename(from, to);
}
std::int64_t SimMachine::make_directories(const std::string& path) {
  return files_.make_directory(path);
}
std::int64_t SimMachine::list(const std::string& path, std::vector<std::string>& names) {
  return files_.list(path, names);
}
std::int64_t SimMachine::size_of(const std::string& path) {
  bool is_folder = false;
  if (!files_.exists(path, &is_folder)) return -ENOENT;
  if (is_folder) return -EISDIR;
  const ps::MachineFile file(*this, path, O_RDONLY);
  return file.number() < 0 ? file.number() : files_.size(file.number());
}
const char* SimMachine::database_files() const noexcept { return sqlite_->name(); }

std::uint64_t SimMachine::random_number() {
  while (true)
    if (const std::uint64_t number = random_.next()) return number;
}
std::uint64_t SimMachine::calendar_ns() {
  constexpr std::uint64_t begin_ns = 1'700'000'000'000'000'000;  // some day after 1970
  return begin_ns +
         static_cast<std::uint64_t>((files_.now().time_since_epoch() + calendar_offset_).count());
}
std::string SimMachine::process_id() { return process_id_; }
void SimMachine::say(std::string_view text) {
  if (said_) said_(text);
}

}  // namespace hyperframes::sim::detail
