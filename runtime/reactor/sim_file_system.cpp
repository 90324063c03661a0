#include <hyperframes/runtime/reactor/sim_file_system.hpp>
#include <utility>

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <set>

namespace hyperframes::detail {

// ---- Contents

std::size_t SimInode::read(std::uint64_t offset, std::span<std::byte> into) const noexcept {
  if (offset >= bytes_.size()) return 0;
  const std::size_t count = std::min<std::uint64_t>(into.size(), bytes_.size() - offset);
  std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), count, into.begin());
  return count;
}

SimInode::Bytes SimInode::sector(std::uint64_t index) const {
  const std::size_t begin = std::min<std::size_t>(index * sector_bytes, bytes_.size());
  const std::size_t end = std::min(begin + sector_bytes, bytes_.size());
  return Bytes(bytes_.begin() + static_cast<std::ptrdiff_t>(begin),
               bytes_.begin() + static_cast<std::ptrdiff_t>(end));
}

// Remembers the sectors [first, last] as they are now, unless this generation has them already.
void SimInode::touch(std::uint64_t first, std::uint64_t last) {
  auto& sectors = generations_.back().sectors;
  for (std::uint64_t index = first; index <= last; ++index) {
    auto at = sectors.lower_bound(index);
    if (at == sectors.end() || at->first != index)
      at = sectors.emplace_hint(at, index, Undo{sector(index), 0});
    at->second.last_write = write_count_;
  }
}

void SimInode::set_size(std::uint64_t size) {
  generations_.back().resizes.push_back({write_count_, bytes_.size()});
  used_ += size - bytes_.size();
  bytes_.resize(size);
}

void SimInode::write(std::uint64_t offset, std::span<const std::byte> from) {
  if (from.empty()) return;
  ++write_count_;
  const std::uint64_t end = offset + from.size();
  // A gap before `offset` becomes zeros, which are written like anything else.
  touch(std::min<std::uint64_t>(offset, bytes_.size()) / sector_bytes, (end - 1) / sector_bytes);
  if (end > bytes_.size()) set_size(end);
  std::ranges::copy(from, bytes_.begin() + static_cast<std::ptrdiff_t>(offset));
}

void SimInode::resize(std::uint64_t size) {
  if (size == bytes_.size()) return;
  ++write_count_;
  const std::uint64_t low = std::min<std::uint64_t>(size, bytes_.size());
  const std::uint64_t high = std::max<std::uint64_t>(size, bytes_.size());
  touch(low / sector_bytes, (high - 1) / sector_bytes);
  set_size(size);
}

std::uint64_t SimInode::begin_sync() {
  if (folder) return ++ticket_count_;
  generations_.back().ticket = ++ticket_count_;
  generations_.emplace_back();
  return ticket_count_;
}

void SimInode::end_sync(std::uint64_t ticket, bool failed) {
  if (folder) {
    while (!failed && !name_changes_.empty() && name_changes_.front().first < ticket) {
      for (auto& change : name_changes_.front().second) {
        if (change.target) {
          durable_names_[change.name] = std::move(change.target);
        } else {
          durable_names_.erase(change.name);
        }
      }
      name_changes_.pop_front();
    }
    return;
  }
  while (generations_.size() > 1 && generations_.front().ticket <= ticket) {
    for (auto& [index, undo] : generations_.front().sectors) {
      if (failed) {
        forgotten_.emplace(index, std::move(undo.before));
      } else {
        forgotten_.erase(index);
      }
    }
    generations_.pop_front();
  }
}

// What a sector holds on the disk: one of the versions that it had since it was last durable.
SimInode::Bytes SimInode::surviving_sector(std::uint64_t index, Fate fate, std::uint64_t cut,
                                           SimRandom& random) const {
  std::vector<const Undo*> changes;
  for (const auto& generation : generations_)
    if (auto at = generation.sectors.find(index); at != generation.sectors.end())
      changes.push_back(&at->second);
  std::size_t applied = 0;  // of the changes
  switch (fate) {
    case Fate::lost: break;
    case Fate::kept: applied = changes.size(); break;
    case Fate::scattered: applied = random.below(changes.size() + 1); break;
    case Fate::prefix:
      while (applied < changes.size() && changes[applied]->last_write <= cut) ++applied;
      // The write in which the power went is torn between its sectors.
      if (applied < changes.size() && changes[applied]->last_write == cut + 1)
        applied += random.below(2);
      break;
  }
  return applied == changes.size() ? sector(index) : changes[applied]->before;
}

std::uint64_t SimInode::surviving_size(Fate fate, std::uint64_t cut, SimRandom& random) const {
  std::vector<Resize> resizes;
  for (const auto& generation : generations_)
    resizes.insert(resizes.end(), generation.resizes.begin(), generation.resizes.end());
  std::size_t applied = 0;
  switch (fate) {
    case Fate::lost: break;
    case Fate::kept: applied = resizes.size(); break;
    case Fate::scattered: applied = random.below(resizes.size() + 1); break;
    case Fate::prefix:
      while (applied < resizes.size() && resizes[applied].write <= cut) ++applied;
      break;
  }
  const std::uint64_t size =
      applied == resizes.size() ? bytes_.size() : resizes[applied].size_before;
  if (applied == resizes.size() || fate == Fate::lost) return size;
  // The change of size after it may have been under way, sector by sector.
  const std::uint64_t next =
      applied + 1 == resizes.size() ? bytes_.size() : resizes[applied + 1].size_before;
  if (next <= size || random.below(2) == 0) return size;
  return size + random.below((next - size) / sector_bytes + 1) * sector_bytes;
}

