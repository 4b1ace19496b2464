// Compiled once for each instruction set: LORRY_SIMD. The loops call the scalar formulas, so that the compiler
// vectorises the definition itself.

#include "lorry/kernels/cpu/optim/compressed_runs.h"

#include <bit>
#include <cstring>

#include "lorry/formula/quantize.h"
#include "lorry/formula/rounding.h"
#include "lorry/formula/split.h"

namespace lorry::kernels::cpu::LORRY_SIMD {
namespace {

constexpr int64_t kBlock = formula::kQuantBlock;

template <bool kSigned>
LORRY_INLINE void decode_block(const uint8_t* __restrict codes, float scale, float* __restrict to) {
  for (int64_t i = 0; i < kBlock; ++i) to[i] = formula::QuantCode<kSigned>::decode(codes[i]) * scale;
}

template <bool kSigned>
LORRY_INLINE float encode_block(const float* __restrict from, uint8_t* __restrict codes) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < kBlock; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(from[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  const formula::QuantScale by = formula::quant_scale(largest);
  for (int64_t i = 0; i < kBlock; ++i)
    codes[i] = static_cast<uint8_t>(formula::QuantCode<kSigned>::encode(from[i], by));
  return by.scale;
}

// A short block is padded with zeros.

template <bool kSigned>
void decode(const uint8_t* codes, float scale, float* to, int64_t n) {
  if (n == kBlock) return decode_block<kSigned>(codes, scale, to);
  uint8_t filled[kBlock] = {};
  float values[kBlock];
  std::memcpy(filled, codes, static_cast<size_t>(n));
  decode_block<kSigned>(filled, scale, values);
  std::memcpy(to, values, static_cast<size_t>(n) * sizeof(float));
}

template <bool kSigned>
float encode(const float* from, uint8_t* codes, int64_t n) {
  if (n == kBlock) return encode_block<kSigned>(from, codes);
  float filled[kBlock] = {};
  uint8_t all[kBlock];
  std::memcpy(filled, from, static_cast<size_t>(n) * sizeof(float));
  const float scale = encode_block<kSigned>(filled, all);
  std::memcpy(codes, all, static_cast<size_t>(n));
  return scale;
}

void round(const float* __restrict from, const uint32_t* __restrict random, uint16_t* __restrict to, int64_t n) {
  static_assert(std::endian::native == std::endian::little,
                "the lower half of a word, the even element's, comes first");
  for (int64_t i = 0; i < n; ++i) {
    uint16_t bits;
    std::memcpy(&bits, reinterpret_cast<const char*>(random) + i * 2, sizeof(bits));
    to[i] = static_cast<uint16_t>(formula::round_stochastically(from[i], bits));
  }
}

void join(const uint16_t* __restrict upper, const uint16_t* __restrict lower, float* __restrict to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = std::bit_cast<float>(formula::joined(upper[i], lower[i]));
}

void split(const float* __restrict from, uint16_t* __restrict upper, uint16_t* __restrict lower, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<uint32_t>(from[i]), high = formula::upper_half(bits);
    upper[i] = static_cast<uint16_t>(high);
    lower[i] = static_cast<uint16_t>(formula::lower_half(bits, high));
  }
}

}  // namespace

void fill_compressed_runs(CompressedRuns& runs) {
  runs = {.decode = {decode<false>, decode<true>},
          .encode = {encode<false>, encode<true>},
          .round = round,
          .join = join,
          .split = split};
}

}  // namespace lorry::kernels::cpu::LORRY_SIMD
