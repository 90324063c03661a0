#include <hyperframes/net/rdma/landing.hpp>

#include <algorithm>
#include <hyperframes/net/transport.hpp>
#include <hyperframes/runtime/detail/pool.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <iterator>
#include <new>
#include <utility>

namespace hyperframes::net::detail {
namespace {

constexpr std::uint32_t line = 64;
std::uint32_t round_up(std::uint32_t offset) { return (offset + line - 1) / line * line; }

}  // namespace

std::optional<LandingMap::Place> LandingMap::take(std::uint32_t wanted, bool goes_on) {
  if (goes_on) {
    const auto behind = free_.find(next_);
    if (behind != free_.end()) return cut(behind, next_, std::min(wanted, behind->second));
  }
  const auto size_of = [](const auto& run) {
    const std::uint32_t lost = round_up(run.first) - run.first;
    return run.second > lost ? run.second - lost : 0;
  };
  const auto most = std::ranges::max_element(free_, {}, size_of);
  if (most == free_.end()) return std::nullopt;
  const std::uint32_t room = size_of(*most);
  if (room == 0 || room < std::min<std::size_t>(wanted, Transport::least_loan)) return std::nullopt;
  return cut(most, round_up(most->first), std::min(wanted, room));
}

LandingMap::Place LandingMap::cut(std::map<std::uint32_t, std::uint32_t>::iterator run,
                                  std::uint32_t offset, std::uint32_t size) {
  const std::uint32_t begin = run->first, end = begin + run->second;
  free_.erase(run);
  if (offset > begin) free_.emplace(begin, offset - begin);
  if (offset + size < end) free_.emplace(offset + size, end - offset - size);
  out_.emplace(offset, size);
  next_ = offset + size;
  return {offset, size};
}

bool LandingMap::give_back(std::uint32_t offset) {
  const auto found = out_.find(offset);
  if (found == out_.end()) return false;
  std::uint32_t begin = offset, end = offset + found->second;
  out_.erase(found);
  const auto after = free_.lower_bound(begin);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      begin = before->first;
      free_.erase(before);
    }
  }
  if (after != free_.end() && after->first == end) {
    end += after->second;
    free_.erase(after);
  }
  free_.emplace(begin, end - begin);
  return true;
}

struct Landed::Loan final : hyperframes::detail::Block {
  std::shared_ptr<Landed> from;
  std::uint32_t offset = 0;

  static void end(hyperframes::detail::Block* block) noexcept {
    auto* self = static_cast<Loan*>(block);
    const std::shared_ptr<Landed> from = std::move(self->from);
    from->returned_.push_back(self->offset);
    --from->lent_;
    self->~Loan();
    hyperframes::detail::pool_release(self);
  }
};

Buffer Landed::lend(std::uint32_t offset, std::uint32_t size) {
  ++lent_;
  // So that an end never lacks memory.
  if (const std::size_t most = returned_.size() + lent_; returned_.capacity() < most)
    returned_.reserve(2 * most);
  auto* loan = new (hyperframes::detail::pool_allocate(sizeof(Loan))) Loan;
  loan->home = Shard::current();
  loan->data = memory_->bytes().data() + offset;
  loan->capacity = size;
  loan->dispose = &Loan::end;
  loan->from = shared_from_this();
  loan->offset = offset;
  return Buffer::adopt(loan, loan->data, size);
}

}  // namespace hyperframes::net::detail
