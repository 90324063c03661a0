#include <hyperframes/apps/tools/perf/server.hpp>

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/error.hpp>
#include <hyperframes/runtime/failpoint.hpp>
#include <nlohmann/json.hpp>
#include <utility>

namespace hyperframes::tools::perf {
namespace {

// From this size on every checksum is timed; of smaller ones some are, many times over, since the
// clock takes longer than they do.
constexpr std::uint64_t timed_size = 32u << 10;
constexpr std::uint64_t one_timed_of = 4096, repeats = 64;

double thread_cpu_seconds() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace

Server::Server(Runtime& runtime, net::Network::Options options)
    : network_(runtime, std::move(options), *this) {}

Task<net::Endpoint> Server::listen(net::Endpoint endpoint) {
  co_return co_await network_.listen(std::move(endpoint));
}

Task<void> Server::wait_for_end() { co_await done_.wait(); }

Task<void> Server::serve(bool once) {
  once_ = once;
  co_await when_any(send_echoes(), wait_for_end());
  echoes_.clear();
  co_await network_.close(timing().scaled(1s));
}

void Server::on_message(net::Session& session, net::Lane lane, net::Message message) noexcept {
  if (message.envelope.kind == net::MessageKind::ask) return answer(session, lane, message);
  if (&session != client_) return;
  try {
    const auto kind = static_cast<Kind>(message.envelope.type_id);
    if (kind == Kind::ping) echo(session, lane, std::move(message));
    if (kind == Kind::data) count(message);
  } catch (const std::exception& error) {
    session.close(error.what());
  }
}

void Server::on_session_down(net::Session& session, const Error& reason) noexcept {
  if (&session == client_) {
    client_ = nullptr;
    say(fmt::format(
        "{} left after {:.1f} s ({}): {} messages checked, {} wrong", session.peer().address,
        std::chrono::duration<double>(Clock::read_system() - since_).count(),
        reason.is(Errc::closed) ? "it was done" : reason.what(), checked_, found_wrong_));
    if (once_) done_.set();
  }
}

void Server::answer(net::Session& session, net::Lane lane, const net::Message& ask) noexcept try {
  net::Message reply;
  reply.envelope = net::answer_to(ask.envelope);
  try {
    reply.body = Buffer::copy_of(obey(session, ask));
  } catch (const std::exception& error) {
    reply.envelope.kind = net::MessageKind::failure;
    reply.body = Buffer::copy_of(std::string_view(error.what()).substr(0, 2048));
  }
  (void)session.try_send(reply, lane);
} catch (const std::exception& error) {
  session.close(error.what());
}

std::string Server::obey(net::Session& session, const net::Message& ask) {
  const auto kind = static_cast<Kind>(ask.envelope.type_id);
  if (kind == Kind::hello) return greet(session, ask);
  if (&session != client_)
    throw Error(Errc::rejected, "measure",
                "the first words of this client were missing or refused");
  if (kind == Kind::mark) {
    mark_.time_ns = Clock::read_system().time_since_epoch().count();
    mark_.cpu_s = cpu_seconds();
    return to_text(mark_);
  }
  if (kind != Kind::begin)
    throw Error(Errc::unknown_type, "measure", "there is no such command",
                "run the same release of hyperframes perf on both hosts");
  begin(ask);
  return "{}";
}

std::string Server::greet(net::Session& session, const net::Message& ask) {
  const Hello theirs = read_hello(ask.body.text());
  const bool busy = client_ != nullptr && client_ != &session;
  if (!busy && theirs.protocol == protocol_version) {
    client_ = &session;
    since_ = Clock::read_system();
    checked_ = found_wrong_ = 0;
    say(fmt::format("{} measures, from {}", session.peer().address, theirs.host));
  }
  return to_text(Hello{.program = HYPERFRAMES_VERSION, .host = host_name(), .busy = busy});
}

void Server::begin(const net::Message& ask) {
  const auto command = nlohmann::json::parse(ask.body.text());
  const std::uint64_t size = command.at("size");
  if (size < least_size || size > largest_size)
    throw Error(Errc::invalid_argument, "measure messages",
                fmt::format("{} bytes are not from {} to {}", size, least_size, largest_size));
  size_ = size;
  mark_ = {};
}

double Server::time_check(const net::Message& message) const noexcept {
  const double before = thread_cpu_seconds();
  for (std::uint64_t i = 0; i < repeats; ++i) {
    const std::uint64_t sum = checksum(message.body.bytes());
    asm volatile("" : : "r"(sum) : "memory");  // each of them is computed
  }
  return (thread_cpu_seconds() - before) / repeats;
}

void Server::count(const net::Message& message) {
  hyperframes::detail::pass_failpoint_now("perf-count");
  const std::uint64_t sequence = ++mark_.received;
  const double before = size_ >= timed_size ? thread_cpu_seconds() : 0;
  std::string fault = check(message, sequence, size_);
  if (size_ >= timed_size)
    mark_.check_s += thread_cpu_seconds() - before;
  else if (sequence % one_timed_of == 1)
    mark_.check_s += time_check(message) * one_timed_of;
  ++checked_;
  if (fault.empty()) return;
  ++mark_.wrong;
  ++found_wrong_;
  if (mark_.problem.empty()) mark_.problem = std::move(fault);
}

void Server::echo(net::Session& session, net::Lane lane, net::Message message) {
  if (echoes_.empty() && session.try_send(message, lane)) return;
  echoes_.push_back({net::SessionRef(&session), lane, std::move(message)});
  echoes_queued_.set();
}

/// Those that wait for room at the client: the largest ones are announced first.
Task<void> Server::send_echoes() {
  while (true) {
    co_await echoes_queued_.wait();
    while (!echoes_.empty()) {
      try {
        Echo& first = echoes_.front();
        co_await first.session->send(std::move(first.message), first.lane, no_deadline);
      } catch (const Error&) {
        if (done_.is_set()) co_return;  // else the client has gone
      }
      if (!echoes_.empty()) echoes_.pop_front();
    }
    echoes_queued_.reset();
  }
}

}  // namespace hyperframes::tools::perf
