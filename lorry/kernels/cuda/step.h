#pragma once

// A rule's step over a list, for a rule of Lorry's or a user's own. The formulas are those of the CPU, and so are all bits.
//
// A warp's tile is 1,024 elements; each lane has two runs of 16 bytes of every array in flight. With AdamW's four arrays and 24 warps on
// a multiprocessor that is 96 KB (16-bit parameters: one run and 32 warps). The last block to finish moves the clocks on.

#include <bit>

#include "lorry/formula/clip.h"
#include "lorry/formula/split.h"
#include "lorry/kernels/cuda/element.h"
#include "lorry/kernels/cuda/list.h"
#include "lorry/kernels/optim.h"

namespace lorry::kernels::cuda {

/// Walks a warp through its tile: load(length, i) brings the elements of a run, one or kRunLength, from i on, kFlight runs before any is
/// used, and use(i, loaded) steps them.
template <int kRunLength, int kFlight, class Load, class Use>
__device__ __forceinline__ void in_flight(const Tile& tile, int lane, const Load& load, const Use& use) {
  const auto one_by_one = [&](int from, int to) {
    for (int i = from + lane; i < to; i += 32) {
      auto loaded = load(std::integral_constant<int, 1>(), i);
      use(i, loaded);
    }
  };
  one_by_one(0, tile.runs);
  constexpr int kRow = 32 * kRunLength;
  for (int i = tile.runs + lane * kRunLength; i < tile.rest; i += kFlight * kRow) {
    decltype(load(std::integral_constant<int, kRunLength>(), i)) loaded[kFlight];
#pragma unroll
    for (int f = 0; f < kFlight; ++f)
      if (i + f * kRow < tile.rest) loaded[f] = load(std::integral_constant<int, kRunLength>(), i + f * kRow);
#pragma unroll
    for (int f = 0; f < kFlight; ++f)
      if (i + f * kRow < tile.rest) use(i + f * kRow, loaded[f]);
  }
  one_by_one(tile.rest, tile.count);
}

/// Runs that nobody reads again before the whole model has passed: they leave the cache first, which is worth 1 to 3 % of a step.
template <class T, int N>
__device__ __forceinline__ Run<T, N> load_streaming(const T* from) {
  using Word = std::conditional_t<sizeof(Run<T, N>) == 16, float4, std::conditional_t<sizeof(Run<T, N>) == 8, float2, float>>;
  return std::bit_cast<Run<T, N>>(__ldcs(reinterpret_cast<const Word*>(from)));
}
template <class T, int N>
__device__ __forceinline__ void store_streaming(T* to, const Run<T, N>& run) {
  using Word = std::conditional_t<sizeof(Run<T, N>) == 16, float4, std::conditional_t<sizeof(Run<T, N>) == 8, float2, float>>;
  __stcs(reinterpret_cast<Word*>(to), std::bit_cast<Word>(run));
}

/// What every step reads beside its list.
template <class Rule, class C>
struct StepNumbers {
  static constexpr bool kBackwards = true;  // the norm of the gradients may just have been there

  formula::Clock<Rule, C>* clocks;
  const double* grad_factor;
  int32_t first_clock, clock_count;
  bool zero_grads;

  __device__ __forceinline__ double factor() const { return grad_factor ? *grad_factor : 1; }
  /// The entry's; where there is one alone, without waiting for the entry.
  __device__ __forceinline__ const formula::Clock<Rule, C>& clock(uint32_t word) const { return clocks[clock_count == 1 ? first_clock : static_cast<int>(word)]; }
  __device__ __forceinline__ formula::HyperOf<Rule, C> hyper(uint32_t word) const { return clock(word).hyper; }
  /// A tile of a step that is left out: its gradients may have to go all the same.
  __device__ void leave_out(void* grad, int64_t bytes, const Tile& tile, int lane) const {
    if (!zero_grads) return;
    auto* const at = reinterpret_cast<uint16_t*>(static_cast<char*>(grad) + tile.first * bytes);
    for (int64_t i = lane; i < tile.count * bytes / 2; i += 32) at[i] = 0;
  }
  __device__ void finish(int thread) const {
    if (const double by = factor(); by != by) return;
    for (int k = thread; k < clock_count; k += kListThreads) clocks[first_clock + k].tick();
  }
};

/// Where all arrays are of type C.
template <class Rule, class C, int kFlight = 2, int kElements = 1'024, int kResident = (sizeof(C) == 8 ? 2 : 3)>
struct StepPlain : StepNumbers<Rule, C> {
  static constexpr int kStates = Rule::kStates, kArrays = 2 + kStates;
  static constexpr int kTile = kElements, kRunLength = kRun<C>, kBlocks = kResident;

