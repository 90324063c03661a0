#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <hyperframes/apps/ps/detail/folder.hpp>
#include <hyperframes/apps/ps/recovery.hpp>
#include <hyperframes/apps/ps/snapshot_codec.hpp>
#include <hyperframes/apps/ps/table_part.hpp>
#include <hyperframes/runtime/failpoint.hpp>
#include <hyperframes/runtime/file.hpp>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <optional>

namespace hyperframes::ps {
namespace {

constexpr std::size_t piece_bytes = 1u << 20;
constexpr std::string_view snapshot_prefix = "snapshot-", snapshot_suffix = ".snap",
                           unfinished_suffix = ".snap.new", cluster_prefix = "cluster-";

using States = std::map<TableId, std::unique_ptr<TableState>>;

std::string snapshot_name(std::uint64_t start_lsn) {
  return fmt::format("{}{:016x}{}", snapshot_prefix, start_lsn, snapshot_suffix);
}

/// In a shard's snapshot folder: an empty file whose name says which cluster's it is.
std::string mark_name(std::uint64_t cluster) {
  return fmt::format("{}{:016x}", cluster_prefix, cluster);
}

/// Puts what a snapshot holds into states: of all tables, or of one.
class Restorer final : public SnapshotVisitor {
 public:
  Restorer(const ShardContext& context, States& states, std::string file, std::uint64_t start_lsn)
      : context_(context), states_(states), file_(std::move(file)), start_lsn_(start_lsn) {}

  std::uint64_t end_lsn() const noexcept { return end_lsn_; }
  std::vector<TableId> tables;

 private:
  void header(const SnapshotHeader& header) override {
    if (header.shard != context_.options.shard)
      throw Error(
          Errc::corrupt, "read the snapshot '" + file_ + "'",
          fmt::format("it is of parameter shard {}, not {}", header.shard, context_.options.shard),
          "check --checkpoint_dir");
    if (header.token > context_.options.token)
      throw Error(Errc::fenced, "read the snapshot '" + file_ + "'",
                  fmt::format("a newer owner with token {} has written it; ours is {}",
                              header.token, context_.options.token),
                  "stop this process");
    if (header.start_lsn != start_lsn_)
      throw Error(
          Errc::corrupt, "read the snapshot '" + file_ + "'",
          fmt::format("it begins with record {}, which is not in its name", header.start_lsn),
          "give it back the name that it had");
  }
  void table(const TableSpec& spec, std::vector<Slot>) override {
    tables.push_back(spec.id);
    const auto state = states_.find(spec.id);
    if (state == states_.end()) return;
    const std::string differs = spec.differences(state->second->spec());
    if (!differs.empty())
      throw Error(Errc::corrupt, "read the snapshot '" + file_ + "'",
                  "table '" + spec.name + "' has " + differs + " in the coordinator's view",
                  "use the coordinator's folder that belongs to this server's");
  }
  void rows(const SnapshotRows& part) override {
    if (const auto state = states_.find(part.table); state != states_.end())
      state->second->restore(part);
  }
  void end(const SnapshotEnd& end) override { end_lsn_ = end.end_lsn; }

