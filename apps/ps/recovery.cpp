#include <fmt/format.h>

#include <algorithm>
#include <charconv>
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
constexpr std::string_view snapshot_prefix = "snapshot-", snapshot_suffix = ".snap";

using States = std::map<TableId, std::unique_ptr<TableState>>;

std::string snapshot_name(std::uint64_t start_lsn) {
  return fmt::format("{}{:016x}{}", snapshot_prefix, start_lsn, snapshot_suffix);
}

bool is_snapshot(std::string_view name) {
  return name.starts_with(snapshot_prefix) && name.ends_with(snapshot_suffix);
}

/// Puts what a snapshot holds into states: of all tables, or of one.
class Restorer final : public SnapshotVisitor {
 public:
  Restorer(const ShardContext& context, States& states, std::string file)
      : context_(context), states_(states), file_(std::move(file)) {}

  std::uint64_t start_lsn() const noexcept { return start_lsn_; }
  std::uint64_t end_lsn() const noexcept { return end_lsn_; }
  std::vector<TableId> tables;

 private:
  void header(const SnapshotHeader& header) override {
    if (header.shard != context_.options.shard)
      throw Error(
          Errc::corrupt, "read the snapshot '" + file_ + "'",
          fmt::format("it is of parameter shard {}, not {}", header.shard, context_.options.shard),
          "check --checkpoint_dir");
    start_lsn_ = header.start_lsn;
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
  std::uint64_t start_lsn_ = 1, end_lsn_ = 0;
};

Task<std::optional<std::string>> newest_snapshot(const ShardContext& context) {
  std::optional<std::string> newest;
  for (const auto& name : co_await list_directory(context.options.snapshot_folder))
    if (is_snapshot(name)) newest = name;  // names sort by their record number
  co_return newest;
}

/// What a shard's newest snapshot says about the log that belongs to it.
struct Restored {
  std::string path{};             ///< Empty: there is none.
  std::uint64_t start_lsn = 1;    ///< The first record to replay.
  std::uint64_t end_lsn = 0;      ///< The last one that it holds anything of.
  std::vector<TableId> tables{};  ///< Those that it holds.
};

Task<Restored> restore_snapshot(const ShardContext& context, States& states) {
  const auto name = co_await newest_snapshot(context);
  if (!name) co_return Restored{};
  const std::string path = context.options.snapshot_folder + "/" + *name;
  Restorer restorer(context, states, path);
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
  co_return Restored{path, restorer.start_lsn(), restorer.end_lsn(), std::move(restorer.tables)};
}

// A snapshot is published when the log is durable up to its last record. A log that ends before is
// another one: its next records would take numbers that the snapshot's rows count as contained.
void check_log_end(const ShardContext& context, const Restored& snapshot) {
  const std::uint64_t next = context.log->next_lsn();
  if (next > snapshot.end_lsn) return;
  throw Error(Errc::corrupt, fmt::format("recover parameter shard {}", context.options.shard),
              fmt::format("the log in '{}' ends with record {}; the snapshot '{}' holds records up "
                          "to {}",
                          context.options.log_folder, next - 1, snapshot.path, snapshot.end_lsn),
              "restore the log's folder, which belongs to the snapshot");
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
  co_await make_durable_directory(context.options.log_folder);
  co_await make_durable_directory(context.options.snapshot_folder);
  States states;
  for (const TableSpec& spec : specs) states.emplace(spec.id, empty_state(context, spec));
  const Restored snapshot = co_await restore_snapshot(context, states);
  for (const TableId table : snapshot.tables)
    if (!states.contains(table)) unknown_table(context, table);
  std::uint64_t replayed = 0;
  context.log = co_await ShardLog::open({.folder = context.options.log_folder,
                                         .shard = context.options.shard,
                                         .token = context.options.token,
                                         .durability = context.options.durability},
                                        snapshot.start_lsn,
                                        [&](std::span<const std::byte> record, std::uint64_t) {
                                          const TableId table = decode_head(record).table;
                                          if (!states.contains(table))
                                            unknown_table(context, table);
                                          replay_into(states, record);
                                          ++replayed;
                                        });
  check_log_end(context, snapshot);
  for (auto& [id, state] : states) state->finish_recovery();
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

Task<void> remove_older(const ShardContext& context, std::string newest) {
  for (const auto& name : co_await list_directory(context.options.snapshot_folder))
    if (name != newest && (is_snapshot(name) || name.ends_with(".new")))
      co_await remove_file(context.options.snapshot_folder + "/" + name);
}

}  // namespace

Task<void> write_snapshot(ShardContext& context, std::vector<TableId> tables) {
  const std::uint64_t start = context.log->next_lsn();
  const std::string name = snapshot_name(start);
  const std::string path = context.options.snapshot_folder + "/" + name;
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
  co_await remove_older(context, name);
  co_await context.log->drop_before(start);
}

}  // namespace hyperframes::ps