  template <int N>
  struct Loaded {
    Run<C, N> arrays[kArrays];
  };
  template <int N>
  static __device__ __forceinline__ Loaded<N> load(C* const (&at)[kArrays], int i) {
    Loaded<N> loaded;
#pragma unroll
    for (int k = 0; k < kArrays; ++k) loaded.arrays[k] = load_streaming<C, N>(at[k] + i);
    return loaded;
  }
  template <int N, class Hyper>
  __device__ __forceinline__ void step(C* const (&at)[kArrays], int i, Loaded<N>& loaded, const Hyper& hyper, C factor) const {
    auto& run = loaded.arrays;
#pragma unroll
    for (int e = 0; e < N; ++e) {
      C states[kStates > 0 ? kStates : 1];
#pragma unroll
      for (int k = 0; k < kStates; ++k) states[k] = run[2 + k].at[e];
      Rule()(run[0].at[e], run[1].at[e] * factor, states, hyper);
#pragma unroll
      for (int k = 0; k < kStates; ++k) run[2 + k].at[e] = states[k];
      run[1].at[e] = 0;
    }
#pragma unroll
    for (int k = 0; k < kArrays; ++k)
      if (k != 1 || this->zero_grads) store_streaming(at[k] + i, run[k]);
  }

  __device__ __forceinline__ void operator()(const Entry<kArrays>& entry, const Tile& tile, int lane) const {
    const double by = this->factor();
    if (by != by) return this->leave_out(entry.at[1], sizeof(C), tile, lane);
    const C factor = formula::multiplier(static_cast<C>(by));
    const auto hyper = this->hyper(entry.word);
    C* at[kArrays];
#pragma unroll
    for (int k = 0; k < kArrays; ++k) at[k] = static_cast<C*>(entry.at[k]) + tile.first;
    in_flight<kRunLength, kFlight>(
        tile, lane, [&]<int N>(std::integral_constant<int, N>, int i) { return load<N>(at, i); },
        [&](int i, auto& loaded) { step(at, i, loaded, hyper, factor); });
  }
};

/// N elements of 16 bits, 4 or 1, two a word.
template <int N>
struct Halves {
  uint32_t words[(N + 1) / 2];

  static __device__ __forceinline__ Halves load(const void* from, int i) {
    static_assert(N == 1 || N == 4);
    const auto* at = static_cast<const uint16_t*>(from) + i;
    if constexpr (N == 4) {
      const uint2 both = *reinterpret_cast<const uint2*>(at);
      return {both.x, both.y};
    } else {
      return {*at};
    }
  }
  __device__ __forceinline__ void store(void* to, int i) const {
    auto* at = static_cast<uint16_t*>(to) + i;
    if constexpr (N == 4)
      *reinterpret_cast<uint2*>(at) = make_uint2(words[0], words[1]);
    else
      *at = static_cast<uint16_t>(words[0]);
  }
  __device__ __forceinline__ uint16_t operator[](int e) const { return static_cast<uint16_t>(words[e / 2] >> 16 * (e % 2)); }
};

/// Where parameter and gradient are of a 16-bit type T, states are f32, and something may be kept beside the parameter (a null array
/// where nothing is).
template <class Rule, class T, int kRuns = 1, int kElements = 1'024, int kResident = 4>
struct StepNarrow : StepNumbers<Rule, float> {
  static constexpr int kStates = Rule::kStates, kArrays = 3 + kStates, kKept = kArrays - 1;
  static constexpr int kTile = kElements, kRunLength = 4, kBlocks = kResident, kFlight = kRuns;

  Kept kept;

  /// N elements of every array, as they lie in memory.
  template <int N>
  struct Loaded {
    Halves<N> param, grad, rest;
    Run<float, N> master, states[kStates > 0 ? kStates : 1];
  };

