#include <fmt/format.h>

#include <algorithm>
#include <hyperframes/apps/ps/detail/folder.hpp>
#include <hyperframes/apps/ps/log_record.hpp>
#include <hyperframes/apps/ps/shard_log.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/failpoint.hpp>
#include <hyperframes/runtime/log.hpp>

namespace hyperframes::ps {
namespace {

constexpr std::string_view token_prefix = "token-", segment_prefix = "segment-",
                           segment_suffix = ".log";

/// A segment that was begun when the power went: its header, which is written first, did not become
/// durable, so there never was a record.
bool never_begun(std::span<const std::byte> segment) noexcept {
  return segment.size() < segment_header_bytes ||
         (segment.size() == segment_header_bytes &&
          std::ranges::all_of(segment, [](std::byte each) { return each == std::byte{0}; }));
}

}  // namespace

Durability parse_durability(const std::string& text) {
  for (const auto durability : {Durability::push, Durability::interval, Durability::none})
    if (text == name(durability)) return durability;
  throw Error(Errc::invalid_argument, "read the durability '" + text + "'",
              "there is no such policy", "choose push, interval or none");
}

const char* name(Durability durability) noexcept {
  switch (durability) {
    case Durability::push: return "push";
    case Durability::interval: return "interval";
    case Durability::none: return "none";
  }
  return "unknown";
}

ShardLog::~ShardLog() = default;

std::string ShardLog::token_folder() const {
  return fmt::format("{}/{}{:016x}", options_.folder, token_prefix, options_.token);
}

Task<std::unique_ptr<ShardLog>> ShardLog::read(LogOptions options, std::uint64_t from_lsn,
                                               Replay replay) {
  std::unique_ptr<ShardLog> log(new ShardLog(std::move(options), from_lsn));
  log->segments_ = co_await log->find_segments();
  co_await log->read_segments(std::move(replay));
  co_return log;
}

Task<std::vector<ShardLog::Segment>> ShardLog::find_segments() {
  std::vector<Segment> found;
  for (const auto& folder : co_await detail::list_if_there(options_.folder)) {
    const auto token = detail::number_in(folder, token_prefix, "");
    if (!token) continue;
    if (*token > options_.token)
      throw Error(Errc::fenced, "open the log in '" + options_.folder + "'",
                  fmt::format("a newer owner with token {} has written there; ours is {}", *token,
                              options_.token),
                  "stop this process");
    const std::string path = options_.folder + "/" + folder;
    for (const auto& file : co_await list_directory(path))
      if (const auto lsn = detail::number_in(file, segment_prefix, segment_suffix))
        found.push_back({path + "/" + file, *lsn});
  }
  std::ranges::sort(found, {},
                    [](const Segment& each) { return std::pair(each.first_lsn, each.path); });
  co_return found;
}

Task<void> ShardLog::read_segments(Replay replay) {
  next_lsn_ = 0;
  // What a snapshot holds was dropped; after a power cut some of it may be back, with gaps.
  std::uint64_t begin = 0;
  for (const Segment& each : segments_)
    if (each.first_lsn <= from_lsn_) begin = each.first_lsn;
  for (std::size_t i = 0; i < segments_.size(); ++i)
    if (segments_[i].first_lsn >= begin) co_await read_segment(i, replay);
  if (segments_.empty()) next_lsn_ = from_lsn_;
  if (next_lsn_ < from_lsn_)
    throw Error(Errc::corrupt, "read the log in '" + options_.folder + "'",
                fmt::format("it ends with record {}; the snapshot was taken after {}",
                            next_lsn_ - 1, from_lsn_ - 1),
                "give the --workdir and the --checkpoint_dir that belong together, or restore the "
                "missing segments");
  written_lsn_ = synced_lsn_ = answered_lsn_ = next_lsn_ - 1;
}

Task<void> ShardLog::read_segment(std::size_t index, Replay& replay) {
  const Segment segment = segments_[index];
  const bool newest = index + 1 == segments_.size();
  require_next(segment);
  Buffer contents = co_await read_whole_file(segment.path, std::size_t{4} << 30);
  const auto bytes = std::span<const std::byte>(contents.bytes());
  // Whoever found it so began another one of this number.
  if ((newest || segments_[index + 1].first_lsn == segment.first_lsn) && never_begun(bytes)) {
    next_lsn_ = segment.first_lsn;
    co_return;
  }
  const std::string tried = "read the log segment '" + segment.path + "'";
  const SegmentHeader header = decode_segment_header(bytes, segment.path);
  if (header.shard != options_.shard)
    throw Error(
        Errc::corrupt, tried,
        fmt::format("it belongs to parameter shard {}, not {}", header.shard, options_.shard),
        "check --workdir");
  if (header.first_lsn != segment.first_lsn)
    throw Error(Errc::corrupt, tried,
                fmt::format("it begins with record {}, which is not in its name", header.first_lsn),
                "give it back the name that it had");
  const SegmentEnd end = scan_segment(
      bytes,
      [&](std::span<const std::byte> record) {
        const std::uint64_t lsn = decode_head(record).lsn;
        if (lsn >= from_lsn_) replay(record, lsn);
      },
      segment.path);
  next_lsn_ = end.next_lsn;
  const bool torn = end.valid_bytes != bytes.size();
  if (torn && !newest)
    throw Error(
        Errc::corrupt, tried,
        fmt::format("it is damaged at {} and newer segments follow", end.valid_bytes),
        "restore it as it was; from an older copy of the work folder, what was acknowledged "
        "since is lost");
  if (torn || (newest && end.synced_bytes != end.valid_bytes))
    open_end_ = OpenEnd{segment.path, std::move(contents), end};
}

/// That no record is missing before this segment.
void ShardLog::require_next(const Segment& segment) const {
  if (next_lsn_ != 0 && segment.first_lsn != next_lsn_)
    throw Error(
        Errc::corrupt, "read the log segment '" + segment.path + "'",
        fmt::format("it begins with record {} where {} belongs", segment.first_lsn, next_lsn_),
        "restore the missing segment");
  if (next_lsn_ == 0 && segment.first_lsn > from_lsn_)
    throw Error(Errc::corrupt, "read the log in '" + options_.folder + "'",
                from_lsn_ > 1
                    ? fmt::format("its oldest record is {}; the snapshot needs {}",
                                  segment.first_lsn, from_lsn_)
                    : fmt::format("its oldest record is {}, and no snapshot holds those before it",
                                  segment.first_lsn),
                "give the --checkpoint_dir that belongs to this --workdir, or restore the missing "
                "segments");
}

Task<void> ShardLog::begin() {
  co_await make_durable_directory(token_folder());
  if (open_end_) {
    OpenEnd found = std::move(*open_end_);
    open_end_.reset();
    co_await settle(std::move(found));
  }
  co_await begin_segment();
  co_await drop_before(from_lsn_);
}

// Cuts off a torn end, and makes durable what was only read: its owner may have ended between write
// and sync, and after a sync that failed the kernel shows, as clean, what the disk has not got. So
// what no record calls synced is written again. Whoever pushes it once more is told that it is
// there, and segments that begin behind it must not outlive it.
Task<void> ShardLog::settle(OpenEnd found) {
  const SegmentEnd end = found.end;
  const bool torn = end.valid_bytes != found.contents.size();
  if (torn)
    log::info(fmt::format("log '{}': cut off {} bytes at its end that are no whole record",
                          found.path, found.contents.size() - end.valid_bytes));
  File file = co_await File::open(found.path, File::Mode::create);
  if (torn) co_await file.truncate(end.valid_bytes);
  if (end.synced_bytes != end.valid_bytes) {
    Segments rest(found.contents.slice(end.synced_bytes, end.valid_bytes - end.synced_bytes));
    co_await file.write_at(end.synced_bytes, std::move(rest));
  }
  co_await file.sync();
  co_await file.close();
}

// Always a new file: what an earlier owner wrote is never written to again.
Task<void> ShardLog::begin_segment() {
  Segment segment{fmt::format("{}/{}{:016x}{}", token_folder(), segment_prefix, written_lsn_ + 1,
                              segment_suffix),
                  written_lsn_ + 1};
  // Empty ones of this very number, left by processes that ended before their first record. They
  // go once the new one is there: a log that a snapshot refers to is never without a segment.
  const auto same = std::ranges::find(segments_, segment.first_lsn, &Segment::first_lsn);
  const std::vector<Segment> replaced(same, segments_.end());
  segments_.erase(same, segments_.end());
  const bool known = std::ranges::find(replaced, segment.path, &Segment::path) != replaced.end();
  // A file that was not read is not written over.
  file_ = co_await File::open(segment.path, known ? File::Mode::create : File::Mode::create_new);
  const Bytes header = encode_segment_header(
      {.shard = options_.shard, .token = options_.token, .first_lsn = segment.first_lsn});
  co_await file_.write_at(0, Segments(Buffer::copy_of(header)));
  co_await file_.sync();
  co_await sync_directory(token_folder());
  file_bytes_ = header.size();
  const std::string path = segment.path;
  segments_.push_back(std::move(segment));
  for (const Segment& each : replaced)
    if (each.path != path) co_await remove_file(each.path);
}

void ShardLog::append(std::uint64_t lsn, std::span<const std::byte> record) {
  if (failure_) throw *failure_;
  assert(lsn == next_lsn_);
  next_lsn_ = lsn + 1;
  pending_.insert(pending_.end(), record.begin(), record.end());
  work_.set();
}

void ShardLog::when_durable(std::uint64_t lsn, Durable then) {
  if (failure_) return then(&*failure_);
  if (lsn <= answered_lsn_) return then(nullptr);
  waiting_.push_back({lsn, std::move(then)});
  work_.set();
}

void ShardLog::answer(std::uint64_t durable) noexcept {
  answered_lsn_ = std::max(answered_lsn_, durable);
  // What runs may append and wait in turn: take each out before it runs.
  while (!waiting_.empty() && waiting_.front().lsn <= answered_lsn_) {
    Durable then = std::move(waiting_.front().then);
    waiting_.pop_front();
    then(nullptr);
  }
}

void ShardLog::fail(Error error) noexcept {
  failure_ = std::move(error);
  auto waiting = std::move(waiting_);
  waiting_.clear();
  for (auto& each : waiting) each.then(&*failure_);
  room_.set();
  flushed_.pulse();
}

Task<void> ShardLog::room() {
  while (!has_room() && !failure_) {
    room_.reset();
    co_await room_.wait();
  }
  if (failure_) throw *failure_;
}

Task<void> ShardLog::flush() {
  const std::uint64_t wanted = next_lsn_ - 1;
  flush_wanted_ = std::max(flush_wanted_, wanted);
  work_.set();
  while (synced_lsn_ < wanted && !failure_) co_await flushed_.wait();
  if (failure_) throw *failure_;
}

Task<void> ShardLog::write_pending() {
  if (file_bytes_ >= options_.segment_bytes) {
    co_await sync_written();
    co_await file_.close();
    co_await begin_segment();
  }
  std::vector<std::byte> batch;
  batch.swap(pending_);
  const std::uint64_t last = next_lsn_ - 1;
  room_.set();
  co_await failpoint("log-before-write");
  Buffer bytes = Buffer::copy_of(batch);
  co_await file_.write_at(file_bytes_, Segments(std::move(bytes)));
  co_await failpoint("log-after-write");
  file_bytes_ += batch.size();
  written_bytes_ += batch.size();
  written_lsn_ = last;
  // The batch's memory serves the next one, unless more has arrived meanwhile.
  if (pending_.empty()) {
    batch.clear();
    pending_.swap(batch);
  }
}

Task<void> ShardLog::sync_written() {
  const std::uint64_t upto = written_lsn_;
  if (synced_lsn_ == upto) co_return;
  if (!hyperframes::detail::planted("log-without-sync")) co_await file_.sync();
  ++syncs_;
  synced_lsn_ = upto;
  if (options_.synced != nullptr) options_.synced->store(upto, std::memory_order_relaxed);
  co_await failpoint("log-after-sync");
  flushed_.pulse();
}

Task<void> ShardLog::run() {
  Time next_sync = after(options_.interval);
  try {
    while (true) {
      const bool unsynced = synced_lsn_ < written_lsn_;
      if (pending_.empty() && flush_wanted_ <= synced_lsn_) {
        work_.reset();
        // A timed wait ends by its deadline: that is the interval's sync, not a failure.
        if (!(unsynced && options_.durability == Durability::interval)) {
          co_await work_.wait();
        } else if (Clock::now() < next_sync) {
          try {
            co_await work_.wait(next_sync);
          } catch (const Error& error) {
            if (!error.is(Errc::deadline_exceeded)) throw;
          }
        }
      }
      // A write that was begun is finished: half a batch on disk would only be torn.
      if (!pending_.empty()) co_await shielded(write_pending());
      const bool due = options_.durability == Durability::push || flush_wanted_ > synced_lsn_ ||
                       (options_.durability == Durability::interval && Clock::now() >= next_sync);
      if (options_.durability != Durability::push) answer(written_lsn_);
      if (!due) continue;
      co_await shielded(sync_written());
      next_sync = after(options_.interval);
      answer(synced_lsn_);
    }
  } catch (const Error& error) {
    if (!error.is(Errc::cancelled) && !error.is(Errc::shutting_down)) fail(error);
    throw;
  }
}

Task<void> ShardLog::finish() {
  if (failure_) co_return;
  if (!pending_.empty()) co_await write_pending();
  co_await sync_written();
  answer(synced_lsn_);
}

Task<void> ShardLog::read_again(std::uint64_t from_lsn, Replay replay) {
  const std::vector<Segment> segments = segments_;
  const std::uint64_t last = synced_lsn_;
  std::uint64_t next = from_lsn;  // the record that has to come
  for (std::size_t i = 0; i < segments.size(); ++i) {
    if (i + 1 < segments.size() && segments[i + 1].first_lsn <= from_lsn) continue;
    if (segments[i].first_lsn > next) break;
    Buffer contents = co_await read_whole_file(segments[i].path, std::size_t{4} << 30);
    // The end of the open segment may be half a record: it is being written.
    const SegmentEnd end = scan_segment(
        contents.bytes(),
        [&](std::span<const std::byte> record) {
          const std::uint64_t lsn = decode_head(record).lsn;
          if (lsn >= from_lsn) replay(record, lsn);
        },
        segments[i].path);
    next = std::max(next, end.next_lsn);
  }
  if (next <= last)
    throw Error(Errc::corrupt, "read the log in '" + options_.folder + "' again",
                fmt::format("record {} is missing; {} was synced", next, last),
                "restore the missing segments");
}

Task<void> ShardLog::drop_before(std::uint64_t lsn) {
  // A segment ends where the next one begins; the open one always stays.
  while (segments_.size() > 1 && segments_[1].first_lsn <= lsn) {
    const std::string path = segments_.front().path;
    segments_.erase(segments_.begin());
    co_await remove_file(path);
  }
}

ShardLog::Stats ShardLog::stats() const noexcept {
  return {synced_lsn_, written_bytes_, syncs_, segments_.size()};
}

}  // namespace hyperframes::ps
