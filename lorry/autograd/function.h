#pragma once

// Function: a user's own operator, with its forward and its backward.
//
//   struct Cube : autograd::Function<Cube> {
//     static Tensor forward(autograd::Context& context, const Tensor& x) {
//       context.save_for_backward({x});
//       return x * x * x;
//     }
//     static std::vector<Tensor> backward(autograd::Context& context, const std::vector<Tensor>& grads) {
//       const Tensor x = context.saved_tensors()[0];
//       return {grads[0] * 3 * x * x};
//     }
//   };
//   const Tensor y = Cube::apply(x);
//
// forward takes the arguments of apply and returns a Tensor or a std::vector<Tensor>; nothing that it does is recorded.
// backward takes a gradient for each result and returns one for each argument of forward; undefined for a number, and
// allowed to be undefined where none is needed. If it uses differentiable operators only, gradients of gradients work.

#include <any>
#include <concepts>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lorry/base/class_name.h"
#include "lorry/tensor/tensor.h"

namespace lorry::autograd {

class Context;

namespace detail {
class FunctionNode;
struct UserFunction;
std::vector<Tensor> run(const UserFunction& function);
}  // namespace detail

/// What the forward of a Function hands to its backward.
class Context {
 public:
  /// From forward: saves arguments, results or intermediate tensors. Gradients of gradients pass through arguments and
  /// results. A later call replaces what an earlier one saved.
  void save_for_backward(std::vector<Tensor> tensors) { to_save_ = std::move(tensors); }
  /// From backward: what was saved, in that order. Throws GradError for a tensor that was overwritten in place since,
  /// and where the graph was freed.
  std::vector<Tensor> saved_tensors() const;
  /// What is no tensor: context.saved_data["power"] = 3.0, std::any_cast<double>(context.saved_data["power"]).
  std::map<std::string, std::any> saved_data;
  /// Whether the gradient of an argument of forward is needed; false for a number. Throws IndexError.
  bool needs_input_grad(size_t argument) const;
  /// From forward: these results have no gradient. Results that are not floating have none anyway.
  void mark_non_differentiable(std::vector<Tensor> results) { constant_ = std::move(results); }

 private:
  friend class detail::FunctionNode;
  friend std::vector<Tensor> detail::run(const detail::UserFunction& function);
  std::vector<Tensor> to_save_, constant_;
  std::vector<bool> needs_;
  detail::FunctionNode* node_ = nullptr;
};

namespace detail {

/// A call of a user's function, without the types of its arguments.
struct UserFunction {
  const char* name;
  std::vector<Tensor> arguments;  ///< undefined where forward takes something else
  std::vector<bool> is_tensor;    ///< of the arguments
  std::function<std::vector<Tensor>(Context&)> forward;
  std::vector<Tensor> (*backward)(Context& context, const std::vector<Tensor>& grads);
};
/// Runs its forward, and records it if a gradient is needed.
std::vector<Tensor> run(const UserFunction& function);

}  // namespace detail

/// Self: the struct that derives from it. It may have a kName, which errors and grad_fn then show.
template <class Self>
class Function {
 public:
  /// Calls forward. Throws GradError for a forward that writes an argument whose gradient is needed. A result that
  /// shares memory with an argument is copied. The backward throws GradError for another number of gradients than
  /// arguments and for the gradient of a number, ShapeError and DeviceError for one that does not fit its argument.
  template <class... Args>
  static auto apply(const Args&... args) {
    constexpr bool kHasForward = requires(Context & context) { Self::forward(context, args...); };
    constexpr bool kHasBackward = requires(Context & context, const std::vector<Tensor>& grads) {
      { Self::backward(context, grads) } -> std::same_as<std::vector<Tensor>>;
    };
    static_assert(kHasForward, "a Function has static forward(Context&, arguments of apply...)");
    static_assert(kHasBackward,
                  "a Function has static std::vector<Tensor> backward(Context&, const std::vector<Tensor>& grads)");
    static_assert(!(std::is_same_v<Args, std::vector<Tensor>> || ...),
                  "a Function takes each tensor as an argument of its own");
    if constexpr (kHasForward && kHasBackward) {
      using Result = std::decay_t<decltype(Self::forward(std::declval<Context&>(), args...))>;
      constexpr bool kOne = std::is_same_v<Result, Tensor>;
      static_assert(kOne || std::is_same_v<Result, std::vector<Tensor>>,
                    "the forward of a Function returns a Tensor or a std::vector<Tensor>");
      std::vector<Tensor> results =
          detail::run({.name = name(),
                       .arguments = {tensor_of(args)...},
                       .is_tensor = {std::is_same_v<Args, Tensor>...},
                       .forward =
                           [&](Context& context) {
                             if constexpr (kOne)
                               return std::vector<Tensor>{Self::forward(context, args...)};
                             else
                               return Self::forward(context, args...);
                           },
                       .backward = [](Context& context,
                                      const std::vector<Tensor>& grads) { return Self::backward(context, grads); }});
      if constexpr (kOne)
        return std::move(results[0]);
      else
        return results;
    }
  }

 private:
  static const char* name() {
    if constexpr (requires { Self::kName; }) {
      return Self::kName;
    } else {
      static const std::string name = class_name(typeid(Self));
      return name.c_str();
    }
  }
  static Tensor tensor_of(const Tensor& x) { return x; }
  template <class T>
  static Tensor tensor_of(const T&) {
    return {};
  }
};

}  // namespace lorry::autograd
