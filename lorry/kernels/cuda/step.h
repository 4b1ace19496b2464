#pragma once

// A rule's step over a list, for a rule of Lorry's or a user's own. The formulas are those of the CPU, and so are all bits.
//
// A warp's tile is 2,048 elements; each lane has two runs of 16 bytes of every array in flight. With AdamW's four arrays and 32 warps on
// a multiprocessor that is 128 KB. The last block to finish moves the clocks on.

#include "lorry/kernels/cuda/element.h"
#include "lorry/kernels/cuda/list.h"
#include "lorry/kernels/cuda/split.h"
#include "lorry/kernels/optim.h"

namespace lorry::kernels::cuda {

/// What every step reads beside its list.
template <class Rule, class C>
struct StepNumbers {
  formula::Clock<Rule, C>* clocks;
  const double* grad_factor;
  int32_t first_clock, clock_count;
  bool zero_grads;

  __device__ __forceinline__ double factor() const { return grad_factor ? *grad_factor : 1; }
  __device__ void finish(int thread) const {
    if (const double by = factor(); by != by) return;
    for (int k = thread; k < clock_count; k += kListThreads) clocks[first_clock + k].tick();
  }
};

/// Where all arrays are of type C.
template <class Rule, class C, int kFlight = 2, int kElements = 2'048, int kResident = (sizeof(C) == 8 ? 2 : Rule::kStates > 2 ? 3 : 4)>
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
    for (int k = 0; k < kArrays; ++k) loaded.arrays[k] = load_run<C, N>(at[k] + i);
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
      if (k != 1 || this->zero_grads) store_run(at[k] + i, run[k]);
  }

  __device__ __forceinline__ void operator()(const Entry<kArrays>& entry, const Tile& tile, int lane) const {
    const double by = this->factor();
    if (by != by) return;
    const C factor = static_cast<C>(by);
    const auto hyper = this->clocks[entry.word].hyper;
    C* at[kArrays];
#pragma unroll
    for (int k = 0; k < kArrays; ++k) at[k] = static_cast<C*>(entry.at[k]) + tile.first;
    const auto one_by_one = [&](int from, int to) {
      for (int i = from + lane; i < to; i += 32) {
        Loaded<1> loaded = load<1>(at, i);
        step(at, i, loaded, hyper, factor);
      }
    };
    one_by_one(0, tile.runs);
    constexpr int kRow = 32 * kRunLength;
    for (int i = tile.runs + lane * kRunLength; i < tile.rest; i += kFlight * kRow) {
      Loaded<kRunLength> loaded[kFlight];
#pragma unroll
      for (int f = 0; f < kFlight; ++f)
        if (i + f * kRow < tile.rest) loaded[f] = load<kRunLength>(at, i + f * kRow);
#pragma unroll
      for (int f = 0; f < kFlight; ++f)
        if (i + f * kRow < tile.rest) step(at, i + f * kRow, loaded[f], hyper, factor);
    }
    one_by_one(tile.rest, tile.count);
  }
};

/// Where arrays are of any types that f32 holds, known at run time, and something may be kept beside the parameter (a null array where
/// nothing is).
template <class Rule>
struct StepMixed : StepNumbers<Rule, float> {
  static constexpr int kStates = Rule::kStates, kArrays = 3 + kStates, kKept = kArrays - 1;
  static constexpr int kTile = 2'048, kRunLength = 4, kBlocks = 3;

  DType dtypes[kArrays];
  Kept kept;

  __device__ __forceinline__ int bytes_of(int array) const { return dtypes[array] == kF32 ? 4 : 2; }

  template <int N, class Hyper>
  __device__ __forceinline__ void step(void* const (&at)[kArrays], int i, const Hyper& hyper, float factor) const {
    // All loads before any is looked at: bits as they lie in memory, converted afterwards.
    RawRun<N> raw[kArrays];
#pragma unroll
    for (int k = 0; k < kArrays; ++k) {
      if (k == kKept && kept == Kept::nothing) continue;
      if (k == 0 && kept == Kept::master) continue;  // it is only written
      raw[k] = load_raw<N>(at[k], i, bytes_of(k));
    }
    float values[2 + kStates][N];
#pragma unroll
    for (int k = 0; k < 2 + kStates; ++k) {
      if (k == 0 && kept == Kept::master)
        widen_raw(raw[kKept], kF32, values[0]);
      else
        widen_raw(raw[k], dtypes[k], values[k]);
    }
    if (kept == Kept::split) join_halves(raw[0], raw[kKept], values[0]);
#pragma unroll
    for (int e = 0; e < N; ++e) {
      float states[kStates > 0 ? kStates : 1];
#pragma unroll
      for (int k = 0; k < kStates; ++k) states[k] = values[2 + k][e];
      Rule()(values[0][e], values[1][e] * factor, states, hyper);
#pragma unroll
      for (int k = 0; k < kStates; ++k) values[2 + k][e] = states[k];
      values[1][e] = 0;
    }
    if (kept == Kept::split) {
      split_halves(values[0], raw[0], raw[kKept]);
      store_raw(at[0], i, 2, raw[0]);
      store_raw(at[kKept], i, 2, raw[kKept]);
    } else {
      store_narrowed(at[0], i, dtypes[0], values[0]);
      if (kept == Kept::master) store_narrowed(at[kKept], i, kF32, values[0]);
    }
    if (this->zero_grads) store_narrowed(at[1], i, dtypes[1], values[1]);
#pragma unroll
    for (int k = 2; k < 2 + kStates; ++k) store_narrowed(at[k], i, dtypes[k], values[k]);
  }

  __device__ __forceinline__ void operator()(const Entry<kArrays>& entry, const Tile& tile, int lane) const {
    const double by = this->factor();
    if (by != by) return;
    const float factor = static_cast<float>(by);
    const auto hyper = this->clocks[entry.word].hyper;
    void* at[kArrays];
#pragma unroll
    for (int k = 0; k < kArrays; ++k) at[k] = static_cast<char*>(entry.at[k]) + tile.first * bytes_of(k);
    for (int i = lane; i < tile.runs; i += 32) step<1>(at, i, hyper, factor);
    for (int i = tile.runs + lane * kRunLength; i < tile.rest; i += 32 * kRunLength) step<kRunLength>(at, i, hyper, factor);
    for (int i = tile.rest + lane; i < tile.count; i += 32) step<1>(at, i, hyper, factor);
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

  static void step(const StepCall& call, const Stream& stream) {
    const List& list = call.list;
    const auto all = [&](DType dtype) {
      for (int k = 0; k < list.arrays(); ++k)
        if (list.dtype(k) != dtype) return false;
      return call.kept == Kept::nothing;
    };
    if (all(kF64)) return over_list(list, StepPlain<Rule, double>{numbers<double>(call)}, stream);
    if (all(kF32)) return over_list(list, StepPlain<Rule, float>{numbers<float>(call)}, stream);
    StepMixed<Rule> body{numbers<float>(call), {}, call.kept};
    for (int k = 0; k < StepMixed<Rule>::kArrays; ++k) body.dtypes[k] = list.dtype(k);
    over_list(list, body, stream);
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

  static constexpr RuleKernels kernels() { return {step, set, tick}; }
};

}  // namespace lorry::kernels::cuda
