#include <fcntl.h>
#include <sqlite3.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <hyperframes/apps/sim/detail/sqlite_files.hpp>
#include <hyperframes/runtime/reactor/sim_random.hpp>
#include <new>
#include <span>

namespace hyperframes::sim::detail {

struct SqliteFiles::Vfs {
  sqlite3_vfs vfs{};
  std::string name;
  SimBlockingFiles* files = nullptr;
  SimRandom random{0};
  std::uint64_t temporary = 0;
};

namespace {

/// What SQLite makes room for: made and destroyed in place.
struct OpenFile : sqlite3_file {
  SimBlockingFiles* files = nullptr;
  std::int64_t number = -1;
  std::string path;
  bool remove_on_close = false;
  bool sync_folder = false;  // its name is new, and not durable yet
};

OpenFile& of(sqlite3_file* file) { return *static_cast<OpenFile*>(file); }

template <class Vfs>
Vfs& of(sqlite3_vfs* vfs) {
  return *static_cast<Vfs*>(vfs->pAppData);
}

int sync_folder_of(SimBlockingFiles& files, const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path().string();
  const std::int64_t number = files.open(folder.empty() ? "/" : folder, O_RDONLY | O_DIRECTORY);
  if (number < 0) return SQLITE_OK;  // as there: some file systems have no way to do it
  const std::int64_t result = files.sync(number);
  files.close(number);
  return result < 0 ? SQLITE_IOERR_DIR_FSYNC : SQLITE_OK;
}

int close_file(sqlite3_file* file) {
  OpenFile& open = of(file);
  if (open.number >= 0) open.files->close(open.number);
  if (open.remove_on_close) open.files->remove(open.path);
  open.~OpenFile();
  return SQLITE_OK;
}

int read_file(sqlite3_file* file, void* into, int amount, sqlite3_int64 offset) {
  OpenFile& open = of(file);
  const std::span bytes(static_cast<std::byte*>(into), static_cast<std::size_t>(amount));
  const std::int64_t got = open.files->read(open.number, static_cast<std::uint64_t>(offset), bytes);
  if (got < 0) return SQLITE_IOERR_READ;
  if (got == amount) return SQLITE_OK;
  std::memset(bytes.data() + got, 0, bytes.size() - static_cast<std::size_t>(got));
  return SQLITE_IOERR_SHORT_READ;
}

int write_file(sqlite3_file* file, const void* from, int amount, sqlite3_int64 offset) {
  OpenFile& open = of(file);
  const std::span bytes(static_cast<const std::byte*>(from), static_cast<std::size_t>(amount));
  const std::int64_t done =
      open.files->write(open.number, static_cast<std::uint64_t>(offset), bytes);
  if (done == amount) return SQLITE_OK;
  return done >= 0 || done == -ENOSPC ? SQLITE_FULL : SQLITE_IOERR_WRITE;
}

int truncate_file(sqlite3_file* file, sqlite3_int64 size) {
  OpenFile& open = of(file);
  return open.files->truncate(open.number, static_cast<std::uint64_t>(size)) < 0
             ? SQLITE_IOERR_TRUNCATE
             : SQLITE_OK;
}

int sync_file(sqlite3_file* file, int) {
  OpenFile& open = of(file);
  if (open.files->sync(open.number) < 0) return SQLITE_IOERR_FSYNC;
  if (!open.sync_folder) return SQLITE_OK;
  open.sync_folder = false;
  return sync_folder_of(*open.files, open.path);
}

int size_of_file(sqlite3_file* file, sqlite3_int64* size) {
  OpenFile& open = of(file);
  const std::int64_t found = open.files->size(open.number);
  if (found < 0) return SQLITE_IOERR_FSTAT;
  *size = found;
  return SQLITE_OK;
}

int lock_file(sqlite3_file*, int) { return SQLITE_OK; }
int is_reserved(sqlite3_file*, int* result) {
  *result = 0;
  return SQLITE_OK;
}
int control_file(sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; }
int sector_size(sqlite3_file*) { return 4096; }
int characteristics(sqlite3_file*) { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; }

const sqlite3_io_methods methods = {
    1,         close_file, read_file,   write_file,   truncate_file, sync_file,       size_of_file,
    lock_file, lock_file,  is_reserved, control_file, sector_size,   characteristics, nullptr,
    nullptr,   nullptr,    nullptr,     nullptr,      nullptr};

template <class Vfs>
int open_file(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  Vfs& self = of<Vfs>(vfs);
  OpenFile& open = *new (file) OpenFile;
  open.pMethods = nullptr;
  open.files = self.files;
  open.path = name != nullptr ? name : "/sqlite-temporary-" + std::to_string(++self.temporary);
  open.remove_on_close = (flags & SQLITE_OPEN_DELETEONCLOSE) != 0;
  const bool was_there = self.files->exists(open.path);
  int how = (flags & SQLITE_OPEN_READONLY) != 0 ? O_RDONLY : O_RDWR;
  if ((flags & SQLITE_OPEN_CREATE) != 0) how |= O_CREAT;
  if ((flags & SQLITE_OPEN_EXCLUSIVE) != 0) how |= O_EXCL;
  open.number = self.files->open(open.path, how);
  if (open.number < 0) {
    open.~OpenFile();
    file->pMethods = nullptr;
    return SQLITE_CANTOPEN;
  }
  constexpr int journals = SQLITE_OPEN_SUPER_JOURNAL | SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL;
  open.sync_folder = !was_there && (flags & journals) != 0;
  open.pMethods = &methods;
  if (out_flags != nullptr) *out_flags = flags;
  return SQLITE_OK;
}

template <class Vfs>
int delete_file(sqlite3_vfs* vfs, const char* name, int sync_folder) {
  SimBlockingFiles& files = *of<Vfs>(vfs).files;
  const std::int64_t result = files.remove(name);
  if (result == -ENOENT) return SQLITE_IOERR_DELETE_NOENT;
  if (result < 0) return SQLITE_IOERR_DELETE;
  return (sync_folder & 1) != 0 ? sync_folder_of(files, name) : SQLITE_OK;
}

template <class Vfs>
int access_file(sqlite3_vfs* vfs, const char* name, int, int* result) {
  *result = of<Vfs>(vfs).files->exists(name);
  return SQLITE_OK;
}

int full_path(sqlite3_vfs*, const char* name, int size, char* out) {
  if (std::strlen(name) >= static_cast<std::size_t>(size)) return SQLITE_CANTOPEN;
  std::strcpy(out, name);
  return SQLITE_OK;
}

template <class Vfs>
int random_bytes(sqlite3_vfs* vfs, int size, char* out) {
  for (int i = 0; i < size; ++i) out[i] = static_cast<char>(of<Vfs>(vfs).random.next());
  return size;
}

int pass_time(sqlite3_vfs*, int microseconds) { return microseconds; }

template <class Vfs>
int current_time(sqlite3_vfs* vfs, double* days) {
  constexpr double begin = 2'460'000.5;  // a Julian day of no account
  *days =
      begin +
      std::chrono::duration<double>(of<Vfs>(vfs).files->now().time_since_epoch()).count() / 86'400;
  return SQLITE_OK;
}

int last_error(sqlite3_vfs*, int, char*) { return 0; }

}  // namespace

SqliteFiles::SqliteFiles(std::string name, SimBlockingFiles& files, std::uint64_t seed)
    : vfs_(std::make_unique<Vfs>()) {
  vfs_->name = "hyperframes-sim-" + std::move(name);
  vfs_->files = &files;
  vfs_->random = SimRandom(seed);
  sqlite3_vfs& vfs = vfs_->vfs;
  vfs.iVersion = 1;
  vfs.szOsFile = static_cast<int>(sizeof(OpenFile));
  vfs.mxPathname = 512;
  vfs.zName = vfs_->name.c_str();
  vfs.pAppData = vfs_.get();
  vfs.xOpen = &open_file<Vfs>;
  vfs.xDelete = &delete_file<Vfs>;
  vfs.xAccess = &access_file<Vfs>;
  vfs.xFullPathname = &full_path;
  vfs.xRandomness = &random_bytes<Vfs>;
  vfs.xSleep = &pass_time;
  vfs.xCurrentTime = &current_time<Vfs>;
  vfs.xGetLastError = &last_error;
  sqlite3_vfs_register(&vfs, 0);
}

SqliteFiles::~SqliteFiles() { sqlite3_vfs_unregister(&vfs_->vfs); }

const char* SqliteFiles::name() const noexcept { return vfs_->name.c_str(); }

void SqliteFiles::seed_chance(std::uint64_t seed) {
  // 0 would mean the system's.
  sqlite3_test_control(SQLITE_TESTCTRL_PRNG_SEED, static_cast<int>(seed | 1),
                       static_cast<sqlite3*>(nullptr));
}

}  // namespace hyperframes::sim::detail
