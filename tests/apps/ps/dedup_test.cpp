#include <hyperframes/apps/ps/dedup.hpp>

#include <hyperframes/runtime/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

using namespace hyperframes::ps;
using Verdict = DedupWindow::Verdict;

namespace {

bool applied(const DedupWindow& window, const PushKey& key, std::size_t place) {
  return window.find(key).at(place) == Verdict::duplicate;
}

/// Encodes every place and reads it into a new window, as a move or a restart does.
DedupWindow moved(const DedupWindow& window, std::size_t places) {
  DedupWindow other(places);
  for (std::size_t place = 0; place < places; ++place) {
    Bytes bytes;
    window.encode(place, bytes);
    other.forget_units_before(other.decode(place, bytes));
  }
  return other;
}

/// What a push did, on a window and on a plain set.
struct Model {
  std::set<std::pair<PushKey, std::size_t>> applied;
  void push(DedupWindow& window, const PushKey& key, const std::vector<std::size_t>& places) {
    window.check_room(key);
    const auto seen = window.find(key);
    for (const auto place : places) {
      const bool before = applied.contains({key, place});
      REQUIRE(seen.at(place) == (before ? Verdict::duplicate : Verdict::fresh));
    }
    for (const auto place : places) {
      if (applied.insert({key, place}).second) window.mark(key, place);
      REQUIRE(::applied(window, key, place));
    }
  }
};

std::vector<std::size_t> some_places(std::mt19937_64& random, std::size_t places) {
  std::vector<std::size_t> some;
  for (std::size_t place = 0; place < places; ++place)
    if (random() % 3 == 0) some.push_back(place);
  return some;
}

}  // namespace

TEST_CASE("a push counts once at each place") {
  DedupWindow window(4);
  const auto key = PushKey::leased(2, 7, 130);
  CHECK_FALSE(applied(window, key, 1));
  window.mark(key, 1);
  CHECK(applied(window, key, 1));
  CHECK_FALSE(applied(window, key, 2));
  CHECK_FALSE(applied(window, PushKey::leased(2, 7, 131), 1));
  CHECK_FALSE(applied(window, PushKey::leased(2, 7, 66), 1));
  CHECK_FALSE(applied(window, PushKey::leased(3, 7, 130), 1));
}

TEST_CASE("what lies below the watermark was applied and costs nothing") {
  DedupWindow window(4);
  for (std::uint32_t unit = 0; unit < 10; ++unit) window.mark(PushKey::leased(0, unit, 3), 0);
  CHECK(window.blocks() == 10);
  window.forget_units_before(unit_order(0, 8));
  CHECK(window.blocks() == 2);
  CHECK(applied(window, PushKey::leased(0, 7, 99), 3));
  CHECK_FALSE(applied(window, PushKey::leased(0, 8, 99), 3));
  window.forget_units_before(unit_order(0, 2));  // late news changes nothing
  CHECK(window.forgotten_before() == unit_order(0, 8));
  window.mark(PushKey::leased(0, 1, 1), 0);
  CHECK(window.blocks() == 2);
}

