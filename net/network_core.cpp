#include <fmt/format.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <hyperframes/net/detail/text.hpp>
#include <hyperframes/net/network_core.hpp>
#include <hyperframes/net/rdma/device.hpp>
#include <hyperframes/net/rdma/rdma.hpp>
#include <hyperframes/net/shm/arena.hpp>
#include <hyperframes/net/shm/setup.hpp>
#include <hyperframes/net/shm/shm.hpp>
#include <hyperframes/net/tcp/tcp.hpp>
#include <hyperframes/net/tls/tls.hpp>
#include <hyperframes/runtime/call_on.hpp>
#include <hyperframes/runtime/combinators.hpp>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/offload.hpp>
#include <hyperframes/runtime/reactor.hpp>
#include <hyperframes/runtime/sleep.hpp>

namespace hyperframes::net::detail {
namespace {

// Fewer than what a peer lets shake hands at the same time.
constexpr std::uint32_t links_at_once = 32;
// Fewer still: when a network is there again, all the sessions over it begin at the same time.
constexpr std::uint32_t taken_up_at_once = 16;

void system_random(std::span<std::byte> into) {
  if (::RAND_bytes(reinterpret_cast<unsigned char*>(into.data()), static_cast<int>(into.size())) !=
      1)
    throw Error(Errc::internal, "get random bytes", "libcrypto refused");
}

Network::Options completed(Network::Options options) {
  const auto check = [](bool fine, const char* what, const char* range) {
    if (!fine)
      throw Error(Errc::invalid_argument, std::string("use network option ") + what,
                  std::string("it must be ") + range);
  };
  check(options.fragment_bytes >= 4096 && options.fragment_bytes <= FrameLimits().payload_bytes,
        "fragment_bytes", "from 4 KiB to 16 MiB");
  check(options.receive_budget_bytes >= 1u << 20, "receive_budget_bytes", "1 MiB or more");
  check(options.loan_bytes <= ShmLayout::most_arena / 2, "loan_bytes", "128 GiB or less");
  check(options.max_handshakes >= 1, "max_handshakes", "1 or more");
  check(options.boot_id.size() <= 64, "boot_id", "64 characters or less");
  if (!options.random) options.random = &system_random;
  while (options.node_id == 0) {
    std::byte bytes[sizeof options.node_id];
    options.random(bytes);
    std::memcpy(&options.node_id, bytes, sizeof bytes);
  }
  if (options.incarnation == 0)
    options.incarnation =
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                       std::chrono::system_clock::now().time_since_epoch())
                                       .count());
  if (options.boot_id.empty()) options.boot_id = system_boot_id();
  return options;
}

/// TLS as soon as there is something to show; the provider says what does not go together.
std::unique_ptr<TransportProvider> make_tcp_provider_for(const Network::Options& options) {
  Encryption encryption = options.encryption;
  const bool plaintext = std::exchange(encryption.plaintext, false);
  if (encryption == Encryption{} && (plaintext || !options.key)) return make_tcp_provider();
  return make_tls_provider(make_tcp_provider(), options.encryption, options.key);
}

std::string node_name(std::uint64_t node) { return "node " + std::to_string(node); }

/// Of an attempt to take up a link: whether another one is of no use, because nobody listens there,
/// or because who does has said no.
bool says_never(const Error& error) {
  return error.code() == std::errc::connection_refused || error.is(Errc::peer_lost) ||
         error.is(Errc::rejected) || error.is(Errc::unauthenticated) ||
         error.is(Errc::version_mismatch) || error.is(Errc::already_exists);
}

Error stale(std::uint64_t node, std::uint64_t newer) {
  return Error(Errc::peer_lost, "use the session with " + node_name(node),
               "it started anew, as incarnation " + std::to_string(newer));
}

/// Reads one frame of the handshake. A peer that says nothing costs a header's memory meanwhile.
Task<std::pair<FrameHeader, Buffer>> read_frame(Transport* transport, Time deadline) {
  Buffer bytes = Buffer::heap(FrameHeader::size);
  co_await transport->receive_exactly(bytes, deadline);
  const std::span<const std::byte, FrameHeader::size> span(bytes.data(), FrameHeader::size);
  FrameHeader header;
  const FrameFault fault = decode(span, FrameLimits(), header);
  if (fault != FrameFault::none) throw frame_error(fault, span);
  if (header.kind < FrameKind::hello)
    throw Error(Errc::corrupt, "shake hands with " + transport->peer(),
                "it sent a frame of kind '" + std::string(name(header.kind)) + "' too early");
  Buffer payload = Buffer::heap(header.length);
  co_await transport->receive_exactly(payload, deadline);
  co_return std::pair(header, std::move(payload));
}

/// The payload of a frame that must be of `kind`, decoded; a Reject becomes its error.
template <class T>
T expect(const std::pair<FrameHeader, Buffer>& frame, FrameKind kind,
         Result<T> (*decode)(std::span<const std::byte>), const Transport& transport) {
  const auto& [header, payload] = frame;
  if (header.kind == kind) return decode(payload.bytes()).value();
  if (header.kind == FrameKind::reject)
    throw rejection_error(decode_reject(payload.bytes()).value(), transport.peer());
  throw Error(Errc::corrupt, "shake hands with " + transport.peer(),
              "it sent '" + std::string(name(header.kind)) + "' instead of '" +
                  std::string(name(kind)) + "'");
}

/// Tells a peer why its link does not begin, if it still listens.
Task<void> send_reject(std::unique_ptr<Transport> transport, Reject reject) {
  try {
    co_await transport->send_all(encode(reject), after(timing().handshake_deadline()));
  } catch (const Error&) {
    co_return;
  }
}

/// Of a peer that was to be reached through memory.
void log_memory_failure(std::uint64_t node, const Error& error) {
  log::info(node_name(node) +
            " is on this host, and is reached over TCP all the same: " + error.what());
}

std::span<const std::byte> payload_of(const Buffer& frame) {
  return std::span<const std::byte>(frame.bytes()).subspan(FrameHeader::size);
}

}  // namespace

/// A peer that has not shown who it is. The oldest one gives way when there are too many.
struct NetworkCore::Pending : hyperframes::detail::ListNode {
  Pending(NetworkCore& core, CancelSource* parent) : core(core), cancel(parent) {
    core.handshakes_.push_back(*this);
    if (++core.handshake_count_ > core.options_.max_handshakes) core.handshakes_.front().give_way();
  }
  ~Pending() {
    if (linked()) --core.handshake_count_;
  }
  /// Leaves the list now, so that the next to come asks another one.
  void give_way() {
    unlink();
    --core.handshake_count_;
    cancel.cancel(Errc::exhausted);
  }
  NetworkCore& core;
  CancelSource cancel;
};

