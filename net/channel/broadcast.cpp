#include <algorithm>
#include <deque>
#include <hyperframes/net/channel/broadcast.hpp>
#include <hyperframes/runtime/log.hpp>

namespace hyperframes::net {
namespace {

std::size_t size_of(const TypedMessage& message) noexcept {
  return message.body.size() + message.segments.size_bytes();
}

}  // namespace

struct Broadcast::Reader {
  std::uint64_t number = 0;
  Channel channel;
  std::deque<TypedMessage> queue;
  std::size_t bytes = 0;
  std::uint64_t sent = 0, dropped = 0;
  Event work;
  bool sending = false;  ///< One that is in the queue no more.
  bool gone = false;
};

Broadcast::Broadcast(Options options) : options_(options) {}
Broadcast::~Broadcast() = default;

std::uint64_t Broadcast::add(Channel reader) {
  if (!reader)
    throw Error(Errc::invalid_argument, "add a reader to a broadcast", "its channel is empty");
  auto added = std::make_unique<Reader>();
  added->number = ++next_number_;
  added->channel = std::move(reader);
  readers_.push_back(std::move(added));
  pumps_.spawn(pump(readers_.back().get()));
  return next_number_;
}

bool Broadcast::is_full(const Reader& reader, std::size_t bytes) const noexcept {
  return !reader.gone && !reader.queue.empty() && reader.bytes + bytes > options_.queue_bytes;
}

const Broadcast::Reader* Broadcast::slowest(std::size_t bytes) const noexcept {
  const auto found =
      std::ranges::find_if(readers_, [&](const auto& reader) { return is_full(*reader, bytes); });
  return found == readers_.end() ? nullptr : found->get();
}

Task<void> Broadcast::send(TypedMessage message, Time deadline) {
  for (const auto& reader : readers_)
    if (!reader->gone && reader->channel.up()) reader->channel.state()->check(message);
  const std::size_t bytes = size_of(message);
  const Time until = deadline == Time{} ? after(timing().default_deadline()) : deadline;
  while (options_.slow == SlowReader::wait && slowest(bytes)) {
    bool late = false;
    try {
      co_await progressed_.wait(until);
    } catch (const Error& error) {
      if (!error.is(Errc::deadline_exceeded)) throw;
      late = true;
    }
    if (const Reader* slow = slowest(bytes); late && slow)
      throw Error(Errc::deadline_exceeded, "send to every reader",
                  "reader " + std::to_string(slow->number) + " at " + slow->channel.peer().address +
                      " has " + std::to_string(slow->bytes) + " bytes queued",
                  "let slow readers go, or drop what they miss: Broadcast::Options::slow");
  }
  for (const auto& reader : readers_)
    if (!reader->gone) enqueue(*reader, message, bytes);
}

void Broadcast::enqueue(Reader& reader, const TypedMessage& message, std::size_t bytes) {
  while (is_full(reader, bytes) && options_.slow == SlowReader::drop_oldest) {
    reader.bytes -= size_of(reader.queue.front());
    reader.queue.pop_front();
    ++reader.dropped;
    ++dropped_;
  }
  if (is_full(reader, bytes)) {
    if (options_.slow == SlowReader::let_go) return let_go_of(reader);
    ++reader.dropped;
    ++dropped_;
    return;
  }
  reader.queue.push_back(message);
  reader.bytes += bytes;
  reader.work.set();
}

void Broadcast::let_go_of(Reader& reader) noexcept {
  ++let_go_;
  log::warning("reader " + std::to_string(reader.number) + " at " + reader.channel.peer().address +
               " is let go: it does not keep up, and " + std::to_string(reader.bytes) +
               " bytes wait for it");
  reader.gone = true;
  reader.channel.close("it did not keep up with the broadcast");
  reader.work.set();
}

// Ends with the reader; nothing of that is touched after `remove`.
Task<void> Broadcast::pump(Reader* reader) {
  try {
    while (!reader->gone) {
      if (reader->queue.empty()) {
        reader->work.reset();
        co_await reader->work.wait();
        continue;
      }
      TypedMessage next = std::move(reader->queue.front());
      reader->queue.pop_front();
      reader->bytes -= size_of(next);
      reader->sending = true;
      progressed_.pulse();
      co_await reader->channel.send(std::move(next), no_deadline);
      reader->sending = false;
      ++reader->sent;
      progressed_.pulse();
    }
  } catch (const Error& error) {
    if (!reader->gone) log::debug(error.what());
  }
  remove(reader);
}

void Broadcast::remove(const Reader* reader) noexcept {
  std::erase_if(readers_, [reader](const auto& known) { return known.get() == reader; });
  progressed_.pulse();
}

Task<void> Broadcast::drain(Time deadline) {
  const Time until = deadline == Time{} ? after(timing().default_deadline()) : deadline;
  const auto is_busy = [](const auto& reader) { return reader->sending || !reader->queue.empty(); };
  while (std::ranges::any_of(readers_, is_busy)) co_await progressed_.wait(until);
}

std::vector<Broadcast::ReaderStats> Broadcast::readers() const {
  std::vector<ReaderStats> all;
  for (const auto& reader : readers_)
    if (!reader->gone)
      all.push_back({reader->number, reader->channel.peer().address, reader->sent, reader->dropped,
                     reader->queue.size(), reader->bytes});
  return all;
}

std::size_t Broadcast::reader_count() const noexcept {
  return static_cast<std::size_t>(
      std::ranges::count_if(readers_, [](const auto& reader) { return !reader->gone; }));
}

}  // namespace hyperframes::net