TEST_CASE("leased pushes: random leases, retries, strays and moves agree with a plain set") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  constexpr std::size_t places = 6;
  constexpr std::uint32_t batches = 150;
  for (int round = 0; round < 6; ++round) {
    DedupWindow window(places);
    Model model;
    struct Push {
      PushKey key;
      std::vector<std::size_t> places;
      bool acknowledged = false;
    };
    // A unit's pushes, frozen: whoever works on it sends the same to the same places.
    std::map<std::uint64_t, std::vector<Push>> units;
    std::set<std::uint64_t> finished;
    std::uint64_t watermark = 0;
    std::vector<Push> sent_long_ago;
    const auto open_unit = [&](std::uint64_t number) {
      auto& pushes = units[number];
      for (std::uint32_t batch = 0; batch < batches; ++batch)
        pushes.push_back(
            {PushKey::leased(std::uint32_t(number / 5), std::uint32_t(number % 5), batch),
             some_places(random, places)});
    };
    for (int step = 0; step < 4000; ++step) {
      const std::uint64_t number = watermark + random() % 8;
      if (finished.contains(number)) continue;
      if (!units.contains(number)) open_unit(number);
      auto& pushes = units[number];
      // In order mostly; a few are ahead, a few are sent again.
      auto next = std::ranges::find_if(pushes, [](const Push& p) { return !p.acknowledged; });
      if (next == pushes.end()) {
        finished.insert(number);
        while (finished.contains(watermark)) {
          for (auto& push : units[watermark]) sent_long_ago.push_back(push);
          units.erase(watermark);
          finished.erase(watermark++);
        }
        window.forget_units_before(
            unit_order(std::uint32_t(watermark / 5), std::uint32_t(watermark % 5)));
        continue;
      }
      const auto ahead = std::min<std::ptrdiff_t>(pushes.end() - next - 1, random() % 4);
      Push& push = next[ahead];
      model.push(window, push.key, push.places);
      push.acknowledged = random() % 8 != 0;              // else the answer was lost
      if (random() % 4 == 0 && !sent_long_ago.empty()) {  // from a worker that lost its lease
        const Push& stray = sent_long_ago[random() % sent_long_ago.size()];
        for (const auto place : stray.places) REQUIRE(applied(window, stray.key, place));
      }
      if (random() % 50 == 0) window = moved(window, places);
    }
    CHECK(watermark > 5);
    CHECK(window.blocks() <= 8 * 3);
  }
}

TEST_CASE("client pushes: random windows, retries and moves agree with a plain set") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  constexpr std::size_t places = 3;
  for (int round = 0; round < 10; ++round) {
    DedupWindow window(places);
    Model model;
    struct Client {
      std::uint64_t incarnation = 1, next = 0;
      std::deque<std::pair<PushKey, std::vector<std::size_t>>> open;  // not acknowledged
    };
    std::map<std::uint64_t, Client> clients;
    for (int step = 0; step < 6000; ++step) {
      const std::uint64_t id = 1 + random() % 3;
      Client& client = clients[id];
      if (random() % 500 == 0) {
        const auto old = client.open;
        client = {client.incarnation + 1 + random() % 3, random() % 3 ? 0 : random(), {}};
        const auto first = PushKey::of_client(id, client.incarnation, client.next++);
        model.push(window, first, {0, 1, 2});
        for (const auto& [key, where] : old)
          for (const auto place : where) REQUIRE(window.find(key).at(place) == Verdict::stale);
      }
      const std::uint64_t oldest =
          client.open.empty() ? client.next : client.open.front().first.sequence;
      if (client.next - oldest < DedupWindow::client_window && random() % 2)
        client.open.emplace_back(PushKey::of_client(id, client.incarnation, client.next++),
                                 some_places(random, places));
      if (client.open.empty()) continue;
      const std::size_t at = random() % client.open.size();
      const auto [key, where] = client.open[at];
      model.push(window, key, where);
      if (random() % 3 == 0)  // acknowledged, in any order
        client.open.erase(client.open.begin() + static_cast<std::ptrdiff_t>(at));
      if (random() % 40 == 0) window = moved(window, places);
    }
    CHECK(window.clients() == clients.size());
  }
}

TEST_CASE("the last sequence numbers work as the first ones do") {
  DedupWindow window(1);
  const std::uint64_t last = ~std::uint64_t{0};
  window.mark(PushKey::of_client(1, 1, last), 0);
  window.mark(PushKey::of_client(1, 1, last - 2), 0);
  auto other = moved(window, 1);
  for (const auto* w : {&window, &other}) {
    CHECK(applied(*w, PushKey::of_client(1, 1, last), 0));
    CHECK_FALSE(applied(*w, PushKey::of_client(1, 1, last - 1), 0));
    CHECK(applied(*w, PushKey::of_client(1, 1, last - 2), 0));
  }
}

