#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <hyperframes/apps/ps/bytes.hpp>
#include <hyperframes/apps/ps/ledger.hpp>
#include <hyperframes/runtime/crc32c.hpp>
#include <hyperframes/runtime/offload.hpp>
#include <optional>

namespace hyperframes::ps {
namespace {

constexpr std::uint64_t ledger_magic = 0x524547444c504648;  // "HFPLDGER"
constexpr std::uint32_t ledger_format = 3;
constexpr std::uint32_t older_format = 2;  // its records say that all before them had been synced
constexpr std::size_t format_bytes = 16;   // what every format begins with
// A record's last number is its state, and above that how many before it may not have been synced
// when it was written: so many, or more.
constexpr unsigned state_bits = 8;
constexpr std::uint64_t most_unsynced = (1u << 24) - 1;

void append_header(Bytes& out, std::uint64_t cluster) {
  detail::put<std::uint64_t>(out, ledger_magic);
  detail::put<std::uint32_t>(out, ledger_format);
  detail::put<std::uint32_t>(out, crc32c(std::span(out).last(12)));
  detail::put<std::uint64_t>(out, cluster);
  detail::put<std::uint32_t>(out, crc32c(std::span(out).last(8)));
}

void append_record(Bytes& out, const LedgerEntry& entry, std::uint64_t unsynced) {
  const std::size_t start = out.size();
  for (const auto value :
       {entry.job, entry.epoch, entry.unit, entry.batch, entry.table, entry.shard})
    detail::put<std::uint32_t>(out, value);
  detail::put<std::uint64_t>(out, entry.counter);
  const auto above = static_cast<std::uint32_t>(std::min(unsynced, most_unsynced)) << state_bits;
  detail::put<std::uint32_t>(out, static_cast<std::uint32_t>(entry.state) | above);
  detail::put<std::uint32_t>(out, crc32c(std::span(out).subspan(start)));
}

struct Record {
  LedgerEntry entry;
  std::uint64_t unsynced = 0;
  /// Whether it says, as the record of that index, that the other one had been synced.
  bool proves(std::size_t index, std::size_t other) const noexcept {
    return unsynced < most_unsynced && other + unsynced < index;
  }
};

/// Empty for what is no whole record.
std::optional<Record> parse_record(std::span<const std::byte> bytes) {
  detail::ByteReader reader(bytes, "read a ledger's record");
  Record record;
  LedgerEntry& entry = record.entry;
  for (auto* value :
       {&entry.job, &entry.epoch, &entry.unit, &entry.batch, &entry.table, &entry.shard})
    *value = reader.get<std::uint32_t>();
  entry.counter = reader.get<std::uint64_t>();
  const auto last = reader.get<std::uint32_t>();
  const auto state = last & ((1u << state_bits) - 1);
  entry.state = static_cast<LedgerEntry::State>(state);
  record.unsynced = last >> state_bits;
  const bool whole = reader.get<std::uint32_t>() == crc32c(bytes.first(Ledger::record_bytes - 4));
  if (!whole || state < 1 || state > 2) return std::nullopt;
  return record;
}

/// Whether a crash may have left no more than this of a header: its beginning, or a file that had
/// grown before its bytes were there.
bool is_cut_short(std::span<const std::byte> bytes) {
  if (bytes.size() > Ledger::header_bytes) return false;
  if (std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; })) return true;
  Bytes whole;
  append_header(whole, 0);
  const std::size_t known = std::min(bytes.size(), format_bytes);
  return bytes.size() < whole.size() &&
         std::ranges::equal(bytes.first(known), std::span(whole).first(known));
}

/// Returns the cluster.
std::uint64_t read_header(std::span<const std::byte> bytes, const std::string& path) {
  const auto tried = fmt::format("read the ledger '{}'", path);
  const Error foreign(Errc::corrupt, tried, "it does not begin as a ledger does",
                      "name a file that a worker wrote with --ledger, or a new one");
  if (bytes.size() < format_bytes) throw foreign;
  detail::ByteReader reader(bytes, tried);
  const auto magic = reader.get<std::uint64_t>();
  const auto format = reader.get<std::uint32_t>();
  const auto sum = reader.get<std::uint32_t>();
  if (magic != ledger_magic || sum != crc32c(bytes.first(12))) throw foreign;
  if (format != ledger_format && format != older_format)
    throw Error(Errc::version_mismatch, tried,
                fmt::format("its format is {}, and this program knows {}", format, ledger_format),
                "use the program that wrote it, or begin a new one");
  if (bytes.size() < Ledger::header_bytes) throw foreign;
  const auto cluster = reader.get<std::uint64_t>();
  if (reader.get<std::uint32_t>() != crc32c(bytes.subspan(format_bytes, 8)) || cluster == 0)
    throw Error(Errc::corrupt, tried, "what its header says of the cluster is damaged",
                "restore it from a copy");
  return cluster;
}

}  // namespace

