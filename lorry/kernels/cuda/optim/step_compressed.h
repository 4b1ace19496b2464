#pragma once

// A rule's step if states are compressed, or if parameters are rounded stochastically. It computes in f32, as step.h
// does.
//
// A warp goes through its tile in rows of 256 elements, the blocks of 8-bit states. A lane has two runs of four
// elements, 128 elements apart, so that each access of the warp is contiguous. Codes are decoded by a table in shared
// memory; a block's new scale is found by one reduction over the warp. The scales of a tile are read and written in one
// access, one by each lane.

#include "lorry/device/state_type.h"
#include "lorry/formula/quantize.h"
#include "lorry/formula/rounding.h"
#include "lorry/kernels/cuda/optim/branch_free.h"
#include "lorry/kernels/cuda/optim/step.h"

namespace lorry::kernels::cuda {

/// How a warp loads, stores, encodes and rounds rows of 256 elements.
struct QuantizedRows {
  static constexpr int kBlock = formula::kQuantBlock, kLane = 8;
  static_assert(kBlock == 32 * kLane && kLane == formula::kRoundedAtOnce);

  /// The values of codes, and what encodes values, in shared memory; [1] of signed codes.
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

  /// The distance from a lane's first element to its element v; and the position of the first element in the row.
  static constexpr __device__ __forceinline__ int apart(int v) { return v / 4 * (kBlock / 2) + v % 4; }
  static __device__ __forceinline__ int first_of(int lane) { return lane * 4; }

  /// A lane's elements of a row. at: the address of its first one. left: how many elements of the tile there are from
  /// there on. kWhole: the row is full and aligned.
  template <bool kWhole, class S>
  static __device__ __forceinline__ void load(const void* at, int left, S (&to)[kLane]) {
    const S* const from = static_cast<const S*>(at);
    if constexpr (kWhole) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto run = load_streaming<S, 4>(from + apart(half * 4));
#pragma unroll
        for (int e = 0; e < 4; ++e) to[half * 4 + e] = run.at[e];
      }
    } else {
#pragma unroll
      for (int v = 0; v < kLane; ++v) to[v] = apart(v) < left ? from[apart(v)] : S(0);
    }
  }
  template <bool kWhole, class S>
  static __device__ __forceinline__ void store(void* at, int left, const S (&values)[kLane]) {
    S* const to = static_cast<S*>(at);
    if constexpr (kWhole) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        store_streaming(to + apart(half * 4),
                        Run<S, 4>{values[half * 4], values[half * 4 + 1], values[half * 4 + 2], values[half * 4 + 3]});
    } else {
#pragma unroll
      for (int v = 0; v < kLane; ++v)
        if (apart(v) < left) to[apart(v)] = values[v];
    }
  }

  /// The random bits of a lane's elements. A block of random words serves eight elements, so two lanes share theirs.
  struct RandomBits {
    uint32_t words[4];
    __device__ __forceinline__ uint32_t operator[](int v) const { return words[v / 2] >> 16 * (v % 2) & 0xffffu; }
  };
  static __device__ __forceinline__ RandomBits random_bits(uint64_t seed, uint32_t number, uint32_t array, double step,
                                                           int64_t row, int lane) {
    const bool odd = lane % 2;
    const auto block = static_cast<uint64_t>(row + first_of(lane & ~1) + apart(odd ? 4 : 0)) / formula::kRoundedAtOnce;
    const formula::Words4 own = formula::random_block(formula::rounding_key(seed, number, array, step), block);
    const uint32_t other[] = {__shfl_xor_sync(~0u, own.word[odd ? 0 : 2], 1),
                              __shfl_xor_sync(~0u, own.word[odd ? 1 : 3], 1)};
    return odd ? RandomBits{{other[0], other[1], own.word[2], own.word[3]}}
               : RandomBits{{own.word[0], own.word[1], other[0], other[1]}};
  }

  /// The codes of four values, in one word.
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
    const auto signs = [&](int v) {
      return __byte_perm(__float_as_uint(values[v]), __float_as_uint(values[v + 1]), 0x0073);
    };
    return magnitudes | (__byte_perm(signs(0), signs(2), 0x5410) & 0x80808080u);
  }

  /// The bits of the largest magnitude of a lane's values. A NaN counts as larger than any number.
  static __device__ __forceinline__ uint32_t largest(const float (&values)[kLane]) {
    float most = fabsf(values[0]);
#pragma unroll
    for (int v = 1; v < kLane; ++v) asm("max.NaN.f32 %0, %0, %1;" : "+f"(most) : "f"(fabsf(values[v])));
    return __float_as_uint(most);
  }

  /// Stores values as 8-bit codes. Returns their scale.
  template <bool kSigned, bool kWhole>
  static __device__ __forceinline__ float quantise(void* at, int left, float (&values)[kLane]) {
    if (!kWhole) {
#pragma unroll
      for (int v = 0; v < kLane; ++v)
        if (apart(v) >= left) values[v] = 0;
    }
    const auto by = formula::quant_scale(__reduce_max_sync(~0u, largest(values)));
    uint32_t words[2] = {};
    if (by.inverse != 0)
      words[0] = encode<kSigned>(values, by.inverse), words[1] = encode<kSigned>(values + 4, by.inverse);
    uint8_t codes[kLane];
#pragma unroll
    for (int v = 0; v < kLane; ++v) codes[v] = static_cast<uint8_t>(words[v / 4] >> 8 * (v % 4));
    store<kWhole>(at, left, codes);
    return by.scale;
  }

  /// Stores values as bf16, rounded stochastically.
  template <bool kWhole>
  static __device__ __forceinline__ void round(void* at, const RandomBits& random, int left,
                                               const float (&values)[kLane]) {
    uint16_t bits[kLane];
#pragma unroll
    for (int v = 0; v < kLane; ++v)
      bits[v] = static_cast<uint16_t>(formula::round_stochastically(values[v], random[v]));
    store<kWhole>(at, left, bits);
  }
};

