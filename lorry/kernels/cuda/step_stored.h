#pragma once

// A rule's step where states are stored in fewer than 32 bits, or parameters are rounded stochastically. Arithmetic is that of step.h, in f32.
//
// A warp goes through its tile in rows of 256 elements, the blocks of 8-bit states: a lane has two runs of four, 128 elements apart, so that every
// access of the warp is without gaps. It decodes by a table in shared memory and finds a block's new scale by one reduction of the warp.

#include "lorry/formula/quantize.h"
#include "lorry/formula/rounding.h"
#include "lorry/kernels/cuda/step.h"

namespace lorry::kernels::cuda {

/// What the types of all states are, where the compiler knows them.
enum class StateTypes { f32, bf16, q8, mixed };

/// T is the parameter's type: float, BFloat16 or Float16.
template <class Rule, class T, StateTypes kTypes, int kResident = 3, int kElements = 1'024, bool kTable = true>
struct StepStored : StepNumbers<Rule, float> {
  static constexpr bool kNarrow = !std::is_same_v<T, float>;
  static constexpr int kStates = Rule::kStates, kSome = kStates > 0 ? kStates : 1, kArrays = 2 + kStates + kNarrow, kKept = kArrays - 1;
  static constexpr int kTile = kElements, kRunLength = 1, kBlocks = kResident;  // tiles are aligned to blocks, whatever the addresses
  static constexpr int kRow = formula::kQuantBlock, kLane = 8;
  static_assert(kTile % kRow == 0 && kRow == 32 * kLane && kLane == formula::kRoundedAtOnce);

  Kept kept;
  StateType types[3];
  uint64_t seed;

  __device__ __forceinline__ StateType type(int k) const { return kTypes == StateTypes::mixed ? types[k] : static_cast<StateType>(kTypes); }

  struct Decoded {
    float signed_[256], not_negative[256];
  };
  static __device__ __forceinline__ Decoded& decoded() {
    __shared__ Decoded table;
    return table;
  }
  __device__ void open(int thread) const {
    if (!kTable) return;
    decoded().signed_[thread] = formula::QuantCode<true>::decode(static_cast<uint32_t>(thread));
    decoded().not_negative[thread] = formula::QuantCode<false>::decode(static_cast<uint32_t>(thread));
  }
  template <bool kSigned>
  static __device__ __forceinline__ float decode(uint32_t code) {
    if constexpr (kTable)
      return (kSigned ? decoded().signed_ : decoded().not_negative)[code];
    else
      return formula::QuantCode<kSigned>::decode(code);
  }

  /// Where in its row a lane's value v lies.
  static __device__ __forceinline__ int place(int lane, int v) { return v / 4 * (kRow / 2) + lane * 4 + v % 4; }

