// The simulator's inside: files and folders in memory, and what a loss of power leaves of them.
//
//   auto file = files.open("/wal.0", O_RDWR | O_CREAT).inode;
//   files.write(*file, 0, bytes);
//   files.lose_power(random);      // what was not synced: gone, kept, or torn, as the seed says
//
// Contents are durable after a sync of the file, names after a sync of their folder, and neither
// implies the other. Between syncs a file keeps, for each sector written, what it held before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <hyperframes/runtime/reactor/sim_random.hpp>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hyperframes::detail {

class SimInode {
 public:
  static constexpr std::size_t sector_bytes = 512;
  using Bytes = std::vector<std::byte>;

  SimInode(bool folder, std::uint64_t number, std::uint64_t& used) noexcept
      : folder(folder), number(number), used_(used) {}
  ~SimInode() { used_ -= bytes_.size(); }
  SimInode(const SimInode&) = delete;

  const bool folder;
  const std::uint64_t number;

  // ---- A file
  std::uint64_t size() const noexcept { return bytes_.size(); }
  std::size_t read(std::uint64_t offset, std::span<std::byte> into) const noexcept;
  void write(std::uint64_t offset, std::span<const std::byte> from);
  void resize(std::uint64_t size);
  /// Everything written so far will be durable when `end_sync` of the returned ticket has come.
  std::uint64_t begin_sync();
  /// With `failed`, what the ticket covers counts as clean although it never reached the disk:
  /// that is what a failed fsync leaves behind on Linux.
  void end_sync(std::uint64_t ticket, bool failed);

  // ---- A folder
  using Names = std::map<std::string, std::shared_ptr<SimInode>>;
  struct NameChange {
    std::string name;
    std::shared_ptr<SimInode> target;  // null: taken away
  };
  const Names& names() const noexcept { return names_; }
  SimInode* find(const std::string& name) const noexcept;
  /// One atomic change of a few names.
  void change(std::vector<NameChange> changes);

  /// Replaces what programs saw by what the disk holds, here and in all folders below.
  void lose_power(SimRandom& random, std::uint64_t stamp);
  /// Makes all durable, here and below.
  void make_durable();

 private:
  struct Undo {
    Bytes before;
    std::uint64_t last_write;
  };
  struct Resize {
    std::uint64_t write, size_before;
  };
  /// What happened to a file between two syncs.
  struct Generation {
    std::uint64_t ticket = 0;
    std::map<std::uint64_t, Undo> sectors;
    std::vector<Resize> resizes;
    bool empty() const noexcept { return sectors.empty() && resizes.empty(); }
  };
  enum class Fate : std::uint8_t { lost, kept, scattered, prefix };

  Bytes sector(std::uint64_t index) const;
  void touch(std::uint64_t first, std::uint64_t last);
  void set_size(std::uint64_t size);
  void lose_contents(SimRandom& random);
  void lose_names(SimRandom& random);
  Bytes surviving_sector(std::uint64_t index, Fate fate, std::uint64_t cut,
                         SimRandom& random) const;
  std::uint64_t surviving_size(Fate fate, std::uint64_t cut, SimRandom& random) const;

  std::uint64_t& used_;
  Bytes bytes_;
  std::uint64_t write_count_ = 0;
  std::uint64_t ticket_count_ = 0;
  std::deque<Generation> generations_{1};     // oldest first; the last one is still open
  std::map<std::uint64_t, Bytes> forgotten_;  // sectors that a failed sync never wrote

  Names names_, durable_names_;
  std::deque<std::pair<std::uint64_t, std::vector<NameChange>>> name_changes_;  // not yet durable
  std::uint64_t power_stamp_ = 0;
};

/// All results are values or negated error numbers.
class SimFileSystem {
 public:
  SimFileSystem();

  struct Opened {
    std::int64_t result = 0;
    std::shared_ptr<SimInode> inode;
  };
  Opened open(std::string_view path, int flags);
  Opened find(std::string_view path) const;
  std::int64_t write(SimInode& file, std::uint64_t offset, std::span<const std::byte> from);
  std::int64_t truncate(SimInode& file, std::uint64_t size);
  std::int64_t rename(std::string_view from, std::string_view to);
  std::int64_t remove(std::string_view path);
  std::int64_t make_directory(std::string_view path);
  std::int64_t list(std::string_view path, std::vector<std::string>& names) const;
  void lose_power(SimRandom& random) { root_->lose_power(random, ++power_losses_); }
  void make_durable() { root_->make_durable(); }

  std::uint64_t capacity = std::uint64_t{1} << 40;
  std::uint64_t used() const noexcept { return used_; }

 private:
  struct Place {
    std::int64_t result = 0;  // of finding the folder
    std::shared_ptr<SimInode> folder;
    std::string name;  // empty: the root itself
  };
  static std::vector<std::string> split(std::string_view path);
  Place locate(std::string_view path) const;

  std::uint64_t used_ = 0;
  std::uint64_t inode_count_ = 0;
  std::uint64_t power_losses_ = 0;
  std::shared_ptr<SimInode> root_;
};

}  // namespace hyperframes::detail
