// Two messengers on one shard, so that one coroutine of a test drives both ends.
//
//   Messengers both;
//   both.run([&]() -> hf::Task<void> {
//     Ends ends = co_await both.connect();
#pragma once

#include <hyperframes/net/channel/messenger.hpp>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "support.hpp"

namespace net_test {

using net::Channel;
using net::MessageType;
using net::Messenger;
using net::TypedMessage;

/// Far more than anything takes: so that what hangs ends.
inline hf::Time soon() { return hf::after(hf::timing().scaled(30s)); }

inline TypedMessage typed(const char* type, const std::string& body) {
  return {.type = type, .body = hf::Buffer::copy_of(body)};
}

struct Ends {
  Channel here, there;
};

struct Messengers {
  explicit Messengers(Messenger::Options options = {}, unsigned shard_count = 1)
      : Messengers(options, options, shard_count) {}
  Messengers(Messenger::Options server_options, Messenger::Options client_options,
             unsigned shard_count = 1)
      : runtime(shards(shard_count)),
        server(std::make_unique<Messenger>(runtime, with_device(std::move(server_options)))),
        client(std::make_unique<Messenger>(runtime, with_device(std::move(client_options)))) {}

  static Messenger::Options with_device(Messenger::Options options) {
    if (Over::current() == Way::rdma) options.network = Over::secured(std::move(options.network));
    return options;
  }

  /// Runs a coroutine lambda, which may capture, on a shard.
  template <class Function>
  auto run(Function function, unsigned shard = 0) {
    return runtime.run([&function](hf::Runtime&) { return hf::co_invoke(function); }, shard);
  }
  hf::Task<std::string> listen() {
    const net::Endpoint bound = co_await server->listen(Over::uri());
    uri = bound.to_string();
    co_return uri;
  }
  /// One more channel; listens if that was not done.
  hf::Task<Ends> connect() {
    if (uri.empty()) co_await listen();
    Channel here = co_await client->connect(uri, soon());
    Channel there = co_await server->accept(soon());
    co_return Ends{std::move(here), std::move(there)};
  }

  hf::Runtime runtime;
  std::unique_ptr<Messenger> server, client;
  std::string uri;
};

/// The log's lines while in scope.
class LogLines {
 public:
  LogLines() {
    hf::log::set_sink([this](hf::log::Level level, std::string_view line) {
      if (level < hf::log::Level::warning) return;
      std::scoped_lock lock(mutex_);
      text_ += std::string(line) + "\n";
    });
  }
  ~LogLines() { hf::log::set_sink({}); }
  LogLines(const LogLines&) = delete;
  std::string text() const {
    std::scoped_lock lock(mutex_);
    return text_;
  }
  bool has(const std::string& words) const { return text().find(words) != std::string::npos; }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

/// The error that a task throws.
template <class T>
hf::Task<hf::Error> failure_of(hf::Task<T> task) {
  try {
    co_await std::move(task);
  } catch (const hf::Error& error) {
    co_return error;
  }
  throw std::runtime_error("it went well");
}

inline bool mentions(const hf::Error& error, const std::string& words) {
  return std::string(error.what()).find(words) != std::string::npos;
}

}  // namespace net_test
