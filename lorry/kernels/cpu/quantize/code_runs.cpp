// Compiled once for each instruction set: LORRY_SIMD. The loops call the scalar formulas, so that the compiler
// vectorises the definition itself.

#include "lorry/kernels/cpu/quantize/code_runs.h"

namespace lorry::kernels::cpu::LORRY_SIMD {
namespace {

using formula::CodeFormat;

template <CodeFormat kFormat>
void encode(const float* __restrict from, uint8_t* __restrict to, int64_t n, float inverse, int32_t zero_point) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<uint8_t>(formula::encode<kFormat>(from[i], inverse, zero_point));
}

template <CodeFormat kFormat>
void decode(const uint8_t* __restrict from, float* __restrict to, int64_t n, float scale, int32_t zero_point) {
  for (int64_t i = 0; i < n; ++i) to[i] = formula::decode<kFormat>(from[i], scale, zero_point);
}

template <CodeFormat kFormat>
void encode_each(const float* __restrict from, uint8_t* __restrict to, int64_t n, const float* __restrict inverse,
                 const int32_t* __restrict zero_point) {
  for (int64_t i = 0; i < n; ++i)
    to[i] = static_cast<uint8_t>(formula::encode<kFormat>(from[i], inverse[i], zero_point[i]));
}

template <CodeFormat kFormat>
void decode_each(const uint8_t* __restrict from, float* __restrict to, int64_t n, const float* __restrict scale,
                 const int32_t* __restrict zero_point) {
  for (int64_t i = 0; i < n; ++i) to[i] = formula::decode<kFormat>(from[i], scale[i], zero_point[i]);
}

template <CodeFormat kFormat>
void fill(CodeRuns& runs) {
  constexpr int kAt = static_cast<int>(kFormat);
  runs.encode[kAt] = encode<kFormat>, runs.decode[kAt] = decode<kFormat>;
  runs.encode_each[kAt] = encode_each<kFormat>, runs.decode_each[kAt] = decode_each<kFormat>;
}

}  // namespace

void fill_code_runs(CodeRuns& runs) {
  fill<CodeFormat::int8>(runs);
  fill<CodeFormat::e4m3>(runs);
  fill<CodeFormat::e5m2>(runs);
}

}  // namespace lorry::kernels::cpu::LORRY_SIMD
