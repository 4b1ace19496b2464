#pragma once

// Optimizers with a user's own rule. The rule is either a struct, as formula/rule.h describes it:
//
//   optim::Custom<Momentum> optimizer(model.named_parameters(), {.lr = 0.1});
//
// or only an update, with a learning rate and further numbers:
//
//   const auto momentum = optim::rule<1>(            // one state: an array as large as the parameter
//       [](auto& param, auto grad, auto* states, const auto& h) {
//         states[0] = h[0] * states[0] + grad;
//         param = param - h.lr * states[0];
//       },
//       0.1, {0.9});                                 // lr, and h[0]
//   optim::Custom optimizer(model.named_parameters(), momentum);
//
// An update may use + - * / and their assignments, comparisons, select, sqrt and abs. Numbers mix with values, as in
// 0.9 * grad; they are rounded to the type of computation first. At least one of select's two values is not a plain
// number.
//
// The rule works with everything that an optimizer offers: groups, masters, clipping, checkpoints, and every dtype,
// device and execution. On a CPU, fused steps run the loop that the compiler makes of the rule. On a GPU there are
// fused steps only if nvcc compiles this header:
//
//   nvcc -std=c++20 -arch=native -fmad=false --expt-relaxed-constexpr --expt-extended-lambda -diag-suppress=20011,20014
//
// The suppressed diagnostics concern recordings of the rule: device functions that call host functions. Without nvcc,
// `automatic` means `compiled` for parameters on a GPU, or `foreach` if there is no NVRTC. Kernels of nvcc take no
// lambdas; the update is then a struct with an operator() that is LORRY_INLINE, as in examples/own_rule.h. To get the
// same bits everywhere, compile with -ffp-contract=off, which the CMake targets add, and without -ffast-math.

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "lorry/formula/number.h"
#include "lorry/formula/rule_run.h"
#include "lorry/optim/optimizer_for.h"
#include "lorry/optim/rules/typed_rule.h"
#ifdef __CUDACC__
#include "lorry/kernels/cuda/optim/rule.h"
#endif

namespace lorry::optim {

namespace detail {
[[noreturn]] void raise_no_number(int asked, int count);
[[noreturn]] void raise_no_state(int states);
}  // namespace detail

// ---- the short form -------------------------------------------------------------------------------------------------

/// The rule of an update. Update: a struct or lambda without captures, called as in the example above; it may have a
/// kName. h has lr, steps (the number of the next step, from 1 on) and the numbers h[k].
template <class Update, int kStateCount, int kNumbers>
struct ShortRule {
  static constexpr const char* name() {
    if constexpr (requires { Update::kName; })
      return Update::kName;
    else
      return "rule";
  }
  static constexpr const char* kName = name();
  static constexpr int kStates = kStateCount;
  static constexpr const char* kStateNames[] = {"state0", "state1", "state2"};

  struct Settings {
    double lr = 1e-3;
    double numbers[kNumbers > 0 ? kNumbers : 1] = {};
  };
  struct Progress {
    double steps = 0;
  };
  static constexpr const char* kProgressNames[] = {"step"};

  template <class V>
  struct Hyper {
    V lr, steps, numbers[kNumbers > 0 ? kNumbers : 1];

    LORRY_INLINE const V& operator[](int k) const {
#ifndef __CUDA_ARCH__
      if (k < 0 || k >= kNumbers) detail::raise_no_number(k, kNumbers);  // check_update finds it before any step
#endif
      return numbers[k];
    }
    template <class To, class F>
    LORRY_INLINE Hyper<To> map(const F& f) const {
      Hyper<To> to;
      to.lr = f(lr);
      to.steps = f(steps);
      for (int k = 0; k < (kNumbers > 0 ? kNumbers : 1); ++k) to.numbers[k] = f(numbers[k]);
      return to;
    }
  };
  static LORRY_INLINE Hyper<double> advance(Progress& progress, const Settings& s) {
    progress.steps += 1;
    Hyper<double> hyper;
    hyper.lr = s.lr;
    hyper.steps = progress.steps;
    for (int k = 0; k < (kNumbers > 0 ? kNumbers : 1); ++k) hyper.numbers[k] = s.numbers[k];
    return hyper;
  }
  static LORRY_INLINE double first_state(int, const Settings&) { return 0; }

