// A reference to something callable, for calls that happen once per batch: one indirect call, no allocation, no
// ownership. It must not outlive what it refers to; use it for parameters only.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace timerbench::harness {

template <class Signature>
class function_ref;

template <class Result, class... Arguments>
class function_ref<Result(Arguments...)> {
  public:
    template <class Callable>
    requires(!std::is_same_v<std::remove_cvref_t<Callable>, function_ref> &&
             std::is_invocable_r_v<Result, Callable&, Arguments...>)
        function_ref(Callable&& callable) // NOLINT(google-explicit-constructor): stands in for the callable
        : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
          call_([](void* object, Arguments... arguments) -> Result {
              return static_cast<Result>((*static_cast<std::remove_reference_t<Callable>*>(object))(
                  std::forward<Arguments>(arguments)...));
          }) {}

    Result operator()(Arguments... arguments) const {
        return call_(object_, std::forward<Arguments>(arguments)...);
    }

  private:
    void* object_;
    Result (*call_)(void*, Arguments...);
};

} // namespace timerbench::harness