/// The scale of the block that holds element `element` of an array of `count` codes.
__device__ __forceinline__ float* scale_of(void* codes, int64_t count, int64_t element) {
  return reinterpret_cast<float*>(static_cast<char*>(codes) + formula::quant_scales_at(count)) +
         element / formula::kQuantBlock;
}

/// The type of all states, if it is known at compile time.
enum class StateTypes { f32, bf16, q8, mixed };

/// The largest tile that leaves two rounds of blocks for a large GPU: a block first fills its tables and waits for
/// addresses. A tile has at most 32 rows, because each lane holds the scale of one row.
inline int compressed_tile(int64_t elements) {
  constexpr int64_t kWarps = 6'000;
  int tile = 1'024;
  while (tile < 32 * QuantizedRows::kBlock && 2 * tile * kWarps <= elements) tile *= 2;
  return tile;
}

/// T is the parameter's type: float, BFloat16 or Float16. f32 gradients of 16-bit parameters take StateTypes::mixed,
/// which tests every type at run time. A lane that makes random bits needs 128 registers.
template <class Rule, class T, StateTypes kTypes,
          int kResident = (kTypes == StateTypes::q8 || kTypes == StateTypes::f32 ? 3 : 2)>
struct StepCompressed : StepNumbers<Rule, float>, QuantizedRows {
  static constexpr bool kNarrow = !std::is_same_v<T, float>, kAnyGrads = kNarrow && kTypes == StateTypes::mixed;
  static constexpr int kStates = Rule::kStates, kSome = kStates > 0 ? kStates : 1, kArrays = 2 + kStates + kNarrow,
                       kMaster = kArrays - 1;
  static constexpr bool kLargeArguments = false;
  static constexpr int kRunLength = 1, kBlocks = kResident;  // tiles are aligned to blocks, whatever the addresses

  int elements;  ///< of a tile, a multiple of kBlock
  MasterKind masters;
  bool wide_grads;  ///< f32, of 16-bit parameters
  StateType types[3];
  uint64_t seed;
  int64_t first_element;  ///< StepCall::first_element

  __device__ void open(int thread) const {
    if (kTypes == StateTypes::q8 || kTypes == StateTypes::mixed) fill_tables(thread);
  }
  __device__ __forceinline__ StateType type(int k) const {
    return kTypes == StateTypes::mixed ? types[k] : static_cast<StateType>(kTypes);
  }

  /// Bytes of an element of array k.
  __device__ __forceinline__ int bytes(int k) const {
    if (k == 0) return sizeof(T);
    if (k == 1) return kAnyGrads && wide_grads ? sizeof(float) : sizeof(T);
    if (kNarrow && k == kMaster) return masters == MasterKind::f32 ? 4 : 2;
    return type(k - 2) == StateType::f32 ? 4 : type(k - 2) == StateType::bf16 ? 2 : 1;
  }

