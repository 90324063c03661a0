#include <hyperframes/apps/ps/table_state.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <vector>

using namespace hyperframes::ps;

namespace {

TableSpec spec_of(OptimizerKind optimizer = OptimizerKind::adagrad) {
  TableSpec spec;
  spec.id = 5;
  spec.name = "movies/features";
  spec.width = 3;
  spec.optimizer = optimizer;
  spec.learning_rate = 0.125f;
  spec.initializer = InitializerKind::normal;
  spec.initializer_scale = 0.1f;
  spec.initializer_from = 1;
  spec.seed = 17;
  return spec;
}

std::vector<Slot> some_slots(std::size_t count) {
  std::vector<Slot> slots;
  for (std::size_t i = 0; i < count; ++i) slots.push_back(static_cast<Slot>(i * 4096 / count));
  return slots;
}

/// Ids whose slots are among `slots`, counters for every fourth.
std::vector<std::uint64_t> ids_in(const std::vector<Slot>& slots, std::size_t count) {
  std::vector<std::uint64_t> ids;
  for (std::uint64_t n = 0; ids.size() < count; ++n) {
    const std::uint64_t id = n % 4 == 0 ? n | counter_bit : n;
    if (std::ranges::binary_search(slots, slot_of(5, id))) ids.push_back(id);
  }
  return ids;
}

struct Push {
  PushKey key;
  std::uint64_t forget_before = 0;
  std::vector<std::uint64_t> ids;
  std::vector<float> values;
  PushBody body() const {
    return {.key = key,
            .forget_before = forget_before,
            .width = ids.empty() ? 3 : static_cast<std::uint32_t>(values.size() / ids.size()),
            .count = static_cast<std::uint32_t>(ids.size()),
            .ids = reinterpret_cast<const std::byte*>(ids.data()),
            .values = reinterpret_cast<const std::byte*>(values.data())};
  }
};

std::vector<float> pull(const TableState& state, const std::vector<std::uint64_t>& ids) {
  std::vector<float> values(ids.size() * state.spec().width);
  state.pull(std::as_bytes(std::span(ids)), std::as_writable_bytes(std::span(values)));
  return values;
}

bool refused(hf::Errc code, const std::function<void()>& call) {
  try {
    call();
  } catch (const hf::Error& error) {
    return error.is(code);
  }
  return false;
}

/// What a server keeps on disk, without the disk.
struct Logged {
  TableState state;
  std::map<std::uint64_t, Bytes> log;
  std::map<std::uint64_t, std::uint64_t> digests;  ///< After each record.
  std::uint64_t lsn = 0;

  Logged(const TableSpec& spec, const std::vector<Slot>& slots) : state(spec, slots) {
    digests[0] = state.digest();
  }
  void note(Bytes record) {
    log[lsn] = std::move(record);
    digests[lsn] = state.digest();
  }
  bool push(const Push& push) {
    if (!state.apply(push.body())) return false;
    Bytes record;
    append_push(record, {.lsn = ++lsn, .synced_lsn = 0, .table = 5}, push.body());
    note(std::move(record));
    return true;
  }
  void erase(const std::vector<std::uint64_t>& ids) {
    const EraseBody body{.count = static_cast<std::uint32_t>(ids.size()),
                         .ids = reinterpret_cast<const std::byte*>(ids.data())};
    state.erase(body);
    Bytes record;
    append_erase(record, {.lsn = ++lsn, .synced_lsn = 0, .table = 5, .kind = RecordKind::erase},
                 body);
    note(std::move(record));
  }
};

struct Snapshot {
  SnapshotEncoder encoder;
  TableScan scan;
  Bytes bytes;
  std::uint64_t start_lsn = 0, end_lsn = 0;
  bool done = false;
};

struct Loader final : SnapshotVisitor {
  TableState& state;
  explicit Loader(TableState& to) : state(to) {}
  void header(const SnapshotHeader&) override {}
  void table(const TableSpec& spec, std::vector<Slot> slots) override {
    CHECK(spec == state.spec());
    CHECK(std::ranges::equal(slots, state.slots()));
  }
  void rows(const SnapshotRows& part) override { state.restore(part); }
  void end(const SnapshotEnd&) override {}
};

std::unique_ptr<TableState> recovered(const Logged& from, const Snapshot* snapshot,
                                      std::uint64_t last_lsn) {
  const auto slots = from.state.slots();
  auto state = std::make_unique<TableState>(from.state.spec(),
                                            std::vector<Slot>(slots.begin(), slots.end()));
  if (snapshot) {
    Loader loader(*state);
    SnapshotDecoder decoder(loader, "test");
    decoder.feed(snapshot->bytes);
    decoder.finish();
  }
  for (auto at = from.log.lower_bound(snapshot ? snapshot->start_lsn : 1);
       at != from.log.end() && at->first <= last_lsn; ++at)
    state->replay(at->second);
  state->finish_recovery();
  return state;
}

/// Pushes as workers make them: leased units in order mostly, retries, strays, and clients.
class Traffic {
 public:
  Traffic(std::mt19937_64& random, std::vector<std::uint64_t> ids)
      : random_(random), ids_(std::move(ids)) {}

