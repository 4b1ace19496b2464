#pragma once

// A rule's step over a list whose states are f32 or f64. The formulas, and so the bits, are those of the CPU.
//
// A warp's tile has 1,024 elements. Each lane has two runs of 16 bytes of every array in flight; with AdamW's four
// arrays and 24 warps on a multiprocessor that is 96 KB. With 16-bit parameters it has one run of four elements, and
// the warps of a block share rows. The last block to finish advances the hyper blocks.

#include "lorry/formula/clip.h"
#include "lorry/formula/rule.h"
#include "lorry/formula/split.h"
#include "lorry/kernels/common/master_kind.h"
#include "lorry/kernels/cuda/common/element.h"
#include "lorry/kernels/cuda/list/list.h"

namespace lorry::kernels::cuda {

/// Walks a warp through its tile. load(length, i) loads a run of `length` elements (1 or kRunLength) from i on; use(i,
/// loaded) steps it. kFlight runs are loaded before the first is used.
template <int kRunLength, int kFlight, class Load, class Use>
__device__ __forceinline__ void in_flight(const Tile& tile, int lane, const Load& load, const Use& use) {
  const auto one_by_one = [&](int from, int to) {
    for (int i = from + lane; i < to; i += 32) {
      auto loaded = load(std::integral_constant<int, 1>(), i);
      use(i, loaded);
    }
  };
  one_by_one(0, tile.runs);
  const int row = tile.apart;
  for (int i = tile.runs + lane * kRunLength; i < tile.rest; i += kFlight * row) {
    decltype(load(std::integral_constant<int, kRunLength>(), i)) loaded[kFlight];
#pragma unroll
    for (int f = 0; f < kFlight; ++f)
      if (i + f * row < tile.rest) loaded[f] = load(std::integral_constant<int, kRunLength>(), i + f * row);
#pragma unroll
    for (int f = 0; f < kFlight; ++f)
      if (i + f * row < tile.rest) use(i + f * row, loaded[f]);
  }
  one_by_one(tile.rest, tile.count);
}

/// The arguments of every step beside its list.
template <class Rule, class C>
struct StepNumbers {
  static constexpr bool kBackwards = true;  // the norm of the gradients may have left the last tiles in the cache

  formula::HyperBlock<Rule, C>* blocks;
  const double* grad_factor;
  int32_t first_block, block_count;
  bool zero_grads;

  void addresses(auto& visit) const { visit(blocks, grad_factor); }

  __device__ __forceinline__ double factor() const { return grad_factor ? *grad_factor : 1; }
  /// The hyper block of an entry. If the list has only one, the entry's word is not needed.
  __device__ __forceinline__ const formula::HyperBlock<Rule, C>& block(uint32_t word) const {
    return blocks[block_count == 1 ? first_block : static_cast<int>(word)];
  }
  __device__ __forceinline__ formula::HyperOf<Rule, C> hyper(uint32_t word) const { return block(word).numbers(); }
  /// Handles a tile of a step that is skipped: its gradients may have to be zeroed.
  __device__ void leave_out(void* grad, int bytes, const Tile& tile, int row, int lane) const {
    if (!zero_grads) return;
    auto* const at = reinterpret_cast<uint16_t*>(static_cast<char*>(grad) + tile.first * bytes);
    for (int from = 0; from < tile.count; from += tile.apart)
      for (int i = from * bytes / 2 + lane; i < (from + row < tile.count ? from + row : tile.count) * bytes / 2;
           i += 32)
        at[i] = 0;
  }
  __device__ void finish(int thread) const {
    if (const double by = factor(); by != by) return;
    for (int k = thread; k < block_count; k += kListThreads) blocks[first_block + k].advance();
  }
};

/// A step whose arrays are all of type C. With three states there are registers for only one run in flight.
template <class Rule, class C, int kFlight = (Rule::kStates < 3 ? 2 : 1), int kElements = 1'024,
          int kResident = (sizeof(C) == 8 ? 2 : 3)>
struct StepUniform : StepNumbers<Rule, C> {
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
  __device__ __forceinline__ void step(C* const (&at)[kArrays], int i, Loaded<N>& loaded, const Hyper& hyper,
                                       C factor) const {
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
    if (by != by) return this->leave_out(entry.at[1], sizeof(C), tile, 32 * kRunLength, lane);
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

/// N elements of 16 bits, 4 or 1, two in each word.
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
  __device__ __forceinline__ uint16_t operator[](int e) const {
    return static_cast<uint16_t>(words[e / 2] >> 16 * (e % 2));
  }
};

/// A step of parameters of a 16-bit type T, with gradients of type G, T or float, and f32 states. There may be a master
/// or a remainder; else its array is null.
template <class Rule, class T, class G = T, int kRuns = 1, int kElements = 1'024, int kResident = 3>
struct StepNarrow : StepNumbers<Rule, float> {
  static constexpr int kStates = Rule::kStates, kArrays = 3 + kStates, kMaster = kArrays - 1;
  static constexpr bool kWideGrads = std::is_same_v<G, float>;
  static constexpr int kTile = kElements, kRunLength = 4, kRow = 32 * kRunLength, kBlocks = kResident, kFlight = kRuns;

