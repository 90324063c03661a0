#include <unistd.h>

#include <hyperframes/net/channel/blocking.hpp>
#include <hyperframes/runtime/detail/launch.hpp>
#include <hyperframes/runtime/log.hpp>
#include <hyperframes/runtime/runtime.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <map>

namespace hyperframes::net::blocking {
namespace {

Runtime::Options one_shard() {
  Runtime::Options options;
  options.shards = 1;
  return options;
}

void refuse_on_shard(const char* tried) {
  if (!Shard::current()) return;
  throw Error(Errc::would_deadlock, tried,
              "this thread runs a shard, which would stand still meanwhile",
              "co_await the functions of net::Messenger and net::Channel there");
}

/// The shard's clock is not this thread's: the span begins over there.
Time until(Duration within) { return within == forever ? no_deadline : after(within); }

void check_buffers(const TypedMessage& message) {
  bool free = message.body.counts_atomically();
  for (const Buffer& segment : message.segments) free = free && segment.counts_atomically();
  if (free) return;
  throw Error(Errc::invalid_argument, "send on a blocking channel",
              "the message has a buffer that belongs to a shard",
              "make it by Buffer::heap or Buffer::copy_of");
}

/// The same in memory that belongs to no shard.
TypedMessage copy_out(const TypedMessage& message) {
  TypedMessage copy{.type = message.type, .metadata = message.metadata};
  if (!message.body.empty()) copy.body = Buffer::copy_of(message.body.bytes());
  for (const Buffer& segment : message.segments)
    copy.segments.push_back(segment.empty() ? Buffer() : Buffer::copy_of(segment.bytes()));
  return copy;
}

}  // namespace

namespace detail {

struct Core {
  explicit Core(net::Messenger::Options options)
      : runtime(one_shard()), messenger(runtime, std::move(options)) {}
  /// What is left of one in a forked child can only be left alone: its thread is not there to end.
  static std::shared_ptr<Core> make(net::Messenger::Options options) {
    return {new Core(std::move(options)), [](Core* core) {
              if (!core->is_forked()) delete core;
            }};
  }
  ~Core() {
    try {
      runtime.run([this](Runtime&) { return clear(this); });
    } catch (const Error& error) {
      log::warning(error.what());
    }
  }

  bool is_forked() const noexcept { return ::getpid() != process; }
  /// Throws why nothing can wait for the shard here, if that is so.
  void check(const char* tried) const {
    refuse_on_shard(tried);
    if (!is_forked()) return;
    throw Error(Errc::unsupported, tried,
                "the messenger was made before this process was forked, and its thread is in the "
                "parent only",
                "make a messenger in the child");
  }
  /// Runs `make()`'s task on the shard, and waits for it. Not in a forked child.
  template <class Make>
  auto run(Make make) {
    return runtime.run([&make](Runtime&) { return make(); });
  }
  // On the shard.
  static Task<void> clear(Core* self) {
    self->channels.clear();
    co_return;
  }
  static Task<std::uint64_t> keep(Core* self, Task<net::Channel> opening) {
    net::Channel channel = co_await std::move(opening);
    self->channels.emplace(++self->last, std::move(channel));
    co_return self->last;
  }
  static Task<void> end(Core* self, std::uint64_t number) {
    self->channels.erase(number);
    co_return;
  }

  Runtime runtime;
  net::Messenger messenger;
  std::map<std::uint64_t, net::Channel> channels;  ///< The shard's.
  std::uint64_t last = 0;
  const pid_t process = ::getpid();
};

/// What a blocking channel has of its messenger: the number of its channel there.
class Handle {
 public:
  Handle(const std::shared_ptr<Core>& core, std::uint64_t number) : core_(core), number_(number) {}
  Handle(const Handle&) = delete;
  ~Handle() {
    const std::shared_ptr<Core> core = core_.lock();
    if (!core || core->is_forked()) return;
    try {
      const auto end = [core = core.get(), number = number_] { return Core::end(core, number); };
      if (Shard::current())  // which must not wait
        hyperframes::detail::start_on(core->runtime.shard(0), end);
      else
        core->run(end);
    } catch (const Error& error) {
      log::debug(error.what());  // the runtime has stopped, and the channel ended with it
    }
  }
  std::shared_ptr<Core> core(const char* tried) const {
    if (auto core = core_.lock()) return core;
    throw Error(Errc::closed, tried, "its messenger was destroyed");
  }
  std::uint64_t number() const noexcept { return number_; }