/// While in scope, a session with that node is in the making here.
class NetworkCore::Connecting {
 public:
  Connecting(NetworkCore& core, std::uint64_t node) : core_(core), node_(node) {
    core_.connecting_.insert(node_);
  }
  ~Connecting() { core_.connecting_.erase(node_); }
  Connecting(const Connecting&) = delete;

 private:
  NetworkCore& core_;
  std::uint64_t node_;
};

NetworkCore::NetworkCore(Runtime& runtime, Network::Options options, MessageHandler& handler)
    : runtime_(runtime), options_(completed(std::move(options))), handler_(handler) {
  providers_[Scheme::tcp] = make_tcp_provider_for(options_);
  if (options_.loan_bytes) arena_ = std::make_shared<LoanArena>(runtime_, options_.loan_bytes);
  providers_[Scheme::shm] = make_shm_provider({}, arena_);
  for (unsigned i = 0; i < runtime_.shard_count(); ++i)
    shards_.push_back(std::make_unique<NetworkShard>(*this, runtime_.shard(i)));
}

void NetworkCore::post(Shard& target, std::function<void(NetworkCore&)> function, Group group) {
  struct Posted : hyperframes::detail::Work {
    Posted(std::shared_ptr<NetworkCore> core, std::function<void(NetworkCore&)> function)
        : Work(&Posted::arrive), core(std::move(core)), function(std::move(function)) {}
    static void arrive(Work* work) noexcept {
      std::unique_ptr<Posted> self(static_cast<Posted*>(work));
      self->function(*self->core);
    }
    std::shared_ptr<NetworkCore> core;
    std::function<void(NetworkCore&)> function;
  };
  target.post(new Posted(shared_from_this(), std::move(function)), group);
}

// What begins with auto:// or rdma:// begins over TCP.
TransportProvider& NetworkCore::provider_of(const Endpoint& endpoint, const char* tried) const {
  const bool over_tcp = endpoint.scheme == Scheme::automatic || endpoint.scheme == Scheme::rdma;
  const Scheme scheme = over_tcp ? Scheme::tcp : endpoint.scheme;
  if (const auto found = providers_.find(scheme); found != providers_.end()) return *found->second;
  throw Error(Errc::unsupported, tried + endpoint.to_string(),
              "this build has no transport '" + std::string(name(scheme)) + "'",
              "use tcp://, shm:// or auto://");
}

Task<bool> NetworkCore::prepare_rdma(Endpoint endpoint) {
  if (endpoint.scheme != Scheme::rdma && endpoint.scheme != Scheme::automatic) co_return false;
  co_await look_for_rdma(endpoint.host);
  const bool misses = !rdma_ && endpoint.scheme == Scheme::rdma && options_.rdma.enabled;
  if (misses && !std::exchange(no_rdma_told_, true))
    log::warning(endpoint.to_string() + ": TCP is used, for there is no RDMA here: " + no_rdma_);
  co_return rdma_ != nullptr;
}

Task<void> NetworkCore::look_for_rdma(std::string near) {
  const Semaphore::Permit turn = co_await rdma_turn_.acquire(1);
  if (rdma_ || !no_rdma_.empty()) co_return;
  const bool encrypts =
      options_.encryption.has_certificates() || (options_.key && !options_.encryption.plaintext);
  if (!options_.rdma.enabled) {
    no_rdma_ = "it is switched off";
  } else if (encrypts && !options_.rdma.beside_encryption) {
    no_rdma_ =
        "what this node says is encrypted, and RDMA carries no encryption; say beside_encryption "
        "on purpose";
  } else if (!Shard::current()->reactor().has_system_descriptors()) {
    no_rdma_ = "the simulator has no devices";
  } else {
    try {
      rdma_ = co_await offload([options = options_.rdma, near = std::move(near)] {
        return RdmaDevice::open(options, near);
      });
      const auto silence =
          std::chrono::duration_cast<std::chrono::milliseconds>(retry_time(options_.rdma));
      log::info("RDMA by " + rdma_->to_string() +
                "; a peer whose device is silent is given up after " +
                std::to_string(silence.count()) + " ms");
    } catch (const Error& error) {
      if (error.is(Errc::cancelled) || error.is(Errc::shutting_down)) throw;
      no_rdma_ = error.what();
      // A host without a device is nothing to speak of; a device that can't be used is.
      if (!error.is(Errc::unsupported)) log::warning("RDMA is off: " + no_rdma_);
    }
  }
}

NodeDescription NetworkCore::describe(bool with_key) const {
  NodeDescription node;
  node.node_id = options_.node_id;
  node.incarnation = options_.incarnation;
  node.boot_id = options_.boot_id;
  node.capabilities = capability::resume | capability::shared_memory |
                      (handler_.takes_channels() ? capability::channels : 0) |
                      (rdma_ ? capability::rdma : 0);
  node.shard_count = runtime_.shard_count();
  node.max_message_bytes =
      ReceiveBudget(options_.receive_budget_bytes).largest_grant() - 2 * FrameHeader::size;
  node.max_fragment_bytes = static_cast<std::uint32_t>(options_.fragment_bytes);
  node.authentication = with_key ? Authentication::shared_key : Authentication::none;
  return node;
}

Nonce NetworkCore::make_nonce() {
  Nonce nonce;
  options_.random(nonce);
  return nonce;
}

NetworkCore::Entry NetworkCore::make_entry(const NodeDescription& node, std::uint64_t peer_number,
                                           bool initiated, const Transport& transport) {
  Entry entry;
  entry.number = ++next_number_;
  entry.peer_number = peer_number;
  entry.incarnation = node.incarnation;
  entry.initiated = initiated;
  entry.link_count = std::max(runtime_.shard_count(), node.shard_count);
  entry.peer = {node.node_id, node.incarnation, node.shard_count,
                node.boot_id, transport.peer(), (node.capabilities & capability::channels) != 0};
  entry.settings.largest_message = node.max_message_bytes;
  entry.settings.fragment_bytes =
      std::min<std::uint64_t>(options_.fragment_bytes, node.max_fragment_bytes);
  entry.settings.reply_room = options_.reply_room_bytes;
  entry.settings.unsent_backlog_bytes = options_.unsent_backlog_bytes;
  entry.settings.take_loans = options_.take_loans;
  entry.settings.resumable = node.capabilities & capability::resume;
  entry.take_ups = std::make_shared<Semaphore>(taken_up_at_once);
  if (handler_.takes_channels()) entry.settings.channels = ~std::uint32_t{0};
  return entry;
}