  const ShardContext& context_;
  States& states_;
  std::string file_;
  std::uint64_t start_lsn_, end_lsn_ = 0;
};

/// Two clusters in one folder would take each other's snapshots for their own, and remove them.
void check_marks(const ShardContext& context, std::span<const std::string> names) {
  const std::string own = mark_name(context.cluster);
  for (const auto& name : names)
    if (detail::number_in(name, cluster_prefix, "") && name != own)
      throw Error(Errc::rejected, "use the snapshots in '" + context.options.snapshot_folder + "'",
                  fmt::format("they are of cluster {}, as '{}' there says, and this server's data "
                              "is of cluster {:016x}",
                              name.substr(cluster_prefix.size()), name, context.cluster),
                  "give each cluster a --checkpoint_dir of its own; or empty that folder, if its "
                  "cluster is given up");
}

/// By its first record's number; nothing if there is none.
std::optional<std::uint64_t> newest_snapshot(std::span<const std::string> names) {
  std::optional<std::uint64_t> newest;
  for (const auto& name : names)
    if (const auto start = detail::number_in(name, snapshot_prefix, snapshot_suffix);
        start && name == snapshot_name(*start))
      newest = std::max(newest.value_or(0), *start);
  return newest;
}

/// What a shard's newest snapshot says about the log that belongs to it.
struct Restored {
  std::string path{};             ///< Empty: there is none.
  std::uint64_t start_lsn = 1;    ///< The first record to replay.
  std::uint64_t end_lsn = 0;      ///< The last one that it holds anything of.
  std::vector<TableId> tables{};  ///< Those that it holds.
};

Task<Restored> restore_snapshot(const ShardContext& context, States& states) {
  const auto names = co_await detail::list_if_there(context.options.snapshot_folder);
  check_marks(context, names);
  const auto start = newest_snapshot(names);
  if (!start) co_return Restored{};
  const std::string path = context.options.snapshot_folder + "/" + snapshot_name(*start);
  Restorer restorer(context, states, path, *start);
  SnapshotDecoder decoder(restorer, path);
  File file = co_await File::open(path, File::Mode::read);
  for (std::uint64_t offset = 0;;) {
    Buffer piece = co_await file.read_at(offset, Buffer::heap(piece_bytes));
    if (piece.empty()) break;
    decoder.feed(piece.bytes());
    offset += piece.size();
    co_await yield();
  }
  decoder.finish();
  co_await file.close();
  co_return Restored{path, *start, restorer.end_lsn(), std::move(restorer.tables)};
}

// A snapshot is published when the log is durable up to its last record, and the log keeps its open
// segment, be it empty. One that ends before is another log: its next records would take numbers
// that the snapshot's rows count as contained.
void check_log(const ShardContext& context, const ShardLog& log, const Restored& snapshot) {
  if (log.next_lsn() <= context.options.least_record)
    throw Error(
        Errc::corrupt, fmt::format("recover parameter shard {}", context.options.shard),
        fmt::format("the log in '{}' ends with record {}, and the coordinator knows that it was on "
                    "the disk up to {}: it is an older copy, or was cut shorter",
                    context.options.log_folder, log.next_lsn() - 1, context.options.least_record),
        "restore its newest files; or, to lose what was acknowledged since, start the server once "
        "with --accept_loss");
  if (snapshot.path.empty()) return;
  const std::uint64_t next = log.next_lsn();
  const bool empty = log.stats().segments == 0;
  if (!empty && next > snapshot.end_lsn) return;
  const std::string found =
      empty ? fmt::format("is empty; the snapshot '{}' needs it from record {} on", snapshot.path,
                          snapshot.start_lsn)
            : fmt::format("ends with record {}; the snapshot '{}' holds records up to {}", next - 1,
                          snapshot.path, snapshot.end_lsn);
  throw Error(Errc::corrupt, fmt::format("recover parameter shard {}", context.options.shard),
              fmt::format("the log in '{}' {}", context.options.log_folder, found),
              "restore the log's folder, which belongs to the snapshot, or give the "
              "--checkpoint_dir that belongs to the log");
}

/// Makes the snapshot folder this cluster's, durably, before its first snapshot. Two clusters may
/// come to a new one at once: each leaves its mark and then looks for others, so the later one sees
/// the earlier one's. Neither stays if they see each other.
Task<void> mark_snapshot_folder(const ShardContext& context) {
  const std::string folder = context.options.snapshot_folder;
  co_await make_durable_directory(folder);
  auto names = co_await list_directory(folder);
  check_marks(context, names);
  const std::string own = mark_name(context.cluster);
  const bool is_new = std::ranges::find(names, own) == names.end();
  if (is_new) {
    File mark = co_await File::open(folder + "/" + own, File::Mode::create);
    co_await mark.sync();
    co_await mark.close();
  }
  co_await sync_directory(folder);  // also for a process that ended before it did
  names = co_await list_directory(folder);
  std::exception_ptr refused;
  try {
    check_marks(context, names);
  } catch (const Error&) {
    refused = std::current_exception();
  }
  if (!refused) co_return;
  if (is_new) co_await remove_file(folder + "/" + own);
  std::rethrow_exception(refused);
}

void replay_into(States& states, std::span<const std::byte> record) {
  if (const auto state = states.find(decode_head(record).table); state != states.end())
    state->second->replay(record);
}

[[noreturn]] void unknown_table(const ShardContext& context, TableId table) {
  throw Error(
      Errc::not_found, fmt::format("recover parameter shard {}", context.options.shard),
      fmt::format("its files hold rows of table {}, which the coordinator does not know", table),
      "use the coordinator's folder that belongs to this server's");
}

}  // namespace

std::unique_ptr<TableState> empty_state(const ShardContext& context, const TableSpec& spec) {
  return std::make_unique<TableState>(spec, context.map.slots_of(context.options.shard));
}

Task<void> recover_shard(ShardContext& context, std::span<const TableSpec> specs) {
  States states;
  for (const TableSpec& spec : specs) states.emplace(spec.id, empty_state(context, spec));
  const Restored snapshot = co_await restore_snapshot(context, states);
  for (const TableId table : snapshot.tables)
    if (!states.contains(table)) unknown_table(context, table);
  std::uint64_t replayed = 0;
  auto log = co_await ShardLog::read({.folder = context.options.log_folder,
                                      .shard = context.options.shard,
                                      .token = context.options.token,
                                      .durability = context.options.durability,
                                      .synced = context.options.synced},
                                     snapshot.start_lsn,
                                     [&](std::span<const std::byte> record, std::uint64_t) {
                                       const TableId table = decode_head(record).table;
                                       if (!states.contains(table)) unknown_table(context, table);
                                       replay_into(states, record);
                                       ++replayed;
                                     });
  check_log(context, *log, snapshot);
  for (auto& [id, state] : states) state->finish_recovery();
  // Cluster, snapshot and log belong together. Nothing on the disk was changed before this.
  co_await mark_snapshot_folder(context);
  co_await log->begin();
  context.log = std::move(log);
  context.recovered = std::move(states);
  context.counts.replayed_records = replayed;
}

Task<std::unique_ptr<TableState>> recover_table(ShardContext& context, TableSpec spec) {
  const auto lock = co_await context.snapshot_mutex.lock();
  co_await context.log->flush();
  States states;
  states.emplace(spec.id, empty_state(context, spec));
  const Restored snapshot = co_await restore_snapshot(context, states);
  co_await context.log->read_again(
      snapshot.start_lsn,
      [&](std::span<const std::byte> record, std::uint64_t) { replay_into(states, record); });
  auto state = std::move(states.at(spec.id));
  state->finish_recovery();
  co_return state;
}

namespace {

/// Writes what an encoder makes, a piece at a time.
class SnapshotFile {
 public:
  explicit SnapshotFile(std::string path) : path_(std::move(path)) {}
  Task<void> open() { file_ = co_await File::open(path_, File::Mode::create_empty); }
  Bytes& bytes() noexcept { return bytes_; }
  Task<void> write_if_full() {
    if (bytes_.size() >= piece_bytes) co_await write();
  }
  Task<void> finish() {
    co_await write();
    co_await file_.sync();
    co_await file_.close();
  }