 private:
  std::weak_ptr<Core> core_;
  std::uint64_t number_;
};

}  // namespace detail

namespace {

using detail::Core;
using detail::Handle;

/// Calls `function(channel)`, which returns a task, on the shard, and waits for that.
template <class Function>
auto on_channel(const std::unique_ptr<Handle>& handle, const char* tried, Function function) {
  refuse_on_shard(tried);
  if (!handle) throw Error(Errc::invalid_argument, tried, "the channel is empty");
  const std::shared_ptr<Core> core = handle->core(tried);
  core->check(tried);
  return core->run([&] { return function(core->channels.at(handle->number())); });
}

Task<TypedMessage> receive(Task<TypedMessage> receiving) {
  const TypedMessage message = co_await std::move(receiving);
  co_return copy_out(message);
}

template <class T>
Task<T> just(T value) {
  co_return value;
}

Task<void> close_it(net::Channel* channel, std::string why) {
  channel->close(std::move(why));
  co_return;
}

}  // namespace

Channel::Channel() noexcept = default;
Channel::Channel(Channel&&) noexcept = default;
Channel& Channel::operator=(Channel&&) noexcept = default;
Channel::~Channel() = default;
Channel::Channel(std::unique_ptr<Handle> handle) noexcept : handle_(std::move(handle)) {}

void Channel::send(TypedMessage message, Duration within) {
  check_buffers(message);
  on_channel(handle_, "send on a blocking channel", [&](net::Channel& channel) {
    return channel.send(std::move(message), until(within));
  });
}

TypedMessage Channel::recv(TypeFilter filter, Duration within) {
  return on_channel(handle_, "receive on a blocking channel", [&](net::Channel& channel) {
    return receive(channel.recv(std::move(filter), until(within)));
  });
}

Channel Channel::open(Duration within) {
  const char* const tried = "open a channel beside a blocking one";
  const std::uint64_t number = on_channel(handle_, tried, [&](net::Channel& channel) {
    return Core::keep(handle_->core(tried).get(), channel.open(until(within)));
  });
  return Channel(std::make_unique<Handle>(handle_->core(tried), number));
}

void Channel::close(std::string why) {
  on_channel(handle_, "close a blocking channel",
             [&](net::Channel& channel) { return close_it(&channel, std::move(why)); });
}

PeerInfo Channel::peer() const {
  return on_channel(handle_, "ask a blocking channel for its peer",
                    [](net::Channel& channel) { return just(channel.peer()); });
}

ChannelStats Channel::stats() const {
  return on_channel(handle_, "ask a blocking channel for its figures",
                    [](net::Channel& channel) { return just(channel.stats()); });
}

Messenger::Messenger(Options options) {
  refuse_on_shard("make a blocking messenger");
  core_ = Core::make(std::move(options));
}

Messenger::~Messenger() {
  if (core_->is_forked()) return;
  try {
    close();
  } catch (const Error& error) {
    log::warning(error.what());
  }
}

Endpoint Messenger::listen(std::string uri) {
  core_->check("listen by a blocking messenger");
  return core_->run([&] { return core_->messenger.listen(std::move(uri)); });
}

Channel Messenger::connect(std::string uri, Duration within) {
  core_->check("connect by a blocking messenger");
  const std::uint64_t number = core_->run([&] {
    return Core::keep(core_.get(), core_->messenger.connect(std::move(uri), until(within)));
  });
  return Channel(std::make_unique<Handle>(core_, number));
}

Channel Messenger::accept(Duration within) {
  core_->check("accept by a blocking messenger");
  const std::uint64_t number =
      core_->run([&] { return Core::keep(core_.get(), core_->messenger.accept(until(within))); });
  return Channel(std::make_unique<Handle>(core_, number));
}

std::uint64_t Messenger::close(Duration drain) {
  core_->check("close a blocking messenger");
  return core_->run([&] { return core_->messenger.close(drain); });
}

}  // namespace hyperframes::net::blocking