  template <int N>
  __device__ __forceinline__ Loaded<N> load(void* const (&at)[kArrays], int i) const {
    Loaded<N> loaded;
    if (kept == Kept::master)  // the parameter is only written
      loaded.master = load_streaming<float, N>(static_cast<const float*>(at[kKept]) + i);
    else
      loaded.param = Halves<N>::load(at[0], i);
    if (kept == Kept::split) loaded.rest = Halves<N>::load(at[kKept], i);
    loaded.grad = Halves<N>::load(at[1], i);
#pragma unroll
    for (int k = 0; k < kStates; ++k) loaded.states[k] = load_streaming<float, N>(static_cast<const float*>(at[2 + k]) + i);
    return loaded;
  }

  template <int N, class Hyper>
  __device__ __forceinline__ void step(void* const (&at)[kArrays], int i, Loaded<N>& loaded, const Hyper& hyper, float factor) const {
    auto& values = loaded.master.at;
#pragma unroll
    for (int e = 0; e < N; ++e) {
      if (kept == Kept::nothing) values[e] = static_cast<float>(T::from_bits(loaded.param[e]));
      if (kept == Kept::split) values[e] = __uint_as_float(formula::joined(loaded.param[e], loaded.rest[e]));
      float states[kStates > 0 ? kStates : 1];
#pragma unroll
      for (int k = 0; k < kStates; ++k) states[k] = loaded.states[k].at[e];
      Rule()(values[e], static_cast<float>(T::from_bits(loaded.grad[e])) * factor, states, hyper);
#pragma unroll
      for (int k = 0; k < kStates; ++k) loaded.states[k].at[e] = states[k];
    }
#pragma unroll
    for (int k = 0; k < kStates; ++k) store_streaming(static_cast<float*>(at[2 + k]) + i, loaded.states[k]);
    Halves<N> param = {}, rest = {};
#pragma unroll
    for (int e = 0; e < N; e += 2) {
      const float low = values[e], high = N > 1 ? values[e + (N > 1)] : 0.0f;
      if (kept == Kept::split) {
        const uint32_t bits[] = {__float_as_uint(low), __float_as_uint(high)}, upper[] = {formula::upper_half(bits[0]), formula::upper_half(bits[1])};
        param.words[e / 2] = upper[0] | upper[1] << 16;
        rest.words[e / 2] = formula::lower_half(bits[0], upper[0]) | formula::lower_half(bits[1], upper[1]) << 16;
      } else {
        param.words[e / 2] = narrow_pair<T>(low, high);
      }
    }
    param.store(at[0], i);
    if (kept == Kept::split) rest.store(at[kKept], i);
    if (kept == Kept::master) store_streaming(static_cast<float*>(at[kKept]) + i, loaded.master);
    if (this->zero_grads) Halves<N>{}.store(at[1], i);
  }

  __device__ __forceinline__ void operator()(const Entry<kArrays>& entry, const Tile& tile, int lane) const {
    const double by = this->factor();
    if (by != by) return this->leave_out(entry.at[1], 2, tile, lane);
    const float factor = formula::multiplier(static_cast<float>(by));
    const auto hyper = this->hyper(entry.word);
    void* at[kArrays];
#pragma unroll
    for (int k = 0; k < kArrays; ++k) {
      const bool wide = k >= 2 && (k != kKept || kept == Kept::master);
      at[k] = static_cast<char*>(entry.at[k]) + tile.first * (wide ? 4 : 2);
    }
    in_flight<kRunLength, kFlight>(
        tile, lane, [&]<int N>(std::integral_constant<int, N>, int i) { return load<N>(at, i); },
        [&](int i, auto& loaded) { step(at, i, loaded, hyper, factor); });
  }
};

/// Changes of clocks, by value.
template <class Rule>
struct Changes {
  struct One {
    formula::SettingsOf<Rule> settings;
    formula::ProgressOf<Rule> progress;
    int32_t clock;
    bool running, has_settings, has_progress;
  };
  static constexpr int kMost = 4'000 / static_cast<int>(sizeof(One)) < 32 ? 4'000 / static_cast<int>(sizeof(One)) : 32;
  int count;
  One changes[kMost];
};

template <class Rule, class C>
__global__ void set_clocks(formula::Clock<Rule, C>* clocks, const __grid_constant__ Changes<Rule> changes) {
  if (static_cast<int>(threadIdx.x) >= changes.count) return;
  const auto& change = changes.changes[threadIdx.x];
  auto& clock = clocks[change.clock];
  if (change.has_settings) clock.settings = change.settings;
  if (change.has_progress) clock.progress = change.progress;
  clock.running = change.running;
  clock.wind();
}

template <class Rule, class C>
__global__ void tick_clocks(StepNumbers<Rule, C> numbers) {
  numbers.finish(static_cast<int>(threadIdx.x));
}

/// The kernels of a rule: instantiated here for Lorry's rules, and by whoever includes this header under nvcc for his own.
template <class Rule>
struct RuleOnCuda {
  template <class C>
  static StepNumbers<Rule, C> numbers(const StepCall& call) {
    return {static_cast<formula::Clock<Rule, C>*>(call.clocks), call.grad_factor, call.first_clock, call.clock_count, call.zero_grads};
  }

