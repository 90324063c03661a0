// Makes an actor, each time anew, and carries what one life leaves to the next.
#pragma once

#include <concepts>
#include <cstdint>
#include <hyperframes/actors/down.hpp>
#include <hyperframes/runtime/task.hpp>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace hyperframes {
class Actor;

namespace detail {

/// What `snapshot` has given.
struct KeptState {
  virtual ~KeptState() = default;
};

class Factory {
 public:
  virtual ~Factory() = default;
  /// On the actor's shard.
  virtual Actor* make() = 0;
  /// Whether `make` may be called again.
  virtual bool repeatable() const noexcept = 0;
  /// Another one of the same kind; null unless repeatable.
  virtual std::unique_ptr<Factory> clone() const = 0;
  /// Null if the actor leaves nothing. Throws what its `snapshot` does.
  virtual std::unique_ptr<KeptState> snapshot(Actor& /*of*/, ExitReason /*why*/) { return nullptr; }
  virtual Task<void> restore(Actor& /*into*/, std::unique_ptr<KeptState> /*state*/) { return {}; }
};

template <class Made>
concept GivesSnapshot = requires(Made& made, ExitReason why) { made.snapshot(why); };

/// The hooks of actors that have them (actors/restart.hpp).
template <class Made>
class StateHooks : public Factory {};

template <GivesSnapshot Made>
class StateHooks<Made> : public Factory {
  using Given = decltype(std::declval<Made&>().snapshot(ExitReason::crashed));
  using State = typename Given::value_type;
  static_assert(std::is_same_v<Given, std::optional<State>>,
                "snapshot(hf::ExitReason) returns a std::optional: empty to begin anew");
  static_assert(
      requires(Made& made, State state) {
        { made.restore(std::move(state)) } -> std::same_as<Task<void>>;
      }, "what snapshot() gives, hf::Task<void> restore(State) takes");
  struct Kept final : KeptState {
    explicit Kept(State given) : state(std::move(given)) {}
    State state;
  };

 public:
  std::unique_ptr<KeptState> snapshot(Actor& of, ExitReason why) override {
    Given given = static_cast<Made&>(of).snapshot(why);
    return given ? std::make_unique<Kept>(std::move(*given)) : nullptr;
  }
  Task<void> restore(Actor& into, std::unique_ptr<KeptState> state) override {
    return static_cast<Made&>(into).restore(std::move(static_cast<Kept&>(*state).state));
  }
};

/// Keeps an actor's constructor arguments: copies for a restart, or moves if there is none.
template <class Made, class... Arguments>
class FactoryOf final : public StateHooks<Made> {
  static constexpr bool copies = (std::is_copy_constructible_v<Arguments> && ...);

 public:
  FactoryOf(bool repeats, Arguments... arguments)
      : arguments_(std::move(arguments)...), repeats_(repeats) {}
  Actor* make() override {
    return std::apply([repeats = repeats_](auto&... kept) { return construct(repeats, kept...); },
                      arguments_);
  }
  bool repeatable() const noexcept override { return copies; }
  std::unique_ptr<Factory> clone() const override {
    if constexpr (copies)
      return std::apply(
          [this](const auto&... kept) { return std::make_unique<FactoryOf>(repeats_, kept...); },
          arguments_);
    return nullptr;
  }

 private:
  static Actor* construct(bool repeats, Arguments&... arguments) {
    if constexpr (copies)
      if (repeats) return new Made(arguments...);
    return new Made(std::move(arguments)...);
  }

  std::tuple<Arguments...> arguments_;
  bool repeats_;
};

}  // namespace detail
}  // namespace hyperframes