std::shared_ptr<Installation> NetworkCore::make_installation(
    const Entry& entry, std::uint32_t link, std::unique_ptr<Transport> transport) const {
  auto installation = std::make_shared<Installation>();
  installation->session = entry.number;
  installation->peer = entry.peer;
  installation->transport = std::move(transport);
  installation->settings = entry.settings;
  installation->settings.index = link;
  installation->closing = entry.closing;
  return installation;
}

std::map<std::uint64_t, NetworkCore::Entry>::iterator NetworkCore::find(std::uint64_t number) {
  return std::ranges::find_if(entries_,
                              [&](const auto& item) { return item.second.number == number; });
}

// ---- The life of sessions
// ------------------------------------------------------------------------

void NetworkCore::end_session(std::uint64_t node, const Error& reason) {
  const auto found = entries_.find(node);
  if (found == entries_.end()) return;
  const std::uint64_t number = found->second.number;
  // Whatever has become of links that were still set up as it was closed.
  const bool cut_short = found->second.closing && !found->second.ready;
  const Error why = cut_short ? *found->second.closing : reason;
  // Not every end had a break before it, which the link would have told of.
  if (!why.is(Errc::closed))
    log::info("the session with " + node_name(node) + " ended: " + why.what());
  entries_.erase(found);
  for (auto& shard : shards_)
    post(shard->shard(),
         [number, why](NetworkCore& core) { core.here().end_session(number, why); });
  changed_.pulse();
}

void NetworkCore::report_link_ended(std::uint64_t number, Error reason) {
  post(home(), [number, reason = std::move(reason)](NetworkCore& core) {
    const auto found = core.find(number);
    if (found == core.entries_.end()) return;
    Entry& entry = found->second;
    // In order, the session goes when the last of its links does.
    if (reason.is(Errc::closed) && ++entry.ended_in_order < entry.links.size()) return;
    core.end_session(found->first, reason);
  });
}

void NetworkCore::request_close(std::uint64_t number, std::string why) {
  post(home(), [number, why = std::move(why)](NetworkCore& core) {
    const auto found = core.find(number);
    if (found == core.entries_.end() || core.stopping_) return;
    const Error reason(Errc::closed, "use the session with " + node_name(found->first),
                       "this node closed it" + (why.empty() ? "" : ": " + why));
    core.begin_close(found->second, reason);
    if (!core.scope_) core.scope_ = std::make_unique<Scope>();
    core.scope_->spawn(core.end_later(number, reason));
  });
}

/// Its links of now, and those that are still set up when they are.
void NetworkCore::begin_close(Entry& entry, const Error& reason) {
  entry.closing = reason;
  for (auto& shard : shards_)
    post(shard->shard(), [number = entry.number, reason](NetworkCore& core) {
      core.here().begin_close(number, reason);
    });
}

Task<void> NetworkCore::end_later(std::uint64_t number, Error reason) {
  try {
    co_await sleep_for(3 * timing().heartbeat());
  } catch (const Error&) {
    co_return;  // the network ends, and this session with it
  }
  const auto found = find(number);
  if (found != entries_.end()) end_session(found->first, reason);
}

Task<std::uint64_t> NetworkCore::close(Duration drain) {
  auto self = shared_from_this();
  const Time deadline = after(drain);
  stopping_ = true;
  const Error reason(Errc::closed, "use a session", "this node closed its network");
  for (auto& [node, entry] : entries_) begin_close(entry, reason);
  while (!entries_.empty() && Clock::now() < deadline) {
    try {
      co_await changed_.wait(deadline);
    } catch (const Error&) {
      if (Clock::now() >= deadline) break;
      // Who gives up waiting wants no port held, either.
      if (scope_) scope_->cancel(Errc::shutting_down);
      throw;
    }
  }
  // Until here links that broke were taken up again, so that what they have left arrives.
  if (scope_) {
    scope_->cancel(Errc::shutting_down);
    try {
      co_await scope_->join();
    } catch (const Error& error) {
      if (error.is(Errc::cancelled)) throw;  // this call was
      log::warning(error.what());
    }
  }
  std::uint64_t left = 0;
  for (auto& shard : shards_) {
    auto count = [self] { return self->here().unacknowledged(); };
    left += co_await call_on(shard->shard(), count);
  }
  while (!entries_.empty()) end_session(entries_.begin()->first, reason);
  // Behind the posts that end the sessions.
  for (auto& shard : shards_) {
    auto nothing = [self] {};
    co_await call_on(shard->shard(), nothing);
  }
  co_return left;
}

void NetworkCore::stop_directory() {
  stopping_ = true;
  scope_.reset();
  entries_.clear();
}

void NetworkCore::stop_here() {
  if (Shard::current() == &home()) stop_directory();
  here().stop();
  if (arena_) arena_->here().stop();
}

// ---- Accepting
// -----------------------------------------------------------------------------------

Task<Endpoint> NetworkCore::listen(Endpoint endpoint) {
  TransportProvider& provider = provider_of(endpoint, "listen on ");
  if (stopping_)
    throw Error(Errc::shutting_down, "listen on " + endpoint.to_string(), "the network is closed");
  const std::vector<Endpoint> addresses = co_await provider.resolve(endpoint);
  co_await prepare_rdma(endpoint);
  for (const Endpoint& address : addresses)
    if (!provider.is_local(address) && !options_.key && !options_.encryption.has_certificates() &&
        !options_.insecure)
      throw Error(Errc::unauthenticated, "listen on " + address.to_string(),
                  "other hosts can reach this address, and there is neither a key nor a "
                  "certificate by which peers would show who they are",
                  "give a key file (--key_file) or certificates, listen on 127.0.0.1, or say "
                  "insecure (--insecure) on purpose");
  std::optional<Endpoint> bound;
  std::optional<Error> failure;
  std::vector<std::shared_ptr<TransportListener>> listeners;  // on all addresses, or on none
  for (Endpoint address : addresses) {
    if (bound) address.port = bound->port;
    try {
      listeners.push_back(provider.listen(address));
      if (!bound) bound = listeners.back()->endpoint();
    } catch (const Error& error) {
      // A name may stand for an address that this host does not have, such as ::1 without IPv6.
      const bool absent = error.code() == std::errc::address_not_available ||
                          error.code() == std::errc::address_family_not_supported;
      if (!absent) throw;
      failure = error;
    }
  }
  if (!bound) throw *failure;
  for (auto& listener : listeners) accept_on(std::move(listener), Door::known);
  if (endpoint.scheme == Scheme::automatic) listen_in_memory();
  if (endpoint.scheme == Scheme::automatic || endpoint.scheme == Scheme::rdma)
    bound->scheme = endpoint.scheme;
  co_return *bound;
}

void NetworkCore::accept_on(std::shared_ptr<TransportListener> listener, Door door) {
  if (!scope_) scope_ = std::make_unique<Scope>();
  scope_->spawn(accept_from(std::move(listener), door));
}

