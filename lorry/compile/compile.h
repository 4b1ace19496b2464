#pragma once

// compile(): a function of tensors that learns what it does by doing it. The first call with new sizes, strides or
// dtypes runs as it always did, while its operators are recorded; what it did then runs again, fused, in each call
// with tensors like these, and gives the same bits.
//
//   auto gelu_scaled = lorry::compile([](const Tensor& x, const Tensor& w) { return gelu(x) * w + 1; });
//   const Tensor y = gelu_scaled(x, w);
//
//   auto train_step = lorry::compile([&](const Tensor& x, const Tensor& y) {
//     optimizer.zero_grad();
//     const Tensor loss = cross_entropy(model(x), y);
//     loss.backward();
//     optimizer.step();
//     schedule.step();
//     return loss.detach();
//   });
//
// Only operators are repeated. What else the function does is done when it is recorded and not again: host code may
// depend on sizes, dtypes and numbers among the arguments, which are part of what is looked up, and on nothing that
// changes from call to call. Schedules go on (trace::host_callback is how). A function that reads elements on the host
// runs as it is, and a warning event says why; explain() too.
//
// Results that require a gradient lead to a backward that is compiled too. The first call records it, by running it
// once. Gradients of these gradients are refused with GradError.

#include <array>
#include <bit>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lorry/tensor/tensor.h"

namespace lorry {

struct CompileOptions {
  /// Throw CompileError, naming the call, where the function cannot be recorded, instead of running it as it is.
  bool fullgraph = false;
  /// Return from a recorded call when its kernels for a GPU are compiled. Otherwise that happens in the background, and
  /// calls run operator by operator until a kernel is there.
  bool wait = false;
  /// How many recordings one function holds, and all of them together. Over these the least recently used of the
  /// function is dropped; a warning event says so. At least 1.
  int cache_size_limit = 64, accumulated_cache_size_limit = 4096;
};

/// What a compiled function did so far.
struct CompileStats {
  int64_t recordings = 0;   ///< calls that were recorded
  int64_t hits = 0;         ///< calls that ran what was recorded
  int64_t eager_calls = 0;  ///< calls of functions that cannot be recorded, or in which there is nothing to fuse
  int64_t dropped = 0;      ///< recordings over the limits
  int cached = 0;           ///< recordings that are held
  int variants = 0;         ///< of different operators or kinds of operands: sizes alone make none
};

namespace detail {

/// Numbers among the arguments, and which tensors are undefined, in order.
using CompileKey = std::vector<uint64_t>;

/// A function that somebody else holds.
class FunctionRef {
 public:
  template <class F>
  explicit FunctionRef(const F& f)
      : object_(&f), call_([](const void* object) { return (*static_cast<const F*>(object))(); }) {}
  std::vector<Tensor> operator()() const { return call_(object_); }

 private:
  const void* object_;
  std::vector<Tensor> (*call_)(const void* object);
};

class CompiledFunction {
 public:
  explicit CompiledFunction(const CompileOptions& options);
  ~CompiledFunction();
  CompiledFunction(const CompiledFunction&) = delete;
  CompiledFunction& operator=(const CompiledFunction&) = delete;

  /// The results of `function`, which reads `arguments` and what `key` says. Throws what it throws, and CompileError.
  std::vector<Tensor> call(std::span<const Tensor> arguments, const CompileKey& key, FunctionRef function);
  std::string explain() const;
  std::string sources() const;
  CompileStats stats() const;
  void reset();

