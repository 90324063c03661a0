// What a link does with bytes that are lent to it, and with those that it lends. In virtual time,
// with a far end that lends what it likes.
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/net/link.hpp>
#include <random>

#include "storm.hpp"
#include "wire.hpp"

using namespace net_test;
using net::FrameKind;
using net::Lane;
using net::Message;

namespace {

constexpr std::size_t least = net::Transport::least_loan;

/// Where its segments begin.
std::vector<std::size_t> begins_of(const Message& message) {
  std::size_t end = 64 + 8 * message.segments.count();
  std::vector<std::size_t> begins;
  const auto add = [&](const hf::Buffer& part) {
    const std::size_t begin = part.empty() ? end : net::wire::align_part(end);
    end = begin + part.size();
    return begin;
  };
  add(message.metadata);
  add(message.body);
  for (const hf::Buffer& segment : message.segments) begins.push_back(add(segment));
  return begins;
}

Message copy_of(const Message& message) {
  Message copy;
  copy.envelope = message.envelope;
  copy.metadata = hf::Buffer::copy_of(message.metadata.text());
  copy.body = hf::Buffer::copy_of(message.body.text());
  for (const hf::Buffer& segment : message.segments)
    copy.segments.push_back(hf::Buffer::copy_of(segment.text()));
  return copy;
}

bool are_equal(const Message& one, const Message& other) {
  bool equal = one.metadata.text() == other.metadata.text() &&
               one.body.text() == other.body.text() &&
               one.segments.count() == other.segments.count();
  for (std::size_t i = 0; equal && i < one.segments.count(); ++i)
    equal = one.segments[i].text() == other.segments[i].text();
  return equal;
}

bool lies_in(const hf::Buffer& part, const hf::Buffer& memory) {
  return part.data() >= memory.data() && part.data() + part.size() <= memory.data() + memory.size();
}

/// Each of its parts begins where the receiver may rely on it.
bool is_aligned(const Message& message) {
  const auto fits = [](const hf::Buffer& part) {
    return part.empty() ||
           reinterpret_cast<std::uintptr_t>(part.data()) % net::wire::part_alignment == 0;
  };
  return fits(message.metadata) && fits(message.body) &&
         std::ranges::all_of(message.segments, fits);
}

/// A node whose messages are kept, and its far end, which lends.
struct Borrowing {
  Borrowing() : wire(&node.add_wire()) {
    node.handler.react = [this](net::Session&, Lane, Message message) {
      got.push_back(std::move(message));
    };
    node.step([this] { wire->bring_loans(); });
  }
  ~Borrowing() {
    node.step([this] { got.clear(); });
  }
  net::FrameHeader header(std::uint64_t offset, std::uint64_t length, std::uint64_t total,
                          std::uint64_t message = 1) {
    net::FrameHeader header;
    header.lane = Lane::bulk;
    header.message = message;
    header.offset = offset;
    header.length = length;
    header.total = total;
    return header;
  }
  /// One frame with all of it: what lies in [from, to) is lent, in one piece.
  void say(const hf::Buffer& memory, std::size_t from, std::size_t to, std::uint64_t message = 1) {
    wire->say_header(header(0, memory.size(), memory.size(), message));
    wire->feed(memory.slice(0, from).bytes());
    if (to != from) wire->feed_loan(memory.slice(from, to - from));
    wire->feed(memory.slice(to, memory.size() - to).bytes());
  }
  /// What is charged to the far end, when all it may have back was said to it.
  std::uint64_t held() {
    std::uint64_t bytes = 0;
    node.pass(2 * hf::timing().heartbeat());
    node.step([&] { bytes = node.session()->stats().lanes[2].held_bytes; });
    return bytes;
  }

  std::vector<Message> got;
  WireNode node;
  Wire* wire;
};

Message with_segment(std::size_t size, std::size_t body = 100) {
  std::mt19937_64 random(size);
  Message message;
  message.body = random_bytes(random, body);
  message.segments.push_back(random_bytes(random, size));
  return message;
}

}  // namespace