/// Under a name that nobody has, and that peers are told who come by TCP.
void NetworkCore::listen_in_memory() {
  if (!shm_name_.empty() || !Shard::current()->reactor().has_system_descriptors()) return;
  std::array<std::byte, 16> bytes;
  options_.random(bytes);
  Endpoint endpoint{Scheme::shm, "auto-", 0};
  for (const std::byte byte : bytes) endpoint.host += fmt::format("{:02x}", byte);
  MemoryKey secret;
  options_.random(secret);
  shm_secret_ = Key(secret);
  try {
    accept_on(providers_.at(Scheme::shm)->listen(endpoint), Door::told);
    shm_name_ = endpoint.host;
  } catch (const Error& error) {
    log::warning(std::string("peers on this host will not share memory: ") + error.what());
  }
}

// A key is proven on every transport. Certificates are shown over TLS only; so a peer is told there
// what it has to prove elsewhere, and memory is no way around them.
std::optional<Key> NetworkCore::key_for(Door door, const NodeDescription& peer) const {
  if (door == Door::known || !options_.encryption.has_certificates()) return options_.key;
  return memory_proof_key(memory_key_for(peer, *shm_secret_), options_.key);
}

Challenge NetworkCore::make_challenge(const Hello& hello, const Transport& transport,
                                      bool with_key) {
  Challenge challenge;
  challenge.node = describe(with_key);
  challenge.nonce = make_nonce();
  const bool same_host = hello.node.boot_id == options_.boot_id && !shm_name_.empty();
  if (!same_host || !(hello.node.capabilities & capability::shared_memory)) return challenge;
  if (!options_.encryption.has_certificates()) {
    if (transport.name() != "shm") challenge.shm_name = shm_name_;
  } else if (transport.name() == "tls") {
    challenge.shm_name = shm_name_;
    challenge.shm_key = memory_key_for(hello.node, *shm_secret_);
  }
  return challenge;
}

Task<void> NetworkCore::accept_from(std::shared_ptr<TransportListener> listener, Door door) {
  while (true) {
    std::unique_ptr<Transport> transport;
    bool failed = false;
    try {
      transport = co_await listener->accept();
      scope_->spawn(serve(std::move(transport), door));
    } catch (const Error& error) {
      if (error.is(Errc::cancelled) || error.is(Errc::shutting_down)) co_return;
      log::warning(error.what());
      failed = true;
    } catch (const std::exception& error) {
      log::warning(std::string("accepting a peer failed: ") + error.what());
      failed = true;
    }
    if (failed) {
      // Such as out of descriptors: others may end meanwhile.
      try {
        co_await sleep_for(100ms);
      } catch (const Error&) {
        co_return;
      }
    }
  }
}

Task<void> NetworkCore::serve(std::unique_ptr<Transport> transport, Door door) {
  hyperframes::detail::PromiseBase& promise = co_await CurrentPromise{};
  Pending pending(*this, promise.cancel);
  try {
    co_await with_cancellation(pending.cancel, shake_hands(std::move(transport), door,
                                                           after(timing().handshake_deadline())));
  } catch (const Error& error) {
    note_refusal(error);
  } catch (const std::exception& error) {
    // Such as no memory, in this one handshake: the next may have some.
    note_refusal(Error(Errc::internal, "let a peer in", error.what()));
  }
}

// Anybody can make these lines: one a second is enough.
void NetworkCore::note_refusal(const Error& error) {
  const bool usual = error.is(Errc::closed) || error.is(Errc::deadline_exceeded) ||
                     error.is(Errc::exhausted) || error.is(Errc::already_exists) ||
                     error.is(Errc::shutting_down);
  if (usual || Clock::now() < next_warning_) return log::debug(error.what());
  next_warning_ = after(1s);
  log::warning(std::string("a peer was not let in: ") + error.what());
}

Task<void> NetworkCore::shake_hands(std::unique_ptr<Transport> transport, Door door,
                                    Time deadline) {
  std::optional<Reject> reject;
  std::optional<Error> failure;
  Hello hello;
  try {
    auto first = co_await read_frame(transport.get(), deadline);
    hello = expect(first, FrameKind::hello, &decode_hello, *transport);
    const std::optional<Key> key = key_for(door, hello.node);
    reject = check(hello, describe(key.has_value()));
    if (!reject) {
      Challenge challenge = make_challenge(hello, *transport, key.has_value());
      if (key) challenge.proof = prove_accepting(*key, first.second.bytes(), challenge);
      co_await transport->send_all(encode(challenge), deadline);
      auto second = co_await read_frame(transport.get(), deadline);
      const Proof proof = expect(second, FrameKind::proof, &decode_proof, *transport);
      if (key &&
          (!proof.proof ||
           !same_proof(*proof.proof, prove_connecting(*key, first.second.bytes(), challenge))))
        reject =
            Reject{Check::authentication, "your proof is wrong: give both nodes the same key file"};
    }
    if (!reject) co_await transport->receive_trusted();
  } catch (const Error& error) {
    const Check failed = error.is(Errc::version_mismatch)  ? Check::protocol_version
                         : error.is(Errc::unauthenticated) ? Check::authentication
                                                           : Check::malformed;
    if (failed == Check::malformed && !error.is(Errc::corrupt)) throw;
    failure = error;
    reject = Reject{failed, error.found()};
  }
  if (!reject) reject = admit(hello, *transport);
  if (reject) {
    co_await transport->send_all(encode(*reject), deadline);
    if (failure) throw *failure;
    const bool known = reject->check == Check::already_connected;
    throw Error(known ? Errc::already_exists : Errc::rejected,
                "let in " + node_name(hello.node.node_id) + " at " + transport->peer(),
                "the check '" + std::string(name(reject->check)) + "' failed: " + reject->text);
  }
  transport->trust_peer();
  if (hello.delivered) {
    hand_over_again(hello, std::move(transport));
  } else {
    hand_over(hello, std::move(transport));
  }
}

/// A new link, to its shard.
void NetworkCore::hand_over(const Hello& hello, std::unique_ptr<Transport> transport) {
  const Entry& entry = entries_.at(hello.node.node_id);
  const bool rdma =
      rdma_ && (hello.node.capabilities & capability::rdma) && transport->name() != "shm";
  if (rdma) transport = make_rdma_transport(std::move(transport), rdma_, RdmaSide::accepting, true);
  auto installation = make_installation(entry, hello.link_index, std::move(transport));
  installation->first = encode(Welcome{hello.session, hello.link_index, std::nullopt, rdma});
  post(shard_of(hello.link_index), [installation](NetworkCore& core) {
    auto installed = core.here().install(*installation);
    if (installed) return;
    const Reject reject{Check::limits, installed.error().found()};
    Shard::current()->spawn(send_reject(std::move(installation->transport), reject));
    core.report_link_ended(installation->session, installed.error());
  });
}

