// A second implementation of the protocol, in Python (wire_reader.py), talks with a node.
#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "support.hpp"

using namespace net_test;
using net::Lane;
using net::Message;

namespace {

const std::string key_text = "the key of this test";

/// One run of the reader.
class Reader {
 public:
  explicit Reader(const std::string& arguments) {
    const std::string command = std::string("'") + HYPERFRAMES_PYTHON + "' '" +
                                HYPERFRAMES_SOURCE_DIR + "/tests/net/wire_reader.py' " + arguments +
                                " 2>&1";
    stream_ = ::popen(command.c_str(), "r");
    REQUIRE(stream_);
  }
  Reader(const Reader&) = delete;
  ~Reader() {
    if (stream_) ::pclose(stream_);
  }
  /// The next line; empty if there is none.
  std::string line() {
    std::string text;
    for (int c; (c = std::fgetc(stream_)) != EOF && c != '\n';) text += static_cast<char>(c);
    return text;
  }
  /// Its exit status; it ends by itself, by its own limits of time.
  int wait() {
    for (std::string text; !(text = line()).empty();) said += text + "\n";
    const int status = ::pclose(std::exchange(stream_, nullptr));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string said;

 private:
  std::FILE* stream_ = nullptr;
};

/// Sends what it is asked back, with all its parts.
void echo(net::Session& session, Lane lane, Message message) {
  Message answer;
  answer.envelope = net::answer_to(message.envelope);
  answer.metadata = std::move(message.metadata);
  answer.body = std::move(message.body);
  answer.segments = std::move(message.segments);
  (void)session.try_send(answer, lane);
}

/// The reader speaks the protocol itself; TLS is around it, and not what it is written for.
net::Network::Options with_key(const std::string& text) {
  net::Network::Options options;
  options.encryption.plaintext = true;
  if (!text.empty()) options.key = net::Key(std::as_bytes(std::span(text)));
  return options;
}

/// A file with a key, for as long as it is in scope.
struct KeyFile {
  explicit KeyFile(const std::string& text)
      : path(std::filesystem::temp_directory_path() /
             ("hyperframes-wire-key-" + std::to_string(::getpid()))) {
    std::ofstream(path) << text << '\n';
  }
  ~KeyFile() { std::filesystem::remove(path); }
  std::filesystem::path path;
};

bool without_python() { return std::string_view(HYPERFRAMES_PYTHON).empty(); }

void check_talked(Node& node, Reader& reader) {
  const int status = reader.wait();
  INFO(reader.said);
  CHECK(status == 0);
  CHECK(node.handler.count == 1);
  REQUIRE(eventually([&] { return node.handler.down_count == 1; }));
  INFO(node.handler.downs()[0].text);
  CHECK(node.handler.downs()[0].code == hf::Errc::closed);
}

}  // namespace

TEST_CASE("a peer written from the wire's reference alone shakes hands and exchanges a message") {
  if (without_python()) SKIP("needs python3");
  const KeyFile file(key_text);
  for (const bool keyed : {false, true}) {
    INFO((keyed ? "with a key" : "without a key"));
    {
      INFO("it connects");
      Node node(1, with_key(keyed ? key_text : ""));
      node.handler.react = &echo;
      const auto endpoint = node.listen("tcp://127.0.0.1:0");
      Reader reader("connect 127.0.0.1 " + std::to_string(endpoint.port) +
                    (keyed ? " '" + file.path.string() + "'" : ""));
      check_talked(node, reader);
    }
    {
      INFO("it is connected to");
      Node node(1, with_key(keyed ? key_text : ""));
      node.handler.react = &echo;
      Reader reader(std::string("accept") + (keyed ? " '" + file.path.string() + "'" : ""));
      const std::string port = reader.line();
      INFO(port);
      node.connect(net::Endpoint::parse("tcp://127.0.0.1:" + port), 30s);
      check_talked(node, reader);
    }
  }
}

TEST_CASE(
    "a peer written from the wire's reference alone and a node refuse each other's wrong keys") {
  if (without_python()) SKIP("needs python3");
  const KeyFile file("another key of this test");
  Node node(1, with_key(key_text));
  const auto endpoint = node.listen("tcp://127.0.0.1:0");
  Reader connecting("connect 127.0.0.1 " + std::to_string(endpoint.port) + " '" +
                    file.path.string() + "'");
  CHECK(connecting.wait() == 3);
  Reader keyless("connect 127.0.0.1 " + std::to_string(endpoint.port));
  CHECK(keyless.wait() == 3);
  CHECK(keyless.said.find("key file") != std::string::npos);
  Reader accepting("accept '" + file.path.string() + "'");
  const std::string port = accepting.line();
  std::error_code code;
  try {
    node.connect(net::Endpoint::parse("tcp://127.0.0.1:" + port), 30s);
  } catch (const hf::Error& error) {
    code = error.code();
  }
  CHECK(code == hf::Errc::unauthenticated);
  CHECK(accepting.wait() == 3);
  CHECK(node.handler.ups == 0);
}

TEST_CASE("a reader written from the wire's reference alone reads the reference's examples") {
  if (without_python()) SKIP("needs python3");
  Reader reader(std::string("examples '") + HYPERFRAMES_SOURCE_DIR + "/docs/reference/wire.md'");
  const int status = reader.wait();
  INFO(reader.said);
  CHECK(status == 0);
}