void SimInode::lose_contents(SimRandom& random) {
  std::uint64_t first_write = write_count_;
  std::set<std::uint64_t> dirty;
  bool changed = !forgotten_.empty();
  for (const auto& generation : generations_) {
    changed |= !generation.empty();
    for (const auto& [index, undo] : generation.sectors) {
      dirty.insert(index);
      first_write = std::min(first_write, undo.last_write - 1);
    }
  }
  if (!changed) return;
  static constexpr Fate fates[] = {Fate::lost,   Fate::kept,   Fate::scattered,
                                   Fate::prefix, Fate::prefix, Fate::prefix};
  const Fate fate = fates[random.below(std::size(fates))];
  const std::uint64_t cut = random.between(first_write, write_count_);
  const std::uint64_t size = surviving_size(fate, cut, random);
  std::map<std::uint64_t, Bytes> survived;
  for (const std::uint64_t index : dirty)
    survived[index] = surviving_sector(index, fate, cut, random);
  for (auto& [index, before] : forgotten_)
    if (!dirty.contains(index) && random.below(2)) survived[index] = before;

  Bytes result = bytes_;
  result.resize(size);
  for (const auto& [index, bytes] : survived) {
    const std::uint64_t begin = index * sector_bytes;
    if (begin >= size) continue;
    const std::size_t room = std::min<std::uint64_t>(sector_bytes, size - begin);
    const auto at = result.begin() + static_cast<std::ptrdiff_t>(begin);
    std::fill_n(at, room, std::byte{0});
    std::copy_n(bytes.begin(), std::min(room, bytes.size()), at);
  }
  used_ += result.size() - bytes_.size();
  bytes_ = std::move(result);
  generations_.assign(1, {});
  forgotten_.clear();
}

// ---- Names

SimInode* SimInode::find(const std::string& name) const noexcept {
  const auto at = names_.find(name);
  return at == names_.end() ? nullptr : at->second.get();
}

void SimInode::change(std::vector<NameChange> changes) {
  for (const auto& change : changes) {
    if (change.target) {
      names_[change.name] = change.target;
    } else {
      names_.erase(change.name);
    }
  }
  name_changes_.emplace_back(ticket_count_, std::move(changes));
}

void SimInode::lose_names(SimRandom& random) {
  const std::uint64_t fate = random.below(4);
  const std::uint64_t kept = random.below(name_changes_.size() + 1);
  std::uint64_t number = 0;
  for (auto& [ticket, changes] : name_changes_) {
    const bool keep = fate == 0   ? false
                      : fate == 1 ? true
                      : fate == 2 ? number < kept
                                  : random.below(2) == 0;
    ++number;
    if (!keep) continue;
    for (auto& change : changes) {
      if (change.target) {
        durable_names_[change.name] = change.target;
      } else {
        durable_names_.erase(change.name);
      }
    }
  }
  name_changes_.clear();
  names_ = durable_names_;
}

void SimInode::lose_power(SimRandom& random, std::uint64_t stamp) {
  if (std::exchange(power_stamp_, stamp) == stamp) return;  // it has two names
  if (!folder) return lose_contents(random);
  lose_names(random);
  for (const auto& [name, inode] : names_) inode->lose_power(random, stamp);
}

void SimInode::make_durable() {
  if (!folder) {
    generations_.assign(1, {});
    forgotten_.clear();
    return;
  }
  name_changes_.clear();
  durable_names_ = names_;
  for (const auto& [name, inode] : names_) inode->make_durable();
}

// ---- Paths

SimFileSystem::SimFileSystem() : root_(std::make_shared<SimInode>(true, 0, used_)) {}

// Relative paths start at the root: a simulated process works there.
std::vector<std::string> SimFileSystem::split(std::string_view path) {
  std::vector<std::string> parts;
  while (!path.empty()) {
    const auto slash = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, slash);
    path.remove_prefix(std::min(slash + 1, path.size()));
    if (part == "..") {
      if (!parts.empty()) parts.pop_back();
    } else if (!part.empty() && part != ".") {
      parts.emplace_back(part);
    }
  }
  return parts;
}

SimFileSystem::Place SimFileSystem::locate(std::string_view path) const {
  Place place{0, root_, {}};
  if (path.empty()) return {-ENOENT, nullptr, {}};
  auto parts = split(path);
  if (parts.empty()) return place;
  place.name = std::move(parts.back());
  parts.pop_back();
  if (place.name.size() > 255) return {-ENAMETOOLONG, nullptr, {}};
  for (const auto& part : parts) {
    const auto at = place.folder->names().find(part);
    if (at == place.folder->names().end()) return {-ENOENT, nullptr, {}};
    if (!at->second->folder) return {-ENOTDIR, nullptr, {}};
    place.folder = at->second;
  }
  return place;
}