  template <class V, class H>
  LORRY_INLINE void operator()(V& param, V grad, V* states, const H& h) const {
    // If the update cannot be called, check_update says so by one message.
    if constexpr (std::is_default_constructible_v<Update> && std::is_invocable_v<const Update&, V&, V, V*, const H&>)
      Update()(param, grad, states, h);
  }
};

namespace detail {
/// Whether an update can be called with values of type V.
template <class Update, int kStates, int kNumbers, class V>
concept UpdateOf = std::is_invocable_v<const Update&, V&, V, V*,
                                       const typename ShortRule<Update, kStates, kNumbers>::template Hyper<V>&>;

template <class Update, int kStates, int kNumbers>
void check_update() {
  static_assert(std::is_empty_v<Update> && std::is_default_constructible_v<Update>,
                "an update captures nothing: give it numbers instead");
  static_assert(kStates >= 0 && kStates <= kMaxStates, "a rule has at most three states");
  static_assert(UpdateOf<Update, kStates, kNumbers, formula::Number<float>>,
                "an update is called as update(V& param, V grad, V* states, const H& h) const");
  if constexpr (std::is_default_constructible_v<Update> &&
                UpdateOf<Update, kStates, kNumbers, formula::Number<float>>) {
    using V = formula::Number<float>;
    using Rule = ShortRule<Update, kStates, kNumbers>;
    constexpr int kBeyond = 16;  // states past the rule's: nothing may read or write them
    typename Rule::Progress progress;
    const auto numbers = Rule::advance(progress, {}).template map<V>([](double x) { return V(static_cast<float>(x)); });
    uint32_t results[2][1 + kStates];
    for (const int run : {0, 1}) {
      const float beyond = run ? 0.75f : 0.0f;
      V param(1.0f), states[kStates + kBeyond];
      std::fill_n(states, kStates, V(0.0f));
      std::fill_n(states + kStates, kBeyond, V(beyond));
      Update()(param, V(1.0f), states, numbers);  // throws if it asks for a number that does not exist
      results[run][0] = std::bit_cast<uint32_t>(param.value);
      for (int k = 0; k < kStates; ++k) results[run][1 + k] = std::bit_cast<uint32_t>(states[k].value);
      for (int k = kStates; k < kStates + kBeyond; ++k)
        if (states[k].value != beyond) raise_no_state(kStates);
    }
    if (!std::ranges::equal(results[0], results[1])) raise_no_state(kStates);
  }
}
}  // namespace detail

/// A rule and its settings.
template <class R>
struct OwnRule {
  using Rule = R;
  typename Rule::Settings settings;

  /// Lets a group take a rule in place of settings: add_param_group({params, rule}).
  operator const typename Rule::Settings &() const { return settings; }
};

/// A rule from its update, learning rate and numbers. Throws IndexError for an update that uses a number h[k] or a
/// state states[k] that does not exist.
template <int kStates, class Update>
OwnRule<ShortRule<Update, kStates, 0>> rule(Update, double lr = 1e-3) {
  detail::check_update<Update, kStates, 0>();
  return {{.lr = lr}};
}
template <int kStates, class Update, int kNumbers>
OwnRule<ShortRule<Update, kStates, kNumbers>> rule(Update, double lr, const double (&numbers)[kNumbers]) {
  detail::check_update<Update, kStates, kNumbers>();
  OwnRule<ShortRule<Update, kStates, kNumbers>> own{{.lr = lr}};
  std::copy(numbers, numbers + kNumbers, own.settings.numbers);
  return own;
}

// ---- its kernels ----------------------------------------------------------------------------------------------------

namespace detail {

// A template argument of the types below, because a program may compile this header with nvcc in one file and without
// it in another.
#ifdef __CUDACC__
inline constexpr bool kWithDeviceCode = true;
#else
inline constexpr bool kWithDeviceCode = false;
#endif

template <class Rule>
inline constexpr bool kBuiltIn = formula::Rules::index<Rule>() >= 0;

[[noreturn]] void raise_no_device_code(const char* where, Device device);
/// Whether steps on a device can be compiled at run time.
bool compiles_rules(Device device);

/// The fused step on a CPU. Throws ValueError for a list on another device.
void step_on_cpu(const kernels::StepCall& call, const formula::RuleRun& rule, const char* where, Device device);
/// Calls f with the bytes in host memory. Bytes on a GPU are copied to the host and back, which waits for the device.
void on_host_bytes(std::span<std::byte> bytes, const Stream& stream, const std::function<void(std::byte* host)>& f);
/// The same for the first `count` hyper blocks.
template <class Block, class F>
void on_host(Block* blocks, int64_t count, const Stream& stream, const F& f) {
  on_host_bytes(std::as_writable_bytes(std::span(blocks, static_cast<size_t>(count))), stream,
                [&](std::byte* host) { f(reinterpret_cast<Block*>(host)); });
}
/// A setting of a hyper block, with its value.
struct PresentNumber {
  int32_t block, setting;
  double value;
};
/// Reads the numbers. Waits for a GPU.
std::vector<PresentNumber> present_numbers(std::span<const kernels::NumberSource> numbers, Device device);
/// Whether *grad_factor (null: 1) is NaN. Waits for the device.
bool is_nan(const double* grad_factor, Device device);

/// The code that the host's compiler makes of a rule: fused steps on the CPU. For a GPU it has none; there it only
/// changes and advances hyper blocks, on the host, and waits for the device once a step.
template <class R>
struct HostKernels {
  using Rule = R;
  static constexpr bool kOnCuda = false;
  template <class C>
  using Block = formula::HyperBlock<Rule, C>;