/// Power loss leaves what was synced, and of the rest any part: a page can be on the disk before
/// the one in front of it. So all from the first damaged record on is cut off, unless a whole one
/// behind it says that it had been synced: then the file was hurt later.
LedgerContents parse_ledger(std::span<const std::byte> bytes, const std::string& path) {
  LedgerContents contents;
  if (is_cut_short(bytes)) return contents;
  contents.cluster = read_header(bytes.first(std::min(bytes.size(), Ledger::header_bytes)), path);
  bytes = bytes.subspan(Ledger::header_bytes);
  auto& entries = contents.entries;
  entries.reserve(bytes.size() / Ledger::record_bytes);
  std::optional<std::size_t> damaged;
  for (std::size_t i = 0; bytes.size() >= Ledger::record_bytes; ++i) {
    const auto record = parse_record(bytes.first(Ledger::record_bytes));
    bytes = bytes.subspan(Ledger::record_bytes);
    if (!damaged && record) entries.push_back(record->entry);
    if (!damaged && !record) damaged = i;
    if (damaged && record && record->proves(i, *damaged))
      throw Error(Errc::corrupt, fmt::format("read the ledger '{}'", path),
                  fmt::format("record {} is damaged, and record {} behind it says that it had been "
                              "synced",
                              *damaged, i),
                  "restore it from a copy");
  }
  return contents;
}

namespace {

Bytes read_bytes(Machine& machine, const std::string& path) {
  std::string text;
  if (const auto result = read_all(machine, path, text); result < 0)
    throw Error(std::error_code(static_cast<int>(-result), std::generic_category()),
                fmt::format("read the ledger '{}'", path), "it can't be opened",
                "name a file that a worker wrote with --ledger");
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return Bytes(bytes.begin(), bytes.end());
}

}  // namespace

LedgerContents read_ledger(const std::string& path) {
  LedgerContents contents = parse_ledger(read_bytes(Machine::real(), path), path);
  if (contents.cluster == 0)
    throw Error(Errc::invalid_argument, fmt::format("read the ledger '{}'", path),
                "it is empty: no worker that wrote it has joined a cluster",
                "leave it out, or name the file that was given with --ledger");
  return contents;
}

/// An advisory lock on the file, for as long as this lives.
class Ledger::Lock {
 public:
  Lock(Machine& machine, const std::string& path) : machine_(machine) {
    const auto tried = fmt::format("open the ledger '{}'", path);
    file_ = machine.open(path, O_RDWR | O_CREAT);
    if (file_ < 0)
      throw Error::system(static_cast<int>(-file_), tried, {},
                          "choose a file in a folder that this user may write");
    const auto locked = machine.try_lock(file_);
    if (locked >= 0) return;
    machine.close(file_);
    if (locked != -EWOULDBLOCK) throw Error::system(static_cast<int>(-locked), tried);
    throw Error(Errc::rejected, tried, "another process writes it",
                "give each worker a ledger of its own");
  }
  Lock(const Lock&) = delete;
  ~Lock() { machine_.close(file_); }

 private:
  Machine& machine_;
  std::int64_t file_ = -1;
};

Ledger::Ledger(std::string path, File file, std::unique_ptr<Lock> lock)
    : path_(std::move(path)), lock_(std::move(lock)), file_(std::move(file)) {}
Ledger::~Ledger() = default;

