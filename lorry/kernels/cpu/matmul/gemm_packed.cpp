// The packed matrix product (Goto and van de Geijn 2008). Blocks of A and B are copied once into panels that the inner
// kernel reads with unit stride, so all strides and source types cost the same; 16-bit sources are widened while
// packing.
//
// The inner kernel keeps kRows x 2 vectors of C in registers: 12 x 32 floats with AVX-512 (24 of 32 registers), 6 x 16
// with AVX2 (12 of 16). An element of C sums k in order, in blocks of kDepth, so its bits do not depend on the division
// into tiles.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lorry/kernels/cpu/matmul/gemm_packed.cpp"
#include <hwy/foreach_target.h>
//
#include <algorithm>

#include <hwy/highway.h>

#include "lorry/kernels/cpu/common/scratch.h"
#include "lorry/kernels/cpu/matmul/gemm.h"

HWY_BEFORE_NAMESPACE();
namespace lorry::kernels::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
constexpr int kRows = 6;
#else
constexpr int kRows = 12;
#endif
constexpr int64_t kDepth = 256;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
constexpr int64_t kColumns = 2 * static_cast<int64_t>(hn::MaxLanes(Tag<T>()));

/// Packs `count` lines of `depth` elements into panels of `width` lines, depth outermost; missing lines are zero.
template <int64_t width, class S, class T>
void pack(const S* from, int64_t count, int64_t line, int64_t depth, int64_t step, T* to) {
  for (int64_t first = 0; first < count; first += width, to += width * depth) {
    const S* source = from + first * line;
    const int64_t lines = std::min(width, count - first);
    if (lines == width && line == 1) {
      for (int64_t p = 0; p < depth; ++p)
        for (int64_t i = 0; i < width; ++i) to[p * width + i] = static_cast<T>(source[p * step + i]);
    } else {
      for (int64_t i = 0; i < lines; ++i)
        for (int64_t p = 0; p < depth; ++p) to[p * width + i] = static_cast<T>(source[i * line + p * step]);
      for (int64_t i = lines; i < width; ++i)
        for (int64_t p = 0; p < depth; ++p) to[p * width + i] = T(0);
    }
  }
}

/// One register tile: C[rows, columns] = alpha * panel_a panel_b + beta * C.
template <class T>
HWY_INLINE void register_tile(int64_t depth, const T* panel_a, const T* panel_b, T* c, int64_t c_row, T alpha, T beta,
                              int64_t rows, int64_t columns) {
  const Tag<T> d;
  using V = hn::Vec<Tag<T>>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V left[kRows], right[kRows];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) left[i] = right[i] = hn::Zero(d);
  for (int64_t p = 0; p < depth; ++p) {
    const V b0 = hn::Load(d, panel_b + p * 2 * lanes), b1 = hn::Load(d, panel_b + p * 2 * lanes + lanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const V ai = hn::Set(d, panel_a[p * kRows + i]);
      left[i] = hn::MulAdd(ai, b0, left[i]);
      right[i] = hn::MulAdd(ai, b1, right[i]);
    }
  }
  const V scale = hn::Set(d, alpha), keep = hn::Set(d, beta);
  if (rows == kRows && columns == 2 * lanes) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i, c += c_row) {
      left[i] = hn::Mul(left[i], scale);
      right[i] = hn::Mul(right[i], scale);
      if (beta != T(0)) {
        left[i] = hn::MulAdd(hn::LoadU(d, c), keep, left[i]);
        right[i] = hn::MulAdd(hn::LoadU(d, c + lanes), keep, right[i]);
      }
      hn::StoreU(left[i], d, c);
      hn::StoreU(right[i], d, c + lanes);
    }
    return;
  }
  HWY_ALIGN T edge[kRows * kColumns<T>];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    hn::Store(hn::Mul(left[i], scale), d, edge + i * 2 * lanes);
    hn::Store(hn::Mul(right[i], scale), d, edge + i * 2 * lanes + lanes);
  }
  // With MulAdd as well, so that an element at an edge has the same bits as elsewhere.
  const hn::CappedTag<T, 1> one;
  for (int64_t i = 0; i < rows; ++i, c += c_row) {
    for (int64_t j = 0; j < columns; ++j) {
      auto sum = hn::LoadU(one, edge + i * 2 * lanes + j);
      if (beta != T(0)) sum = hn::MulAdd(hn::LoadU(one, c + j), hn::Set(one, beta), sum);
      hn::StoreU(sum, one, c + j);
    }
  }
}

template <class S, class T>
void packed_gemm(const Gemm<S, T>& g) {
  constexpr int64_t kWidth = kColumns<T>;
  if (g.k == 0) {
    for (int64_t i = 0; i < g.m; ++i)
      for (int64_t j = 0; j < g.n; ++j) g.c[i * g.c_row + j] = g.beta == T(0) ? T(0) : g.beta * g.c[i * g.c_row + j];
    return;
  }
  const int64_t depth = std::min(kDepth, g.k);
  T* const a = scratch<T>(Scratch::packed_a, (g.m + kRows - 1) / kRows * kRows * depth);
  T* const b = scratch<T>(Scratch::packed_b, (g.n + kWidth - 1) / kWidth * kWidth * depth);
  for (int64_t p = 0; p < g.k; p += kDepth) {
    const int64_t d = std::min(kDepth, g.k - p);
    const T beta = p == 0 ? g.beta : T(1);
    pack<kRows>(g.a + p * g.a_col, g.m, g.a_row, d, g.a_col, a);
    pack<kWidth>(g.b + p * g.b_row, g.n, g.b_col, d, g.b_row, b);
    for (int64_t j = 0; j < g.n; j += kWidth)
      for (int64_t i = 0; i < g.m; i += kRows)
        register_tile(d, a + i * d, b + j * d, g.c + i * g.c_row + j, g.c_row, g.alpha, beta,
                      std::min<int64_t>(kRows, g.m - i), std::min(kWidth, g.n - j));
  }
}

#define LORRY_FLOATING_DTYPE(name, Name, text, type, dlpack, safetensors) \
  void gemm_##name(const Gemm<type, Accumulate<type>>& g) { packed_gemm(g); }
#include "lorry/layout/dtypes.def"

}  // namespace
}  // namespace lorry::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lorry::kernels::cpu {

namespace packed {
#define LORRY_FLOATING_DTYPE(name, Name, text, type, dlpack, safetensors) \
  HWY_EXPORT(gemm_##name);                                                \
  void gemm(const Gemm<type, Accumulate<type>>& g) { HWY_DYNAMIC_DISPATCH(gemm_##name)(g); }
#include "lorry/layout/dtypes.def"
}  // namespace packed

}  // namespace lorry::kernels::cpu
#endif
