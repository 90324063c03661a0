// A doubly linked intrusive list: O(1) unlink by the element itself, so that an awaiter's
// destructor can take it out of wherever it waits.
#pragma once

#include <cstddef>

namespace hyperframes::detail {

class ListNode {
 public:
  ListNode() noexcept = default;
  ListNode(const ListNode&) = delete;
  ListNode& operator=(const ListNode&) = delete;
  ~ListNode() { unlink(); }

  bool linked() const noexcept { return next_ != nullptr; }
  void unlink() noexcept {
    if (!next_) return;
    previous_->next_ = next_;
    next_->previous_ = previous_;
    next_ = previous_ = nullptr;
  }

 private:
  template <class>
  friend class List;
  ListNode* next_ = nullptr;
  ListNode* previous_ = nullptr;
};

/// `T` derives from ListNode. The list owns nothing.
template <class T>
class List {
 public:
  List() noexcept { end_.next_ = end_.previous_ = &end_; }
  List(const List&) = delete;
  List& operator=(const List&) = delete;
  ~List() {
    while (!empty()) end_.next_->unlink();
    end_.next_ = nullptr;  // so that the sentinel's own destructor does nothing
  }

  bool empty() const noexcept { return end_.next_ == &end_; }
  /// O(n).
  std::size_t size() const noexcept {
    std::size_t count = 0;
    for (const ListNode* at = end_.next_; at != &end_; at = at->next_) ++count;
    return count;
  }
  T& front() noexcept { return *static_cast<T*>(end_.next_); }
  void push_back(T& element) noexcept {
    ListNode& node = element;
    node.previous_ = end_.previous_;
    node.next_ = &end_;
    end_.previous_->next_ = &node;
    end_.previous_ = &node;
  }
  /// Takes the first element out, or returns null.
  T* pop_front() noexcept {
    if (empty()) return nullptr;
    T* first = static_cast<T*>(end_.next_);
    first->unlink();
    return first;
  }
  T* pop_back() noexcept {
    if (empty()) return nullptr;
    T* last = static_cast<T*>(end_.previous_);
    last->unlink();
    return last;
  }
  /// `visit(element)` may unlink the element it is given, and no other.
  template <class Visit>
  void for_each(Visit&& visit) {
    for (ListNode* at = end_.next_; at != &end_;) {
      ListNode* next = at->next_;
      visit(*static_cast<T*>(at));
      at = next;
    }
  }
  /// Until `visit`, which must not change the list, returns false.
  template <class Visit>
  void visit_while(Visit&& visit) {
    ListNode* at = end_.next_;
    while (at != &end_ && visit(*static_cast<T*>(at))) at = at->next_;
  }

 private:
  ListNode end_;
};

}  // namespace hyperframes::detail
