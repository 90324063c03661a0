// What a function gives that may be a coroutine: the value of its task, or what it returned.
//
//   using Returned = detail::TaskValue<std::invoke_result_t<Function&>>;
//   if constexpr (Returned::is_task) co_return co_await function();
//   static_assert(std::is_same_v<detail::TaskValue<Task<int>>::type, int>);
#pragma once

#include <hyperframes/runtime/task.hpp>

namespace hyperframes::detail {

template <class R>
struct TaskValue {
  using type = R;
  static constexpr bool is_task = false;
};
template <class T>
struct TaskValue<Task<T>> {
  using type = T;
  static constexpr bool is_task = true;
};

}  // namespace hyperframes::detail