TEST_CASE("a segment that is lent as a whole is left where it is, until it is destroyed") {
  Borrowing here;
  for (const std::size_t size : {least, least + 1, std::size_t{100'000}, std::size_t{1'500'001}}) {
    INFO(size << " bytes");
    const Message message = with_segment(size);
    hf::Buffer memory = serialised(message);
    const std::size_t begin = begins_of(message)[0];
    hf::Buffer kept;
    here.node.step([&] {
      here.say(memory, begin, begin + size, size);
      REQUIRE(here.got.size() == 1);
      const Message& got = here.got[0];
      CHECK(got.segments[0].data() == memory.data() + begin);
      CHECK(!lies_in(got.body, memory));
      CHECK(are_equal(got, message));
      kept = got.segments[0];
      here.got.clear();
    });
    // It pays for all of it, also if only the segment is kept.
    CHECK(here.held() >= size);
    CHECK(!memory.unique());
    here.node.step([&] { kept.reset(); });
    CHECK(here.held() == 0);
    CHECK(memory.unique());
  }
}

TEST_CASE("memory is kept for the head of a lent message only, and for all of one that is copied") {
  Borrowing here;
  const Message message = with_segment(3'000'000);
  const hf::Buffer memory = serialised(message);
  const std::size_t begin = begins_of(message)[0];
  here.node.step([&] {
    hf::BufferPool& pool = hf::Shard::current()->receive_pool();
    const std::size_t before = pool.usage().used_bytes;
    here.say(memory, begin, begin + 3'000'000);
    CHECK(pool.usage().used_bytes - before < 64 << 10);
    here.got.clear();
    here.say(memory, begin, begin, 2);
    CHECK(pool.usage().used_bytes - before >= 3'000'000);
    CHECK(are_equal(here.got.at(0), message));
  });
}

TEST_CASE(
    "what else is lent is copied: never is a body, metadata or an envelope in peers' memory") {
  Borrowing here;
  for (const std::size_t size : {std::size_t{5000}, std::size_t{300'000}}) {
    Message message = with_segment(size, 20'000);
    message.metadata = hf::Buffer::copy_of(std::string(9000, 'm'));
    const hf::Buffer memory = serialised(message);
    const std::size_t begin = begins_of(message)[0];
    struct Part {
      const char* what;
      std::size_t from, to;
    };
    const Part parts[] = {{"the whole message", 0, memory.size()},
                          {"its envelope and metadata", 0, 9000},
                          {"a part of its body", 12'000, 20'000},
                          {"the body, and the segment without its end", 9088, begin + size - 1},
                          {"the segment without its beginning", begin + 64, begin + size},
                          {"the gap before the segment as well", begin - 64, begin + size}};
    std::uint64_t number = size;
    for (const Part& part : parts) {
      INFO(part.what << ", " << size << " bytes");
      here.node.step([&] {
        here.say(memory, part.from, part.to, ++number);
        REQUIRE(here.got.size() == 1);
        const Message& got = here.got[0];
        CHECK(are_equal(got, message));
        CHECK(is_aligned(got));
        for (const hf::Buffer* one : {&got.metadata, &got.body, &got.segments[0]})
          CHECK(!lies_in(*one, memory));
        here.got.clear();
        CHECK(memory.unique());
      });
    }
    CHECK(here.held() == 0);
  }
}

TEST_CASE("a loan that is more than the payload of its frame ends the link, and is not parsed") {
  const Message message = with_segment(10'000);
  const hf::Buffer body = serialised(message);
  hf::Buffer stream = hf::Buffer::heap(64 + body.size());
  std::memcpy(stream.data() + 64, body.data(), body.size());
  SECTION("a frame with its header") {
    Borrowing here;
    net::FrameHeader header = here.header(0, body.size(), body.size());
    header.sequence = 1;
    header.encode(stream.data());
    here.node.step([&] {
      here.wire->feed_loan(stream);
      CHECK(here.got.empty());
      CHECK(!here.wire->alive());
    });
  }
  SECTION("payload, and the header of the next frame") {
    Borrowing here;
    net::FrameHeader next;
    next.kind = FrameKind::heartbeat;
    next.encode(stream.data() + body.size());
    here.node.step([&] {
      here.wire->say_header(here.header(0, body.size(), body.size()));
      here.wire->feed_loan(stream.slice(0, body.size() + 64));
      CHECK(here.got.empty());
      CHECK(!here.wire->alive());
    });
  }
  SECTION("what belongs to no message") {
    Borrowing here;
    net::FrameHeader close;
    close.kind = FrameKind::close;
    close.length = 4096;
    here.node.step([&] {
      here.wire->say_header(close);
      here.wire->feed_loan(stream.slice(0, 4096));
      CHECK(!here.wire->alive());
    });
  }
}

TEST_CASE("a segment that is lent where no part may begin is copied to where one may") {
  Borrowing here;
  std::uint64_t number = 0;
  for (const std::size_t size : {least, std::size_t{200'000}})
    for (const std::size_t shift : {1u, 8u, 63u, 64u}) {
      INFO(size << " bytes, " << shift << " off");
      const Message message = with_segment(size);
      const hf::Buffer body = serialised(message);
      const hf::Buffer memory = hf::Buffer::heap(shift + body.size());
      std::memcpy(memory.data() + shift, body.data(), body.size());
      const std::size_t begin = begins_of(message)[0];
      here.node.step([&] {
        here.say(memory.slice(shift, body.size()), begin, begin + size, ++number);
        REQUIRE(here.got.size() == 1);
        CHECK(are_equal(here.got[0], message));
        CHECK(is_aligned(here.got[0]));
        CHECK(lies_in(here.got[0].segments[0], memory) == (shift == 64));
        here.got.clear();
      });
    }
}

TEST_CASE("messages come whole however they are cut into frames, copies and loans") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  Borrowing here;
  int in_place = 0, expected_in_place = 0;
  for (std::uint64_t number = 1; number <= 60; ++number) {
    Message message;
    message.metadata = random_bytes(random, random() % 3 ? 0 : random() % 5000);
    message.body = random_bytes(random, random() % (random() % 4 ? 1000 : 60'000));
    for (std::size_t i = random() % 6; i > 0; --i)
      message.segments.push_back(
          random_bytes(random, random() % 5 ? random() % 20'000 : random() % 200'000));
    const hf::Buffer memory = serialised(message);
    const auto begins = begins_of(message);
    // Most segments are lent as a whole; otherwise, now and then, whatever is there.
    std::vector<bool> lent(memory.size()), begin(memory.size() + 1);
    for (const std::size_t at : begins) begin[at] = true;
    std::vector<bool> whole(begins.size());
    for (std::size_t i = 0; i < begins.size(); ++i) {
      whole[i] = message.segments[i].size() >= least && random() % 4;
      if (!whole[i]) continue;
      ++expected_in_place;
      for (std::size_t at = 0; at < message.segments[i].size(); ++at) lent[begins[i] + at] = true;
    }
    const bool wild = random() % 4 == 0;
    if (wild) {
      expected_in_place -= static_cast<int>(std::ranges::count(whole, true));
      for (int i = 0; i < 3; ++i) {
        const std::size_t from = random() % memory.size();
        const std::size_t to = from + random() % (memory.size() - from);
        const bool what = random() % 2;
        for (std::size_t at = from; at < to; ++at) lent[at] = what;
      }
    }
    here.node.step([&] {
      for (std::size_t at = 0; at < memory.size();) {
        // A frame ends where it likes, but not within the last bytes of what is to stay.
        std::size_t end = std::min(memory.size(), at + 1 + random() % 150'000);
        if (!wild)
          while (end < memory.size() && lent[end - 1] && lent[end]) ++end;
        here.wire->say_header(here.header(at, end - at, memory.size(), number));
        while (at < end) {
          std::size_t run = at + 1;
          while (run < end && lent[run] == lent[at] && !begin[run]) ++run;
          if (!lent[at]) {
            here.wire->feed(memory.slice(at, run - at).bytes());
          } else if (run - at >= 2 * least && random() % 2) {
            // In two loans, side by side.
            const std::size_t first = least + random() % (run - at - 2 * least + 1);
            here.wire->feed_loan(memory.slice(at, first));
            here.wire->feed_loan(memory.slice(at + first, run - at - first));
          } else {
            here.wire->feed_loan(memory.slice(at, run - at));
          }
          at = run;
        }
      }
      REQUIRE(here.wire->alive());
      REQUIRE(here.got.size() == 1);
      CHECK(are_equal(here.got[0], message));
      CHECK(is_aligned(here.got[0]));
      for (std::size_t i = 0; i < begins.size() && !wild; ++i)
        in_place += whole[i] && here.got[0].segments[i].data() == memory.data() + begins[i];
      here.got.clear();
      CHECK(memory.unique());
    });
  }
  CHECK(here.held() == 0);
  CHECK(in_place == expected_in_place);
  CHECK(in_place > 20);
}

TEST_CASE("a link that breaks within lent bytes goes on with copies, and the message is whole") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 20; ++round) {
    Borrowing here;
    const Message message = with_segment(100'000 + random() % 400'000);
    const hf::Buffer memory = serialised(message);
    const std::size_t begin = begins_of(message)[0];
    const std::size_t first = begin + least + random() % 50'000;  // the first frame ends there
    const std::size_t broken = first + least + random() % (memory.size() - first - least);
    here.node.step([&] {
      here.wire->say_header(here.header(0, first, memory.size()));
      here.wire->feed(memory.slice(0, begin).bytes());
      here.wire->feed_loan(memory.slice(begin, first - begin));
      here.wire->say_header(here.header(first, memory.size() - first, memory.size()));
      here.wire->feed_loan(memory.slice(first, broken - first));
      here.wire->break_off();
    });
    here.node.step([&] { REQUIRE(here.wire->connect_again()); });
    here.node.step([&] {
      // What the first frame brought counts; the second comes once more, copied or lent.
      auto frames = here.wire->hear(FrameKind::welcome);
      REQUIRE(frames.size() == 1);
      REQUIRE(net::decode_welcome(frames[0].payload).value().delivered == 1);
      net::FrameHeader again = here.header(first, memory.size() - first, memory.size());
      again.sequence = 2;
      std::byte bytes[net::FrameHeader::size];
      again.encode(bytes);
      here.wire->feed(bytes);
      const std::size_t middle = first + random() % (memory.size() - first);
      here.wire->feed(memory.slice(first, middle - first).bytes());
      if (random() % 2) {
        here.wire->feed(memory.slice(middle, memory.size() - middle).bytes());
      } else if (middle != memory.size()) {
        here.wire->feed_loan(memory.slice(middle, memory.size() - middle));
      }
      REQUIRE(here.got.size() == 1);
      CHECK(are_equal(here.got[0], message));
      here.got.clear();
    });
    CHECK(here.held() == 0);
    CHECK(memory.unique());
  }
}

TEST_CASE("a link that ends within lent bytes gives them back") {
  Borrowing here;
  const Message message = with_segment(100'000);
  const hf::Buffer memory = serialised(message);
  const std::size_t begin = begins_of(message)[0];
  here.node.step([&] {
    here.wire->say_header(here.header(0, memory.size(), memory.size()));
    here.wire->feed(memory.slice(0, begin).bytes());
    here.wire->feed_loan(memory.slice(begin, 50'000));
    CHECK(!memory.unique());
    here.wire->hang_up();
  });
  here.node.step([&] { here.node.end_session(); });
  CHECK(memory.unique());
}

// ---- Lending

namespace {

/// Sends a message with those segments on the bulk lane, to a peer that lends and grants.
std::vector<hf::Buffer> lent_of(Message message) {
  WireNode node;
  Wire& wire = node.add_wire();
  std::vector<hf::Buffer> lent;
  const auto send = [](net::SessionRef session, Message message) -> hf::Task<void> {
    co_await session->send(std::move(message), Lane::bulk, hf::after(5s));
  };
  const hf::Buffer arena = message.segments[0];
  node.step([&] {
    wire.lend(8 << 20);
    wire.take_loans([arena](const hf::Buffer& piece) { return lies_in(piece, arena); });
    hf::Shard::current()->spawn(send(node.session(), message));
  });
  std::vector<std::byte> payload;
  for (int round = 0; round < 10; ++round)
    node.step([&] {
      for (const WireFrame& frame : wire.hear()) {
        if (frame.header.kind == FrameKind::announce)
          wire.say(FrameKind::grant, frame.header.lane, frame.header.message);
        if (frame.header.kind != FrameKind::data) continue;
        CHECK(frame.header.offset == payload.size());
        CHECK(frame.header.length <= net::FrameLimits().payload_bytes);
        payload.insert(payload.end(), frame.payload.begin(), frame.payload.end());
      }
      for (hf::Buffer& piece : wire.lent()) lent.push_back(hf::Buffer::copy_of(piece.text()));
      wire.say(FrameKind::heartbeat);
    });
  const hf::Buffer expected = serialised(message);
  CHECK(payload.size() == expected.size());
  CHECK((payload.size() == expected.size() &&
         std::memcmp(payload.data(), expected.data(), payload.size()) == 0));
  return lent;
}

}  // namespace

TEST_CASE("a segment that is lent leaves in one piece, whatever a frame of copies may have") {
  for (const std::size_t size : {least, least + 100, std::size_t{3'000'000}}) {
    INFO(size);
    Message message = with_segment(size, 600'000);  // the body is copied
    const auto lent = lent_of(copy_of(message));
    REQUIRE(lent.size() == 1);
    CHECK(lent[0].text() == message.segments[0].text());
  }
}

TEST_CASE("one that is larger than a frame is cut so that each part can be lent") {
  const std::size_t frame = net::FrameLimits().payload_bytes;
  for (const std::size_t size : {frame - 128, frame - 127, frame, frame + 1, 2 * frame + 77}) {
    INFO(size);
    Message message;
    message.segments.push_back(hf::Buffer::heap(size));
    std::memset(message.segments[0].data(), 5, size);
    std::size_t sum = 0;
    for (const hf::Buffer& piece : lent_of(std::move(message))) {
      CHECK(piece.size() >= least);
      CHECK((sum % 64 == 0));  // where it begins
      sum += piece.size();
    }
    CHECK(sum == size);
  }
}

TEST_CASE("what is lent and not acknowledged holds up nobody") {
  WireNode node;
  Wire& wire = node.add_wire();
  Message message = with_segment(6'000'000);
  const hf::Buffer arena = message.segments[0];
  node.step([&] {
    wire.acknowledging = false;
    wire.lend(30 << 20);
    wire.take_loans([arena](const hf::Buffer& piece) { return lies_in(piece, arena); });
  });
  int came = 0;
  for (int i = 0; i < 5; ++i)  // of copies 16 MiB may be on their way
    node.step([&] {
      Message again = message;
      CHECK(node.session()->try_send(again, Lane::bulk));
    });
  node.step([&] {
    for (const WireFrame& frame : wire.hear(FrameKind::data))
      came += frame.header.offset + frame.header.length == frame.header.total;
    CHECK(node.session()->stats().unacknowledged_bytes < 1 << 20);
  });
  CHECK(came == 5);
}
