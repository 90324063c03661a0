#include <hyperframes/runtime/cancellation.hpp>

namespace hyperframes {

CancelSource::CancelSource(CancelSource* parent) noexcept : from_parent_(*this) {
  from_parent_.parent = parent;
  if (!parent) return;
  if (parent->cancelled()) {
    cancel(parent->reason());
  } else {
    parent->add(from_parent_);
  }
}

void CancelSource::cancel(Errc reason) noexcept {
  if (cancelled_) return;
  cancelled_ = true;
  reason_ = reason;
  while (auto* callback = callbacks_.pop_front()) (*callback)();
}

void CancelSource::FromParent::run(CancelCallback& callback) noexcept {
  auto& link = static_cast<FromParent&>(callback);
  link.self.cancel(link.parent->reason());
}

}  // namespace hyperframes
