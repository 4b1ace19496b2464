#include "lorry/kernels/cpu/common/fold_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lorry/kernels/cpu/common/fold_loops.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "lorry/kernels/cpu/common/vector_rows-inl.h"

#ifndef LORRY_FOLD_TABLE
#define LORRY_FOLD_TABLE
namespace lorry::kernels::cpu {
struct FoldTable {
  FoldLoops<float> f32[4];
  FoldLoops<double> f64[4];
  FoldLoops<int64_t> i64[4];
};
}  // namespace lorry::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lorry::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <Fold kFold, class D, class V>
HWY_INLINE V fold_vectors(D, V a, V b) {
  using C = hn::TFromD<D>;
  if constexpr (kFold == Fold::sum) return hn::Add(a, b);
  if constexpr (kFold == Fold::prod) {
    if constexpr (!std::is_integral_v<C>) return hn::Mul(a, b);
  }
  if constexpr (std::is_integral_v<C>) {
    if constexpr (kFold == Fold::max) return hn::Max(a, b);
    if constexpr (kFold == Fold::min) return hn::Min(a, b);
  } else {
    // Highway 1.0's Ne is false for a NaN on AVX.
    if constexpr (kFold == Fold::max) return hn::IfThenElse(hn::Or(hn::Gt(b, a), hn::Not(hn::Eq(b, b))), b, a);
    if constexpr (kFold == Fold::min) return hn::IfThenElse(hn::Or(hn::Lt(b, a), hn::Not(hn::Eq(b, b))), b, a);
  }
}

/// Products of 64-bit integers have no vector instruction before AVX-512.
template <Fold kFold, class C>
inline constexpr bool kScalar = std::is_integral_v<C>&& kFold == Fold::prod;

template <Fold kFold, class C>
Total<C> row(const C* x, int64_t n) {
  constexpr int64_t kLanes = 256 / sizeof(C), kBlock = 16 * kLanes, kShort = 16;
  constexpr Total<C> kIdentity = fold_identity<Total<C>>(kFold);
  Total<C> total = kIdentity;
  if (kScalar<kFold, C> || n <= kShort) {
    for (int64_t i = 0; i < n; ++i) total = fold_one<kFold, Total<C>>(total, x[i]);
    return total;
  }
  if constexpr (!kScalar<kFold, C>) {
    const hn::ScalableTag<C> d;
    constexpr int kN = hn::MaxLanes(d), kVectors = kLanes / kN;
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t end = std::min(n, begin + kBlock);
      hn::Vec<decltype(d)> acc[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) acc[v] = hn::Set(d, fold_identity<C>(kFold));
      int64_t i = begin;
      for (; i + kLanes <= end; i += kLanes) {
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) acc[v] = fold_vectors<kFold>(d, acc[v], hn::LoadU(d, x + i + v * kN));
      }
      if (i < end) {
        alignas(64) C rest[kLanes];
        std::fill(std::copy(x + i, x + end, rest), rest + kLanes, fold_identity<C>(kFold));
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) acc[v] = fold_vectors<kFold>(d, acc[v], hn::Load(d, rest + v * kN));
      }
#pragma GCC unroll 4
      for (int half = kVectors / 2; half > 0; half /= 2)
        for (int v = 0; v < half; ++v) acc[v] = fold_vectors<kFold>(d, acc[v], acc[v + half]);
      total = fold_one<kFold, Total<C>>(
          total, fold_lanes(d, acc[0], [](auto e, auto u, auto v) HWY_ATTR { return fold_vectors<kFold>(e, u, v); }));
    }
  }
  return total;
}

template <Fold kFold, class C>
void column(C* acc, const C* x, int64_t stride, int64_t rows, int64_t n) {
  const auto scalar = [&](int64_t from, const C* row) {
    for (int64_t i = from; i < n; ++i) acc[i] = fold_one<kFold, C>(acc[i], row[i]);
  };
  if constexpr (kScalar<kFold, C>) {
    for (int64_t r = 0; r < rows; ++r) scalar(0, x + r * stride);
  } else {
    const hn::ScalableTag<C> d;
    constexpr int64_t kN = hn::MaxLanes(d);
    int64_t r = 0;
    // four rows per iteration, so that accumulators are loaded and stored a quarter as often
    for (; r + 4 <= rows; r += 4) {
      const C *a = x + r * stride, *b = a + stride, *c = b + stride, *e = c + stride;
      int64_t i = 0;
      for (; i + kN <= n; i += kN) {
        auto v = hn::LoadU(d, acc + i);
        v = fold_vectors<kFold>(d, v, hn::LoadU(d, a + i));
        v = fold_vectors<kFold>(d, v, hn::LoadU(d, b + i));
        v = fold_vectors<kFold>(d, v, hn::LoadU(d, c + i));
        v = fold_vectors<kFold>(d, v, hn::LoadU(d, e + i));
        hn::StoreU(v, d, acc + i);
      }
      for (const C* row : {a, b, c, e}) scalar(i, row);
    }
    for (; r < rows; ++r) {
      const C* row = x + r * stride;
      int64_t i = 0;
      for (; i + kN <= n; i += kN)
        hn::StoreU(fold_vectors<kFold>(d, hn::LoadU(d, acc + i), hn::LoadU(d, row + i)), d, acc + i);
      scalar(i, row);
    }
  }
}

template <Fold kFold, class C>
constexpr FoldLoops<C> loops() {
  return {row<kFold, C>, column<kFold, C>};
}

template <class C>
constexpr void fill(FoldLoops<C> (&to)[4]) {
  to[0] = loops<Fold::sum, C>();
  to[1] = loops<Fold::prod, C>();
  to[2] = loops<Fold::max, C>();
  to[3] = loops<Fold::min, C>();
}

const FoldTable* fold_table() {
  static constexpr FoldTable kTable = [] {
    FoldTable t{};
    fill(t.f32);
    fill(t.f64);
    fill(t.i64);
    return t;
  }();
  return &kTable;
}

}  // namespace lorry::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lorry::kernels::cpu {

HWY_EXPORT(fold_table);

template <class C>
const FoldLoops<C>& fold_loops(Fold fold) {
  static const FoldTable* const kTable = HWY_DYNAMIC_DISPATCH(fold_table)();
  const int i = static_cast<int>(fold);
  if constexpr (std::is_same_v<C, float>) return kTable->f32[i];
  if constexpr (std::is_same_v<C, double>) return kTable->f64[i];
  if constexpr (std::is_same_v<C, int64_t>) return kTable->i64[i];
}

template const FoldLoops<float>& fold_loops<float>(Fold);
template const FoldLoops<double>& fold_loops<double>(Fold);
template const FoldLoops<int64_t>& fold_loops<int64_t>(Fold);

}  // namespace lorry::kernels::cpu
#endif