  /// Calls use(body) with the body that steps the call's list.
  template <class Use>
  static void with_body(const StepCall& call, const Use& use) {
    const List& list = call.list;
    const auto all = [&](DType dtype) {
      for (int k = 0; k < list.arrays(); ++k)
        if (list.dtype(k) != dtype) return false;
      return call.kept == Kept::nothing;
    };
    if (all(kF64)) return use(StepPlain<Rule, double>{numbers<double>(call)});
    if (all(kF32)) return use(StepPlain<Rule, float>{numbers<float>(call)});
    const auto narrow = [&]<class T>(Type<T>) { use(StepNarrow<Rule, T>{numbers<float>(call), call.kept}); };
    list.dtype(0) == kBF16 ? narrow(Type<BFloat16>()) : narrow(Type<Float16>());
  }
  static void step(const StepCall& call, const Stream& stream) {
    with_body(call, [&](const auto& body) { over_list(call.list, body, stream); });
  }
  static void prepare(const StepCall& call, const Stream& stream) {
    with_body(call, [&]<class Body>(const Body&) { CudaList::of(call.list, {Body::kTile, Body::kRunLength}, stream).ticket(stream); });
  }

  static void set(void* clocks, bool f64, std::span<const ClockChange> given, const Stream& stream) {
    using formula::Clock;
    Changes<Rule> changes;
    for (size_t next = 0; next < given.size();) {
      for (changes.count = 0; changes.count < Changes<Rule>::kMost && next < given.size(); ++changes.count, ++next) {
        auto& to = changes.changes[changes.count];
        const ClockChange& from = given[next];
        to.clock = from.clock;
        to.running = from.running;
        to.has_settings = from.settings != nullptr;
        to.has_progress = from.progress != nullptr;
        if (from.settings) to.settings = *static_cast<const formula::SettingsOf<Rule>*>(from.settings);
        if (from.progress) std::memcpy(static_cast<void*>(&to.progress), from.progress, sizeof(to.progress));
      }
      if (f64)
        lorry::cuda::launch_with(stream, {1, 32}, set_clocks<Rule, double>, static_cast<Clock<Rule, double>*>(clocks), changes);
      else
        lorry::cuda::launch_with(stream, {1, 32}, set_clocks<Rule, float>, static_cast<Clock<Rule, float>*>(clocks), changes);
    }
  }

  static void tick(void* clocks, bool f64, int32_t first, int32_t count, const double* grad_factor, const Stream& stream) {
    using formula::Clock;
    if (f64)
      lorry::cuda::launch(stream, {1, kListThreads}, tick_clocks<Rule, double>, StepNumbers<Rule, double>{static_cast<Clock<Rule, double>*>(clocks), grad_factor, first, count, false});
    else
      lorry::cuda::launch(stream, {1, kListThreads}, tick_clocks<Rule, float>, StepNumbers<Rule, float>{static_cast<Clock<Rule, float>*>(clocks), grad_factor, first, count, false});
  }

  static constexpr RuleKernels kernels() { return {step, set, tick, prepare}; }
};

}  // namespace lorry::kernels::cuda
