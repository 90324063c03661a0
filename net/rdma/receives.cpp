#include <hyperframes/net/rdma/receives.hpp>

#include <algorithm>
#include <cerrno>
#include <hyperframes/net/rdma/queue.hpp>
#include <hyperframes/runtime/error.hpp>
#include <string>

namespace hyperframes::net::detail {

RdmaReceives::RdmaReceives(const std::shared_ptr<RdmaDevice>& device)
    : device_(device),
      piece_bytes_(device->options().piece_bytes),
      of_a_link_(device->requests()),
      most_chunks_(std::max(device->shared_receives() / of_a_link_, 1u)),
      chunks_(std::make_unique<RdmaDevice::Lease[]>(most_chunks_)) {
  int failure = 0;
  queue_ = device->verbs().make_receives(most_chunks_ * of_a_link_, failure);
  if (!queue_)
    throw Error::system(failure ? failure : EIO,
                        "make a queue of shared receives on " + device->to_string());
}

RdmaReceives::~RdmaReceives() { queue_.reset(); }

void RdmaReceives::join() {
  const std::scoped_lock lock(mutex_);
  ++links_;
  try {
    while (chunk_count_ < std::min(links_, most_chunks_))
      if (!add()) break;
  } catch (const Error&) {
    if (chunk_count_ == 0) --links_;
    if (chunk_count_ == 0) throw;
  }
}

/// False: the device takes no more of them than it has.
bool RdmaReceives::add() {
  const auto device = device_.lock();
  if (!device) return false;
  RdmaDevice::Lease& lease = chunks_[chunk_count_] = device->lease();
  const std::uint32_t first = chunk_count_ * of_a_link_;
  for (std::uint32_t i = 0; i < of_a_link_; ++i) {
    const std::span<std::byte> memory =
        lease.bytes().subspan(std::size_t{i} * piece_bytes_, piece_bytes_);
    const int failure = queue_->post(RdmaQueue::receive_bit | (first + i), memory, lease.key());
    if (failure && i == 0) {
      lease = RdmaDevice::Lease();
      throw Error::system(failure < 0 ? -failure : failure, "post memory to receive into");
    }
    if (failure) return false;
  }
  ++chunk_count_;
  return true;
}

void RdmaReceives::leave() noexcept {
  const std::scoped_lock lock(mutex_);
  --links_;
}

// A slot is known by what came in it, so its chunk has been there before.
std::span<std::byte> RdmaReceives::memory(std::uint32_t slot) const noexcept {
  return chunks_[slot / of_a_link_].bytes().subspan(std::size_t{slot % of_a_link_} * piece_bytes_,
                                                    piece_bytes_);
}

int RdmaReceives::post(std::uint32_t slot) noexcept {
  return queue_->post(RdmaQueue::receive_bit | slot, memory(slot),
                      chunks_[slot / of_a_link_].key());
}

std::uint32_t RdmaReceives::count() const {
  const std::scoped_lock lock(mutex_);
  return chunk_count_ * of_a_link_;
}

}  // namespace hyperframes::net::detail
