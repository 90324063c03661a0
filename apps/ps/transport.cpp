#include <hyperframes/apps/ps/transport.hpp>

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <hyperframes/apps/ps/command_line.hpp>

namespace hyperframes::ps {
namespace {

// A batch is under way while the next one is prepared, and what is given back is still on its way.
constexpr std::uint64_t halves_of_a_batch = 5;
// Registered memory is taken in whole ones of these.
constexpr std::uint64_t alignment = 2u << 20;

std::string text_of(std::uint64_t bytes) {
  constexpr std::uint64_t mib = 1u << 20;
  if (bytes % (mib << 10) == 0) return fmt::format("{}GB", bytes / (mib << 10));
  return fmt::format("{}MB", (bytes + mib - 1) / mib);
}

/// The options that are numbers of the verbs, with what they amount to.
std::string silence_text(const net::RdmaOptions& options) {
  const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(net::retry_time(options));
  return fmt::format("by default {} and {}, which is {} ms", options.timeout, options.retries,
                     time.count());
}

}  // namespace

net::Endpoint TransportOptions::endpoint(const std::string& address) const {
  return net::Endpoint::parse((rdma ? "rdma://" : "tcp://") + address);
}

void TransportOptions::apply(net::Network::Options& network) const {
  network.rdma = options;
  network.rdma.enabled = rdma;
}

void add_transport_options(CLI::App& app, TransportOptions& transport) {
  net::RdmaOptions& options = transport.options;
  CLI::Option* const rdma =
      app.add_flag("--rdma", transport.rdma,
                   "Use RDMA with those that do; where there is none, TCP, with a warning");
  app.add_option("--rdma_device", options.device,
                 "With --rdma: device ('mlx5_0'), port of one ('mlx5_0:2'), or the IP address of "
                 "one (default: that of --listen, else the first that is up)")
      ->needs(rdma);
  take_bytes(app.add_option("--buffer_pool_size", options.pool_bytes,
                            "With --rdma: memory that may be registered, such as 512MB or 8GB"),
             std::uint64_t{4} << 20, std::uint64_t{1} << 40)
      ->default_str(text_of(options.pool_bytes))
      ->needs(rdma);
  take_whole(app.add_option("--rdma_timeout", options.timeout,
                            "With --rdma: a request is sent again after 4.096 us * 2^TIMEOUT"),
             1, 31)
      ->capture_default_str()
      ->needs(rdma);
  take_whole(app.add_option("--rdma_retries", options.retries,
                            "With --rdma: so often; then the peer is taken for gone (" +
                                silence_text(options) + ")"),
             0, 7)
      ->capture_default_str()
      ->needs(rdma);
  app.add_flag("--rdma_beside_encryption", options.beside_encryption,
               "With --rdma: also where TCP is encrypted, which RDMA is not")
      ->needs(rdma);
}

std::string pool_advice(const TransportOptions& transport, std::uint64_t largest_batch_bytes) {
  if (!transport.rdma || largest_batch_bytes == 0) return {};
  const std::uint64_t needed = largest_batch_bytes * halves_of_a_batch / 2;
  const std::uint64_t least = std::max((needed + alignment - 1) / alignment * alignment,
                                       std::uint64_t{64} << 20);  // two regions of pieces
  const std::uint64_t given = transport.options.pool_bytes;
  return fmt::format(
      "the largest batch had {} bytes: {} of registered memory for each peer are enough for 2.5 of "
      "them, and --buffer_pool_size is {}{}",
      largest_batch_bytes, text_of(least), text_of(given),
      given < least ? ": what finds no place there is copied, so give more" : "");
}

}  // namespace hyperframes::ps
