// What holds for every transport, on every driver of the system.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <hyperframes/net/rdma/device.hpp>
#include <hyperframes/net/rdma/rdma.hpp>
#include <hyperframes/net/shm/shm.hpp>
#include <hyperframes/net/tcp/tcp.hpp>
#include <hyperframes/net/tls/tls.hpp>
#include <hyperframes/net/transport.hpp>
#include <hyperframes/runtime/call_on.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <random>

#include "../runtime/conformance.hpp"
#include "transports.hpp"

using namespace net_test;
using hf::test::Bed;
using net::Transport;

namespace {

/// The drivers of the system: io_uring, and asio in its own threads and in an embedder's.
/// Where there is one transport only, on a slow machine, one of each.
auto drivers() {
  std::vector<int> beds;
  const bool few = std::getenv("HYPERFRAMES_TEST_ONLY_WAY");
  for (int bed = few ? std::max(hf::test::first_bed, -1) : hf::test::first_bed; bed <= 0; ++bed)
    beds.push_back(bed);
  return Catch::Generators::from_range(std::move(beds));
}

std::unique_ptr<net::TransportProvider> provider() {
  if (Over::current() == Way::shm) return net::make_shm_provider();
  if (Over::current() == Way::rdma)
    return net::make_rdma_provider(net::make_tcp_provider(),
                                   net::detail::RdmaDevice::open(Over::secured().rdma));
  if (!Over::is_tls()) return net::make_tcp_provider();
  const auto options = Over::secured();
  return net::make_tls_provider(net::make_tcp_provider(), options.encryption, options.key);
}

/// Keeps all that it is told.
class Recorder final : public Transport::Owner {
 public:
  std::function<hf::Buffer()> target = [] { return hf::Buffer(); };
  std::function<void()> react = [] {};
  std::string got;
  int sent = 0;
  std::optional<hf::Error> ended;

  /// Until `condition` holds; fails the test after far too long.
  static hf::Task<void> until(std::function<bool()> condition) {
    const hf::Time limit = hf::after(30s);
    while (!condition()) {
      if (hf::Clock::now() > limit) throw std::runtime_error("it did not come to that");
      co_await hf::sleep_for(1ms);
    }
  }