  template <class C>
  static void step(Block<C>* blocks, const kernels::StepCall& call, const Stream& stream) {
    step_on_cpu(call, formula::TypedRun<Rule, C>(blocks), Rule::kName, stream.device);
  }
  template <class C>
  static void prepare(Block<C>*, const kernels::StepCall&, const Stream& stream) {
    if (stream.device.is_cuda()) raise_no_device_code(Rule::kName, stream.device);
  }
  template <class C>
  static void set(Block<C>* blocks, std::span<const formula::HyperBlockChange<Rule>> changes, const Stream& stream) {
    int64_t end = 0;
    for (const auto& change : changes) end = std::max<int64_t>(end, change.block + 1);
    on_host(blocks, end, stream, [&](Block<C>* host) { formula::set_hyper_blocks<Rule, C>(host, changes); });
  }
  template <class C>
  static void set_numbers(Block<C>* blocks, std::span<const kernels::NumberSource> numbers, const Stream& stream) {
    const std::vector<PresentNumber> present = present_numbers(numbers, stream.device);
    int64_t end = 0;
    for (const PresentNumber& x : present) end = std::max<int64_t>(end, x.block + 1);
    on_host(blocks, end, stream, [&](Block<C>* host) {
      for (const PresentNumber& x : present) formula::set_number(host[x.block], x.setting, x.value);
    });
  }
  template <class C>
  static void advance(Block<C>* blocks, int32_t count, const double* grad_factor, const Stream& stream) {
    if (is_nan(grad_factor, stream.device)) return;
    on_host(blocks, count, stream, [&](Block<C>* host) { formula::advance_hyper_blocks(host, count, nullptr); });
  }
};

#ifdef __CUDACC__
/// The code that nvcc makes of a rule, beside that of the host's compiler.
template <class R>
struct CudaKernels : HostKernels<R> {
  using Rule = R;
  static constexpr bool kOnCuda = true;
  using Host = HostKernels<R>;
  template <class C>
  using Block = formula::HyperBlock<Rule, C>;
  template <class C>
  using OnCuda = kernels::cuda::RuleOnCuda<Rule, C>;