  Push next() {
    if (!sent_.empty() && random_() % 5 == 0) return sent_[random_() % sent_.size()];
    Push push;
    if (random_() % 4 == 0) {
      const std::uint64_t client = 1 + random_() % 2;
      if (random_() % 20 == 0) ++incarnation_[client], sequence_[client] = 0;
      push.key = PushKey::of_client(client, 1 + incarnation_[client], sequence_[client]++);
    } else {
      const std::uint32_t unit = oldest_ + static_cast<std::uint32_t>(random_() % 3);
      push.key = PushKey::leased(unit / 4, unit % 4, next_batch_[unit]++);
      push.forget_before = unit_order(oldest_ / 4, oldest_ % 4);
      if (next_batch_[oldest_] > 10) ++oldest_;
    }
    std::vector<std::uint64_t> some;
    std::ranges::sample(ids_, std::back_inserter(some), static_cast<long>(1 + random_() % 12),
                        random_);
    std::ranges::sort(some, {}, [](auto id) { return slot_of(5, id); });
    push.ids = some;
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < 3 * some.size(); ++i)
      push.values.push_back(is_counter(some[i / 3]) ? 1 : normal(random_));
    // A retry may come while its unit or its client's window is open.
    sent_.push_back(push);
    if (sent_.size() > 12) sent_.erase(sent_.begin());
    return push;
  }
  std::vector<std::uint64_t> doomed() {
    std::vector<std::uint64_t> some;
    std::ranges::sample(ids_, std::back_inserter(some), static_cast<long>(random_() % 4), random_);
    return some;
  }

 private:
  std::mt19937_64& random_;
  std::vector<std::uint64_t> ids_;
  std::uint32_t oldest_ = 0;
  std::map<std::uint32_t, std::uint32_t> next_batch_;
  std::map<std::uint64_t, std::uint64_t> incarnation_, sequence_;
  std::vector<Push> sent_;
};

}  // namespace

TEST_CASE("a pull of a missing row returns its first values and creates nothing") {
  TableState state(spec_of(), some_slots(4096));
  const std::vector<std::uint64_t> ids{1, 2, 1 | counter_bit};
  const auto values = pull(state, ids);
  CHECK(state.rows() == 0);
  std::vector<float> expected(3);
  Initializer(state.spec()).fill(2, expected);
  CHECK(std::ranges::equal(std::span(values).subspan(3, 3), expected));
  CHECK(expected[0] == 0);
  CHECK(expected[1] != 0);
  CHECK(values[6] == 0);
}

TEST_CASE(
    "the first push creates a row from its first values, and rows that were not pushed stay") {
  TableState state(spec_of(OptimizerKind::sgd), some_slots(4096));
  const auto before = pull(state, {1, 2});
  CHECK(state.apply(Push{PushKey::leased(0, 0, 0), 0, {1}, {1, 2, 4}}.body()));
  CHECK(state.rows() == 1);
  const auto after = pull(state, {1, 2});
  for (int i = 0; i < 3; ++i) {
    CHECK(after[i] == before[i] - 0.125f * float(1 << i));
    CHECK(after[3 + i] == before[3 + i]);
  }
}

TEST_CASE("a push that is sent again changes nothing") {
  TableState state(spec_of(), some_slots(4096));
  const Push push{PushKey::leased(0, 3, 9), 0, {1, 2, 3}, std::vector<float>(9, 0.5f)};
  CHECK(state.apply(push.body()));
  const auto digest = state.digest();
  CHECK_FALSE(state.apply(push.body()));
  CHECK(state.digest() == digest);
}