 private:
  hf::Buffer receive_target() noexcept override { return target_ = target(); }
  void on_chunk(hf::Buffer chunk) noexcept override {
    got += chunk.text();
    react();
  }
  void on_filled(std::size_t size) noexcept override {
    got += target_.text().substr(0, size);
    react();
  }
  void on_sent(hf::Segments) noexcept override { ++sent; }
  void on_ended(hf::Error reason) noexcept override { ended = std::move(reason); }
  hf::Buffer target_;
};

struct Ends {
  std::unique_ptr<Transport> near, far;
};

hf::Task<std::string> receive_text(Transport* transport, std::size_t size) {
  hf::Buffer into = hf::Buffer::heap(size);
  co_await transport->receive_exactly(into, hf::after(20s));
  co_return std::string(into.text());
}

hf::Task<std::unique_ptr<Transport>> connect_and_greet(net::TransportProvider* provider,
                                                       net::Endpoint endpoint) {
  const auto addresses = co_await provider->resolve(endpoint);
  auto transport = co_await provider->connect(addresses.at(0), hf::after(20s));
  co_await transport->send_all(hf::Buffer::copy_of("good day"), hf::after(20s));
  const std::string answer = co_await receive_text(transport.get(), 11);
  if (answer != "how are you") throw std::runtime_error("heard " + answer);
  co_return transport;
}

hf::Task<std::unique_ptr<Transport>> accept_and_answer(net::TransportListener* listener) {
  auto transport = co_await listener->accept();
  std::string heard = co_await receive_text(transport.get(), 4);
  heard += co_await receive_text(transport.get(), 4);
  if (heard != "good day") throw std::runtime_error("heard " + heard);
  co_await transport->send_all(hf::Buffer::copy_of("how are you"), hf::after(20s));
  co_return transport;
}

/// Both ends, on the current shard, after a few words.
hf::Task<Ends> connected_ends() {
  auto made = provider();
  auto listener = made->listen(net::Endpoint::parse(Over::uri()));
  auto both = co_await hf::when_all(connect_and_greet(made.get(), listener->endpoint()),
                                    accept_and_answer(listener.get()));
  co_return Ends{std::move(std::get<0>(both)), std::move(std::get<1>(both))};
}

hf::Segments batch_of(const std::string& text, std::mt19937_64& random) {
  hf::Segments batch;
  std::size_t at = 0;
  while (batch.count() + 1 < Transport::batch_pieces && at < text.size()) {
    const std::size_t size = std::min<std::size_t>(text.size() - at, 1 + random() % 20'000);
    batch.push_back(hf::Buffer::copy_of(std::string_view(text).substr(at, size)));
    at += size;
  }
  if (at < text.size()) batch.push_back(hf::Buffer::copy_of(std::string_view(text).substr(at)));
  return batch;
}

std::string random_text(std::size_t size, std::mt19937_64& random) {
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

hf::Task<void> send_one(Transport* transport, Recorder* owner, hf::Segments batch) {
  const int before = owner->sent;
  transport->send(std::move(batch));
  CHECK(owner->sent == before);  // never from inside the call
  co_await Recorder::until([=] { return owner->sent == before + 1; });
}

hf::Task<void> exchange_randomly(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Recorder near, far;
  Ends ends = co_await connected_ends();
  for (Recorder* owner : {&near, &far})
    owner->target = [&] {
      return random() % 2 ? hf::Buffer() : hf::Buffer::heap(1 + random() % 100'000);
    };
  ends.near->start(near, 64 << 10);
  ends.far->start(far, 0);
  std::string there, back;
  for (int i = 0; i < 60; ++i) {
    const std::string text = random_text(1 + random() % (std::size_t{1} << random() % 21), random);
    const bool forth = random() % 2;
    (forth ? there : back) += text;
    co_await send_one((forth ? ends.near : ends.far).get(), forth ? &near : &far,
                      batch_of(text, random));
  }
  co_await Recorder::until(
      [&] { return far.got.size() >= there.size() && near.got.size() >= back.size(); });
  CHECK(far.got == there);
  CHECK(near.got == back);
  CHECK(!near.ended);
  CHECK(!far.ended);
  CHECK(ends.near->name() == Over::transport());
  CHECK(ends.far->name() == Over::transport());
}

}  // namespace

TEST_CASE("batches arrive whole and in order, in chunks or where the owner wants them") {
  const Over over(GENERATE(movers()));
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  Bed bed(GENERATE(drivers()), 1);
  INFO(bed.name() << ", " << Over::name());
  bed.run([&](hf::Runtime&) { return exchange_randomly(seed); });
}

namespace {

hf::Task<void> hold_back() {
  Recorder near, far;
  Ends ends = co_await connected_ends();
  ends.near->start(near, 64 << 10);
  hf::Segments batch;
  for (std::size_t i = 0; i < Transport::batch_pieces; ++i) {
    batch.push_back(hf::Buffer::heap(512 << 10));
    std::memset(batch[i].data(), static_cast<int>(i), batch[i].size());
  }
  const std::size_t size = batch.size_bytes();
  ends.near->send(std::move(batch));
  co_await hf::sleep_for(50ms);
  CHECK(near.sent == 0);
  ends.far->start(far, 0);
  co_await Recorder::until([&] { return near.sent == 1 && far.got.size() == size; });
  bool same = true;
  for (std::size_t i = 0; i < size; i += 4096)
    same &= far.got[i] == static_cast<char>(i / (512 << 10));
  CHECK(same);
}

hf::Task<void> end_after_all(bool reads_before) {
  Recorder near, far;
  Ends ends = co_await connected_ends();
  ends.near->start(near, 0);
  std::mt19937_64 random(1);
  const std::string text = random_text(300'000, random);
  if (reads_before) ends.far->start(far, 0);
  co_await send_one(ends.near.get(), &near, batch_of(text, random));
  ends.near.reset();
  if (!reads_before) ends.far->start(far, 0);
  co_await Recorder::until([&] { return far.ended.has_value(); });
  CHECK(far.ended->is(hf::Errc::closed));
  CHECK(far.got == text);
}

hf::Task<void> stop_within_a_callback() {
  Recorder near, far;
  Ends ends = co_await connected_ends();
  int calls = 0;
  far.react = [&] {
    ++calls;
    ends.far->stop();
  };
  ends.near->start(near, 0);
  ends.far->start(far, 0);
  for (int i = 0; i < 5; ++i) {
    ends.near->send(hf::Segments(hf::Buffer::heap(1000)));
    co_await Recorder::until([&] { return near.sent == i + 1; });
  }
  ends.near.reset();
  co_await hf::sleep_for(20ms);
  CHECK(calls == 1);
  CHECK(!far.ended);
}

hf::Task<void> wait_in_vain() {
  Ends ends = co_await connected_ends();
  hf::Buffer into = hf::Buffer::heap(10);
  std::error_code code =
      co_await hf::test::outcome_of(ends.near->receive_exactly(into, hf::after(20ms)));
  CHECK(code == hf::Errc::deadline_exceeded);
  co_await ends.far->send_all(hf::Buffer::copy_of("last"), hf::after(5s));
  ends.far.reset();
  code = co_await hf::test::outcome_of(ends.near->receive_exactly(into, hf::after(20s)));
  CHECK(code == hf::Errc::closed);
  CHECK(into.text().substr(0, 4) == "last");
}

/// One end gives the connection up: with a batch that has not gone as a whole, or at rest.
hf::Task<void> abandon(bool in_mid_batch) {
  Recorder near, far;
  Ends ends = co_await connected_ends();
  CHECK(ends.near->can_be_abandoned());
  ends.near->start(near, 64 << 10);
  hf::Segments batch;
  if (in_mid_batch) {
    for (std::size_t i = 0; i < Transport::batch_pieces; ++i)
      batch.push_back(hf::Buffer::heap(512 << 10));
    ends.near->send(batch);
    co_await hf::sleep_for(20ms);
    CHECK(near.sent == 0);
  }
  const hf::Segments back = ends.near->abandon();
  CHECK(back.count() == batch.count());
  CHECK(back.size_bytes() == batch.size_bytes());
  if (in_mid_batch) CHECK(back[0].data() == batch[0].data());
  co_await Recorder::until([&] { return ends.near->is_released(); });
  ends.near.reset();
  ends.far->start(far, 0);
  co_await Recorder::until([&] { return far.ended.has_value(); });
  INFO(far.ended->what());
  CHECK(!far.ended->is(hf::Errc::closed));
  CHECK(!far.ended->is(hf::Errc::corrupt));
  CHECK(!near.ended);
  CHECK(near.sent == 0);
}

/// More than fits into what lies between, from a shard that waits for the other one.
hf::Task<void> say_much() {
  Ends ends = co_await connected_ends();
  std::string text = "The same words, again and again: ";
  while (text.size() < 8u << 20) text += text;
  auto both = co_await hf::when_all(ends.near->send_all(hf::Buffer::copy_of(text), hf::after(20s)),
                                    receive_text(ends.far.get(), text.size()));
  CHECK(std::get<1>(both) == text);
}

}  // namespace

TEST_CASE("a transport whose peer does not read holds back, and goes on when it does") {
  const Over over(GENERATE(movers()));
  Bed bed(GENERATE(drivers()), 1);
  INFO(bed.name() << ", " << Over::name());
  bed.run([](hf::Runtime&) { return hold_back(); });
}

TEST_CASE("the end of a peer comes after everything that it sent") {
  const Over over(GENERATE(movers()));
  Bed bed(GENERATE(drivers()), 1);
  INFO(bed.name() << ", " << Over::name());
  bed.run([](hf::Runtime&) { return end_after_all(true); });
  bed.run([](hf::Runtime&) { return end_after_all(false); });
}

TEST_CASE("a transport that is stopped in a callback calls back no more") {
  const Over over(GENERATE(movers()));
  Bed bed(GENERATE(drivers()), 1);
  INFO(bed.name() << ", " << Over::name());
  bed.run([](hf::Runtime&) { return stop_within_a_callback(); });
}

TEST_CASE("an abandoned transport gives its batch back, and its peer sees a break, not an end") {
  const Over over(GENERATE(movers()));
  Bed bed(GENERATE(drivers()), 1);
  INFO(bed.name() << ", " << Over::name());
  bed.run([](hf::Runtime&) { return abandon(true); });
  bed.run([](hf::Runtime&) { return abandon(false); });
}

TEST_CASE("a receive ends by its deadline, or with its peer") {
  const Over over(GENERATE(movers()));
  Bed bed(GENERATE(drivers()), 1);
  INFO(bed.name() << ", " << Over::name());
  bed.run([](hf::Runtime&) { return wait_in_vain(); });
}

TEST_CASE("a handshake may be longer than what lies between the ends") {
  const Over over(GENERATE(movers()));
  Bed bed(GENERATE(drivers()), 1);
  INFO(bed.name() << ", " << Over::name());
  bed.run([](hf::Runtime&) { return say_much(); });
}

namespace {

/// An end that lives on another shard than the one it was made on.
struct Elsewhere {
  std::unique_ptr<Transport> transport;
  Recorder owner;
};

hf::Task<void> move_to_other_shards(hf::Runtime* runtime) {
  Ends ends = co_await connected_ends();
  auto near = std::make_shared<Elsewhere>(), far = std::make_shared<Elsewhere>();
  near->transport = std::move(ends.near);
  far->transport = std::move(ends.far);
  // What is said before the other end begins is there when it does.
  auto begin = [](std::shared_ptr<Elsewhere> end) {
    end->transport->start(end->owner, 0);
    end->transport->send(hf::Segments(hf::Buffer::copy_of(std::string(100'000, 'x'))));
  };
  auto heard = [](std::shared_ptr<Elsewhere> end) -> hf::Task<void> {
    co_await Recorder::until(
        [end] { return end->owner.got.size() == 100'000 && end->owner.sent == 1; });
  };
  // Only then: an end that hears of the other one's does not say any more what has left.
  auto part = [](std::shared_ptr<Elsewhere> end) { end->transport.reset(); };
  auto begin_near = [=] { begin(near); };
  auto begin_far = [=] { begin(far); };
  co_await hf::call_on(runtime->shard(1), begin_near);
  co_await hf::sleep_for(5ms);
  co_await hf::call_on(runtime->shard(2), begin_far);
  auto near_heard = [=] { return heard(near); };
  auto far_heard = [=] { return heard(far); };
  co_await hf::call_on(runtime->shard(1), near_heard);
  co_await hf::call_on(runtime->shard(2), far_heard);
  auto part_near = [=] { part(near); };
  auto part_far = [=] { part(far); };
  co_await hf::call_on(runtime->shard(1), part_near);
  co_await hf::call_on(runtime->shard(2), part_far);
}

}  // namespace

TEST_CASE("after the handshake a transport may begin on another shard", "[threads]") {
  const Over over(GENERATE(movers()));
  Bed bed(GENERATE(drivers()), 3);
  INFO(bed.name() << ", " << Over::name());
  for (int round = 0; round < 10; ++round)
    bed.run([](hf::Runtime& runtime) { return move_to_other_shards(&runtime); });
}