  MasterKind masters;

  /// N elements of every array, as they lie in memory.
  template <int N>
  struct Loaded {
    Halves<N> param, rest;
    std::conditional_t<kWideGrads, Run<float, N>, Halves<N>> grad;
    Run<float, N> master, states[kStates > 0 ? kStates : 1];
  };

  template <int N>
  __device__ __forceinline__ Loaded<N> load(void* const (&at)[kArrays], int i) const {
    Loaded<N> loaded;
    if (masters == MasterKind::f32)  // the parameter itself is not read
      loaded.master = load_streaming<float, N>(static_cast<const float*>(at[kMaster]) + i);
    else
      loaded.param = Halves<N>::load(at[0], i);
    if (masters == MasterKind::split) loaded.rest = Halves<N>::load(at[kMaster], i);
    if constexpr (kWideGrads)
      loaded.grad = load_streaming<float, N>(static_cast<const float*>(at[1]) + i);
    else
      loaded.grad = Halves<N>::load(at[1], i);
#pragma unroll
    for (int k = 0; k < kStates; ++k)
      loaded.states[k] = load_streaming<float, N>(static_cast<const float*>(at[2 + k]) + i);
    return loaded;
  }

  template <int N, class Hyper>
  __device__ __forceinline__ void step(void* const (&at)[kArrays], int i, Loaded<N>& loaded, const Hyper& hyper,
                                       float factor) const {
    auto& values = loaded.master.at;
#pragma unroll
    for (int e = 0; e < N; ++e) {
      if (masters == MasterKind::none) values[e] = static_cast<float>(T::from_bits(loaded.param[e]));
      if (masters == MasterKind::split) values[e] = __uint_as_float(formula::joined(loaded.param[e], loaded.rest[e]));
      float states[kStates > 0 ? kStates : 1];
#pragma unroll
      for (int k = 0; k < kStates; ++k) states[k] = loaded.states[k].at[e];
      float grad;
      if constexpr (kWideGrads)
        grad = loaded.grad.at[e];
      else
        grad = static_cast<float>(T::from_bits(loaded.grad[e]));
      Rule()(values[e], grad * factor, states, hyper);
#pragma unroll
      for (int k = 0; k < kStates; ++k) loaded.states[k].at[e] = states[k];
    }
#pragma unroll
    for (int k = 0; k < kStates; ++k) store_streaming(static_cast<float*>(at[2 + k]) + i, loaded.states[k]);
    Halves<N> param = {}, rest = {};
#pragma unroll
    for (int e = 0; e < N; e += 2) {
      const float low = values[e], high = N > 1 ? values[e + (N > 1)] : 0.0f;
      if (masters == MasterKind::split) {
        const uint32_t bits[] = {__float_as_uint(low), __float_as_uint(high)},
                       upper[] = {formula::upper_half(bits[0]), formula::upper_half(bits[1])};
        param.words[e / 2] = upper[0] | upper[1] << 16;
        rest.words[e / 2] = formula::lower_half(bits[0], upper[0]) | formula::lower_half(bits[1], upper[1]) << 16;
      } else {
        param.words[e / 2] = narrow_pair<T>(low, high);
      }
    }
    param.store(at[0], i);
    if (masters == MasterKind::split) rest.store(at[kMaster], i);
    if (masters == MasterKind::f32) store_streaming(static_cast<float*>(at[kMaster]) + i, loaded.master);
    if (!this->zero_grads) return;
    if constexpr (kWideGrads)
      store_streaming(static_cast<float*>(at[1]) + i, Run<float, N>{});
    else
      Halves<N>{}.store(at[1], i);
  }

  __device__ __forceinline__ void operator()(const Entry<kArrays>& entry, const Tile& tile, int lane) const {
    const double by = this->factor();
    if (by != by) return this->leave_out(entry.at[1], sizeof(G), tile, kRow, lane);
    const float factor = formula::multiplier(static_cast<float>(by));
    const auto hyper = this->hyper(entry.word);
    void* at[kArrays];
#pragma unroll
    for (int k = 0; k < kArrays; ++k) {
      const bool wide = k == 1 ? kWideGrads : k >= 2 && (k != kMaster || masters == MasterKind::f32);
      at[k] = static_cast<char*>(entry.at[k]) + tile.first * (wide ? 4 : 2);
    }
    in_flight<kRunLength, kFlight>(
        tile, lane, [&]<int N>(std::integral_constant<int, N>, int i) { return load<N>(at, i); },
        [&](int i, auto& loaded) { step(at, i, loaded, hyper, factor); });
  }
};

}  // namespace lorry::kernels::cuda