/// A connection for a link that broke, to the shard of that.
void NetworkCore::hand_over_again(const Hello& hello, std::unique_ptr<Transport> transport) {
  auto resumption = std::make_shared<Resumption>();
  resumption->session = entries_.at(hello.node.node_id).number;
  resumption->link = hello.link_index;
  resumption->peer_delivered = *hello.delivered;
  resumption->transport = std::move(transport);
  resumption->welcome = hello.session;
  post(
      shard_of(hello.link_index),
      [resumption](NetworkCore& core) {
        const auto resumed = core.here().resume(*resumption);
        if (resumed) return;
        // Which counter would do is this side's log's to tell, and no stranger's to hear.
        const Error& error = resumed.error();
        const std::string why =
            error.is(Errc::corrupt) ? "that can't be the last frame that you have" : error.found();
        Shard::current()->spawn(
            send_reject(std::move(resumption->transport), Reject{Check::link, why}));
        core.post(core.home(), [error](NetworkCore& core) { core.note_refusal(error); });
      },
      Group::system);
}

// The directory's word on a peer that has shown who it is.
std::optional<Reject> NetworkCore::admit(const Hello& hello, const Transport& transport) {
  if (hello.delivered) return admit_again(hello);
  if (stopping_) return Reject{Check::shutting_down, "this node is closing its network"};
  if (hello.link_index == 0) return admit_first_link(hello, transport);
  const auto found = entries_.find(hello.node.node_id);
  const bool fits = found != entries_.end() && !found->second.initiated &&
                    found->second.incarnation == hello.node.incarnation &&
                    found->second.peer_number == hello.session &&
                    hello.link_index < found->second.link_count &&
                    !found->second.links.contains(hello.link_index);
  if (!fits)
    return Reject{Check::link,
                  "there is no session that lacks link " + std::to_string(hello.link_index)};
  found->second.links.insert(hello.link_index);
  return std::nullopt;
}

/// The counter itself is looked at by the link.
std::optional<Reject> NetworkCore::admit_again(const Hello& hello) const {
  const auto found = entries_.find(hello.node.node_id);
  const bool fits =
      found != entries_.end() && !found->second.initiated && found->second.settings.resumable &&
      found->second.incarnation == hello.node.incarnation &&
      found->second.peer_number == hello.session && found->second.links.contains(hello.link_index);
  if (fits) return std::nullopt;
  return Reject{Check::link, "there is no session " + std::to_string(hello.session) +
                                 " with you any more whose link " +
                                 std::to_string(hello.link_index) + " could be taken up"};
}

std::optional<Reject> NetworkCore::admit_first_link(const Hello& hello,
                                                    const Transport& transport) {
  if (const auto fault = too_many_links(hello.node)) return Reject{Check::limits, *fault};
  const std::uint64_t node = hello.node.node_id;
  if (const auto found = entries_.find(node); found != entries_.end()) {
    const Entry& entry = found->second;
    if (hello.node.incarnation < entry.incarnation)
      return Reject{Check::incarnation, "incarnation " + std::to_string(entry.incarnation) +
                                            " of " + node_name(node) + " is newer than your " +
                                            std::to_string(hello.node.incarnation) +
                                            ": another process has this identity, as one on a copy "
                                            "of a work folder does"};
    if (hello.node.incarnation == entry.incarnation) {
      // It would not ask for a new one if it still had ours; one that it began is the older one.
      if (entry.initiated || hello.session <= entry.peer_number)
        return Reject{Check::already_connected, "there is a session already"};
      end_session(node, Error(Errc::peer_lost, "use the session with " + node_name(node),
                              "it began another one"));
    } else {
      end_session(node, stale(node, hello.node.incarnation));
    }
  } else if (connecting_.contains(node) && options_.node_id < node) {
    // Both connect at the same time: the lower id's connection is the one.
    return Reject{Check::already_connected, "this node's own connection to you is under way"};
  }
  Entry entry = make_entry(hello.node, hello.session, false, transport);
  entry.links.insert(0);
  entry.ready = true;
  entries_.emplace(node, std::move(entry));
  changed_.pulse();
  return std::nullopt;
}

/// Each link has windows of its own, and one peer's may take half of a shard's budget.
std::optional<std::string> NetworkCore::too_many_links(const NodeDescription& node) const {
  const std::uint64_t shards = runtime_.shard_count();
  const std::uint64_t a_shard = std::max<std::uint64_t>(
      1, options_.receive_budget_bytes / 2 / ReceiveAccount::least_windows());
  if (node.shard_count <= shards * a_shard) return std::nullopt;
  return "a session of nodes with " + std::to_string(shards) + " and " +
         std::to_string(node.shard_count) + " shards needs more links than the receive budget of " +
         std::to_string(options_.receive_budget_bytes) + " bytes has room for";
}

// ---- Connecting
// ----------------------------------------------------------------------------------

Hello NetworkCore::make_hello(std::uint64_t session, std::uint32_t link, bool rdma) {
  Hello hello;
  hello.node = describe(options_.key.has_value());
  if (!rdma) hello.node.capabilities &= ~capability::rdma;
  hello.session = session;
  hello.link_index = link;
  hello.nonce = make_nonce();
  return hello;
}

Task<std::uint64_t> NetworkCore::connect(Endpoint endpoint, Time deadline) {
  auto self = shared_from_this();
  Memory memory;
  memory.wanted = endpoint.scheme == Scheme::automatic;
  while (true) {
    if (stopping_)
      throw Error(Errc::shutting_down, "connect to " + endpoint.to_string(),
                  "the network is closed");
    const Attempt made = co_await attempt(endpoint, &memory, deadline);
    if (made.done) co_return made.node;
    // Another connection with that node is in the making: see what becomes of it.
    const Time look_again = std::min(deadline, after(20ms));
    try {
      co_await changed_.wait(look_again);
    } catch (const Error& error) {
      if (!error.is(Errc::deadline_exceeded) || Clock::now() >= deadline) throw;
    }
  }
}

