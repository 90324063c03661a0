// Sessions over TLS: who is let in, what the others are told, and what becomes of a connection that
// somebody between the two hosts lays hands on.
#include <openssl/pem.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <hyperframes/net/tls/detail/connection.hpp>
#include <hyperframes/net/tls/tls.hpp>
#include <random>

#include "../runtime/captured_log.hpp"
#include "error_of.hpp"
#include "proxy.hpp"
#include "raw_tls.hpp"
#include "sim_program.hpp"
#include "storm.hpp"
#include "transports.hpp"

using namespace net_test;
using namespace std::chrono;
using hf::test::CapturedLog;
using net::CertificateRequest;
using net::Encryption;
using net::Lane;

namespace {

using Options = net::Network::Options;

Options with(Encryption encryption) {
  Options options;
  options.encryption = std::move(encryption);
  return options;
}

Options with_key(const std::string& secret, bool plaintext = false) {
  Options options;
  options.key = net::Key(std::as_bytes(std::span(secret)));
  options.encryption.plaintext = plaintext;
  return options;
}

CertificateRequest request(const std::string& name) {
  return {.name = name, .hosts = {"localhost", "127.0.0.1"}};
}

/// The error that `action` throws.
bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// What both ends say of a connection that must not come about.
struct Refusal {
  hf::Error at_client;
  std::string at_server;
};

Refusal refusal_of(Options server_options, Options client_options,
                   const std::string& host = "127.0.0.1") {
  CapturedLog log;
  const hf::Error error = [&] {
    Node server(1, std::move(server_options));
    auto endpoint = server.listen("tcp://127.0.0.1:0");
    endpoint.host = host;
    Node client(1, std::move(client_options));
    hf::Error error = error_of([&] { client.connect(endpoint); });
    CHECK(eventually([&] { return contains(log.text(), "a peer was not let in"); }));
    CHECK(server.handler.ups == 0);
    CHECK(client.handler.ups == 0);
    return error;
  }();
  return {error, log.text()};
}

void check(const Refusal& refusal, const std::string& client, const std::string& server) {
  INFO(refusal.at_client.what());
  INFO(refusal.at_server);
  CHECK(refusal.at_client.is(hf::Errc::unauthenticated));
  // What to do about it; in a Reject it stands in the peer's own words.
  CHECK((!refusal.at_client.remedy().empty() || contains(refusal.at_client.found(), ": give ")));
  CHECK(contains(refusal.at_client.found(), client));
  CHECK(contains(refusal.at_server, server));
}

}  // namespace

// ---- Who is let in
// -------------------------------------------------------------------------------

