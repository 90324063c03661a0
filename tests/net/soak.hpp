// Talk between two processes for as long as one likes, all of which follows from a seed: so each
// process knows what the other one says, and every byte of what comes is compared.
//
//   Script script(seed);
//   Soaker soaker(node, script, 1);                          // sets node.handler.react
//   node.run([&] { return soaker.talk(peer_id); }, shard);   // until soaker.stop()
//   soaker.fault();                                          // empty: once, in order, as it was sent
#pragma once

#include <malloc.h>

#include <filesystem>
#include <fstream>
#include <hyperframes/runtime/crc32c.hpp>
#include <map>
#include <random>
#include <sstream>

#include "sanitized.hpp"
#include "storm.hpp"

namespace net_test {

/// One of 2^64 orders of the numbers of 64 bits.
inline std::uint64_t mixed(std::uint64_t value) noexcept {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

/// What is said: the `index`-th message of a stream, as the seed has it.
class Script {
 public:
  static constexpr std::size_t noise_bytes = 4 << 20, largest = 2'000'000;

  struct Line {
    net::Lane lane = net::Lane::normal;
    std::size_t metadata = 0, size = 0;  ///< The rest after the metadata.
    unsigned segments = 0;               ///< Into which the rest is cut, but for the body.
    bool ask = false;
    std::uint32_t room = 0;
    std::uint64_t pause_us = 0;
  };

  explicit Script(std::uint64_t seed) : seed_(seed), noise_(noise_bytes) {
    std::mt19937_64 random(seed);
    for (std::size_t at = 0; at < noise_bytes; at += 8) {
      const std::uint64_t value = random();
      std::memcpy(&noise_[at], &value, 8);
    }
  }

  Line line(std::uint64_t stream, std::uint64_t index) const noexcept {
    std::uint64_t state = key(stream, index);
    const auto next = [&](std::uint64_t below) { return (state = mixed(state)) % below; };
    Line line;
    line.lane = static_cast<net::Lane>(next(3));
    line.size = next(std::uint64_t{1} << next(12));
    if (next(6) == 0) line.size = next(60'000);
    if (next(15) == 0) line.size = next(largest);
    if (next(8) == 0) line.metadata = 1 + next(100);
    line.segments = next(4) == 0 ? static_cast<unsigned>(next(4)) : 0;
    line.ask = next(4) == 0;
    line.room = static_cast<std::uint32_t>(100 + next(20'000));
    if (next(4) == 0) line.pause_us = next(1000);
    return line;
  }
  std::span<const std::byte> bytes(std::uint64_t stream, std::uint64_t index,
                                   std::size_t size) const noexcept {
    return std::span(noise_).subspan(mixed(key(stream, index)) % (noise_bytes - size), size);
  }
  /// The answer to an ask that has so much room for it; now and then more than that.
  std::span<const std::byte> answer(std::uint64_t correlation, std::uint32_t room) const noexcept {
    const std::uint64_t state = mixed(correlation ^ seed_ ^ 0xa45);
    const std::size_t inside = room - net::wire::envelope_size;
    return bytes(~correlation, 0, state % (state % 3 ? inside : 20 * inside));
  }

 private:
  std::uint64_t key(std::uint64_t stream, std::uint64_t index) const noexcept {
    return mixed(mixed(seed_ ^ stream) + index);
  }
  std::uint64_t seed_;
  std::vector<std::byte> noise_;
};

/// A stream's messages of one lane, so far, and the checksum of all of their bytes.
struct Tally {
  std::uint64_t messages = 0;
  std::uint32_t sum = 0;
  friend bool operator==(const Tally&, const Tally&) = default;
};
using Tallies = std::map<std::pair<std::uint64_t, int>, Tally>;  ///< By stream and lane.

/// One process's part.
class Soaker {
 public:
  static constexpr std::uint64_t word = 0x50a4;  ///< The type of what `tell` sends.

  Soaker(Node& node, const Script& script, unsigned side)
      : node_(node), script_(script), side_(side) {
    node.handler.react = [this](net::Session& session, net::Lane lane, net::Message message) {
      take(session, lane, std::move(message));
    };
  }
  /// New streams, and nothing counted; while nobody talks.
  void begin_round(std::uint64_t round) {
    std::scoped_lock lock(mutex_);
    round_ = round;
    sent_.clear();
    taken_.clear();
    asked_.clear();
    index_.clear();
    fault_.clear();
    stopping = false;
  }
  std::uint64_t stream_of(unsigned side, unsigned shard) const noexcept {
    return round_ * 256 + side * 16 + shard;
  }

  /// Talks from this shard until `stopping`; throws what a send throws. `ended`, if it is given,
  /// gets how the session stood then.
  hf::Task<void> talk(std::uint64_t to, net::Session::Stats* ended = nullptr) {
    const std::uint64_t stream = stream_of(side_, hf::Shard::current()->index());
    auto session = node_.network.session(to);
    if (!session) throw hf::Error(hf::Errc::not_found, "talk", "there is no session");
    std::optional<hf::Error> failure;
    try {
      while (!stopping) {
        auto [message, line] = next_message(stream);
        co_await session->send(std::move(message), line.lane, hf::after(600s));
        if (line.pause_us) co_await hf::sleep_for(std::chrono::microseconds(line.pause_us));
      }
    } catch (const hf::Error& error) {
      failure = error;
    }
    if (!failure) co_return;
    for (int i = 0; session->up() && i < 10'000; ++i) co_await hf::sleep_for(1ms);
    if (ended) *ended = session->stats();
    throw *failure;
  }
  /// A word for the other side's `heard`.
  hf::Task<void> tell(std::uint64_t to, std::uint64_t number) {
    auto session = session_with(node_.network, to);
    net::Message message;
    message.envelope.type_id = word;
    message.envelope.context = number;
    co_await session->send(std::move(message), net::Lane::control, hf::after(600s));
  }

  std::atomic<bool> stopping{false};
  std::atomic<std::uint64_t> heard{0};
  /// Called for each message that was sent (before it is) or taken, on any shard.
  std::function<void(bool sent, unsigned shard, net::Lane lane)> witness = {};

  Tallies sent() const {
    std::scoped_lock lock(mutex_);
    return sent_;
  }
  Tallies taken() const {
    std::scoped_lock lock(mutex_);
    return taken_;
  }
  std::size_t unanswered() const {
    std::scoped_lock lock(mutex_);
    return asked_.size();
  }
  std::uint64_t answered() const noexcept { return answered_; }
  int kept() const noexcept { return kept_; }
  /// The first thing that was not as it should be.
  std::string fault() const {
    std::scoped_lock lock(mutex_);
    return fault_;
  }

 private:
  std::pair<net::Message, Script::Line> next_message(std::uint64_t stream) {
    net::Message message;
    net::Envelope& envelope = message.envelope;
    Script::Line line;
    std::uint64_t index = 0;
    {
      std::scoped_lock lock(mutex_);
      index = index_[stream]++;
      line = script_.line(stream, index);
      Tally& tally = sent_[{stream, static_cast<int>(line.lane)}];
      envelope.context = tally.messages++;
      tally.sum = hf::crc32c(script_.bytes(stream, index, line.metadata + line.size), tally.sum);
      if (line.ask) {
        envelope.kind = net::MessageKind::ask;
        envelope.correlation = stream << 40 | index;
        envelope.reply_room = line.room;
        asked_[envelope.correlation] = line.room;
      }
    }
    envelope.type_id = stream;
    envelope.source = index;
    auto bytes = script_.bytes(stream, index, line.metadata + line.size);
    const auto part = [&](std::size_t size) {
      hf::Buffer copy = size ? hf::Buffer::copy_of(bytes.first(size)) : hf::Buffer();
      bytes = bytes.subspan(size);
      return copy;
    };
    message.metadata = part(line.metadata);
    message.body = part(line.size / (line.segments + 1));
    for (unsigned i = 0; i < line.segments; ++i)
      message.segments.push_back(part(bytes.size() / (line.segments - i)));
    if (witness) witness(true, hf::Shard::current()->index(), line.lane);
    return {std::move(message), line};
  }

  void take(net::Session& session, net::Lane lane, net::Message message) {
    const net::Envelope& envelope = message.envelope;
    if (witness) witness(false, hf::Shard::current()->index(), lane);
    if (envelope.type_id == word) {
      heard = envelope.context;
      return;
    }
    if (envelope.kind == net::MessageKind::reply) return take_answer(message);
    const std::string wrong = wrong_with(lane, message);
    if (!wrong.empty()) note(wrong);
    if (envelope.kind == net::MessageKind::ask) {
      net::Message answer;
      answer.envelope = net::answer_to(envelope);
      answer.body = hf::Buffer::copy_of(script_.answer(envelope.correlation, envelope.reply_room));
      hf::Shard::current()->spawn(reply(net::SessionRef(&session), lane, std::move(answer)));
      return;
    }
    // For a while, so that credit is short.
    ++kept_;
    hf::Shard::current()->spawn(keep(std::move(message), &kept_));
  }
  /// Counts it; empty if it is the next one of its stream and lane, and what was sent.
  std::string wrong_with(net::Lane lane, const net::Message& message) {
    const net::Envelope& envelope = message.envelope;
    const std::uint64_t stream = envelope.type_id, index = envelope.source;
    const Script::Line line = script_.line(stream, index);
    const auto expected = script_.bytes(stream, index, line.metadata + line.size);
    const std::string what = "message " + std::to_string(index) + " of stream " +
                             std::to_string(stream) + " on lane " + std::string(name(lane));
    std::scoped_lock lock(mutex_);
    Tally& tally = taken_[{stream, static_cast<int>(lane)}];
    const std::uint64_t number = tally.messages++;
    tally.sum = sum_of(message, tally.sum);
    if (line.lane != lane) return what + " came on another lane than it was sent on";
    if (envelope.context != number)
      return what + " is number " + std::to_string(envelope.context) +
             " there, and came as number " + std::to_string(number);
    if (!is_same(message, expected)) return what + " has other bytes than it was sent with";
    return {};
  }
  static std::uint32_t sum_of(const net::Message& message, std::uint32_t sum) {
    sum = hf::crc32c(message.body.bytes(), hf::crc32c(message.metadata.bytes(), sum));
    for (const hf::Buffer& segment : message.segments) sum = hf::crc32c(segment.bytes(), sum);
    return sum;
  }
  static bool is_same(const net::Message& message, std::span<const std::byte> expected) {
    const auto begins = [&](const hf::Buffer& part) {
      if (part.size() > expected.size()) return false;
      const bool same = part.empty() || std::memcmp(part.data(), expected.data(), part.size()) == 0;
      expected = expected.subspan(part.size());
      return same;
    };
    bool same = begins(message.metadata) && begins(message.body);
    for (const hf::Buffer& segment : message.segments) same = same && begins(segment);
    return same && expected.empty();
  }
  void take_answer(const net::Message& message) {
    const std::uint64_t correlation = message.envelope.correlation;
    std::uint32_t room = 0;
    {
      std::scoped_lock lock(mutex_);
      const auto found = asked_.find(correlation);
      if (found != asked_.end()) {
        room = found->second;
        asked_.erase(found);
      }
    }
    ++answered_;
    const std::string what = "the answer to ask " + std::to_string(correlation);
    if (!room) return note(what + " came although nothing was asked, or twice");
    if (!is_same(message, script_.answer(correlation, room))) note(what + " has other bytes");
  }
  void note(const std::string& wrong) {
    std::scoped_lock lock(mutex_);
    if (fault_.empty()) fault_ = wrong;
  }
  static hf::Task<void> keep(net::Message message, std::atomic<int>* kept) {
    try {
      co_await hf::sleep_for(std::chrono::microseconds(message.envelope.context % 7 * 300));
    } catch (const hf::Error&) {
      // The shard ends.
    }
    message = net::Message();
    --*kept;
  }
  static hf::Task<void> reply(net::SessionRef session, net::Lane lane, net::Message answer) {
    try {
      co_await session->send(std::move(answer), lane, hf::after(600s));
    } catch (const hf::Error&) {
      co_return;  // the session ended; who asked is told by that
    }
  }

  Node& node_;
  const Script& script_;
  const unsigned side_;
  mutable std::mutex mutex_;
  std::uint64_t round_ = 0;
  Tallies sent_, taken_;
  std::map<std::uint64_t, std::uint64_t> index_;
  std::map<std::uint64_t, std::uint32_t> asked_;  ///< Room by correlation, until the answer came.
  std::string fault_;
  std::atomic<std::uint64_t> answered_{0};
  std::atomic<int> kept_{0};
};

/// What a process uses, for what must not grow.
struct Usage {
  std::size_t descriptors = 0, in_dev_shm = 0, mappings = 0;
  std::size_t heap_bytes = 0;  ///< In use, without what the shards' pools keep for reuse.

  static Usage of(Node& node) {
    Usage usage;
    usage.descriptors = entries_of("/proc/self/fd");
    usage.in_dev_shm = entries_of("/dev/shm");
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
      usage.mappings += line.find("hyperframes-shm") != line.npos;
    std::size_t kept = 0;
    for (unsigned shard = 0; shard < node.runtime.shard_count(); ++shard)
      kept += node.run([] { return kept_here(); }, shard);
    const auto heap = ::mallinfo2();
    const std::size_t used = heap.uordblks + heap.hblkhd;
    usage.heap_bytes = used - std::min(used, kept);
    return usage;
  }
  bool same_handles(const Usage& other) const {
    return descriptors == other.descriptors && in_dev_shm == other.in_dev_shm &&
           mappings == other.mappings;
  }

 private:
  static std::size_t entries_of(const char* folder) {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder),
                                                  std::filesystem::directory_iterator()));
  }
  static hf::Task<std::size_t> kept_here() {
    hf::Shard& shard = *hf::Shard::current();
    co_return shard.send_pool().usage().free_bytes + shard.receive_pool().usage().free_bytes;
  }
};

/// A heap that has grown by more leaks. What is kept for reuse (frames, lists) takes some.
inline constexpr std::size_t heap_tolerance = 8 << 20;

/// The table at a soak's end.
class Verdict {
 public:
  void row(bool fine, const std::string& check, const std::string& found) {
    rows_.push_back((fine ? "  yes  " : "  NO   ") + check + ": " + found);
    whole_ = whole_ && fine;
  }
  void grew(const std::string& who, const Usage& first, const Usage& last) {
    const auto both = [](std::size_t a, std::size_t b) {
      return std::to_string(a) + ", in the end " + std::to_string(b);
    };
    row(first.descriptors == last.descriptors, "descriptors of " + who,
        both(first.descriptors, last.descriptors));
    row(first.mappings == last.mappings, "shared memory mapped by " + who,
        both(first.mappings, last.mappings));
    row(first.in_dev_shm == last.in_dev_shm, "entries of /dev/shm",
        both(first.in_dev_shm, last.in_dev_shm));
    if (sanitized) return;  // its allocator keeps what was freed
    row(last.heap_bytes <= first.heap_bytes + heap_tolerance, "heap bytes of " + who,
        both(first.heap_bytes, last.heap_bytes));
  }
  bool whole() const noexcept { return whole_; }
  std::string text(const std::string& title) const {
    std::string text = title + "\n";
    for (const std::string& row : rows_) text += row + "\n";
    return text + (whole_ ? "verdict: whole\n" : "verdict: BROKEN\n");
  }

 private:
  std::vector<std::string> rows_;
  bool whole_ = true;
};

inline std::uint64_t messages_of(const Tallies& tallies) {
  std::uint64_t sum = 0;
  for (const auto& [key, tally] : tallies) sum += tally.messages;
  return sum;
}

}  // namespace net_test