  /// The addresses of a lane's first elements of a row, and how many elements of the tile there are from there on.
  struct LaneAddresses {
    char* at[kArrays];
    int left;
  };
  __device__ __forceinline__ LaneAddresses lane_addresses(const Entry<kArrays>& entry, const Tile& tile,
                                                          int lane) const {
    LaneAddresses addresses;
#pragma unroll
    for (int k = 0; k < kArrays; ++k)
      addresses.at[k] = static_cast<char*>(entry.at[k]) + (tile.first + first_of(lane)) * bytes(k);
    addresses.left = tile.count - first_of(lane);
    return addresses;
  }
  /// Moves to the next row. The empty asm keeps every address in a register: else the compiler keeps the first address
  /// and a distance, runs out of registers, and loads the address again for every row.
  __device__ __forceinline__ void next(LaneAddresses& addresses) const {
#pragma unroll
    for (int k = 0; k < kArrays; ++k) {
      addresses.at[k] += kBlock * bytes(k);
      asm volatile("" : "+l"(addresses.at[k]));
    }
    addresses.left -= kBlock;
  }

  /// Draws the random bits of a row.
  struct Draw {
    uint64_t seed;
    uint32_t number;
    double steps;
    int64_t row;
    int lane;
    __device__ __forceinline__ RandomBits operator()(uint32_t array) const {
      return random_bits(seed, number, array, steps, row, lane);
    }
  };

  // Long: all states of a run stay in registers from their loads to their stores.
  template <bool kWhole, class Hyper>
  __device__ __forceinline__ void step(const LaneAddresses& addresses, int row, int lane, const Hyper& hyper,
                                       float factor, float (&scales)[kSome], const Draw& draw) const {
    // All arrays are loaded before any is used.
    const int left = addresses.left;
    T param[kLane], grad[kLane];
    float wide_grad[kLane];
    float values[kLane], states[kSome][kLane], scale[kSome];
    uint16_t rest[kLane], halves[kSome][kLane];
    uint8_t codes[kSome][kLane];
    if (kNarrow && masters == MasterKind::f32)
      load<kWhole>(addresses.at[kMaster], left, values);
    else
      load<kWhole>(addresses.at[0], left, param);
    if (kNarrow && masters == MasterKind::split) load<kWhole>(addresses.at[kMaster], left, rest);
    if (kAnyGrads && wide_grads)
      load<kWhole>(addresses.at[1], left, wide_grad);
    else
      load<kWhole>(addresses.at[1], left, grad);
#pragma unroll
    for (int k = 0; k < kStates; ++k) {
      if (type(k) == StateType::f32) load<kWhole>(addresses.at[2 + k], left, states[k]);
      if (type(k) == StateType::bf16) load<kWhole>(addresses.at[2 + k], left, halves[k]);
      if (type(k) == StateType::q8)
        load<kWhole>(addresses.at[2 + k], left, codes[k]), scale[k] = __shfl_sync(~0u, scales[k], row);
    }

#pragma unroll
    for (int v = 0; v < kLane; ++v) {
      if constexpr (!kNarrow)
        values[v] = param[v];
      else if (masters == MasterKind::split)
        values[v] = __uint_as_float(formula::joined(param[v].bits, rest[v]));
      else if (masters != MasterKind::f32)
        values[v] = static_cast<float>(param[v]);
      float own[kSome];
      formula::for_states<Rule>([&]<int k>(std::integral_constant<int, k>) {
        if (type(k) == StateType::f32) own[k] = states[k][v];
        if (type(k) == StateType::bf16) own[k] = __uint_as_float(uint32_t{halves[k][v]} << 16);
        if (type(k) == StateType::q8) own[k] = tables().numbers[formula::is_signed<Rule>(k)][codes[k][v]] * scale[k];
      });
      const float scaled = (kAnyGrads && wide_grads ? wide_grad[v] : static_cast<float>(grad[v])) * factor;
      if constexpr (kWhole)
        step_element<Rule>(values[v], scaled, own, hyper);
      else
        Rule()(values[v], scaled, own, hyper);
#pragma unroll
      for (int k = 0; k < kStates; ++k) states[k][v] = own[k];
    }

    formula::for_states<Rule>([&]<int k>(std::integral_constant<int, k>) {
      char* const at = addresses.at[2 + k];
      if (type(k) == StateType::f32) store<kWhole>(at, left, states[k]);
      if (type(k) == StateType::bf16) round<kWhole>(at, draw(1 + k), left, states[k]);
      if (type(k) != StateType::q8) return;
      const float written = quantise<formula::is_signed<Rule>(k), kWhole>(at, left, states[k]);
      if (lane == row) scales[k] = written;
    });
    if constexpr (kNarrow) {
      if (masters == MasterKind::stochastic) {
        round<kWhole>(addresses.at[0], draw(0), left, values);
      } else if (masters == MasterKind::split) {
        uint16_t bits[kLane];
#pragma unroll
        for (int v = 0; v < kLane; ++v) {
          const uint32_t whole = __float_as_uint(values[v]), upper = formula::upper_half(whole);
          bits[v] = static_cast<uint16_t>(upper);
          rest[v] = static_cast<uint16_t>(formula::lower_half(whole, upper));
        }
        store<kWhole>(addresses.at[kMaster], left, rest);
        store<kWhole>(addresses.at[0], left, bits);
      } else {
        uint16_t bits[kLane];
#pragma unroll
        for (int v = 0; v < kLane; ++v) bits[v] = T(values[v]).bits;
        if (masters == MasterKind::f32) store<kWhole>(addresses.at[kMaster], left, values);
        store<kWhole>(addresses.at[0], left, bits);
      }
    } else {
      store<kWhole>(addresses.at[0], left, values);
    }
    if (!this->zero_grads) return;
    if (kAnyGrads && wide_grads) {
      const float zeros[kLane] = {};
      store<kWhole>(addresses.at[1], left, zeros);
    } else {
      const T zeros[kLane] = {};
      store<kWhole>(addresses.at[1], left, zeros);
    }
  }

