#include <hyperframes/runtime/scope.hpp>
#include <hyperframes/runtime/shard.hpp>
#include <hyperframes/runtime/sleep.hpp>

namespace hyperframes {

struct Scope::Child : detail::ListNode {
  Child(Scope& scope, std::source_location from)
      : scope(scope), launched(&Scope::finished, &scope.cancel_, from, this) {
    launched.joiners = &scope.joiners_;
  }
  Scope& scope;
  detail::Launched launched;
};

Scope::Scope(CancelSource* parent) : cancel_(parent) {}
Scope::Scope(const detail::PromiseBase& parent)
    : cancel_(parent.cancel), deadline_(parent.deadline) {}

Scope::~Scope() {
  while (Child* child = children_.pop_front()) delete child;
}

void Scope::spawn(Task<void> task, std::uint8_t group, std::source_location from) {
  Shard& shard = *Shard::current();
  if (group == same_group) group = shard.running_group;
  auto* child = new Child(*this, from);
  children_.push_back(*child);
  shard.keep_in_sight(child->launched);
  ++running_;
  child->launched.start(std::move(task), shard, group,
                        shard.running_owner.load(std::memory_order_relaxed), deadline_);
}

void Scope::finished(detail::Launched& launched) noexcept {
  auto* child = static_cast<Child*>(launched.context());
  Scope& scope = child->scope;
  if (launched.failure && !scope.failure_) {
    scope.failure_ = launched.failure;
    scope.cancel();
  }
  delete child;
  if (--scope.running_ > 0) return;
  while (detail::Waiter* waiter = scope.joining_.pop_front()) waiter->wake();
}

/// Waits for the last child, whatever the awaiting chain's cancellation says: that was passed on.
class Scope::Emptied final : public detail::Waiter, public detail::Branches {
 public:
  explicit Emptied(Scope& scope) noexcept : scope_(scope) {}
  ~Emptied() {
    if (!promise()) return;
    promise()->branches = nullptr;
    --scope_.joiners_;
  }
  bool await_ready() const noexcept { return scope_.running_ == 0; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    detail::PromiseBase& promise = handle.promise();
    CancelSource* const inherited = std::exchange(promise.cancel, nullptr);
    begin(promise);
    promise.cancel = inherited;
    promise.branches = this;
    ++scope_.joiners_;
    scope_.joining_.push_back(*this);
    return true;
  }
  void await_resume() const noexcept {}
  void describe(AwaitChain& chain, unsigned level) const override;

 private:
  Scope& scope_;
};

void Scope::Emptied::describe(AwaitChain& chain, unsigned level) const {
  const std::size_t most = level < AwaitChain::most_levels ? AwaitChain::most_branches : 0;
  scope_.children_.visit_while([&](Child& child) {
    if (chain.branches.size() == most) return false;
    chain.branches.push_back(child.launched.chain(level));
    return true;
  });
  chain.branches_left_out = scope_.running_ - chain.branches.size();
}

namespace {
struct PassOn : detail::CancelCallback {
  PassOn(Scope& scope, CancelSource& from) noexcept
      : CancelCallback(&PassOn::run), scope(scope), from(from) {}
  static void run(CancelCallback& callback) noexcept {
    auto& self = static_cast<PassOn&>(callback);
    self.scope.cancel(self.from.reason());
  }
  Scope& scope;
  CancelSource& from;
};
}  // namespace

Task<void> Scope::join() {
  detail::PromiseBase& promise = co_await CurrentPromise{};
  CancelSource none;
  PassOn pass_on(*this, promise.cancel ? *promise.cancel : none);
  if (promise.cancel) {
    if (promise.cancel->cancelled()) {
      cancel(promise.cancel->reason());
    } else {
      promise.cancel->add(pass_on);
    }
  }
  co_await Emptied(*this);
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace hyperframes