SimFileSystem::Opened SimFileSystem::find(std::string_view path) const {
  const Place place = locate(path);
  if (place.result < 0) return {place.result, nullptr};
  if (place.name.empty()) return {0, root_};
  const auto at = place.folder->names().find(place.name);
  if (at == place.folder->names().end()) return {-ENOENT, nullptr};
  return {0, at->second};
}

SimFileSystem::Opened SimFileSystem::open(std::string_view path, int flags) {
  Opened found = find(path);
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  if (found.result == 0) {
    if ((flags & O_CREAT) && (flags & O_EXCL)) return {-EEXIST, nullptr};
    if (found.inode->folder && (writes || (flags & O_CREAT))) return {-EISDIR, nullptr};
    if (!found.inode->folder && (flags & O_DIRECTORY)) return {-ENOTDIR, nullptr};
    if ((flags & O_TRUNC) && writes) found.inode->resize(0);
    return found;
  }
  if (found.result != -ENOENT || !(flags & O_CREAT)) return found;
  const Place place = locate(path);
  if (place.result < 0) return {place.result, nullptr};
  found.inode = std::make_shared<SimInode>(false, ++inode_count_, used_);
  found.result = 0;
  place.folder->change({{place.name, found.inode}});
  return found;
}

std::int64_t SimFileSystem::write(SimInode& file, std::uint64_t offset,
                                  std::span<const std::byte> from) {
  constexpr std::uint64_t largest_file = std::uint64_t{1} << 36;
  if (offset > largest_file || from.size() > largest_file - offset) return -EFBIG;
  const std::uint64_t end = offset + from.size();
  if (end > file.size()) {
    const std::uint64_t room = capacity > used_ ? capacity - used_ : 0;
    const std::uint64_t limit = file.size() + room;
    if (limit <= offset && !from.empty()) return -ENOSPC;
    if (end > limit) from = from.first(limit - offset);
  }
  file.write(offset, from);
  return static_cast<std::int64_t>(from.size());
}

std::int64_t SimFileSystem::truncate(SimInode& file, std::uint64_t size) {
  if (file.folder) return -EISDIR;
  if (size > file.size() && size - file.size() > (capacity > used_ ? capacity - used_ : 0))
    return -ENOSPC;
  file.resize(size);
  return 0;
}

std::int64_t SimFileSystem::rename(std::string_view from, std::string_view to) {
  const Place source = locate(from), target = locate(to);
  if (source.result < 0) return source.result;
  if (target.result < 0) return target.result;
  if (source.name.empty() || target.name.empty()) return -EBUSY;
  const auto at = source.folder->names().find(source.name);
  if (at == source.folder->names().end()) return -ENOENT;
  const std::shared_ptr<SimInode> moved = at->second;
  const auto from_parts = split(from), to_parts = split(to);
  if (moved->folder && to_parts.size() > from_parts.size() &&
      std::ranges::equal(from_parts, std::span(to_parts).first(from_parts.size())))
    return -EINVAL;  // into itself
  if (SimInode* replaced = target.folder->find(target.name)) {
    if (replaced == moved.get()) return 0;
    if (moved->folder && !replaced->folder) return -ENOTDIR;
    if (!moved->folder && replaced->folder) return -EISDIR;
    if (replaced->folder && !replaced->names().empty()) return -ENOTEMPTY;
  }
  if (source.folder == target.folder) {
    source.folder->change({{source.name, nullptr}, {target.name, moved}});
  } else {
    target.folder->change({{target.name, moved}});
    source.folder->change({{source.name, nullptr}});
  }
  return 0;
}

std::int64_t SimFileSystem::remove(std::string_view path) {
  const Place place = locate(path);
  if (place.result < 0) return place.result;
  if (place.name.empty()) return -EBUSY;
  SimInode* const removed = place.folder->find(place.name);
  if (!removed) return -ENOENT;
  if (removed->folder && !removed->names().empty()) return -ENOTEMPTY;
  place.folder->change({{place.name, nullptr}});
  return 0;
}

std::int64_t SimFileSystem::make_directory(std::string_view path) {
  if (path.empty()) return -ENOENT;
  SimInode* folder = root_.get();
  for (const auto& part : split(path)) {
    SimInode* next = folder->find(part);
    if (!next) {
      auto made = std::make_shared<SimInode>(true, ++inode_count_, used_);
      next = made.get();
      folder->change({{part, std::move(made)}});
    }
    if (!next->folder) return -ENOTDIR;
    folder = next;
  }
  return 0;
}

std::int64_t SimFileSystem::list(std::string_view path, std::vector<std::string>& names) const {
  const Opened found = find(path);
  if (found.result < 0) return found.result;
  if (!found.inode->folder) return -ENOTDIR;
  for (const auto& [name, inode] : found.inode->names()) names.push_back(name);
  return 0;
}

}  // namespace hyperframes::detail
