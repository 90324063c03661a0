// A table inside another one's fields, held by value and possibly absent.
//
//   demo::Order::Fields order{.customer = demo::Customer::Fields{.name = "Ada"}};
//   if (order.customer) greet(order.customer->name);
//   order.customer = {};                                  // absent
//
// Like std::optional, but its type may still be incomplete, since a schema's tables may contain
// each other. A copy copies the value; a const Nested gives it out writable, as a pointer does. `*`
// and `->` are for those that are not absent.
#pragma once

#include <memory>
#include <utility>
#include <vector>

namespace hyperframes {

template <class T>
class Nested {
 public:
  Nested() noexcept = default;
  Nested(T value) : value_(std::make_unique<T>(std::move(value))) {}
  Nested(const Nested& other)
      : value_(other.value_ ? std::make_unique<T>(*other.value_) : nullptr) {}
  Nested(Nested&&) noexcept = default;
  Nested& operator=(Nested other) noexcept {
    value_.swap(other.value_);
    return *this;
  }
  ~Nested() = default;

  explicit operator bool() const noexcept { return value_ != nullptr; }
  T& operator*() const noexcept { return *value_; }
  T* operator->() const noexcept { return value_.get(); }

 private:
  std::unique_ptr<T> value_;
};

/// A std::vector that may be a member of the type it holds, with a default initializer. Its special
/// members are written out so that they are instantiated late, when that type is complete.
template <class T>
class NestedVector : public std::vector<T> {
 public:
  using std::vector<T>::vector;
  NestedVector() noexcept {}
  NestedVector(std::vector<T> other) noexcept : std::vector<T>(std::move(other)) {}
  NestedVector(const NestedVector& other) : std::vector<T>(other) {}
  NestedVector(NestedVector&& other) noexcept : std::vector<T>(std::move(other)) {}
  NestedVector& operator=(NestedVector other) noexcept {
    this->swap(other);
    return *this;
  }
  ~NestedVector() {}
};

}  // namespace hyperframes
