#include <hyperframes/apps/tools/perf/protocol.hpp>

#include <fmt/format.h>
#include <sys/resource.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/failpoint.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <hyperframes/runtime/sleep.hpp>
#include <nlohmann/json.hpp>

namespace hyperframes::tools::perf {
namespace {

using Json = nlohmann::json;

/// Neighbouring numbers make unlike words, and none repeats.
std::uint64_t mix(std::uint64_t number) noexcept {
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
  number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
  return number ^ (number >> 31);
}

/// Others run meanwhile: heartbeats must not wait for 64 MiB.
Task<void> fill(std::span<std::byte> bytes, std::uint64_t seed) {
  constexpr std::size_t piece = 1u << 20;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof seed) {
    const std::uint64_t word = mix(seed + at);
    std::memcpy(bytes.data() + at, &word, std::min(sizeof word, bytes.size() - at));
    if (at % piece == piece - sizeof seed) co_await yield();
  }
}

/// Many of small ones, so that one in the place of another is found; of the largest two.
std::size_t bodies_of(std::uint64_t size) noexcept {
  if (size <= 4096) return 64;
  return size <= 1u << 20 ? 8 : 2;
}

template <class Read>
auto read(std::string_view text, const char* what, Read from) {
  try {
    return from(Json::parse(text));
  } catch (const nlohmann::json::exception& error) {
    throw Error(Errc::corrupt, std::string("read ") + what + " of the other end", error.what(),
                "run the same release of hyperframes perf on both hosts");
  }
}

}  // namespace

std::string to_text(const Mark& mark) {
  return Json{{"received", mark.received}, {"wrong", mark.wrong},     {"time_ns", mark.time_ns},
              {"cpu_s", mark.cpu_s},       {"check_s", mark.check_s}, {"problem", mark.problem}}
      .dump();
}

Mark read_mark(std::string_view text) {
  return read(text, "the count", [](const Json& json) {
    Mark mark;
    json.at("received").get_to(mark.received);
    json.at("wrong").get_to(mark.wrong);
    json.at("time_ns").get_to(mark.time_ns);
    json.at("cpu_s").get_to(mark.cpu_s);
    json.at("check_s").get_to(mark.check_s);
    json.at("problem").get_to(mark.problem);
    return mark;
  });
}

std::string to_text(const Hello& hello) {
  return Json{{"protocol", hello.protocol},
              {"program", hello.program},
              {"host", hello.host},
              {"busy", hello.busy}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

Hello read_hello(std::string_view text) {
  return read(text, "the first words", [](const Json& json) {
    Hello hello;
    json.at("protocol").get_to(hello.protocol);
    json.at("program").get_to(hello.program);
    json.at("host").get_to(hello.host);
    json.at("busy").get_to(hello.busy);
    return hello;
  });
}

net::Lane lane_of(std::uint64_t size) noexcept {
  return size > 64u << 10 ? net::Lane::bulk : net::Lane::normal;
}

std::uint64_t checksum(std::span<const std::byte> bytes) noexcept {
  return ::XXH3_64bits(bytes.data(), bytes.size());
}

std::string check(const net::Message& message, std::uint64_t sequence, std::uint64_t size) {
  if (message.envelope.correlation != sequence)
    return fmt::format("message {} came in the place of message {}", message.envelope.correlation,
                       sequence);
  if (message.body.size() != size)
    return fmt::format("message {} has {} bytes instead of {}", sequence, message.body.size(),
                       size);
  const std::uint64_t sum = checksum(message.body.bytes());
  if (sum != message.envelope.context)
    return fmt::format("the {} bytes of message {} have the checksum {:016x} instead of {:016x}",
                       size, sequence, sum, message.envelope.context);
  return {};
}

void spoil_at(const char* failpoint, net::Message& message) {
  if (!hyperframes::detail::failpoints_armed || message.body.empty()) return;
  try {
    hyperframes::detail::pass_failpoint(failpoint);
  } catch (const Error&) {
    message.body = Buffer::copy_of(message.body.bytes());  // the other one is sent again
    message.body.data()[message.body.size() / 2] ^= std::byte{1};
  }
}

Task<Payload> Payload::make(std::uint64_t size) {
  Payload payload;
  for (std::size_t i = 0; i < bodies_of(size); ++i) {
    Body body{Shard::current()->send_pool().try_allocate(size).value()};
    co_await fill(body.bytes.bytes(), mix(size) + (i << 32));
    body.sum = checksum(body.bytes.bytes());
    payload.bodies_.push_back(std::move(body));
  }
  co_return payload;
}

net::Message Payload::next(Kind kind, std::uint64_t sequence) const {
  const Body& body = bodies_[sequence % bodies_.size()];
  net::Message message;
  message.envelope.type_id = static_cast<std::uint64_t>(kind);
  message.envelope.correlation = sequence;
  message.envelope.context = body.sum;
  message.body = body.bytes;
  return message;
}

double cpu_seconds() noexcept {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

}  // namespace hyperframes::tools::perf