TEST_CASE("a part taken later tells other places nothing of what they have not seen") {
  DedupWindow later(2);
  later.mark(PushKey::of_client(1, 2, 0), 1);
  later.forget_units_before(unit_order(3, 0));
  Bytes part;
  later.encode(1, part);
  DedupWindow window(2);
  window.mark(PushKey::of_client(1, 1, 0), 0);
  CHECK(window.decode(1, part) == unit_order(3, 0));
  // Place 0 still has to replay what came between.
  CHECK(window.find(PushKey::leased(2, 0, 0)).at(0) == Verdict::fresh);
  CHECK(window.find(PushKey::of_client(1, 1, 0)).at(0) == Verdict::duplicate);
  CHECK(window.find(PushKey::of_client(1, 1, 1)).at(0) == Verdict::fresh);
  CHECK(window.find(PushKey::of_client(1, 1, 1)).at(1) == Verdict::stale);
}

TEST_CASE("a client that is gone is forgotten by name") {
  DedupWindow window(2);
  window.mark(PushKey::of_client(5, 1, 1), 0);
  window.forget_client(5);
  CHECK(window.clients() == 0);
}

TEST_CASE("what can't be remembered is refused before it takes effect") {
  DedupWindow window(1);
  for (std::uint32_t unit = 0; unit < DedupWindow::max_blocks; ++unit) {
    window.check_room(PushKey::leased(0, unit, 0));
    window.mark(PushKey::leased(0, unit, 0), 0);
  }
  window.check_room(PushKey::leased(0, 5, 1));  // an open unit has room
  CHECK_THROWS_AS(window.check_room(PushKey::leased(0, 5, 64)), hf::Error);
  CHECK_THROWS_AS(window.check_room(PushKey::leased(1, 0, 0)), hf::Error);
  window.forget_units_before(unit_order(0, 10));
  window.check_room(PushKey::leased(1, 0, 0));
  for (std::uint64_t client = 1; client <= DedupWindow::max_clients; ++client)
    window.mark(PushKey::of_client(client, 1, 0), 0);
  window.check_room(PushKey::of_client(7, 9, 9));
  CHECK_THROWS_AS(window.check_room(PushKey::of_client(5000, 1, 0)), hf::Error);
}

TEST_CASE("a damaged part is refused or read, and never more") {
  std::mt19937_64 random(3);
  DedupWindow window(1);
  for (std::uint32_t i = 0; i < 20; ++i) window.mark(PushKey::leased(i % 3, i, i * 9), 0);
  for (std::uint64_t i = 0; i < 20; ++i) window.mark(PushKey::of_client(1 + i % 3, 1, i * 90), 0);
  Bytes bytes;
  window.encode(0, bytes);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    DedupWindow other(1);
    CHECK_THROWS_AS(other.decode(0, std::span(bytes).first(length)), hf::Error);
  }
  for (int round = 0; round < 2000; ++round) {
    auto damaged = bytes;
    for (auto n = 1 + random() % 3; n > 0; --n)
      damaged[random() % damaged.size()] = static_cast<std::byte>(random());
    DedupWindow other(1);
    try {
      other.decode(0, damaged);
    } catch (const hf::Error&) {
    }
  }
}

TEST_CASE("clearing a place leaves the others") {
  DedupWindow window(2);
  const auto key = PushKey::leased(0, 0, 0), own = PushKey::of_client(1, 1, 1);
  for (std::size_t place : {0, 1}) window.mark(key, place), window.mark(own, place);
  window.clear(0);
  CHECK_FALSE(applied(window, key, 0));
  CHECK_FALSE(applied(window, own, 0));
  CHECK(applied(window, key, 1));
  CHECK(applied(window, own, 1));
}