  /// Whether rows may be loaded in runs.
  __device__ __forceinline__ bool aligned(const Entry<kArrays>& entry) const {
    uintptr_t bad = 0;
#pragma unroll
    for (int k = 0; k < 2; ++k) bad |= reinterpret_cast<uintptr_t>(entry.at[k]) % (4 * static_cast<unsigned>(bytes(k)));
    if (kNarrow && masters != MasterKind::stochastic)
      bad |= reinterpret_cast<uintptr_t>(entry.at[kMaster]) % (masters == MasterKind::f32 ? 16 : 8);
#pragma unroll
    for (int k = 0; k < kStates; ++k)
      bad |= reinterpret_cast<uintptr_t>(entry.at[2 + k]) % (type(k) == StateType::q8     ? 4
                                                             : type(k) == StateType::bf16 ? 8
                                                                                          : 16);
    return bad == 0;
  }

  __device__ __forceinline__ void operator()(const Entry<kArrays>& entry, const Tile& tile, int lane) const {
    const double by = this->factor();
    if (by != by) {  // like leave_out, in fewer registers: rows of a tile are contiguous
      const auto zero = [&](auto* grad) {
        for (int i = lane; this->zero_grads && i < tile.count; i += 32) grad[tile.first + i] = {};
      };
      return kAnyGrads && wide_grads ? zero(static_cast<float*>(entry.at[1])) : zero(static_cast<T*>(entry.at[1]));
    }
    const float factor = formula::multiplier(static_cast<float>(by));
    const auto& block = this->block(entry.word);
    const auto hyper = block.numbers();
    const bool whole = aligned(entry);
    LaneAddresses at = lane_addresses(entry, tile, lane);
    float scales[kSome] = {};
#pragma unroll
    for (int k = 0; k < kStates; ++k)
      if (type(k) == StateType::q8 && lane * kBlock < tile.count)
        scales[k] = scale_of(entry.at[2 + k], entry.count, tile.first)[lane];
    Draw draw{seed, static_cast<uint32_t>(entry.number), block.next_steps(),
              tile.first + (entry.first_tile == 0 ? first_element : 0), lane};
#pragma unroll 1
    for (int row = 0; row * kBlock < tile.count; ++row) {
      if (whole && (row + 1) * kBlock <= tile.count)
        step<true>(at, row, lane, hyper, factor, scales, draw);
      else
        step<false>(at, row, lane, hyper, factor, scales, draw);
      next(at);
      draw.row += kBlock;
    }
#pragma unroll
    for (int k = 0; k < kStates; ++k)
      if (type(k) == StateType::q8 && lane * kBlock < tile.count)
        scale_of(entry.at[2 + k], entry.count, tile.first)[lane] = scales[k];
  }
};

}  // namespace lorry::kernels::cuda
