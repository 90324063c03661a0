#include <algorithm>
#include <hyperframes/net/channel/codec.hpp>
#include <hyperframes/net/channel/hub.hpp>
#include <hyperframes/net/channel/messenger.hpp>
#include <hyperframes/runtime/call_on.hpp>

namespace hyperframes::net {
namespace {

std::shared_ptr<const detail::ChannelOptions> checked(Messenger::Options& options) {
  const auto refuse = [](const std::string& what, std::string found) {
    throw Error(Errc::invalid_argument, "use messenger option " + what, std::move(found));
  };
  if (options.window_bytes < 1 || options.window_bytes > options.network.receive_budget_bytes)
    refuse("window_bytes", "it must be from 1 to the receive budget, which is " +
                               std::to_string(options.network.receive_budget_bytes));
  if (options.max_channels < 1) refuse("max_channels", "it must be 1 or more");
  if (options.keys.size() > detail::most_keys)
    refuse("keys", "there may be up to " + std::to_string(detail::most_keys));
  for (const std::string& key : options.keys)
    if (std::string fault = detail::key_fault(key); !fault.empty()) refuse("keys", fault);
  std::ranges::sort(options.keys);
  const auto twice = std::ranges::unique(options.keys);
  options.keys.erase(twice.begin(), twice.end());
  return std::make_shared<const detail::ChannelOptions>(detail::ChannelOptions{
      .keys = options.keys,
      .window_bytes = options.window_bytes,
      .max_channels = options.max_channels,
      .report_unmatched_after = std::max<Duration>(options.report_unmatched_after, 1ms)});
}

}  // namespace

Messenger::Messenger(Runtime& runtime, Options options)
    : runtime_(runtime),
      hub_(std::make_shared<detail::ChannelHub>(runtime, checked(options))),
      network_(std::make_unique<Network>(runtime, std::move(options.network), *hub_)) {
  hub_->set_node(network_->node_id());
}

Messenger::~Messenger() {
  network_.reset();
  runtime_.on_every_shard([hub = hub_](Shard&) { hub->here().clear(); });
}

std::uint64_t Messenger::node_id() const noexcept { return network_->node_id(); }

Task<Endpoint> Messenger::listen(std::string uri) {
  co_return co_await network_->listen(Endpoint::parse(uri));
}

Task<Channel> Messenger::connect(std::string uri, Time deadline) {
  const auto hub = hub_;
  const Time until = deadline == Time{} ? after(timing().default_deadline()) : deadline;
  SessionRef session = co_await network_->connect(Endpoint::parse(uri), until);
  detail::ChannelRef channel = co_await hub->here().open(std::move(session), until);
  co_return Channel(std::move(channel));
}

Task<Channel> Messenger::accept(Time deadline) {
  const auto hub = hub_;
  detail::ChannelRef channel = co_await hub->here().accept(deadline);
  co_return Channel(std::move(channel));
}

Task<std::uint64_t> Messenger::close(Duration drain) {
  const auto hub = hub_;
  Network* const network = network_.get();
  const Error reason(Errc::closed, "accept a channel", "this messenger was closed");
  Runtime& runtime = runtime_;
  for (unsigned i = 0; i < runtime.shard_count(); ++i) {
    auto stop = [hub, reason] { hub->here().stop(reason); };
    co_await call_on(runtime.shard(i), stop);
  }
  co_return co_await network->close(drain);
}

}  // namespace hyperframes::net
