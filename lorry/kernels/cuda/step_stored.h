#pragma once

// A rule's step where states are stored in fewer than 32 bits, or parameters are rounded stochastically. Arithmetic is that of step.h, in f32.
//
// A warp goes through its tile in rows of 256 elements, the blocks of 8-bit states: a lane has two runs of four, 128 elements apart, so that every
// access of the warp is without gaps. It decodes by a table in shared memory and finds a block's new scale by one reduction of the warp.

#include "lorry/formula/quantize.h"
#include "lorry/formula/rounding.h"
#include "lorry/kernels/cuda/step.h"

namespace lorry::kernels::cuda {

/// A warp's access to rows of 256 elements, and to how they are stored.
struct Rows {
  static constexpr int kBlock = formula::kQuantBlock, kLane = 8;
  static_assert(kBlock == 32 * kLane && kLane == formula::kRoundedAtOnce);

  /// The map and its inverse, of signed codes and of others, in shared memory.
  struct Tables {
    float numbers[2][256];
    float2 lines[2][128];  // by exponent
  };
  static __device__ __forceinline__ Tables& tables() {
    __shared__ Tables shared;
    return shared;
  }
  static __device__ void fill_tables(int thread) {
    const auto fill = [&]<bool kSigned>() {
      using Code = formula::QuantCode<kSigned>;
      tables().numbers[kSigned][thread] = Code::decode(static_cast<uint32_t>(thread));
      if (thread >= 128) return;
      const auto line = Code::line(static_cast<uint32_t>(thread));
      tables().lines[kSigned][thread] = {line.slope, line.start};
    };
    fill.template operator()<true>();
    fill.template operator()<false>();
  }

  /// Where in its row a lane's value v lies.
  static __device__ __forceinline__ int place(int lane, int v) { return v / 4 * (kBlock / 2) + lane * 4 + v % 4; }

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
  static __device__ __forceinline__ Dice dice(uint64_t seed, uint32_t number, uint32_t array, double step, int64_t row, int lane) {
    const bool odd = lane % 2;
    const auto block = static_cast<uint64_t>(row + place(lane & ~1, odd ? 4 : 0)) / formula::kRoundedAtOnce;
    const formula::Words4 own = formula::random_block(formula::rounding_key(seed, number, array, step), block);
    const uint32_t other[] = {__shfl_xor_sync(~0u, own.word[odd ? 0 : 2], 1), __shfl_xor_sync(~0u, own.word[odd ? 1 : 3], 1)};
    return odd ? Dice{{other[0], other[1], own.word[2], own.word[3]}} : Dice{{own.word[0], own.word[1], other[0], other[1]}};
  }

  /// Four codes in a word.
  template <bool kSigned>
  static __device__ __forceinline__ uint32_t encode(const float* values, float inverse) {
    uint32_t m[4];
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      const float ratio = fabsf(values[v]) * inverse;
      const float2 line = tables().lines[kSigned][__float_as_uint(ratio) >> 23];
      m[v] = formula::QuantCode<kSigned>::magnitude(ratio, {line.x, line.y});
    }
    const uint32_t magnitudes = __byte_perm(__byte_perm(m[0], m[1], 0x0051), __byte_perm(m[2], m[3], 0x0051), 0x5410);
    if constexpr (!kSigned) return magnitudes;
    const auto signs = [&](int v) { return __byte_perm(__float_as_uint(values[v]), __float_as_uint(values[v + 1]), 0x0073); };
    return magnitudes | (__byte_perm(signs(0), signs(2), 0x5410) & 0x80808080u);
  }

  /// The bits of the largest magnitude of a lane's values; those of a NaN, whichever it is, are the largest.
  static __device__ __forceinline__ uint32_t largest(const float (&values)[kLane]) {
    float most = fabsf(values[0]);
#pragma unroll
    for (int v = 1; v < kLane; ++v) asm("max.NaN.f32 %0, %0, %1;" : "+f"(most) : "f"(fabsf(values[v])));
    return __float_as_uint(most);
  }

  template <bool kSigned, bool kWhole>
  static __device__ __forceinline__ void quantise(char* array, int64_t count, int64_t row, int here, int lane, float (&values)[kLane]) {
    if (!kWhole) {
#pragma unroll
      for (int v = 0; v < kLane; ++v)
        if (place(lane, v) >= here) values[v] = 0;
    }
    const auto by = formula::quant_scale(__reduce_max_sync(~0u, largest(values)));
    uint32_t words[2] = {};
    if (by.inverse != 0) words[0] = encode<kSigned>(values, by.inverse), words[1] = encode<kSigned>(values + 4, by.inverse);
    uint8_t codes[kLane];
#pragma unroll
    for (int v = 0; v < kLane; ++v) codes[v] = static_cast<uint8_t>(words[v / 4] >> 8 * (v % 4));
    store<kWhole>(array, row, here, lane, codes);
    if (lane == 0) reinterpret_cast<float*>(array + formula::quant_scales_at(count))[row / kBlock] = by.scale;
  }

  /// Values rounded stochastically.
  template <bool kWhole>
  static __device__ __forceinline__ void round(void* array, const Dice& random, int64_t row, int here, int lane, const float (&values)[kLane]) {
    uint16_t bits[kLane];
#pragma unroll
    for (int v = 0; v < kLane; ++v) bits[v] = static_cast<uint16_t>(formula::round_stochastically(values[v], random[v]));
    store<kWhole>(array, row, here, lane, bits);
  }
};

/// What the types of all states are, where the compiler knows them.
enum class StateTypes { f32, bf16, q8, mixed };

