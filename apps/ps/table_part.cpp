#include <fmt/format.h>

#include <cstring>
#include <hyperframes/apps/ps/recovery.hpp>
#include <hyperframes/apps/ps/table_part.hpp>
#include <hyperframes/runtime/failpoint.hpp>
#include <hyperframes/runtime/shard.hpp>

namespace hyperframes::ps {
namespace {

PushKey key_of(const protocol::PushRequest& request) {
  if (request.client() != 0)
    return PushKey::of_client(request.client(), request.incarnation(), request.sequence());
  return PushKey::leased(request.epoch(), request.unit(), request.batch());
}

}  // namespace

TablePart::TablePart(std::shared_ptr<ShardContext> context, TableSpec spec)
    : context_(std::move(context)), spec_(std::move(spec)) {}

TablePart::~TablePart() {
  context_->clocks.drop_owned(this);  // whoever asked learns at once that this actor ended
  const auto found = context_->parts.find(spec_.id);
  if (found != context_->parts.end() && found->second == this) context_->parts.erase(found);
}

std::string TablePart::who() const {
  return fmt::format("table '{}' on parameter shard {}", spec_.name, context_->options.shard);
}

Task<void> TablePart::started() {
  if (auto found = context_->recovered.extract(spec_.id)) {
    state_ = std::move(found.mapped());
  } else {
    state_ = co_await recover_table(*context_, spec_);
  }
  context_->parts[spec_.id] = this;
  if (auto* observer = context_->options.observer) observer->recovered(*context_, *state_);
}

// Every id must lie on this shard, under this shard's map. A client with an older map is told.
void TablePart::check_ids(std::span<const std::byte> ids, std::uint64_t map_version) const {
  if (ids.size() % sizeof(std::uint64_t) != 0 ||
      ids.size() / sizeof(std::uint64_t) > max_request_rows)
    throw Error(Errc::invalid_argument, "read the ids of a request to " + who(),
                fmt::format("{} bytes of ids", ids.size()),
                fmt::format("send up to {} ids of 8 bytes", max_request_rows));
  const PlacementMap& map = context_->map;
  for (std::size_t at = 0; at < ids.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t id;
    std::memcpy(&id, ids.data() + at, sizeof id);
    if (map.shard_of(slot_of(spec_.id, id)) == context_->options.shard) continue;
    throw Error(Errc::moved, "find row " + std::to_string(id) + " in " + who(),
                fmt::format("it belongs to shard {} under map version {}; the request used {}",
                            map.shard_of(slot_of(spec_.id, id)), map.version(), map_version),
                "fetch the current map and send the rows there");
  }
}

Task<void> TablePart::pull(protocol::PullRequest request, Segments segments, PullAnswer reply) {
  if (segments.count() != 1)
    throw Error(Errc::invalid_argument, "pull from " + who(),
                std::to_string(segments.count()) + " segments", "send one: the ids");
  Buffer ids = std::move(segments[0]);  // from another core shard it may not be shared here
  check_ids(ids.bytes(), request.map_version());
  const auto worker = request.worker();
  if (!worker) {
    answer_pull(ids.bytes(), std::move(reply));
    co_return;
  }
  ClockTable& clocks = context_->clocks;
  clocks.tick(worker->job(), worker->worker(), worker->clock());
  if (!clocks.ready(worker->job(), request.step()))
    co_return park_pull(worker->job(), request.step(), std::move(ids), std::move(reply));
  note_pull(worker->job(), request.step());
  answer_pull(ids.bytes(), std::move(reply));
}

void TablePart::note_pull(std::uint32_t job, std::uint64_t step) {
  context_->clocks.record_staleness(job, step);
  if (auto* observer = context_->options.observer) observer->pull_answered(*context_, job, step);
}

// The ids are copied out of what was received: while that is kept its sender may send that much
// less, and the pushes for which this pull waits would wait for it.
void TablePart::park_pull(std::uint32_t job, std::uint64_t step, Buffer ids, PullAnswer reply) {
  ClockTable& clocks = context_->clocks;
  const auto full = [&] {
    return clocks.waiting() >= max_waiting_pulls ||
           (clocks.waiting() != 0 && clocks.waiting_bytes() + ids.size() > max_waiting_bytes);
  };
  if (full()) clocks.drop_unwanted();
  if (full())
    return reply.fail(
        Error(Errc::overloaded, "pull from " + who(),
              fmt::format("{} pulls with {} bytes of ids wait for slower workers already",
                          clocks.waiting(), clocks.waiting_bytes()),
              "keep fewer pulls in flight"));
  struct Parked {
    std::vector<std::byte> ids;
    PullAnswer reply;
  };
  // A function must be copyable, a reply is not: both are shared.
  auto parked = std::make_shared<Parked>(
      std::vector<std::byte>(ids.bytes().begin(), ids.bytes().end()), std::move(reply));
  clocks.wait(job, step,
              {.then =
                   [this, parked, job, step] {
                     if (!parked->reply.wanted()) return;
                     note_pull(job, step);
                     answer_pull(parked->ids, std::move(parked->reply));
                   },
               .wanted = [parked] { return parked->reply.wanted(); },
               .owner = this,
               .bytes = ids.size()});
}

void TablePart::answer_pull(std::span<const std::byte> ids, PullAnswer reply) {
  const std::size_t count = ids.size() / sizeof(std::uint64_t);
  const std::size_t bytes = count * spec_.width * sizeof(float);
  auto rows = shard().send_pool().try_allocate(std::max<std::size_t>(bytes, 1));
  if (!rows) return reply.fail(rows.error());
  Buffer values = std::move(*rows);
  values.resize_down(bytes);
  state_->pull(ids, values.bytes());
  ++context_->counts.pulls;
  context_->counts.pulled_rows += count;
  context_->note_batch(ids.size() + bytes);
  reply.send({.width = spec_.width}, Segments(std::move(values)));
}

Task<void> TablePart::push(protocol::PushRequest request, Segments segments,
                           Reply<protocol::PushReply> reply) {
  if (segments.count() != 2)
    throw Error(Errc::invalid_argument, "push to " + who(),
                std::to_string(segments.count()) + " segments", "send two: ids and values");
  const Buffer &ids = segments[0], &values = segments[1];
  check_ids(ids.bytes(), request.map_version());
  co_await failpoint("table-push");
  const std::size_t count = ids.size() / sizeof(std::uint64_t);
  if (values.size() != count * spec_.width * sizeof(float))
    throw Error(Errc::invalid_argument, "push to " + who(),
                fmt::format("{} bytes of values for {} rows of {} floats", values.size(), count,
                            spec_.width),
                "send width floats for each id");
  if (push_record_bytes(count, spec_.width) > max_record_bytes)
    throw Error(
        Errc::too_large, "push to " + who(),
        fmt::format("{} rows of {} floats make {} bytes of log; at most {} fit in a record", count,
                    spec_.width, push_record_bytes(count, spec_.width), max_record_bytes),
        "send fewer rows at once");
  context_->note_batch(segments.size_bytes());
  if (!context_->log->has_room()) co_await context_->log->room();
  if (const auto worker = request.worker())
    context_->clocks.tick(worker->job(), worker->worker(), worker->clock());

  const PushBody body{.key = key_of(request),
                      .forget_before = request.forget_before(),
                      .width = spec_.width,
                      .count = static_cast<std::uint32_t>(count),
                      .ids = ids.data(),
                      .values = values.data()};
  ShardLog& log = *context_->log;
  const bool fresh = state_->apply(body);
  if (auto* observer = context_->options.observer)
    observer->pushed(*context_, *state_, body, fresh);
  if (!fresh) {
    ++context_->counts.duplicates;
    // The first one may not be durable yet: whoever asks again must not learn more than it would.
    answer_when_durable(log.next_lsn() - 1, true, std::move(reply));
    co_return;
  }
  const std::uint64_t lsn = log.next_lsn();
  Bytes record;
  append_push(record, {.lsn = lsn, .synced_lsn = log.stats().durable_lsn, .table = spec_.id}, body);
  log.append(lsn, record);
  ++context_->counts.pushes;
  context_->counts.pushed_rows += count;
  answer_when_durable(lsn, false, std::move(reply));
}

void TablePart::answer_when_durable(std::uint64_t lsn, bool duplicate,
                                    Reply<protocol::PushReply> reply) {
  // The log belongs to the context, so what waits in it may point there, and must not keep it
  // alive.
  auto kept = std::make_shared<Reply<protocol::PushReply>>(std::move(reply));
  if (hyperframes::detail::planted("acknowledge-early")) lsn = 0;
  context_->log->when_durable(
      lsn, [context = context_.get(), kept, duplicate](const Error* failure) {
        if (failure) return kept->fail(*failure);
        if (!context->lease->valid())
          return kept->fail(Error(Errc::no_reply, "acknowledge a push",
                                  "this server's lease ran out before the push was durable",
                                  "find out who owns the shard, and send it there again"));
        hyperframes::detail::pass_failpoint_now("push-before-answer");
        ++context->counts.acknowledged;
        kept->send({.duplicate = duplicate});
      });
}

}  // namespace hyperframes::ps