TEST_CASE("rows of slots that saw the key are left out, the others are applied") {
  TableState state(spec_of(), some_slots(4096));
  const auto key = PushKey::leased(0, 0, 0);
  const std::uint64_t a = 1 | counter_bit, b = 2 | counter_bit;
  REQUIRE(slot_of(5, a) != slot_of(5, b));
  CHECK(state.apply(Push{key, 0, {a}, {1, 0, 0}}.body()));
  CHECK(state.apply(Push{key, 0, {a, b}, {1, 0, 0, 1, 0, 0}}.body()));
  const auto values = pull(state, {a, b});
  CHECK(values[0] == 1);
  CHECK(values[3] == 1);
}

TEST_CASE("counter rows add what is pushed, whatever the optimizer") {
  TableState state(spec_of(), some_slots(4096));
  const std::uint64_t id = 77 | counter_bit;
  for (std::uint32_t batch = 0; batch < 5; ++batch)
    CHECK(state.apply(Push{PushKey::leased(0, 0, batch), 0, {id}, {1, 0, 2}}.body()));
  CHECK(pull(state, {id}) == std::vector<float>{5, 0, 10});
}

TEST_CASE("what can't be applied is refused whole and changes nothing") {
  const auto slots = some_slots(64);
  TableState state(spec_of(), slots);
  const auto ids = ids_in(slots, 3);
  const auto digest = state.digest();
  std::uint64_t foreign = 1;
  while (std::ranges::binary_search(slots, slot_of(5, foreign))) ++foreign;
  const auto push = [&](std::vector<std::uint64_t> rows, std::vector<float> values) {
    state.apply(Push{PushKey::leased(0, 0, 0), 0, std::move(rows), std::move(values)}.body());
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(refused(hf::Errc::moved, [&] { push({ids[0], foreign}, std::vector<float>(6, 1)); }));
  CHECK(refused(hf::Errc::invalid_argument, [&] { push({ids[0]}, {1, 2}); }));
  CHECK(refused(hf::Errc::invalid_argument, [&] { push({ids[0]}, {1, nan, 3}); }));
  CHECK(refused(hf::Errc::moved, [&] { pull(state, {foreign}); }));
  std::vector<float> short_room(2);
  CHECK(refused(hf::Errc::invalid_argument, [&] {
    state.pull(std::as_bytes(std::span(ids)), std::as_writable_bytes(std::span(short_room)));
  }));
  CHECK(state.rows() == 0);
  CHECK(state.digest() == digest);
  CHECK_FALSE(state.apply(Push{PushKey::leased(0, 0, 0), 0, {}, {}}.body()));
}

TEST_CASE("an older incarnation of a client is fenced off") {
  TableState state(spec_of(), some_slots(4096));
  CHECK(state.apply(Push{PushKey::of_client(9, 2, 0), 0, {1}, {1, 1, 1}}.body()));
  CHECK(refused(hf::Errc::fenced,
                [&] { state.apply(Push{PushKey::of_client(9, 1, 5), 0, {1}, {1, 1, 1}}.body()); }));
}

TEST_CASE("ids and values need no alignment") {
  TableState aligned(spec_of(), some_slots(4096)), shifted(spec_of(), some_slots(4096));
  const Push push{PushKey::leased(0, 0, 0), 0, {1, 2}, {1, 2, 3, 4, 5, 6}};
  std::vector<std::byte> ids(17), values(25), out(25);
  std::memcpy(ids.data() + 1, push.ids.data(), 16);
  std::memcpy(values.data() + 1, push.values.data(), 24);
  auto body = push.body();
  CHECK(aligned.apply(body));
  body.ids = ids.data() + 1, body.values = values.data() + 1;
  CHECK(shifted.apply(body));
  CHECK(aligned.digest() == shifted.digest());
  shifted.pull(std::span(ids).subspan(1), std::span(out).subspan(1));
  CHECK(std::memcmp(out.data() + 1, pull(aligned, push.ids).data(), 24) == 0);
}

TEST_CASE("snapshot and log give back the state bit by bit, wherever the crash was") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 30; ++round) {
    const auto slots = some_slots(1 + random() % 9);
    Logged live(spec_of(round % 2 ? OptimizerKind::sgd : OptimizerKind::adagrad), slots);
    Traffic traffic(random, ids_in(slots, 150));
    std::vector<Snapshot> snapshots;
    std::size_t duplicates = 0;
    for (int step = 0; step < 500; ++step) {
      if (random() % 10 == 0) {
        live.erase(traffic.doomed());
      } else {
        try {
          duplicates += !live.push(traffic.next());
        } catch (const hf::Error& error) {
          REQUIRE(error.is(hf::Errc::fenced));
        }
      }
      if (snapshots.empty() || snapshots.back().done) {
        if (random() % 30 != 0) continue;
        Snapshot& snapshot = snapshots.emplace_back();
        snapshot.start_lsn = live.lsn + 1;
        snapshot.encoder.begin({.shard = 0, .token = 1, .start_lsn = snapshot.start_lsn},
                               snapshot.bytes);
        snapshot.encoder.table(live.state.spec(), slots, snapshot.bytes);
      } else if (random() % 2) {
        Snapshot& snapshot = snapshots.back();
        // A few rows at a time: slots fall into parts, with pushes between them.
        if (live.state.encode_next(snapshot.scan, live.lsn, random() % 400, snapshot.encoder,
                                   snapshot.bytes))
          continue;
        snapshot.end_lsn = snapshot.encoder.end(snapshot.bytes).end_lsn;
        snapshot.done = true;
      }
    }
    CHECK(duplicates > 0);
    CHECK(recovered(live, nullptr, live.lsn)->digest() == live.state.digest());
    std::size_t tried = 0;
    for (const Snapshot& snapshot : snapshots) {
      if (!snapshot.done) continue;
      for (int crash = 0; crash < 4; ++crash) {
        const std::uint64_t last =
            crash == 0 ? snapshot.end_lsn
                       : snapshot.end_lsn + random() % (live.lsn - snapshot.end_lsn + 1);
        CAPTURE(round, snapshot.start_lsn, snapshot.end_lsn, last);
        REQUIRE(recovered(live, &snapshot, last)->digest() == live.digests.at(last));
        ++tried;
      }
    }
    CHECK(tried > 0);
  }
}