/// What a list's states are.
inline StateType type_of(DType dtype) { return dtype == kU8 ? StateType::q8 : dtype == kBF16 ? StateType::bf16 : StateType::f32; }
template <int kStates>
StateTypes types_of(const List& list) {
  for (int k = 1; k < kStates; ++k)
    if (list.dtype(2 + k) != list.dtype(2)) return StateTypes::mixed;
  return kStates == 0 ? StateTypes::f32 : static_cast<StateTypes>(type_of(list.dtype(2)));
}

/// Tiles as large as leaves two rounds of blocks for a large GPU: a block has its tables to make, and first waits for its addresses.
inline int stored_tile(int64_t elements) {
  constexpr int64_t kWarps = 6'000;
  int tile = 1'024;
  while (tile < 8'192 && 2 * tile * kWarps <= elements) tile *= 2;
  return tile;
}

/// T is the parameter's type: float, BFloat16 or Float16. With random bits to make, a lane wants 128 registers.
template <class Rule, class T, StateTypes kTypes, int kResident = (kTypes == StateTypes::q8 || kTypes == StateTypes::f32 ? 3 : 2)>
struct StepStored : StepNumbers<Rule, float>, Rows {
  static constexpr bool kNarrow = !std::is_same_v<T, float>;
  static constexpr int kStates = Rule::kStates, kSome = kStates > 0 ? kStates : 1, kArrays = 2 + kStates + kNarrow, kKept = kArrays - 1;
  static constexpr int kRunLength = 1, kBlocks = kResident;  // tiles are aligned to blocks, whatever the addresses

  int elements;  ///< of a tile, a multiple of kBlock
  Kept kept;
  StateType types[3];
  uint64_t seed;
  int64_t first_element;  ///< of the first entry's parameter, when the entry is a slice of it

  __device__ void open(int thread) const {
    if (kTypes == StateTypes::q8 || kTypes == StateTypes::mixed) fill_tables(thread);
  }
  __device__ __forceinline__ StateType type(int k) const { return kTypes == StateTypes::mixed ? types[k] : static_cast<StateType>(kTypes); }

  template <bool kWhole, class Hyper>
  __device__ __forceinline__ void step(const Entry<kArrays>& entry, int64_t row, int here, int lane, const Hyper& hyper, float factor, double steps, int64_t before) const {
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
      scales[k] = reinterpret_cast<const float*>(static_cast<const char*>(entry.at[2 + k]) + formula::quant_scales_at(entry.count))[row / kBlock];
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
        if (type(k) == StateType::q8) own[k] = tables().numbers[formula::is_signed<Rule>(k)][codes[k][v]] * scales[k];
      });
      Rule()(values[v], static_cast<float>(grad[v]) * factor, own, hyper);
#pragma unroll
      for (int k = 0; k < kStates; ++k) states[k][v] = own[k];
    }

    formula::for_states<Rule>([&]<int k>(std::integral_constant<int, k>) {
      char* const at = static_cast<char*>(entry.at[2 + k]);
      if (type(k) == StateType::f32) store<kWhole>(at, row, here, lane, states[k]);
      if (type(k) == StateType::bf16) round<kWhole>(at, dice(seed, entry.number, 1 + k, steps, before + row, lane), row, here, lane, states[k]);
      if (type(k) == StateType::q8) quantise<formula::is_signed<Rule>(k), kWhole>(at, entry.count, row, here, lane, states[k]);
    });
    if constexpr (kNarrow) {
      if (kept == Kept::stochastic) {
        round<kWhole>(entry.at[0], dice(seed, entry.number, 0, steps, before + row, lane), row, here, lane, values);
      } else if (kept == Kept::split) {
        uint16_t bits[kLane];
#pragma unroll
        for (int v = 0; v < kLane; ++v) {
          const uint32_t whole = __float_as_uint(values[v]), upper = formula::upper_half(whole);
          bits[v] = static_cast<uint16_t>(upper);
          rest[v] = static_cast<uint16_t>(formula::lower_half(whole, upper));
        }
        store<kWhole>(entry.at[kKept], row, here, lane, rest);
        store<kWhole>(entry.at[0], row, here, lane, bits);
      } else {
        uint16_t bits[kLane];
#pragma unroll
        for (int v = 0; v < kLane; ++v) bits[v] = T(values[v]).bits;
        if (kept == Kept::master) store<kWhole>(entry.at[kKept], row, here, lane, values);
        store<kWhole>(entry.at[0], row, here, lane, bits);
      }
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

  __device__ __forceinline__ void operator()(const Entry<kArrays>& listed, const Tile& tile, int lane) const {
    const Entry<kArrays> entry = listed;
    const double by = this->factor();
    if (by != by) return this->leave_out(entry.at[1], sizeof(T), tile, 32, lane);
    const auto& clock = this->clock(entry.word);
    const auto hyper = clock.hyper;
    const double steps = clock.coming.steps;
    const float factor = formula::multiplier(static_cast<float>(by));
    const bool whole = aligned(entry);
    const int64_t before = entry.first_tile == 0 ? first_element : 0;
#pragma unroll 1
    for (int row = 0; row < tile.count; row += kBlock) {
      const int here = tile.count - row;
      if (whole && here >= kBlock)
        step<true>(entry, tile.first + row, kBlock, lane, hyper, factor, steps, before);
      else
        step<false>(entry, tile.first + row, here, lane, hyper, factor, steps, before);
    }
  }
};

}  // namespace lorry::kernels::cuda