 private:
  struct Cache;
  std::unique_ptr<Cache> cache_;
};

template <class T>
inline constexpr bool kUnknown = false;

/// Tells types apart: 1 and true are not the same argument.
template <class T>
constexpr uint64_t type_tag() {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : std::string_view(__PRETTY_FUNCTION__)) hash = (hash ^ static_cast<uint64_t>(c)) * 0x100000001b3;
  return hash;
}

inline void flatten(const Tensor& x, std::vector<Tensor>& tensors, CompileKey& key) {
  key.push_back(x.defined());
  if (x.defined()) tensors.push_back(x);
}
inline void flatten(const std::vector<Tensor>& list, std::vector<Tensor>& tensors, CompileKey& key) {
  key.push_back(list.size());
  for (const Tensor& x : list) flatten(x, tensors, key);
}
template <class T>
requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) void flatten(T x, std::vector<Tensor>&, CompileKey& key) {
  key.push_back(type_tag<T>());
  if constexpr (std::is_floating_point_v<T>)
    key.push_back(std::bit_cast<uint64_t>(static_cast<double>(x)));
  else
    key.push_back(static_cast<uint64_t>(x));
}

/// A function's result as a list, and back.
template <class R>
struct Results {
  static_assert(kUnknown<R>,
                "a compiled function returns nothing, a Tensor, or a pair, tuple, array or vector of them");
};
template <>
struct Results<Tensor> {
  static std::vector<Tensor> list(Tensor x) { return {std::move(x)}; }
  static Tensor from(std::vector<Tensor> all) { return std::move(all[0]); }
};
template <>
struct Results<std::vector<Tensor>> {
  static std::vector<Tensor> list(std::vector<Tensor> x) { return x; }
  static std::vector<Tensor> from(std::vector<Tensor> all) { return all; }
};
template <class R, size_t... k>
struct TupleResults {
  static_assert((std::is_same_v<std::tuple_element_t<k, R>, Tensor> && ...), "a compiled function returns tensors");
  static std::vector<Tensor> list(R x) { return {std::get<k>(std::move(x))...}; }
  static R from(std::vector<Tensor> all) { return R{std::move(all[k])...}; }
};
template <class R, size_t... k>
TupleResults<R, k...> tuple_results(std::index_sequence<k...>);
template <class R>
requires requires { std::tuple_size<R>::value; }
struct Results<R> : decltype(tuple_results<R>(std::make_index_sequence<std::tuple_size_v<R>>())) {};

}  // namespace detail

/// A compiled function. Copies share what they recorded. Any number of threads may call it.
template <class F>
class Compiled {
 public:
  Compiled(F function, const CompileOptions& options) : state_(std::make_shared<State>(std::move(function), options)) {}

  /// The function's result. Arguments are tensors, vectors of tensors, and numbers. Throws what the function throws.
  template <class... A>
  auto operator()(const A&... arguments) const -> std::invoke_result_t<F&, const A&...> {
    using R = std::invoke_result_t<F&, const A&...>;
    std::vector<Tensor> tensors;
    detail::CompileKey key{detail::type_tag<R>()};
    (detail::flatten(arguments, tensors, key), ...);
    if constexpr (std::is_void_v<R>) {
      const auto call = [&] {
        state_->function(arguments...);
        return std::vector<Tensor>();
      };
      state_->compiled.call(tensors, key, detail::FunctionRef(call));
    } else {
      using Results = detail::Results<std::remove_cvref_t<R>>;
      const auto call = [&] { return Results::list(state_->function(arguments...)); };
      return Results::from(state_->compiled.call(tensors, key, detail::FunctionRef(call)));
    }
  }

  /// What was recorded, a part a recording: its units, the bytes that fusing saves, why neighbours were not fused, and
  /// why it was recorded beside the others.
  std::string explain() const { return state_->compiled.explain(); }
  /// The sources of the kernels that were generated for GPUs, one after the other.
  std::string sources() const { return state_->compiled.sources(); }
  CompileStats stats() const { return state_->compiled.stats(); }
  /// Drops all recordings.
  void reset() { state_->compiled.reset(); }

 private:
  struct State {
    State(F f, const CompileOptions& options) : function(std::move(f)), compiled(options) {}
    F function;
    detail::CompiledFunction compiled;
  };
  std::shared_ptr<State> state_;
};

/// A function that is recorded once and runs fused from then on (above). What it captures outlives it. Throws
/// ValueError for a limit below 1.
template <class F>
Compiled<std::decay_t<F>> compile(F&& function, const CompileOptions& options = {}) {
  return {std::forward<F>(function), options};
}

}  // namespace lorry