Task<NetworkCore::Attempt> NetworkCore::attempt(Endpoint endpoint, Memory* memory, Time deadline) {
  const std::string tried = "connect to " + endpoint.to_string();
  TransportProvider& provider = provider_of(endpoint, "connect to ");
  const std::vector<Endpoint> addresses = co_await resolve(endpoint, deadline);
  const bool rdma = co_await prepare_rdma(endpoint);
  std::string failures;
  std::optional<Error> refusal;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    // What is left is shared out, so that an address that swallows packets does not eat it all.
    const Time now = Clock::now();
    const auto share = (deadline == no_deadline ? timing().default_deadline() : deadline - now) /
                       static_cast<std::int64_t>(addresses.size() - i);
    const Time until = std::min(deadline, after(share));
    std::optional<Greeting> greeting;
    try {
      auto transport = co_await provider.connect(addresses[i], until);
      greeting = co_await greet(std::move(transport), make_hello(++next_session_, 0, rdma),
                                options_.key, until);
    } catch (const Error& error) {
      if (error.is(Errc::cancelled) || error.is(Errc::shutting_down)) throw;
      if (error.is(Errc::rejected) || error.is(Errc::unauthenticated) ||
          error.is(Errc::version_mismatch))
        refusal = error;
      failures += (failures.empty() ? "" : "; ") + addresses[i].to_string() + ": " + text_of(error);
    }
    if (!greeting) continue;
    if (const auto known = look_up(greeting->challenge.node)) co_return *known;
    const std::uint64_t node = greeting->challenge.node.node_id;
    const Connecting connecting(*this, node);  // before anything else can run
    const bool peer_has_rdma = greeting->challenge.node.capabilities & capability::rdma;
    if (rdma && !peer_has_rdma && endpoint.scheme == Scheme::rdma)
      log::warning(endpoint.to_string() + ": TCP is used, for the peer does not offer RDMA");
    const bool opened = co_await open_session(addresses[i], std::move(*greeting), memory, deadline);
    co_return Attempt{node, opened};
  }
  if (refusal) throw *refusal;
  if (!memory->failure.empty()) failures += "; before that, " + memory->failure;
  if (memory->wanted) failures += "; shared memory: a peer that answers would say where";
  throw Error(Errc::unreachable, tried, "no address answered: " + failures,
              "check that the peer runs and listens there, and that no firewall is between");
}

// What a name server is asked can't be called back, and it may be silent for half a minute: so that
// goes on by itself.
Task<std::vector<Endpoint>> NetworkCore::resolve(Endpoint endpoint, Time deadline) {
  auto answer = std::make_shared<Answer>();
  Shard::current()->spawn(ask_for_addresses(shared_from_this(), endpoint, answer));
  try {
    co_await answer->there.wait(deadline);
  } catch (const Error& error) {
    if (!error.is(Errc::deadline_exceeded)) throw;
    throw Error(Errc::deadline_exceeded, "connect to " + endpoint.to_string(),
                "its name was not resolved in time", "see whether the name server answers");
  }
  if (answer->failure) std::rethrow_exception(answer->failure);
  co_return std::move(answer->addresses);
}

Task<void> NetworkCore::ask_for_addresses(std::shared_ptr<NetworkCore> self, Endpoint endpoint,
                                          std::shared_ptr<Answer> answer) {
  try {
    answer->addresses =
        co_await self->provider_of(endpoint, "connect to ").resolve(std::move(endpoint));
  } catch (...) {
    answer->failure = std::current_exception();
  }
  answer->there.set();
}

Task<NetworkCore::Greeting> NetworkCore::greet(std::unique_ptr<Transport> transport, Hello hello,
                                               std::optional<Key> key, Time deadline) {
  Greeting greeting;
  hello.node.authentication = key ? Authentication::shared_key : Authentication::none;
  greeting.hello = hello;
  greeting.hello_frame = encode(hello);
  co_await transport->send_all(greeting.hello_frame, deadline);
  auto answer = co_await read_frame(transport.get(), deadline);
  greeting.challenge = expect(answer, FrameKind::challenge, &decode_challenge, *transport);
  const NodeDescription& node = greeting.challenge.node;
  if (greeting.challenge.protocol < protocol_min || greeting.challenge.protocol > protocol_max)
    throw Error(Errc::version_mismatch, "connect to " + transport->peer(),
                "it chose protocol " + std::to_string(greeting.challenge.protocol) +
                    ", this node speaks " + std::to_string(protocol_min) + " to " +
                    std::to_string(protocol_max));
  if (const auto fault = too_many_links(node))
    throw Error(Errc::rejected, "connect to " + transport->peer(), *fault,
                "raise this node's receive_budget_bytes");
  if (node.node_id == options_.node_id && node.incarnation == options_.incarnation)
    throw Error(Errc::rejected, "connect to " + transport->peer(), "it is this node itself",
                "give the address of another node");
  if (key) {
    const auto& proof = greeting.challenge.proof;
    const bool right =
        proof && same_proof(*proof, prove_accepting(*key, payload_of(greeting.hello_frame),
                                                    greeting.challenge));
    if (!right) {
      const Reject reject{Check::authentication,
                          "your proof is wrong: give both nodes the same key file"};
      co_await transport->send_all(encode(reject), deadline);
      throw Error(Errc::unauthenticated, "connect to " + transport->peer(),
                  "its proof is wrong: it does not have this node's key",
                  "give both nodes the same key file");
    }
  }
  greeting.transport = std::move(transport);
  greeting.key = std::move(key);
  co_return greeting;
}

/// Whether that node needs no new session: there is one, or one is in the making.
std::optional<NetworkCore::Attempt> NetworkCore::look_up(const NodeDescription& node) {
  const auto found = entries_.find(node.node_id);
  if (found != entries_.end()) {
    const Entry& entry = found->second;
    if (entry.incarnation == node.incarnation) return Attempt{node.node_id, entry.ready};
    if (entry.incarnation > node.incarnation)
      throw Error(Errc::rejected, "connect to " + node_name(node.node_id),
                  "incarnation " + std::to_string(entry.incarnation) +
                      " of it is known, and newer than " + std::to_string(node.incarnation));
    end_session(node.node_id, stale(node.node_id, node.incarnation));
  }
  if (connecting_.contains(node.node_id)) return Attempt{node.node_id, false};
  return std::nullopt;
}

/// Proves who we are, to a node that has proved it before, in `greet`.
Task<NetworkCore::Entered> NetworkCore::enter(Greeting greeting, Time deadline) {
  Transport& transport = *greeting.transport;
  Proof proof;
  if (greeting.key)
    proof.proof =
        prove_connecting(*greeting.key, payload_of(greeting.hello_frame), greeting.challenge);
  transport.trust_peer();
  co_await transport.send_all(encode(proof), deadline);
  auto answer = co_await read_frame(&transport, deadline);
  if (answer.first.kind == FrameKind::reject) {
    const Reject reject = decode_reject(answer.second.bytes()).value();
    if (reject.check == Check::already_connected) co_return Entered();
    throw rejection_error(reject, transport.peer());
  }
  const Welcome welcome = expect(answer, FrameKind::welcome, &decode_welcome, transport);
  if (welcome.session != greeting.hello.session || welcome.link_index != greeting.hello.link_index)
    throw Error(Errc::corrupt, "shake hands with " + transport.peer(),
                "it welcomes another link than this one");
  co_await transport.receive_trusted();
  const bool asked = greeting.hello.node.capabilities & capability::rdma;
  if (welcome.rdma && !asked)
    throw Error(Errc::corrupt, "shake hands with " + transport.peer(),
                "it begins with RDMA, for which it was not asked");
  if (welcome.rdma)
    greeting.transport =
        make_rdma_transport(std::move(greeting.transport), rdma_, RdmaSide::connecting);
  co_return Entered{std::move(greeting.transport), welcome.delivered};
}

