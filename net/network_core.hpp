// What stands behind Network: the directory of sessions on shard 0, and each shard's part.
//
//   auto core = std::make_shared<NetworkCore>(runtime, options, handler);
//   auto node = co_await core->connect(endpoint, deadline);      // on shard 0
//   SessionRef session = core->shard(Shard::current()->index()).session(node);
//
// The directory decides which session lives, accepts and connects, and hands each link's transport
// to the shard it belongs to. Shards report ended links to it. All of that travels by posts from
// and to shard 0, which keep their order.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <hyperframes/net/flow_control.hpp>
#include <hyperframes/net/handshake.hpp>
#include <hyperframes/net/link.hpp>
#include <hyperframes/net/network.hpp>
#include <hyperframes/net/transport.hpp>
#include <hyperframes/runtime/detail/list.hpp>
#include <hyperframes/runtime/event.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/scope.hpp>
#include <hyperframes/runtime/semaphore.hpp>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace hyperframes::net::detail {

class NetworkCore;
class LoanArena;
class RdmaDevice;

/// A link that is to begin on some shard.
struct Installation {
  std::uint64_t session = 0;  ///< The directory's number of it.
  PeerInfo peer;
  std::unique_ptr<Transport> transport;
  Buffer first;  ///< Leaves before everything else; may be empty.
  LinkSettings settings;
  std::optional<Error> closing;  ///< Its session is to end, for that reason.
};

/// A link that has broken, as its shard tells the directory.
struct BrokenLink {
  std::uint32_t index = 0;
  std::uint64_t breaks = 0;     ///< Which break of the link, from 1.
  std::uint64_t delivered = 0;  ///< The last frame that this side has.
  Duration window{0};           ///< So long it waits to be taken up.
};

/// A connection over which a link is to go on.
struct Resumption {
  std::uint64_t session = 0;  ///< The directory's number of it.
  std::uint32_t link = 0;
  std::uint64_t peer_delivered = 0;  ///< The last frame that the peer has.
  std::unique_ptr<Transport> transport;
  std::uint64_t breaks = 0;              ///< Connecting: which break this is the answer to.
  std::optional<std::uint64_t> welcome;  ///< Accepting: the session's number in the Welcome.
};

/// One shard's part. Lives and dies on it.
class NetworkShard final : public LinkOwner {
 public:
  NetworkShard(NetworkCore& core, Shard& shard);

  Shard& shard() noexcept { return shard_; }
  /// Errc::exhausted if there is no memory for one more link; then `installation` is untouched.
  Result<void> install(Installation& installation);
  /// An error if there is no such link, or it can't go on like that; then it is as it was, and so
  /// is `resumption`.
  Result<void> resume(Resumption& resumption);
  /// An attempt to take up a broken link failed. `for_good`: another one is of no use.
  void attempt_failed(std::uint64_t session, std::uint32_t link, std::uint64_t breaks,
                      const Error& cause, bool for_good);
  void begin_close(std::uint64_t session, const Error& reason);
  void end_session(std::uint64_t session, const Error& reason);
  /// Ends what there is, at once.
  void stop();

  SessionRef session(std::uint64_t node_id) const;
  std::vector<SessionRef> sessions() const;
  /// Messages that peers have not acknowledged: of all links that are, or have ended.
  std::uint64_t unacknowledged() const noexcept;

  // For Session.
  void close_session(Session& session, std::string why);
  void add_stats(const Session& session, Session::Stats& stats) const;
  /// Null if this shard has no such link of the session.
  Link* find_link(const Session& session, std::uint32_t index) const noexcept;

 private:
  MessageHandler& handler() noexcept override;
  void on_link_broken(Link& link) noexcept override;
  void on_link_ended(Link& link, const Error& reason) noexcept override;
  Session* find(std::uint64_t session) const noexcept;
  /// Of those that a program handed over.
  std::uint64_t unacknowledged(const Link& link) const noexcept;

  NetworkCore& core_;
  Shard& shard_;
  std::shared_ptr<ReceiveBudget> budget_;
  std::map<std::uint64_t, SessionRef> sessions_;  ///< By node id; those that are up.
  std::vector<std::unique_ptr<Link>> links_;
  std::uint64_t lost_ = 0;  ///< Messages not acknowledged by the end of their links.
  bool stopped_ = false;
};

class NetworkCore : public std::enable_shared_from_this<NetworkCore> {
 public:
  NetworkCore(Runtime& runtime, Network::Options options, MessageHandler& handler);

  const Network::Options& options() const noexcept { return options_; }
  Runtime& runtime() const noexcept { return runtime_; }
  MessageHandler& handler() const noexcept { return handler_; }
  NetworkShard& here() noexcept { return *shards_[Shard::current()->index()]; }
  Shard& home() const noexcept { return runtime_.shard(0); }
  /// What it lends from; null: nothing.
  LoanArena* arena() const noexcept { return arena_.get(); }