  /// A lane's values of an array of type S; kWhole: all of its row are there and aligned.
  template <bool kWhole, class S>
  static __device__ __forceinline__ void load(const void* array, int64_t row, int here, int lane, S (&to)[kLane]) {
    const S* const from = static_cast<const S*>(array) + row;
    if constexpr (kWhole) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto run = load_streaming<S, 4>(from + place(lane, half * 4));
#pragma unroll
        for (int e = 0; e < 4; ++e) to[half * 4 + e] = run.at[e];
      }
    } else {
#pragma unroll
      for (int v = 0; v < kLane; ++v) to[v] = place(lane, v) < here ? from[place(lane, v)] : S(0);
    }
  }
  template <bool kWhole, class S>
  static __device__ __forceinline__ void store(void* array, int64_t row, int here, int lane, const S (&values)[kLane]) {
    S* const to = static_cast<S*>(array) + row;
    if constexpr (kWhole) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        store_streaming(to + place(lane, half * 4), Run<S, 4>{values[half * 4], values[half * 4 + 1], values[half * 4 + 2], values[half * 4 + 3]});
    } else {
#pragma unroll
      for (int v = 0; v < kLane; ++v)
        if (place(lane, v) < here) to[place(lane, v)] = values[v];
    }
  }

  /// The random bits of a lane's values: blocks of words cover eight elements, so neighbours share what they draw.
  struct Dice {
    uint32_t words[4];
    __device__ __forceinline__ uint32_t operator[](int v) const { return words[v / 2] >> 16 * (v % 2) & 0xffffu; }
  };
  __device__ __forceinline__ Dice dice(uint32_t number, uint32_t array, double step, int64_t row, int lane) const {
    const bool odd = lane % 2;
    const auto block = static_cast<uint64_t>(row + place(lane & ~1, odd ? 4 : 0)) / formula::kRoundedAtOnce;
    const formula::Words4 own = formula::random_block(formula::rounding_key(seed, number, array, step), block);
    const uint32_t other[] = {__shfl_xor_sync(~0u, own.word[odd ? 0 : 2], 1), __shfl_xor_sync(~0u, own.word[odd ? 1 : 3], 1)};
    return odd ? Dice{{other[0], other[1], own.word[2], own.word[3]}} : Dice{{own.word[0], own.word[1], other[0], other[1]}};
  }

  template <bool kSigned, bool kWhole>
  static __device__ __forceinline__ void quantise(char* array, int64_t count, int64_t row, int here, int lane, const float (&values)[kLane]) {
    uint32_t largest = 0;
#pragma unroll
    for (int v = 0; v < kLane; ++v) {
      const uint32_t magnitude = __float_as_uint(values[v]) & 0x7fffffffu;
      if (kWhole || place(lane, v) < here) largest = magnitude > largest ? magnitude : largest;
    }
    const auto by = formula::quant_scale(__reduce_max_sync(~0u, largest));
    uint8_t codes[kLane];
#pragma unroll
    for (int v = 0; v < kLane; ++v) codes[v] = static_cast<uint8_t>(formula::QuantCode<kSigned>::encode(values[v], by));
    store<kWhole>(array, row, here, lane, codes);
    if (lane == 0) reinterpret_cast<float*>(array + formula::quant_scales_at(count))[row / kRow] = by.scale;
  }

  template <bool kWhole, class Hyper>
  __device__ __forceinline__ void step(const Entry<kArrays>& entry, int64_t row, int here, int lane, const Hyper& hyper, float factor, double steps) const {
    // As they lie in memory, all before any is used.
    T stored[kLane], grad[kLane];
    float values[kLane], states[kSome][kLane], scales[kSome];
    uint16_t rest[kLane], halves[kSome][kLane];
    uint8_t codes[kSome][kLane];
    if (kNarrow && kept == Kept::master)
      load<kWhole>(entry.at[kKept], row, here, lane, values);
    else
      load<kWhole>(entry.at[0], row, here, lane, stored);
    if (kNarrow && kept == Kept::split) load<kWhole>(entry.at[kKept], row, here, lane, rest);
    load<kWhole>(entry.at[1], row, here, lane, grad);
#pragma unroll
    for (int k = 0; k < kStates; ++k) {
      if (type(k) == StateType::f32) load<kWhole>(entry.at[2 + k], row, here, lane, states[k]);
      if (type(k) == StateType::bf16) load<kWhole>(entry.at[2 + k], row, here, lane, halves[k]);
      if (type(k) != StateType::q8) continue;
      load<kWhole>(entry.at[2 + k], row, here, lane, codes[k]);
      scales[k] = reinterpret_cast<const float*>(static_cast<const char*>(entry.at[2 + k]) + formula::quant_scales_at(entry.count))[row / kRow];
    }

#pragma unroll
    for (int v = 0; v < kLane; ++v) {
      if constexpr (kNarrow) {
        if (kept == Kept::split)
          values[v] = __uint_as_float(formula::joined(stored[v].bits, rest[v]));
        else if (kept != Kept::master)
          values[v] = static_cast<float>(stored[v]);
      } else {
        values[v] = stored[v];
      }
      float own[kSome];
      formula::for_states<Rule>([&]<int k>(std::integral_constant<int, k>) {
        if (type(k) == StateType::f32) own[k] = states[k][v];
        if (type(k) == StateType::bf16) own[k] = __uint_as_float(uint32_t{halves[k][v]} << 16);
        if (type(k) == StateType::q8) own[k] = decode<formula::is_signed<Rule>(k)>(codes[k][v]) * scales[k];
      });
      Rule()(values[v], static_cast<float>(grad[v]) * factor, own, hyper);
#pragma unroll
      for (int k = 0; k < kStates; ++k) states[k][v] = own[k];
    }

    formula::for_states<Rule>([&]<int k>(std::integral_constant<int, k>) {
      char* const at = static_cast<char*>(entry.at[2 + k]);
      if (type(k) == StateType::f32) store<kWhole>(at, row, here, lane, states[k]);
      if (type(k) == StateType::bf16) {
        const Dice random = dice(entry.number, 1 + k, steps, row, lane);
        uint16_t rounded[kLane];
#pragma unroll
        for (int v = 0; v < kLane; ++v) rounded[v] = static_cast<uint16_t>(formula::round_stochastically(states[k][v], random[v]));
        store<kWhole>(at, row, here, lane, rounded);
      }
      if (type(k) == StateType::q8) quantise<formula::is_signed<Rule>(k), kWhole>(at, entry.count, row, here, lane, states[k]);
    });
    if constexpr (kNarrow) {
      uint16_t bits[kLane];
      if (kept == Kept::split) {
#pragma unroll
        for (int v = 0; v < kLane; ++v) {
          const uint32_t whole = __float_as_uint(values[v]), upper = formula::upper_half(whole);
          bits[v] = static_cast<uint16_t>(upper);
          rest[v] = static_cast<uint16_t>(formula::lower_half(whole, upper));
        }
        store<kWhole>(entry.at[kKept], row, here, lane, rest);
      } else if (kept == Kept::stochastic) {
        const Dice random = dice(entry.number, 0, steps, row, lane);
#pragma unroll
        for (int v = 0; v < kLane; ++v) bits[v] = static_cast<uint16_t>(formula::round_stochastically(values[v], random[v]));
      } else {
#pragma unroll
        for (int v = 0; v < kLane; ++v) bits[v] = T(values[v]).bits;
        if (kept == Kept::master) store<kWhole>(entry.at[kKept], row, here, lane, values);
      }
      store<kWhole>(entry.at[0], row, here, lane, bits);
    } else {
      store<kWhole>(entry.at[0], row, here, lane, values);
    }
    if (this->zero_grads) {
      T zeros[kLane] = {};
      store<kWhole>(entry.at[1], row, here, lane, zeros);
    }
  }

  /// Whether rows may be read in runs.
  __device__ __forceinline__ bool aligned(const Entry<kArrays>& entry) const {
    constexpr uintptr_t kOwn = 4 * sizeof(T);
    uintptr_t bad = (reinterpret_cast<uintptr_t>(entry.at[0]) | reinterpret_cast<uintptr_t>(entry.at[1])) % kOwn;
    if (kNarrow && kept != Kept::stochastic) bad |= reinterpret_cast<uintptr_t>(entry.at[kKept]) % (kept == Kept::master ? 16 : 8);
#pragma unroll
    for (int k = 0; k < kStates; ++k)
      bad |= reinterpret_cast<uintptr_t>(entry.at[2 + k]) % (type(k) == StateType::q8 ? 4 : type(k) == StateType::bf16 ? 8 : 16);
    return bad == 0;
  }

  __device__ __forceinline__ void operator()(const Entry<kArrays>& entry, const Tile& tile, int lane) const {
    const double by = this->factor();
    if (by != by) return this->leave_out(entry.at[1], sizeof(T), tile, lane);
    const auto& clock = this->clock(entry.word);
    const auto hyper = clock.hyper;
    const double steps = clock.coming.steps;
    const bool whole = aligned(entry);
#pragma unroll 1
    for (int row = 0; row < tile.count; row += kRow) {
      const int here = tile.count - row;
      if (whole && here >= kRow)
        step<true>(entry, tile.first + row, kRow, lane, hyper, formula::multiplier(static_cast<float>(by)), steps);
      else
        step<false>(entry, tile.first + row, here, lane, hyper, formula::multiplier(static_cast<float>(by)), steps);
    }
  }
};

}  // namespace lorry::kernels::cuda