// The name is no more than an address: who answers there, and who is let in, shows who it is by a
// handshake. Where certificates say that, by having what was told over TLS.
void NetworkCore::find_memory(const Greeting& greeting, Memory& memory) const {
  memory.place.reset();
  const Challenge& challenge = greeting.challenge;
  const bool same_host = challenge.node.boot_id == options_.boot_id &&
                         Shard::current()->reactor().has_system_descriptors();
  if (!memory.wanted || challenge.shm_name.empty() || !same_host) return;
  std::optional<Key> key = options_.key;
  if (options_.encryption.has_certificates()) {
    if (!challenge.shm_key || greeting.transport->name() != "tls") return;
    key = memory_proof_key(*challenge.shm_key, options_.key);
  }
  memory.place = Place{{Scheme::shm, challenge.shm_name, 0}, std::move(key)};
}

/// Through memory if the peer has some and that works, else over the connection of the greeting.
Task<NetworkCore::Entered> NetworkCore::enter_first(Greeting greeting, Memory* memory,
                                                    Time deadline) {
  find_memory(greeting, *memory);
  if (memory->place) {
    const NodeDescription& answers = greeting.challenge.node;
    const Identity node{answers.node_id, answers.incarnation};
    const Hello hello = make_hello(greeting.hello.session, 0);
    auto shared = co_await try_memory(*memory->place, node, hello, deadline);
    if (shared) co_return co_await enter(std::move(*shared), deadline);
    log_memory_failure(node.node_id, shared.error());
    memory->failure = memory->place->endpoint.to_string() + ": " + text_of(shared.error());
    memory->wanted = false;
  }
  co_return co_await enter(std::move(greeting), deadline);
}

Task<NetworkCore::Greeting> NetworkCore::greet_at(Place place, Identity node, Hello hello,
                                                  Time deadline) {
  const Endpoint address = place.endpoint;
  auto transport = co_await provider_of(address, "connect to ").connect(address, deadline);
  Greeting greeting = co_await greet(std::move(transport), hello, place.key, deadline);
  const NodeDescription& answers = greeting.challenge.node;
  if (Identity{answers.node_id, answers.incarnation} != node)
    throw Error(Errc::peer_lost, "connect to " + address.to_string(),
                "another node answers there than a moment ago");
  co_return greeting;
}

// Of the first link, the peer waits for the proof on the other connection meanwhile.
Task<Result<NetworkCore::Greeting>> NetworkCore::try_memory(Place place, Identity node, Hello hello,
                                                            Time deadline) {
  const Time now = Clock::now();
  const Duration left = deadline == no_deadline ? timing().default_deadline() : deadline - now;
  const Time soon = after(std::min<Duration>(left, timing().handshake_deadline()) / 2);
  try {
    co_return co_await greet_at(place, node, hello, soon);
  } catch (const Error& error) {
    if (error.is(Errc::cancelled) || error.is(Errc::shutting_down)) throw;
    co_return error;
  } catch (const std::exception& error) {
    co_return Error(Errc::internal, "connect to " + place.endpoint.to_string(), error.what());
  }
}

/// False: the peer prefers another connection between us.
Task<bool> NetworkCore::open_session(Endpoint address, Greeting greeting, Memory* memory,
                                     Time deadline) {
  const NodeDescription node = greeting.challenge.node;
  const std::uint64_t session = greeting.hello.session;
  const bool rdma = greeting.hello.node.capabilities & capability::rdma;
  std::uint64_t number = 0;
  std::optional<Error> failure;
  try {
    Entered entered = co_await enter_first(std::move(greeting), memory, deadline);
    std::unique_ptr<Transport> first = std::move(entered.transport);
    const bool wanted = first && !entries_.contains(node.node_id) && !stopping_;
    if (!wanted) co_return false;
    Entry entry = make_entry(node, session, true, *first);
    number = entry.number;
    entry.address = address;
    entry.rdma = rdma;
    if (memory->wanted) entry.memory = memory->place;
    for (std::uint32_t i = 0; i < entry.link_count; ++i) entry.links.insert(i);
    entries_.emplace(node.node_id, std::move(entry));
    co_await open_links(number, address, std::move(first), deadline);
    entry_of(number).ready = true;
    changed_.pulse();
    co_return true;
  } catch (const Error& error) {
    failure = error;
  } catch (const std::exception& error) {
    failure = Error(Errc::internal, "connect to " + address.to_string(), error.what());
  }
  if (number && find(number) != entries_.end()) end_session(node.node_id, *failure);
  if (memory->failure.empty()) throw *failure;
  throw Error(failure->code(), failure->tried(),
              text_of(*failure) + "; before that, " + memory->failure, failure->remedy());
}

NetworkCore::Entry& NetworkCore::entry_of(std::uint64_t number) {
  const auto found = find(number);
  if (found != entries_.end()) return found->second;
  throw Error(Errc::peer_lost, "connect to a node",
              "the session ended while its links were set up");
}

// The first link begins at once: the peer's end of it has begun, and wants heartbeats. A node sends
// through the lowest link of each shard, so those are there before the others, at both ends.
Task<void> NetworkCore::open_links(std::uint64_t number, Endpoint address,
                                   std::unique_ptr<Transport> first, Time deadline) {
  const std::uint32_t count = entry_of(number).link_count;
  const std::uint32_t lowest = std::min(runtime_.shard_count(), entry_of(number).peer.shard_count);
  co_await begin_link(number, 0, std::move(first));
  for (std::uint32_t next = 1; next < count;) {
    const std::uint32_t end = std::min(next < lowest ? lowest : count, next + links_at_once);
    std::vector<Task<void>> some;
    for (; next < end; ++next) some.push_back(open_link(number, next, address, deadline));
    co_await when_all(std::move(some));
  }
  entry_of(number);
}