  // On shard 0.
  Task<Endpoint> listen(Endpoint endpoint);
  Task<std::uint64_t> connect(Endpoint endpoint, Time deadline);
  Task<std::uint64_t> close(Duration drain);
  void stop_directory();
  bool has_session(std::uint64_t node) const noexcept { return entries_.contains(node); }

  // From any shard.
  void report_link_broken(std::uint64_t session, const BrokenLink& link);
  void report_link_ended(std::uint64_t session, Error reason);
  void request_close(std::uint64_t session, std::string why);
  /// Ends everything on the current shard.
  void stop_here();

  /// Runs `function` on `target`, after what this shard posted there before.
  /// What a link waits for that broke goes in the system group: a backlog of others must not cost
  /// it its time.
  void post(Shard& target, std::function<void(NetworkCore&)> function, Group group = Group::user);

 private:
  /// Where a node is reached, and what both ends prove there to have.
  struct Place {
    Endpoint endpoint;
    std::optional<Key> key;
  };
  /// By which way a peer comes in.
  enum class Door : std::uint8_t {
    known,  ///< An address or a name that it was given.
    told,   ///< The name that it was told on another connection of its.
  };
  struct Entry {
    std::uint64_t number = 0;       ///< Ours, for the shards.
    std::uint64_t peer_number = 0;  ///< The connecting side's.
    std::uint64_t incarnation = 0;
    bool initiated = false;
    bool ready = false;  ///< All links are set up.
    std::uint32_t link_count = 0;
    std::set<std::uint32_t> links;  ///< Set up so far.
    std::uint32_t ended_in_order = 0;
    PeerInfo peer;
    Endpoint address;             ///< To connect to again; only if we had.
    bool rdma = false;            ///< Links that begin there ask for queue pairs.
    std::optional<Place> memory;  ///< Where its links are made, if not there.
    LinkSettings settings;
    std::optional<Error> closing;  ///< It is to end, for that reason.
    std::shared_ptr<Semaphore> take_ups;
  };
  struct Pending;
  class Connecting;
  struct Frame {
    FrameHeader header;
    Buffer payload;
  };
  /// What the first two messages of a connect brought.
  struct Greeting {
    std::unique_ptr<Transport> transport;
    Hello hello;
    Buffer hello_frame;
    Challenge challenge;
    std::optional<Key> key;  ///< That both ends are to have.
  };
  /// What the last two brought. No transport: the peer has a session already.
  struct Entered {
    std::unique_ptr<Transport> transport;
    std::optional<std::uint64_t> delivered;
  };
  /// What a name stands for.
  struct Answer {
    Event there;
    std::vector<Endpoint> addresses;
    std::exception_ptr failure;
  };
  struct Identity {
    std::uint64_t node_id = 0, incarnation = 0;
    friend bool operator==(const Identity&, const Identity&) = default;
  };
  /// The memory of a peer that is reached by auto://.
  struct Memory {
    bool wanted = false;  ///< And has not turned out to be of no use.
    std::optional<Place> place;
    std::string failure;
  };
  struct Attempt {
    std::uint64_t node = 0;
    bool done = false;  ///< False: another connection with that node is in the making.
  };

  NodeDescription describe(bool with_key) const;
  /// Looks for a device, once. Whether links of that endpoint shall ask for queue pairs, or be
  /// offered them; if not on rdma://, the log says why.
  Task<bool> prepare_rdma(Endpoint endpoint);
  /// `near`: the host of the endpoint that it is for.
  Task<void> look_for_rdma(std::string near);
  Nonce make_nonce();
  Entry make_entry(const NodeDescription& node, std::uint64_t peer_number, bool initiated,
                   const Transport& transport);
  std::shared_ptr<Installation> make_installation(const Entry& entry, std::uint32_t link,
                                                  std::unique_ptr<Transport> transport) const;
  std::map<std::uint64_t, Entry>::iterator find(std::uint64_t number);
  Shard& shard_of(std::uint32_t link) const noexcept {
    return runtime_.shard(link % runtime_.shard_count());
  }
  void end_session(std::uint64_t node, const Error& reason);
  void begin_close(Entry& entry, const Error& reason);
  Task<void> end_later(std::uint64_t number, Error reason);