Task<std::unique_ptr<Ledger>> Ledger::open(std::string path, Machine& machine) {
  struct Found {
    std::unique_ptr<Lock> lock;
    LedgerContents contents;
    Bytes bytes;
  };
  Found found = co_await offload([path, &machine] {
    Found result;
    result.lock = std::make_unique<Lock>(machine, path);
    result.bytes = read_bytes(machine, path);
    result.contents = parse_ledger(result.bytes, path);
    return result;
  });
  File file = co_await File::open(path, File::Mode::create);
  std::unique_ptr<Ledger> ledger(
      new Ledger(std::move(path), std::move(file), std::move(found.lock)));
  ledger->cluster_ = found.contents.cluster;
  ledger->was_empty_ = found.bytes.empty();
  ledger->end_ = header_bytes + found.contents.entries.size() * record_bytes;
  if (ledger->cluster_ != 0) ledger->found_ = std::move(found.bytes);
  ledger->found_.resize(std::min<std::size_t>(ledger->found_.size(), ledger->end_));
  co_return ledger;
}

Task<void> Ledger::begin(std::uint64_t cluster) {
  if (cluster_ != 0 && cluster_ != cluster)
    throw Error(Errc::rejected, fmt::format("go on with the ledger '{}'", path_),
                fmt::format("it notes pushes to cluster {:016x}, and the coordinator is the one of "
                            "cluster {:016x}",
                            cluster_, cluster),
                "give the worker another --ledger, or the coordinator of that cluster");
  co_await file_.truncate(cluster_ == 0 ? 0 : end_);
  cluster_ = cluster;
  co_await settle();
}

// The header, and all that was found, is written once more: the last process may have ended before
// a sync, or after one that failed, and then the kernel shows, as clean, what the disk has not got.
Task<void> Ledger::settle() {
  Bytes all;
  append_header(all, cluster_);
  if (!found_.empty()) all.insert(all.end(), found_.begin() + header_bytes, found_.end());
  found_ = {};
  Segments data(Buffer::copy_of(std::span<const std::byte>(all)));
  co_await file_.write_at(0, std::move(data));
  co_await file_.sync();
  synced_end_ = end_;
  auto folder = std::filesystem::absolute(path_).parent_path().string();
  co_await sync_directory(std::move(folder));
}

Task<void> Ledger::add(std::vector<LedgerEntry> entries) {
  const auto lock = co_await writing_.lock();
  Bytes records;
  records.reserve(entries.size() * record_bytes);
  for (std::uint64_t unsynced = (end_ - synced_end_) / record_bytes; const auto& entry : entries)
    append_record(records, entry, unsynced++);
  Segments data(Buffer::copy_of(std::span<const std::byte>(records)));
  co_await file_.write_at(end_, std::move(data));
  end_ += records.size();
}

Task<void> Ledger::sync() {
  const std::uint64_t wanted = end_;
  const auto lock = co_await syncing_.lock();
  if (synced_end_ >= wanted) co_return;  // by the call before this one
  if (sync_failed_)
    throw Error::system(EIO, fmt::format("sync the ledger '{}'", path_),
                        "an earlier sync failed, and after that another one proves nothing",
                        "check the disk, and start the worker again");
  const std::uint64_t covered = end_;
  sync_failed_ = true;
  co_await file_.sync();
  sync_failed_ = false;
  synced_end_ = covered;
}

Task<void> Ledger::close() {
  co_await sync();
  co_await file_.close();
  if (cluster_ == 0 && was_empty_) co_await remove_file(path_);
}

void LedgerSummary::add(std::span<const LedgerEntry> entries) {
  for (const auto& entry : entries) {
    const Key key{entry.table, entry.counter};
    const auto [found, inserted] = pushes_.try_emplace(key, entry);
    if (inserted) continue;
    LedgerEntry& known = found->second;
    LedgerEntry same = entry;
    same.state = known.state;
    if (same != known)
      throw Error(Errc::corrupt, "put ledgers together",
                  fmt::format("counter {:x} of table {} stands for two different pushes",
                              entry.counter, entry.table),
                  "give ledgers of one run only");
    known.state = std::max(known.state, entry.state);
  }
}

void LedgerSummary::add(const LedgerContents& ledger, const std::string& path) {
  if (cluster_ != 0 && cluster_ != ledger.cluster)
    throw Error(Errc::invalid_argument, "put ledgers together",
                fmt::format("'{}' is of cluster {:016x}, and '{}' of cluster {:016x}", cluster_of_,
                            cluster_, path, ledger.cluster),
                "give those of one cluster only");
  cluster_ = ledger.cluster;
  cluster_of_ = path;
  add(ledger.entries);
}

void LedgerSummary::keep_only(TableId table) {
  std::erase_if(pushes_, [table](const auto& push) { return push.first.table != table; });
}

}  // namespace hyperframes::ps
