#pragma once

// Compressed arrays, the plain way: element by element, by the scalar formulas.

#include <bit>
#include <cstring>
#include <vector>

#include "lorry/formula/quantize.h"
#include "lorry/formula/rounding.h"
#include "lorry/kernels/optim.h"

namespace lorry::optim::test {

inline DType dtype_of_state(StateType type) {
  return type == StateType::q8 ? kU8 : type == StateType::bf16 ? kBF16 : kF32;
}
inline int64_t compressed_bytes(StateType type, int64_t n) {
  return type == StateType::q8 ? formula::quant_bytes(n) : n * size_of(dtype_of_state(type));
}

/// The values of an array of n elements.
inline std::vector<float> loaded(StateType type, bool is_signed, const void* array, int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  const auto* const bytes = static_cast<const char*>(array);
  for (int64_t i = 0; i < n; ++i) {
    float& value = values[static_cast<size_t>(i)];
    if (type == StateType::f32) std::memcpy(&value, bytes + i * 4, 4);
    if (type == StateType::bf16) value = static_cast<float>(static_cast<const BFloat16*>(array)[i]);
    if (type == StateType::q8) {
      float scale;
      std::memcpy(&scale, bytes + formula::quant_scales_at(n) + i / formula::kQuantBlock * 4, 4);
      const auto code = static_cast<uint8_t>(bytes[i]);
      value = (is_signed ? formula::QuantCode<true>::decode(code) : formula::QuantCode<false>::decode(code)) * scale;
    }
  }
  return values;
}

/// Writes the values. `key` names the draw of bf16's rounding.
inline void store(const std::vector<float>& values, StateType type, bool is_signed, const formula::RandomKey& key,
                  void* array) {
  const auto n = static_cast<int64_t>(values.size());
  auto* const bytes = static_cast<char*>(array);
  if (type == StateType::f32 && n > 0) std::memcpy(array, values.data(), values.size() * 4);
  if (type == StateType::bf16)
    for (int64_t i = 0; i < n; ++i) {
      const formula::Words4 words = formula::random_block(key, static_cast<uint64_t>(i / formula::kRoundedAtOnce));
      const uint32_t random = formula::rounding_bits(words, static_cast<int>(i % formula::kRoundedAtOnce));
      static_cast<uint16_t*>(array)[i] =
          static_cast<uint16_t>(formula::round_stochastically(values[static_cast<size_t>(i)], random));
    }
  if (type != StateType::q8) return;
  for (int64_t begin = 0; begin < n; begin += formula::kQuantBlock) {
    const int64_t end = std::min(n, begin + formula::kQuantBlock);
    uint32_t largest = 0;
    for (int64_t i = begin; i < end; ++i)
      largest = std::max(largest, std::bit_cast<uint32_t>(values[static_cast<size_t>(i)]) & 0x7fffffffu);
    const auto by = formula::quant_scale(largest);
    for (int64_t i = begin; i < end; ++i) {
      const float x = values[static_cast<size_t>(i)];
      bytes[i] = static_cast<char>(is_signed ? formula::QuantCode<true>::encode(x, by)
                                             : formula::QuantCode<false>::encode(x, by));
    }
    std::memcpy(bytes + formula::quant_scales_at(n) + begin / formula::kQuantBlock * 4, &by.scale, 4);
  }
}

}  // namespace lorry::optim::test