  // Accepting.
  void accept_on(std::shared_ptr<TransportListener> listener, Door door);
  Task<void> accept_from(std::shared_ptr<TransportListener> listener, Door door);
  void listen_in_memory();
  /// What who comes in by that door proves to have.
  std::optional<Key> key_for(Door door, const NodeDescription& peer) const;
  Challenge make_challenge(const Hello& hello, const Transport& transport, bool with_key);
  Task<void> serve(std::unique_ptr<Transport> transport, Door door);
  Task<void> shake_hands(std::unique_ptr<Transport> transport, Door door, Time deadline);
  std::optional<Reject> admit(const Hello& hello, const Transport& transport);
  std::optional<Reject> admit_first_link(const Hello& hello, const Transport& transport);
  std::optional<Reject> admit_again(const Hello& hello) const;
  void hand_over(const Hello& hello, std::unique_ptr<Transport> transport);
  void hand_over_again(const Hello& hello, std::unique_ptr<Transport> transport);
  /// What is wrong with a session that has a link for each shard of that node.
  std::optional<std::string> too_many_links(const NodeDescription& node) const;
  void note_refusal(const Error& error);

  /// What makes transports for that endpoint. Throws Errc::unsupported, with the schemes there are.
  TransportProvider& provider_of(const Endpoint& endpoint, const char* tried) const;

  // Connecting.
  Hello make_hello(std::uint64_t session, std::uint32_t link, bool rdma = false);
  Task<Attempt> attempt(Endpoint endpoint, Memory* memory, Time deadline);
  Task<std::vector<Endpoint>> resolve(Endpoint endpoint, Time deadline);
  static Task<void> ask_for_addresses(std::shared_ptr<NetworkCore> self, Endpoint endpoint,
                                      std::shared_ptr<Answer> answer);
  Task<Greeting> greet(std::unique_ptr<Transport> transport, Hello hello, std::optional<Key> key,
                       Time deadline);
  Task<Entered> enter(Greeting greeting, Time deadline);
  std::optional<Attempt> look_up(const NodeDescription& node);
  Task<bool> open_session(Endpoint address, Greeting greeting, Memory* memory, Time deadline);
  void find_memory(const Greeting& greeting, Memory& memory) const;
  Task<Entered> enter_first(Greeting greeting, Memory* memory, Time deadline);
  /// A connection for a link of that node, up to the Challenge: nothing has begun at the peer.
  Task<Greeting> greet_at(Place place, Identity node, Hello hello, Time deadline);
  /// Through memory, and with its failure for a result. That comes in time for another attempt.
  Task<Result<Greeting>> try_memory(Place place, Identity node, Hello hello, Time deadline);
  /// Throws Errc::peer_lost if that session has ended.
  Entry& entry_of(std::uint64_t number);
  Task<void> open_links(std::uint64_t number, Endpoint address, std::unique_ptr<Transport> first,
                        Time deadline);
  Task<void> open_link(std::uint64_t number, std::uint32_t link, Endpoint address, Time deadline);
  Task<void> begin_link(std::uint64_t number, std::uint32_t link,
                        std::unique_ptr<Transport> transport);

  // Connecting again.
  Task<void> take_up_link(std::uint64_t number, BrokenLink link);
  Duration spread(Duration pause);
  /// One attempt at it. Throws why it failed.
  Task<void> take_up_once(std::uint64_t number, BrokenLink link, Time until);
  Task<Greeting> greet_again(std::uint64_t number, BrokenLink link, Time deadline);
  Task<std::unique_ptr<Transport>> connect_soon(Endpoint address, Time deadline);
  Task<std::unique_ptr<Transport>> connect_later(Endpoint address, Time deadline);
  void report_attempt(std::uint64_t number, const BrokenLink& link, const Error& cause,
                      bool for_good);

  Runtime& runtime_;
  Network::Options options_;
  MessageHandler& handler_;
  std::vector<std::unique_ptr<NetworkShard>> shards_;
  std::shared_ptr<LoanArena> arena_;

  // Of shard 0.
  std::map<Scheme, std::unique_ptr<TransportProvider>> providers_;
  std::unique_ptr<Scope> scope_;  ///< Accepting and handshakes.
  hyperframes::detail::List<Pending> handshakes_;
  std::size_t handshake_count_ = 0;         ///< Those in the list.
  std::map<std::uint64_t, Entry> entries_;  ///< By node id.
  std::set<std::uint64_t> connecting_;      ///< Nodes that we are about to have a session with.
  std::uint64_t next_number_ = 0, next_session_ = 0;
  Event changed_;                  ///< Pulsed when an entry came, went or got ready.
  std::string shm_name_;           ///< Where this node listens in memory for those who come by TCP.
  std::optional<Key> shm_secret_;  ///< What their keys are made of, if they have certificates.
  Semaphore rdma_turn_{1};         ///< To look for a device.
  std::shared_ptr<RdmaDevice> rdma_;
  std::string no_rdma_;  ///< Why there is none, once that is known.
  bool no_rdma_told_ = false;
  Time next_warning_{};
  bool stopping_ = false;
};

}  // namespace hyperframes::net::detail
