// Talk between two nodes that checks itself: numbered messages of all sizes on all lanes, tells and
// asks, each with a checksum, to be taken once and in order whatever happens to the connections.
#pragma once

#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/crc32c.hpp>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <tuple>

#include "support.hpp"

namespace net_test {

/// What was sent, by both ends.
class Record {
 public:
  using Key = std::tuple<std::uint64_t, int, std::uint64_t>;  ///< Sender, lane, number.
  void sent(Key key, std::uint32_t sum, bool ask) {
    std::scoped_lock lock(mutex_);
    sums_[key] = sum;
    (ask ? asks : tells) += 1;
  }
  /// False if it is not the next one of its sender and lane, or not what was sent.
  bool taken(Key key, std::uint32_t sum) {
    std::scoped_lock lock(mutex_);
    const auto found = sums_.find(key);
    const bool expected = next_[{std::get<0>(key), std::get<1>(key)}]++ == std::get<2>(key);
    return expected && found != sums_.end() && found->second == sum;
  }
  void answered_with(std::uint64_t correlation, std::uint32_t sum) {
    std::scoped_lock lock(mutex_);
    answers_[correlation] = sum;
  }
  /// False if it was not sent, or came before.
  bool answer_taken(std::uint64_t correlation, std::uint32_t sum) {
    std::scoped_lock lock(mutex_);
    const auto found = answers_.find(correlation);
    if (found == answers_.end() || found->second != sum) return false;
    answers_.erase(found);
    return true;
  }
  std::atomic<int> tells{0}, asks{0};

 private:
  std::mutex mutex_;
  std::map<Key, std::uint32_t> sums_;
  std::map<std::pair<std::uint64_t, int>, std::uint64_t> next_;
  std::map<std::uint64_t, std::uint32_t> answers_;
};

inline hf::Buffer random_bytes(std::mt19937_64& random, std::size_t size) {
  if (size == 0) return {};
  hf::Buffer bytes = hf::Buffer::heap(size);
  std::size_t at = 0;
  for (; at + 8 <= size; at += 8) {
    const std::uint64_t value = random();
    std::memcpy(bytes.data() + at, &value, 8);
  }
  for (; at < size; ++at) bytes.data()[at] = static_cast<std::byte>(random());
  return bytes;
}

/// One end of it.
class Talker {
 public:
  Talker(Handler& handler, Record& record, std::uint64_t seed) : record_(record), seed_(seed) {
    handler.react = [this](net::Session& session, net::Lane lane, net::Message message) {
      take(session, lane, std::move(message));
    };
  }

  /// Sends `count` messages from this shard. `largest`: of the granted ones.
  hf::Task<void> talk(net::Network* network, std::uint64_t to, std::uint64_t sender, int count,
                      std::size_t largest) {
    std::mt19937_64 random(seed_ * 1000 + sender);
    auto session = session_with(*network, to);
    std::uint64_t numbers[3] = {};
    for (int i = 0; i < count; ++i) {
      const int lane = static_cast<int>(random() % 3);
      std::size_t size = random() % (std::size_t{1} << (random() % 12));
      if (random() % 6 == 0) size = random() % 60'000;
      if (random() % 15 == 0) size = random() % largest;
      net::Message message;
      message.envelope.type_id = sender;
      message.envelope.context = numbers[lane]++;
      const bool ask = random() % 3 == 0;
      if (ask) {
        message.envelope.kind = net::MessageKind::ask;
        message.envelope.correlation = random();
        message.envelope.reply_room = static_cast<std::uint32_t>(100 + random() % 20'000);
      }
      message.body = random_bytes(random, size);
      record_.sent({sender, lane, message.envelope.context}, hf::crc32c(message.body.bytes()), ask);
      co_await session->send(std::move(message), static_cast<net::Lane>(lane), hf::after(600s));
      if (random() % 4 == 0)
        co_await hf::sleep_for(std::chrono::microseconds(random() % (2 * pause_us)));
    }
  }
  std::uint64_t pause_us = 500;  ///< Between messages, now and then.

  std::atomic<int> told{0}, answered{0};
  std::atomic<bool> right{true};

 private:
  void take(net::Session& session, net::Lane lane, net::Message message) {
    const net::Envelope& envelope = message.envelope;
    const std::uint32_t sum = hf::crc32c(message.body.bytes());
    if (envelope.kind == net::MessageKind::reply) {
      if (!record_.answer_taken(envelope.correlation, sum)) right = false;
      ++answered;
      return;
    }
    if (!record_.taken({envelope.type_id, static_cast<int>(lane), envelope.context}, sum))
      right = false;
    ++told;
    if (envelope.kind != net::MessageKind::ask) {
      // Kept for a while, so that credit is short.
      hf::Shard::current()->spawn(keep(std::move(message)));
      return;
    }
    std::mt19937_64 random(envelope.correlation);
    const std::size_t room = envelope.reply_room - 64;
    net::Message answer;
    answer.envelope = net::answer_to(envelope);
    answer.body = random_bytes(random, random() % (random() % 3 ? room : 20 * room));
    record_.answered_with(envelope.correlation, hf::crc32c(answer.body.bytes()));
    hf::Shard::current()->spawn(reply(net::SessionRef(&session), lane, std::move(answer)));
  }
  static hf::Task<void> keep(net::Message message) {
    co_await hf::sleep_for(std::chrono::microseconds(message.envelope.context % 7 * 300));
  }
  static hf::Task<void> reply(net::SessionRef session, net::Lane lane, net::Message answer) {
    try {
      co_await session->send(std::move(answer), lane, hf::after(600s));
    } catch (const hf::Error&) {
      co_return;  // it shows in the counts
    }
  }

  Record& record_;
  std::uint64_t seed_;
};

/// How a node's sessions stand, on all shards.
struct Standing {
  std::uint64_t resuming = 0, resumes = 0, unacknowledged = 0, held = 0;
};
inline hf::Task<Standing> standing_here(net::Network* network) {
  Standing standing;
  for (const auto& session : network->sessions()) {
    const auto stats = session->stats();
    standing.resuming += stats.resuming_links;
    standing.resumes += stats.resumes;
    standing.unacknowledged += stats.unacknowledged_bytes;
    for (const auto& lane : stats.lanes) standing.held += lane.held_bytes;
  }
  co_return standing;
}

/// Of all its shards.
inline Standing standing_of(Node& node) {
  Standing all;
  for (unsigned shard = 0; shard < node.runtime.shard_count(); ++shard) {
    const Standing here = node.run([&] { return standing_here(&node.network); }, shard);
    all.resuming += here.resuming;
    all.resumes += here.resumes;
    all.unacknowledged += here.unacknowledged;
    all.held += here.held;
  }
  return all;
}

}  // namespace net_test