  template <class C>
  static void step(Block<C>* blocks, const kernels::StepCall& call, const Stream& stream) {
    stream.device.is_cuda() ? OnCuda<C>::step(blocks, call, stream) : Host::template step<C>(blocks, call, stream);
  }
  template <class C>
  static void prepare(Block<C>* blocks, const kernels::StepCall& call, const Stream& stream) {
    if (stream.device.is_cuda()) OnCuda<C>::prepare(blocks, call, stream);
  }
  template <class C>
  static void set(Block<C>* blocks, std::span<const formula::HyperBlockChange<Rule>> changes, const Stream& stream) {
    stream.device.is_cuda() ? OnCuda<C>::set(blocks, changes, stream) : Host::template set<C>(blocks, changes, stream);
  }
  template <class C>
  static void set_numbers(Block<C>* blocks, std::span<const kernels::NumberSource> numbers, const Stream& stream) {
    stream.device.is_cuda() ? OnCuda<C>::set_numbers(blocks, numbers, stream)
                            : Host::template set_numbers<C>(blocks, numbers, stream);
  }
  template <class C>
  static void advance(Block<C>* blocks, int32_t count, const double* grad_factor, const Stream& stream) {
    stream.device.is_cuda() ? OnCuda<C>::advance(blocks, count, grad_factor, stream)
                            : Host::template advance<C>(blocks, count, grad_factor, stream);
  }
};
#endif

/// Which of these a rule has.
template <class Rule, bool kOnCuda>
struct KernelsOf {
  using Type = HostKernels<formula::ByNumbers<Rule>>;
};
template <class Rule, bool kOnCuda>
requires kBuiltIn<Rule>
struct KernelsOf<Rule, kOnCuda> {
  using Type = BuiltIn;
};
#ifdef __CUDACC__
template <class Rule>
requires(!kBuiltIn<Rule>) struct KernelsOf<Rule, true> {
  using Type = CudaKernels<formula::ByNumbers<Rule>>;
};
#endif

}  // namespace detail

// ---- the optimizer --------------------------------------------------------------------------------------------------

/// A whole rule, as formula/rule.h describes it.
template <class R>
concept OptimizerRule = requires(typename R::Settings settings, typename R::Progress progress) {
  { R::kName } -> std::convertible_to<const char*>;
  { R::kStates } -> std::convertible_to<int>;
  { R::kProgressNames[0] } -> std::convertible_to<const char*>;
  { settings.lr } -> std::convertible_to<double>;
  { R::advance(progress, settings) } -> std::same_as<typename R::template Hyper<double>>;
  { R::first_state(0, settings) } -> std::convertible_to<double>;
};

/// Throws ValueError for an lr out of its domain, and for fused steps without code for the parameters' device.
template <OptimizerRule Rule, bool kOnCuda = detail::kWithDeviceCode>
class Custom : public Optimizer {
#ifdef __FAST_MATH__
  static_assert(detail::kBuiltIn<Rule>, "compile a user's rule without -ffast-math: its bits would differ");
#endif
 public:
  using Settings = formula::SettingsOf<Rule>;

  explicit Custom(const std::vector<NamedTensor>& params, const Settings& settings = {},
                  Execution execution = Execution::automatic, const Memory& memory = {})
      : Optimizer(Rule::kName, chosen(params, execution)) {
    add_param_group({params, settings}, memory);
    require_parameters();
  }
  explicit Custom(const std::vector<NamedTensor>& params, const OwnRule<Rule>& rule,
                  Execution execution = Execution::automatic, const Memory& memory = {})
      : Custom(params, rule.settings, execution, memory) {}
  /// Parameters without names are called "0", "1", ... in messages and state_dict.
  explicit Custom(const std::vector<Tensor>& params, const Settings& settings = {},
                  Execution execution = Execution::automatic, const Memory& memory = {})
      : Custom(numbered(params), settings, execution, memory) {}
  explicit Custom(const std::vector<Tensor>& params, const OwnRule<Rule>& rule,
                  Execution execution = Execution::automatic, const Memory& memory = {})
      : Custom(numbered(params), rule.settings, execution, memory) {}

  void add_param_group(const Group<Settings>& group, const Memory& memory = {}) {
    if (execution() == Execution::fused)
      for (const auto& [name, param] : group.params)
        if (lacks_code(param)) detail::raise_no_device_code(Rule::kName, param.device());
    using Kernels = typename detail::KernelsOf<Rule, kOnCuda>::Type;
    add_group(group.params, std::make_unique<detail::TypedRule<Rule, Kernels>>(group.options), memory);
  }

 private:
  static bool lacks_code(const Tensor& param) {
    return !kOnCuda && !detail::kBuiltIn<Rule> && param.defined() && param.device().is_cuda();
  }
  static Execution chosen(const std::vector<NamedTensor>& params, Execution execution) {
    if (execution != Execution::automatic) return execution;
    for (const auto& [name, param] : params)
      if (lacks_code(param)) return detail::compiles_rules(param.device()) ? Execution::compiled : Execution::foreach;
    return execution;
  }
};

}  // namespace lorry::optim