Task<void> NetworkCore::open_link(std::uint64_t number, std::uint32_t link, Endpoint address,
                                  Time deadline) {
  const PeerInfo peer = entry_of(number).peer;
  const std::uint64_t session = entry_of(number).peer_number;
  const Identity node{peer.node_id, peer.incarnation};
  std::optional<Greeting> greeting;
  if (const std::optional<Place> memory = entry_of(number).memory) {
    auto shared = co_await try_memory(*memory, node, make_hello(session, link), deadline);
    if (shared) {
      greeting = std::move(*shared);
    } else if (std::exchange(entry_of(number).memory, std::nullopt)) {
      log_memory_failure(node.node_id, shared.error());  // for all of them
    }
  }
  const Place in_the_open{address, options_.key};
  if (!greeting) {
    const Hello hello = make_hello(session, link, entry_of(number).rdma);
    greeting = co_await greet_at(in_the_open, node, hello, deadline);
  }
  Entered entered = co_await enter(std::move(*greeting), deadline);
  if (!entered.transport)
    throw Error(Errc::rejected, "connect to " + address.to_string(),
                "it did not take link " + std::to_string(link));
  co_await begin_link(number, link, std::move(entered.transport));
}

Task<void> NetworkCore::begin_link(std::uint64_t number, std::uint32_t link,
                                   std::unique_ptr<Transport> transport) {
  auto self = shared_from_this();
  auto installation = make_installation(entry_of(number), link, std::move(transport));
  auto install = [self, installation] { return self->here().install(*installation); };
  Result<void> installed = co_await call_on(shard_of(link), install);
  installed.value();
}

// ---- Connecting again
// ----------------------------------------------------------------------------

void NetworkCore::report_link_broken(std::uint64_t number, const BrokenLink& link) {
  post(
      home(),
      [number, link](NetworkCore& core) {
        const auto found = core.find(number);
        // The side that had connected connects again; the other one waits for it.
        if (found == core.entries_.end() || !found->second.initiated) return;
        if (!core.scope_) core.scope_ = std::make_unique<Scope>();
        core.scope_->spawn(core.take_up_link(number, link));
      },
      Group::system);
}

// Until it is taken up, or what answers says that it never will be. When its window has passed the
// link ends the session, which is found out here.
Task<void> NetworkCore::take_up_link(std::uint64_t number, BrokenLink link) {
  const Time until = after(link.window);
  Duration pause = timing().heartbeat() / 50;
  const auto found = find(number);
  if (found == entries_.end()) co_return;
  const std::shared_ptr<Semaphore> turns = found->second.take_ups;
  while (true) {
    Time next = after(pause);
    std::optional<Error> failure;
    try {
      const Semaphore::Permit turn = co_await turns->acquire(1);
      next = after(spread(pause));
      co_await take_up_once(number, link, until);
      co_return;
    } catch (const Error& error) {
      failure = error;
    } catch (const std::exception& error) {
      failure = Error(Errc::internal, "take up a link again", error.what());
    }
    if (failure->is(Errc::cancelled) || failure->is(Errc::shutting_down)) co_return;
    const bool for_good = says_never(*failure);
    report_attempt(number, link, *failure, for_good);
    if (for_good) co_return;
    try {
      co_await sleep_until(next);
    } catch (const Error&) {
      co_return;
    }
    pause = std::min(2 * pause, timing().heartbeat() / 8);
  }
}

/// From half of it to one and a half, so that those who lost the same network don't come together.
Duration NetworkCore::spread(Duration pause) {
  std::uint16_t chance = 0;
  options_.random(std::as_writable_bytes(std::span(&chance, 1)));
  return pause / 2 + pause * chance / 65536;
}

Task<void> NetworkCore::take_up_once(std::uint64_t number, BrokenLink link, Time until) {
  auto self = shared_from_this();
  // Not all that is left; the peer may wait for less than this side does.
  const Duration beat = timing().heartbeat(), share = (until - Clock::now()) / 2;
  const Time deadline = after(std::clamp<Duration>(share, beat / 4, beat));
  Greeting greeting = co_await greet_again(number, link, deadline);
  Entered entered = co_await enter(std::move(greeting), deadline);
  if (!entered.transport || !entered.delivered)
    throw Error(Errc::rejected, "take up link " + std::to_string(link.index) + " again",
                "the peer does not know it any more", "connect to it anew");
  auto resumption = std::make_shared<Resumption>();
  resumption->session = number;
  resumption->link = link.index;
  resumption->peer_delivered = *entered.delivered;
  resumption->transport = std::move(entered.transport);
  resumption->breaks = link.breaks;
  auto resume = [self, resumption] { return self->here().resume(*resumption); };
  const Result<void> resumed = co_await call_on(shard_of(link.index), resume);
  if (!resumed)
    throw Error(Errc::rejected, "take up link " + std::to_string(link.index) + " again",
                resumed.error().found());
}

/// Up to the peer's challenge, which says who it is: the same process as before, or another one.
Task<NetworkCore::Greeting> NetworkCore::greet_again(std::uint64_t number, BrokenLink link,
                                                     Time deadline) {
  const auto found = find(number);
  if (found == entries_.end())
    throw Error(Errc::already_exists, "take up a link again", "its session has ended",
                "connect to the peer anew");
  const PeerInfo peer = found->second.peer;
  const Endpoint address = found->second.address;
  Hello hello = make_hello(found->second.peer_number, link.index);
  hello.delivered = link.delivered;
  auto transport = co_await connect_soon(address, deadline);
  Greeting greeting = co_await greet(std::move(transport), hello, options_.key, deadline);
  const NodeDescription& node = greeting.challenge.node;
  if (node.node_id != peer.node_id)
    throw Error(Errc::peer_lost, "connect to " + address.to_string(),
                node_name(node.node_id) + " answers there now",
                "give each node an address of its own, and connect anew");
  if (node.incarnation != peer.incarnation) throw stale(node.node_id, node.incarnation);
  co_return greeting;
}

// A first packet that a network has lost is sent again by the system only after a second. So others
// follow it, and the first answer counts.
Task<std::unique_ptr<Transport>> NetworkCore::connect_soon(Endpoint address, Time deadline) {
  TransportProvider& provider = provider_of(address, "connect to ");
  if (address.scheme != Scheme::tcp) co_return co_await provider.connect(address, deadline);
  auto first =
      co_await when_any(provider.connect(address, deadline), connect_later(address, deadline));
  co_return std::visit([](auto& transport) { return std::move(transport); }, first);
}

Task<std::unique_ptr<Transport>> NetworkCore::connect_later(Endpoint address, Time deadline) {
  co_await sleep_for(timing().heartbeat() / 4);
  co_return co_await connect_soon(address, deadline);
}

void NetworkCore::report_attempt(std::uint64_t number, const BrokenLink& link, const Error& cause,
                                 bool for_good) {
  post(
      shard_of(link.index),
      [number, link, cause, for_good](NetworkCore& core) {
        core.here().attempt_failed(number, link.index, link.breaks, cause, for_good);
      },
      Group::system);
}

}  // namespace hyperframes::net::detail