 private:
  Task<void> write() {
    Buffer piece = Buffer::copy_of(bytes_);
    const std::uint64_t offset = offset_;
    offset_ += bytes_.size();
    bytes_.clear();
    co_await file_.write_at(offset, Segments(std::move(piece)));
  }
  std::string path_;
  File file_;
  Bytes bytes_;
  std::uint64_t offset_ = 0;
};

// A table whose actor is being restarted has no rows in memory just now: a snapshot without it
// would lose them once the log is cut.
TablePart& part_of(const ShardContext& context, TableId table) {
  const auto found = context.parts.find(table);
  if (found == context.parts.end())
    throw Error(Errc::actor_down,
                fmt::format("write a snapshot of parameter shard {}", context.options.shard),
                fmt::format("table {} is being restarted", table), "it is tried again later");
  return *found->second;
}

Task<void> encode_table(const ShardContext& context, TableId table, const std::vector<TableId>& all,
                        SnapshotEncoder& encoder, SnapshotFile& file) {
  {
    const TableState& state = part_of(context, table).state();
    encoder.table(state.spec(), state.slots(), file.bytes());
  }
  TableScan scan;
  while (true) {
    // Looked up anew each time: an actor may have ended while we waited. That of a table which is
    // written already waits to be read back until this is over: it must not wait long.
    for (const TableId each : all) part_of(context, each);
    const TableState& state = part_of(context, table).state();
    const std::uint64_t lsn = context.log->next_lsn() - 1;
    if (!state.encode_next(scan, lsn, piece_bytes, encoder, file.bytes())) co_return;
    co_await file.write_if_full();
    co_await yield();
  }
}

// Of this shard's own alone: other files are somebody's.
Task<void> remove_older(const ShardContext& context, std::uint64_t newest) {
  const std::string folder = context.options.snapshot_folder;
  const auto names = co_await list_directory(folder);
  check_marks(context, names);
  for (const auto& name : names) {
    const auto start = detail::number_in(name, snapshot_prefix, snapshot_suffix);
    if ((start && *start < newest && name == snapshot_name(*start)) ||
        detail::number_in(name, snapshot_prefix, unfinished_suffix))
      co_await remove_file(folder + "/" + name);
  }
}

}  // namespace

Task<void> write_snapshot(ShardContext& context, std::vector<TableId> tables) {
  const std::uint64_t start = context.log->next_lsn();
  const std::string path = context.options.snapshot_folder + "/" + snapshot_name(start);
  SnapshotFile file(path + ".new");
  co_await file.open();
  SnapshotEncoder encoder;
  encoder.begin(
      {.shard = context.options.shard, .token = context.options.token, .start_lsn = start},
      file.bytes());
  for (const TableId table : tables) co_await encode_table(context, table, tables, encoder, file);
  encoder.end(file.bytes());
  co_await file.finish();
  // It holds effects of records up to end_lsn: they must be in the log before it counts.
  co_await context.log->flush();
  co_await failpoint("snapshot-before-rename");
  co_await rename_file(path + ".new", path);
  co_await sync_directory(context.options.snapshot_folder);
  co_await failpoint("snapshot-after-rename");
  co_await remove_older(context, start);
  co_await context.log->drop_before(start);
}

}  // namespace hyperframes::ps