TEST_CASE("what nodes say to each other over TLS nobody between them can read") {
  const Over over(GENERATE(over_tcp()));
  INFO(Over::name());
  Node server, client;
  Proxy proxy(server.listen());
  const auto node = client.connect(proxy.endpoint());
  const std::string secret = "something that is nobody else's business";
  client.send(node, secret);
  client.send(node, secret + std::string(100'000, '!'), Lane::bulk);
  REQUIRE(eventually([&] { return server.handler.count == 2; }));
  CHECK(server.handler.bodies().at(0) == secret);
  CHECK(contains(proxy.carried(), secret) == !Over::is_tls());
}

TEST_CASE("a certificate that is wrong in any way is refused, and both ends say why") {
  const Certificates made;
  const auto other = Certificates::authority("another authority");
  const auto good = with(made.node(request("good")));
  auto expired = request("expired"), early = request("early"), to_accept = request("accepts"),
       to_connect = request("connects");
  expired.from -= days(3);
  expired.lifetime = days(2);
  early.from += days(1);
  to_accept.may_connect = false;
  to_connect.may_accept = false;
  const struct {
    const char* what;
    Options options;
    std::string found, told;  ///< By whom it is shown, and by whom it is shown to.
  } cases[] = {
      {"expired", with(made.node(expired)), "has expired",
       "by its clock it has expired, or is not valid yet"},
      {"not valid yet", with(made.node(early)), "is not valid yet",
       "by its clock it has expired, or is not valid yet"},
      {"of another authority", with(made.node(request("foreign"), other)),
       "an authority that this node does not know",
       "it does not know the authority that issued it"},
      {"for the other end only", {}, "may not be used for this end", "it may not be used for that"},
  };
  for (const auto& [what, options, found, told] : cases) {
    INFO(what);
    const bool one_sided = options.encryption == Encryption{};
    const Options server = one_sided ? with(made.node(to_connect)) : options;
    const Options client = one_sided ? with(made.node(to_accept)) : options;
    INFO("it is the server's");
    check(refusal_of(server, good), found, told);
    INFO("it is the client's");
    check(refusal_of(good, client), told, found);
  }
}

TEST_CASE("a certificate must be for the name by which its node was called") {
  const Certificates made;
  const auto by_name = with(made.node({.name = "by-name", .hosts = {"localhost"}}));
  const auto by_number = with(made.node({.name = "by-number", .hosts = {"127.0.0.1"}}));
  const auto client = with(made.node(request("client")));
  check(refusal_of(by_name, client), "is not for '127.0.0.1'", "not made for the name");
  check(refusal_of(by_number, client, "localhost"), "is not for 'localhost'",
        "not made for the name");
  Node named(1, by_name), numbered(1, by_number), both(1, client);
  auto endpoint = named.listen("tcp://127.0.0.1:0");
  endpoint.host = "localhost";
  CHECK_NOTHROW(both.connect(endpoint));
  CHECK_NOTHROW(both.connect(numbered.listen("tcp://127.0.0.1:0")));
}

TEST_CASE("a node that knows whom it means finds it under any address") {
  const Certificates made;
  const auto server = with(made.node({.name = "db-1", .hosts = {"db-1"}}));
  auto client = with(made.node(request("client")));
  check(refusal_of(server, client), "is not for '127.0.0.1'", "not made for the name");
  client.encryption.peer_name = "db-2";
  check(refusal_of(server, client), "is not for 'db-2'", "not made for the name");
  client.encryption.peer_name = "db-1";
  Node at_server(1, server), at_client(1, client);
  CHECK_NOTHROW(at_client.connect(at_server.listen("tcp://127.0.0.1:0")));
}

TEST_CASE("another key is refused, and both ends say so") {
  check(refusal_of(with_key("the key of the server"), with_key("the key of the client")),
        "it has another key", "it has another key");
}

TEST_CASE("a key does not go with certificates, nor TLS with plaintext, whichever end has what") {
  const Certificates made;
  const auto certificates = with(made.node(request("node")));
  const auto key = with_key("the key of this test");
  const auto proved = with_key("the key of this test", true);
  check(refusal_of(certificates, key), "this node has a key file", "it refused this node's");
  check(refusal_of(key, certificates), "this node has certificates", "this node has a key file");
  for (const Options& secured : {certificates, key}) {
    for (const Options& open : {Options(), proved}) {
      check(refusal_of(secured, open), "this node speaks only TLS", "it does not encrypt");
      check(refusal_of(open, secured), "this node speaks only TLS", "the other end speaks TLS");
    }
  }
}

TEST_CASE("a key that is only proved lets nodes in, and what they say can be read") {
  const auto options = with_key("the key of this test", true);
  Node server(1, options), client(1, options);
  Proxy proxy(server.listen());
  client.send(client.connect(proxy.endpoint()), "readable");
  REQUIRE(eventually([&] { return server.handler.count == 1; }));
  CHECK(contains(proxy.carried(), "readable"));
}

TEST_CASE("certificates and a key may be asked for together, and then both are looked at") {
  const Certificates made;
  const auto certificates = with(made.node(request("node")));
  auto both = certificates, other = certificates;
  both.key = with_key("the key of this test").key;
  other.key = with_key("another key of this test").key;
  check(refusal_of(both, certificates), "'authentication'", "'authentication'");
  check(refusal_of(both, other), "proof is wrong", "proof is wrong");
  Node server(1, both), client(1, both);
  CHECK_NOTHROW(client.connect(server.listen("tcp://127.0.0.1:0")));
}

TEST_CASE("who comes without a certificate is told that one is wanted") {
  const Certificates made;
  CapturedLog log;
  Node server(1, with(made.node(request("server"))));
  RawPeer peer(server.listen("tcp://127.0.0.1:0"));
  RawTls tls(peer, {});
  REQUIRE(tls.connect());  // in TLS 1.3 it has not heard of it yet
  char byte;
  CHECK(::SSL_read(tls.ssl(), &byte, 1) <= 0);
  CHECK(ERR_GET_REASON(::ERR_get_error()) == SSL_AD_REASON_OFFSET + SSL_AD_CERTIFICATE_REQUIRED);
  CHECK(eventually([&] { return contains(log.text(), "it showed no certificate"); }));
}

TEST_CASE("only TLS 1.3 is spoken") {
  const Certificates made;
  const auto encryption = made.node(request("node"));
  CapturedLog log;
  Node server(1, with(encryption));
  const auto endpoint = server.listen("tcp://127.0.0.1:0");
  {
    RawPeer peer(endpoint);
    RawTls old(peer, encryption, TLS1_2_VERSION);
    CHECK(!old.connect());
    CHECK(old.reason() == SSL_AD_REASON_OFFSET + SSL_AD_PROTOCOL_VERSION);
    CHECK(eventually([&] { return contains(log.text(), "it does not speak TLS 1.3"); }));
  }
  RawPeer peer(endpoint);
  RawTls current(peer, encryption);
  CHECK(current.connect());
}

TEST_CASE("nothing is remembered of a TLS connection by which a next one would be shorter") {
  const Certificates made;
  const auto encryption = made.node(request("node"));
  Node server(1, with(encryption));
  RawPeer peer(server.listen("tcp://127.0.0.1:0"));
  RawTls tls(peer, encryption);
  REQUIRE(tls.connect());
  tls.enter(RawPeer::hello(4));
  tls.receive_frame();  // past all that a server could send behind its handshake
  CHECK(tls.tickets() == 0);
  CHECK(::SSL_SESSION_is_resumable(::SSL_get0_session(tls.ssl())) == 0);
  CHECK(::SSL_SESSION_get_max_early_data(::SSL_get0_session(tls.ssl())) == 0);
}

// ---- What is wrong here
// --------------------------------------------------------------------------

namespace {

std::string with_passphrase(const std::string& pem) {
  BIO* from = ::BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  EVP_PKEY* key = ::PEM_read_bio_PrivateKey(from, nullptr, nullptr, nullptr);
  BIO* to = ::BIO_new(::BIO_s_mem());
  ::PEM_write_bio_PKCS8PrivateKey(to, key, ::EVP_aes_128_cbc(), "passphrase", 10, nullptr, nullptr);
  char* text = nullptr;
  const auto size = static_cast<std::size_t>(::BIO_get_mem_data(to, &text));
  const std::string encrypted(text, size);
  ::BIO_free(from);
  ::BIO_free(to);
  ::EVP_PKEY_free(key);
  return encrypted;
}

}  // namespace

TEST_CASE("files that are no certificate or key are named, with what they are instead") {
  const Certificates made;
  const Encryption good = made.node(request("good"));
  const Encryption other = made.node(request("other"));
  const auto pem = net::issue(made.own_authority(), request("locked")).key;
  const std::string garbage = made.write("garbage", "-----BEGIN CERTIFICATE-----\n!\n");
  const std::string locked = made.write("locked.key", with_passphrase(pem));
  const struct {
    const char* what;
    void (*change)(Encryption&, const Encryption& other, const std::string& file);
    std::string file, text;
  } cases[] = {
      {"no such certificate",
       [](Encryption& e, const Encryption&, const std::string&) { e.certificate_file = "none"; },
       "", "read the certificate 'none': No such file"},
      {"no certificate",
       [](Encryption& e, const Encryption&, const std::string& file) { e.certificate_file = file; },
       garbage, "no certificate in PEM form"},
      {"no authority",
       [](Encryption& e, const Encryption&, const std::string& file) { e.authority_file = file; },
       garbage, "no certificate in PEM form"},
      {"no key",
       [](Encryption& e, const Encryption&, const std::string& file) {
         e.certificate_key_file = file;
       },
       garbage, "no private key in PEM form"},
      {"a passphrase",
       [](Encryption& e, const Encryption&, const std::string& file) {
         e.certificate_key_file = file;
       },
       locked, "passphrase"},
      {"another key",
       [](Encryption& e, const Encryption& other, const std::string&) {
         e.certificate_key_file = other.certificate_key_file;
       },
       "", "does not belong to the certificate"},
      {"a part",
       [](Encryption& e, const Encryption&, const std::string&) { e.authority_file.clear(); }, "",
       "not given: the authority's certificate"},
      {"certificates, and plaintext",
       [](Encryption& e, const Encryption&, const std::string&) { e.plaintext = true; }, "",
       "plaintext"},
      {"a name for nothing",
       [](Encryption& e, const Encryption&, const std::string&) { e = {.peer_name = "somebody"}; },
       "", "there are no certificates"},
  };
  hf::Runtime runtime(shards(1));
  Handler handler;
  for (const auto& [what, change, file, text] : cases) {
    INFO(what);
    Encryption encryption = good;
    change(encryption, other, file);
    const auto error = error_of([&] { net::Network network(runtime, with(encryption), handler); });
    INFO(error.what());
    CHECK(contains(error.what(), text));
    CHECK(!error.remedy().empty());
  }
}

TEST_CASE("an own certificate that has expired, and a key that others can read, are warned of") {
  const Certificates made;
  auto late = request("late");
  late.from -= days(3);
  late.lifetime = days(2);
  const auto encryption = made.node(late);
  std::filesystem::permissions(encryption.certificate_key_file, std::filesystem::perms::group_read,
                               std::filesystem::perm_options::add);
  CapturedLog log;
  Node node(1, with(encryption));
  CHECK(contains(log.text(), "is not valid at this time"));
  CHECK(contains(log.text(), "is open to others than its owner"));
}

namespace {

std::string hex_of(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4];
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

std::string base64_of(std::span<const std::byte> bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int size = ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                     reinterpret_cast<const unsigned char*>(bytes.data()),
                                     static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

void check_absent(std::string log, std::span<const std::byte> secret) {
  CHECK(!contains(log, {reinterpret_cast<const char*>(secret.data()), secret.size()}));
  CHECK(!contains(log, base64_of(secret).substr(0, 16)));
  std::ranges::transform(log, log.begin(), [](unsigned char c) { return std::tolower(c); });
  CHECK(!contains(log, hex_of(secret).substr(0, 16)));
}

}  // namespace

TEST_CASE("secrets never reach a log, however much is logged") {
  const std::string secret = "0123456789 a secret that is easily found";
  const Certificates made;
  const auto by_certificate = with(made.node(request("node")));
  const auto by_key = with_key(secret);
  const auto before = hf::log::Level::info;
  hf::log::set_level(hf::log::Level::trace);
  std::string log;
  {
    CapturedLog captured;
    for (const auto& options : {by_key, by_certificate}) {
      Node server(2, options), client(2, options);
      Proxy proxy(server.listen());
      client.send(client.connect(proxy.endpoint()), "hello");
      proxy.reset_all();
      client.send(server.network.node_id(), "hello again");
      CHECK(eventually([&] { return server.handler.count == 2; }));
    }
    for (const auto& server : {by_key, by_certificate})
      for (const auto& client : {with_key("another key of this test"), Options()})
        (void)refusal_of(server, client);
    log = captured.text();
  }
  hf::log::set_level(before);
  check_absent(log, std::as_bytes(std::span(secret)));
  const auto derived = net::detail::secret_of(*by_key.key);
  check_absent(log, std::as_bytes(std::span(derived)));
  std::ifstream file(by_certificate.encryption.certificate_key_file);
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines)
    if (!line.starts_with("-----")) CHECK(!contains(log, line));
  CHECK(lines >= 4);
}

// ---- Connections that somebody lays hands on
// -----------------------------------------------------

TEST_CASE("a connection that is cut off is a break; only TLS's own word is an end") {
  const Certificates made;
  const auto encryption = made.node(request("node"));
  auto hello = RawPeer::hello(4);
  hello.node.capabilities = net::capability::resume;
  for (const bool in_order : {false, true}) {
    INFO("in order: " << in_order);
    Node server(1, with(encryption));
    {
      RawPeer peer(server.listen("tcp://127.0.0.1:0"));
      RawTls tls(peer, encryption);
      REQUIRE(tls.connect());
      tls.enter(hello);
      REQUIRE(eventually([&] { return server.handler.ups == 1; }));
      if (in_order) tls.close();
      ::shutdown(peer.descriptor(), SHUT_WR);
      if (in_order) {
        REQUIRE(eventually([&] { return server.handler.down_count == 1; }));
      } else {
        REQUIRE(eventually([&] { return standing_of(server).resuming == 1; }));
        CHECK(server.handler.down_count == 0);
      }
    }
    REQUIRE(eventually([&] { return server.handler.down_count == 1; }));
    CHECK(server.handler.downs()[0].code == hf::Errc::peer_lost);
    CHECK(contains(server.handler.downs()[0].text, "without TLS's closing word") == !in_order);
  }
}

TEST_CASE("connections that somebody ends in the nodes' names are taken up again over TLS") {
  const Over over(GENERATE(Way::tls_key, Way::tls_certificates));
  Node server, client;
  Proxy proxy(server.listen());
  const auto node = client.connect(proxy.endpoint());
  client.send(node, "before");
  REQUIRE(eventually([&] { return server.handler.count == 1; }));
  for (int round = 1; round <= 3; ++round) {
    proxy.end_all();
    client.send(node, "to the server");
    server.send(client.network.node_id(), "to the client");
    REQUIRE(eventually(
        [&] { return server.handler.count == 1 + round && client.handler.count == round; }));
  }
  CHECK(standing_of(client).resumes == 3);
  CHECK(client.handler.down_count == 0);
  CHECK(server.handler.down_count == 0);
}

TEST_CASE("of bytes that were changed on their way none arrives, and the session goes on") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const Over over(GENERATE(Way::tls_key, Way::tls_certificates));
  INFO(Over::name());
  CapturedLog log;
  Record record;
  Node server, client;
  Talker in_server(server.handler, record, seed), in_client(client.handler, record, seed + 1000);
  Proxy proxy(server.listen());
  const auto node = client.connect(proxy.endpoint());
  REQUIRE(eventually([&] { return server.handler.ups == 1; }));
  std::atomic<int> talking{2};
  std::vector<std::thread> talkers;
  const auto talk = [&](Node& from, Talker& talker, std::uint64_t to, std::uint64_t name) {
    talkers.emplace_back([&, to, name] {
      try {
        from.run([&] { return talker.talk(&from.network, to, name, 400, 1'000'000); });
      } catch (const hf::Error&) {
        talker.right = false;
      }
      --talking;
    });
  };
  talk(client, in_client, node, 1);
  talk(server, in_server, client.network.node_id(), 2);
  const auto calm = [&] {
    return standing_of(server).resuming == 0 && standing_of(client).resuming == 0;
  };
  bool recovered = true;
  while (talking > 0 && recovered) {
    const auto resumes = standing_of(client).resumes;
    proxy.flip_after(static_cast<std::int64_t>(1 + random() % (1u << (6 + random() % 13))));
    // The next change comes after the handshake, where it is seen for what it is.
    recovered = eventually(
        [&] { return talking == 0 || (standing_of(client).resumes > resumes && calm()); });
  }
  CHECK(recovered);
  for (auto& talker : talkers) talker.join();
  for (Node* node : {&server, &client})
    for (const auto& down : node->handler.downs()) UNSCOPED_INFO(down.text);
  CHECK(eventually([&] {
    return in_server.told + in_client.told == record.tells + record.asks &&
           in_server.answered + in_client.answered == record.asks;
  }));
  CHECK(in_server.right);
  CHECK(in_client.right);
  CHECK(server.handler.down_count == 0);
  CHECK(client.handler.down_count == 0);
  CHECK(contains(log.text(), "was changed on its way"));
}

TEST_CASE("the end of a node is told to its peers at once, over TLS too") {
  const Over over(GENERATE(Way::tls_key, Way::tls_certificates));
  Node server;
  {
    Node client;
    client.connect(server.listen());
    REQUIRE(eventually([&] { return server.handler.ups == 1; }));
  }
  REQUIRE(eventually([&] { return server.handler.down_count == 1; }));
  CHECK(!contains(server.handler.downs()[0].text, "without TLS's closing word"));
  CHECK(!contains(server.handler.downs()[0].text, "then:"));
}

// ---- The machine inside
// --------------------------------------------------------------------------

namespace {

using net::detail::TlsConnection;
using net::detail::TlsContext;
using net::detail::TlsStep;

/// What one of two connections has for the other one.
std::string wire_of(TlsConnection& connection) {
  std::string bytes;
  for (const auto& buffer : connection.take_output()) bytes += buffer.text();
  return bytes;
}

void shake_hands(TlsConnection& near, TlsConnection& far) {
  std::string to_far, to_near;
  for (int i = 0; i < 10; ++i) {
    near.give(std::as_bytes(std::span(to_near)));
    const auto step = near.shake_hands();
    to_far = wire_of(near);
    far.give(std::as_bytes(std::span(to_far)));
    if (far.shake_hands() == TlsStep::done && step == TlsStep::done) return;
    to_near = wire_of(far);
  }
  FAIL("no end of shaking hands");
}

hf::Task<void> change_keys(std::shared_ptr<const TlsContext> context) {
  const std::string name = "far";
  TlsConnection near(context, &name, "far"), far(context, nullptr, "near");
  shake_hands(near, far);
  near.take_key_after(10);
  std::string got, sent;
  for (int i = 0; i < 95; ++i) {
    const std::string text = "record " + std::to_string(i) + "; ";
    sent += text;
    REQUIRE(near.write(std::as_bytes(std::span(text))));
    const std::string wire = wire_of(near);
    far.give(std::as_bytes(std::span(wire)));
    std::byte into[64];
    std::size_t size = 0;
    while (far.read(into, size) == TlsStep::done)
      got += std::string(reinterpret_cast<const char*>(into), size);
    REQUIRE(!far.failed());
  }
  CHECK(got == sent);
  CHECK(near.keys_used() == 10);
  CHECK(far.keys_used() == 1);
  co_return;
}

}  // namespace

TEST_CASE("a key encrypts only so many records; then both ends take the next one") {
  const auto options = with_key("the key of this test");
  const auto context = std::make_shared<const TlsContext>(options.encryption, options.key);
  hf::Runtime runtime(shards(1));
  runtime.run([&](hf::Runtime&) { return change_keys(context); });
}

TEST_CASE("in the simulator TLS is refused, and plaintext is not") {
  hf::SimWorld world({.seed = 1});
  auto& open = world.add_node({.shards = 1});
  auto& closed = world.add_node({.shards = 1});
  Handler handler;
  const std::string secret = "the key of this test";
  CHECK_NOTHROW(start_program(world, open, handler, with_key(secret, true)));
  const auto error = error_of([&] { start_program(world, closed, handler, with_key(secret)); });
  CHECK(error.is(hf::Errc::unsupported));
  CHECK(contains(error.remedy(), "plaintext"));
}
