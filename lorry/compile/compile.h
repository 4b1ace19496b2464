#pragma once

// compile(): records a function of tensors and replays it fused. The first call with new dtypes, strides or ranks, and
// the first two with other sizes, run the function as usual and record its operators. Later calls with tensors of the
// same kind run the recording, with operators fused, and give the same bits, but for products with epilogues
// (CompileOptions::epilogues). Sizes beyond the first two need no recording if the function's own code reads none of
// those that change (CompileOptions::dynamic).
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
// Only operators are repeated. Other code of the function runs when it is recorded, and not again. Host code may depend
// on sizes, dtypes and numbers among the arguments, because these select the recording (sizes if it reads them), but
// not on anything that changes between calls. Schedules do advance (through trace::host_callback). A function that
// reads elements on the host, or does something else that a recording cannot repeat, runs in full in each call. Its
// operators are deferred and fused between such points (compile/lazy.h); a warning event and explain() say why.
//
// If results require a gradient, the backward is compiled too. The first call records it by running it once. Gradients
// of these gradients throw GradError.

#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lorry/trace/signature.h"

namespace lorry {

/// Whether one recording serves other sizes than its own (CompileOptions::dynamic).
enum class Dynamic : uint8_t {
  automatic,  ///< where the function's own code reads no size that changes
  never,      ///< each combination of sizes is recorded
  /// As automatic, and the function may read sizes if it only shapes tensors with them: no branch, loop or rounding may
  /// depend on them, and no slice may be shortened by the end of its tensor. This is not checked.
  always,
};

struct CompileOptions {
  /// Throw CompileError that names the call if the function cannot be recorded as one graph, instead of splitting it.
  bool fullgraph = false;
  /// Return from a recorded call only when its GPU kernels are compiled. Otherwise they are compiled in the background,
  /// and calls run operator by operator until a kernel is ready.
  bool wait = false;
  /// On a GPU, in 16-bit floats: products take the bias and GELU that follow into themselves, other kernels also add up
  /// their results over rows, and the gradient of an embedding is added to that of a layer that shares its table. Then
  /// results may differ by the rounding of an intermediate value, the order of a sum, and the sign of a zero. False:
  /// the bits of the operators.
  bool epilogues = true;
  /// Times several ways to run a recording in its first calls, and goes on with the fastest: with the usual fusions,
  /// with all epilogues, with none, and operator by operator. These calls wait for kernels and for the device.
  bool max_autotune = false;
  /// When a function has been recorded with two sizes of a dimension (some functions: three or four), the recordings
  /// for further sizes follow from these, and the function does not run for them.
  Dynamic dynamic = Dynamic::automatic;
  /// The maximum number of recordings of one function, and of all functions. Beyond them the function's least recently
  /// used recording is dropped, and a warning event says so. At least 1.
  int cache_size_limit = 64, accumulated_cache_size_limit = 4096;
};

/// Statistics of a compiled function.
struct CompileStats {
  int64_t recordings = 0;   ///< calls that were recorded
  int64_t resized = 0;      ///< recordings that were made from others for new sizes, without running the function
  int64_t hits = 0;         ///< calls that ran a recording
  int64_t eager_calls = 0;  ///< calls that ran uncompiled, because nothing can be fused
  /// calls that ran with their operators deferred, because no single recording can repeat the function
  int64_t deferred_calls = 0;
  int64_t dropped = 0;  ///< recordings dropped because of the limits
  int cached = 0;       ///< recordings held now
  int variants = 0;     ///< recordings that differ in operators or kinds of operands, not in sizes only
};

namespace detail {

/// The numbers among the arguments, and which tensors are undefined, in order.
using CompileKey = std::span<const uint64_t>;

/// A reference to a function owned by the caller.
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

  /// The results of `function` for these arguments and this key. Throws the function's errors, and CompileError.
  std::vector<Tensor> call(std::span<const Tensor> arguments, CompileKey key, FunctionRef function);
  std::string explain() const;
  std::string sources() const;
  CompileStats stats() const;
  void reset();

 private:
  struct Cache;
  std::unique_ptr<Cache> cache_;
};

}  // namespace detail

/// A compiled function. Copies share their recordings. Thread-safe.
template <class F>
class Compiled {
 public:
  Compiled(F function, const CompileOptions& options) : state_(std::make_shared<State>(std::move(function), options)) {}

  /// The function's result. Arguments are tensors, vectors of tensors, and numbers. Throws the function's errors.
  template <class... A>
  auto operator()(const A&... arguments) const -> std::invoke_result_t<F&, const A&...> {
    using R = std::invoke_result_t<F&, const A&...>;
    detail::Arguments all(sizeof...(A));
    all.key.push_back(detail::type_tag<R>());
    (all.add(arguments), ...);
    if constexpr (std::is_void_v<R>) {
      const auto call = [&] {
        state_->function(arguments...);
        return std::vector<Tensor>();
      };
      state_->compiled.call(all.tensors, all.key, detail::FunctionRef(call));
    } else {
      using Results = detail::Results<std::remove_cvref_t<R>>;
      const auto call = [&] { return Results::list(state_->function(arguments...)); };
      return Results::from(state_->compiled.call(all.tensors, all.key, detail::FunctionRef(call)));
    }
  }

  /// Describes each recording: its units, the bytes that fusing saves, why neighbours were not fused, and why it was
  /// recorded in addition to the others.
  std::string explain() const { return state_->compiled.explain(); }
  /// The sources of all kernels generated for GPUs.
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

/// Compiles a function (see above). Everything that it captures must outlive the result. Throws ValueError for a limit
/// below 1.
template <class F>
Compiled<std::decay_t<F>> compile(F&& function, const CompileOptions& options = {}) {
  return {std::forward<F>(function), options};
}

}  // namespace lorry