TEST_CASE("the watermark follows the log also where a snapshot contains the rows") {
  const std::vector<Slot> slots{100, 200};
  Logged live(spec_of(), slots);
  const auto first = ids_in({100}, 1), second = ids_in({200}, 1);
  const std::vector<float> values(3, 0.5f);
  live.push({PushKey::leased(0, 0, 0), 0, first, values});
  Snapshot snapshot{.encoder = {}, .scan = {}, .bytes = {}, .start_lsn = 2};
  snapshot.encoder.begin({.shard = 0, .token = 1, .start_lsn = 2}, snapshot.bytes);
  snapshot.encoder.table(live.state.spec(), slots, snapshot.bytes);
  CHECK(live.state.encode_next(snapshot.scan, 1, 4096, snapshot.encoder, snapshot.bytes));
  live.push({PushKey::leased(1, 0, 0), unit_order(1, 0), second, values});
  CHECK_FALSE(live.state.encode_next(snapshot.scan, 2, 4096, snapshot.encoder, snapshot.bytes));
  snapshot.encoder.end(snapshot.bytes);
  CHECK(recovered(live, &snapshot, 2)->digest() == live.state.digest());
}

TEST_CASE("a recovered table knows the pushes it was sent before") {
  const auto slots = some_slots(16);
  Logged live(spec_of(), slots);
  const auto ids = ids_in(slots, 20);
  const Push push{PushKey::leased(0, 2, 4), 0, ids, std::vector<float>(60, 0.25f)};
  live.push(push);
  Snapshot snapshot{.encoder = {}, .scan = {}, .bytes = {}, .start_lsn = 2};
  snapshot.encoder.begin({.shard = 0, .token = 1, .start_lsn = 2}, snapshot.bytes);
  snapshot.encoder.table(live.state.spec(), slots, snapshot.bytes);
  while (live.state.encode_next(snapshot.scan, 1, 4096, snapshot.encoder, snapshot.bytes)) {
  }
  snapshot.encoder.end(snapshot.bytes);
  CHECK_FALSE(recovered(live, &snapshot, 1)->apply(push.body()));
  CHECK_FALSE(recovered(live, nullptr, 1)->apply(push.body()));
}

TEST_CASE("a part is about as large as its budget, whatever the slot holds") {
  const std::vector<Slot> slots{100};
  Logged live(spec_of(), slots);
  const auto ids = ids_in(slots, 3000);
  live.push({PushKey::leased(0, 0, 0), 0, ids, std::vector<float>(3 * ids.size(), 1)});
  SnapshotEncoder encoder;
  Bytes out;
  encoder.begin({.shard = 0, .token = 1, .start_lsn = 2}, out);
  TableScan scan;
  std::size_t parts = 0;
  for (bool more = true; more; ++parts) {
    out.clear();
    more = live.state.encode_next(scan, 1, 4096, encoder, out);
    CHECK(out.size() < 3 * 4096);
  }
  CHECK(parts > 10);
}

TEST_CASE("a watermark beyond the push's own unit is refused, and later pushes still count") {
  const auto slots = some_slots(16);
  TableState state(spec_of(), slots);
  const auto ids = ids_in(slots, 4);
  const std::vector<float> values(12, 1);
  const auto refuses = [&](PushKey key, std::uint64_t forget_before) {
    const Push push{key, forget_before, ids, values};
    return refused(hf::Errc::invalid_argument, [&] { state.apply(push.body()); });
  };
  CHECK(refuses(PushKey::leased(0, 3, 0), ~std::uint64_t{0}));
  CHECK(refuses(PushKey::leased(0, 3, 0), unit_order(0, 4)));
  CHECK(refuses(PushKey::of_client(1, 1, 0), 1));
  CHECK(state.rows() == 0);
  CHECK(state.apply(Push{PushKey::leased(0, 3, 0), unit_order(0, 3), ids, values}.body()));
  CHECK(state.apply(Push{PushKey::leased(0, 4, 0), 0, ids, values}.body()));
  CHECK_FALSE(state.apply(Push{PushKey::leased(0, 2, 0), 0, ids, values}.body()));
}

TEST_CASE("rows that don't belong into a snapshot's part are refused") {
  const std::vector<Slot> slots{100, 200};
  const auto ids = ids_in({100}, 2);
  Bytes dedup, rows(2 * (8 + 24));
  DedupWindow(1).encode(0, dedup);
  std::memcpy(rows.data(), &ids[0], 8);
  std::memcpy(rows.data() + 32, &ids[1], 8);
  SnapshotRows part{.table = 5,
                    .slot = 100,
                    .first = 0,
                    .last = ~std::uint64_t{0},
                    .lsn = 1,
                    .count = 2,
                    .dedup = dedup,
                    .rows = rows};
  TableState(spec_of(), slots).restore(part);
  const auto refuses = [&](SnapshotRows wrong) {
    return refused(hf::Errc::corrupt, [&] { TableState(spec_of(), slots).restore(wrong); });
  };
  auto wrong = part;
  wrong.slot = 200;
  CHECK(refuses(wrong));  // rows of another slot
  wrong.slot = 300;
  CHECK(refuses(wrong));  // a slot of another shard
  wrong = part;
  wrong.last = 5;
  CHECK(refuses(wrong));  // rows beyond the part
  wrong = part;
  wrong.count = 1;
  CHECK(refuses(wrong));  // another size
  std::memcpy(rows.data() + 32, &ids[0], 8);
  CHECK(refuses(part));  // a row twice
}

TEST_CASE("a record that does not fit the table is corruption, named by its number") {
  const auto slots = some_slots(4);
  TableState state(spec_of(), slots);
  Bytes record;
  std::vector<std::uint64_t> ids{1};
  std::vector<float> values{1};
  append_push(record, {.lsn = 31, .synced_lsn = 0, .table = 5},
              {.key = PushKey::leased(0, 0, 0),
               .forget_before = 0,
               .width = 1,
               .count = 1,
               .ids = reinterpret_cast<const std::byte*>(ids.data()),
               .values = reinterpret_cast<const std::byte*>(values.data())});
  try {
    state.replay(record);
    FAIL("it was taken");
  } catch (const hf::Error& error) {
    CHECK(error.is(hf::Errc::corrupt));
    CHECK(error.tried().find("31") != std::string::npos);
  }
}
