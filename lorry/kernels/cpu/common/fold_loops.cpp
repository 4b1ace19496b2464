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

/// Products of 64-bit integers have no vector instruction before AVX-512.
template <Fold kFold, class C>
inline constexpr bool kScalar = std::is_integral_v<C>&& kFold == Fold::prod;

/// The fold of load(d, i) for the n elements of a block of at most kSumBlock. load_rest(d, i): with n - i elements
/// left, fewer than a vector, and the identity in the other lanes.
template <Fold kFold, class C, class Load, class LoadRest>
HWY_INLINE C fold_block(int64_t n, Load load, LoadRest load_rest) {
  constexpr int64_t kLanes = kSumLanes<C>;
  const hn::ScalableTag<C> d;
  constexpr int kN = hn::MaxLanes(d), kVectors = kLanes / kN;
  hn::Vec<decltype(d)> acc[kVectors];
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) acc[v] = hn::Set(d, fold_identity<C>(kFold));
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) acc[v] = fold_vectors<kFold>(d, acc[v], load(d, i + v * kN));
  }
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v, i += kN) {
    if (i >= n) break;
    acc[v] = fold_vectors<kFold>(d, acc[v], i + kN <= n ? load(d, i) : load_rest(d, i));
  }
#pragma GCC unroll 4
  for (int half = kVectors / 2; half > 0; half /= 2)
    for (int v = 0; v < half; ++v) acc[v] = fold_vectors<kFold>(d, acc[v], acc[v + half]);
  return fold_lanes(d, acc[0], [](auto e, auto u, auto v) HWY_ATTR { return fold_vectors<kFold>(e, u, v); });
}

template <Map kMap, class D>
HWY_INLINE hn::Vec<D> map_vector(D d, hn::Vec<D> v) {
  if constexpr (kMap == Map::square) return hn::Mul(v, v);
  if constexpr (kMap == Map::abs) return hn::IfThenElse(hn::Lt(v, hn::Zero(d)), hn::Neg(v), v);
  return v;
}

/// The fold of n contiguous elements, converted to their compute type and mapped.
template <Fold kFold, Map kMap, class S>
auto row_from(const S* x, int64_t n) -> Total<Accumulate<S>> {
  using C = Accumulate<S>;
  constexpr int64_t kBlock = kSumBlock<C>;
  Total<C> total = fold_identity<Total<C>>(kFold);
  if (kScalar<kFold, C> || n <= kFoldedSingly) {
    for (int64_t i = 0; i < n; ++i)
      total = fold_one<kFold, Total<C>>(total, formula::mapped(kMap, static_cast<C>(x[i])));
    return total;
  }
  if constexpr (!kScalar<kFold, C>) {
    for (; n > 0; x += kBlock, n -= kBlock) {
      const int64_t length = std::min(n, kBlock);
      const auto load = [=](auto d, int64_t i) HWY_ATTR { return map_vector<kMap>(d, load_as(d, x + i)); };
      const auto load_rest = [=](auto d, int64_t i) HWY_ATTR {
        return map_vector<kMap>(d, load_first_as(d, x + i, length - i, fold_identity<C>(kFold)));
      };
      total = fold_one<kFold, Total<C>>(total, fold_block<kFold, C>(length, load, load_rest));
    }
  }
  return total;
}

template <Fold kFold, class C>
Total<C> row(const C* x, int64_t n) {
  return row_from<kFold, Map::none>(x, n);
}
template <Fold kFold, Map kMap, class S>
double row_of(const void* x, int64_t n) {
  return row_from<kFold, kMap>(static_cast<const S*>(x), n);
}

template <Fold kFold, Map kMap, class S>
void columns(double* cells, const void* from, int64_t stride, int64_t rows, int64_t n) {
  const S* x = static_cast<const S*>(from);
  for_each_vector<double>(n, [=](auto wide, int64_t i) HWY_ATTR {
    const hn::Rebind<float, decltype(wide)> d;
    auto acc = hn::Set(d, fold_identity<float>(kFold));
    for (int64_t r = 0; r < rows; ++r)
      acc = fold_vectors<kFold>(d, acc, map_vector<kMap>(d, load_as(d, x + r * stride + i)));
    const auto total = fold_vectors<kFold>(wide, hn::LoadU(wide, cells + i), hn::PromoteTo(wide, acc));
    hn::StoreU(total, wide, cells + i);
  });
}

/// The loops over elements of other types than the compute type, and over mapped ones, where they read less than a
/// conversion of the elements followed by a fold.
template <Fold kFold, Map kMap>
FoldFrom from(DType dtype) {
  constexpr bool kMaps = kMap != Map::none;
  if (dtype == kF64 && kMaps) return {row_of<kFold, kMap, double>, nullptr};
  if (dtype == kF32 && kMaps) return {row_of<kFold, kMap, float>, columns<kFold, kMap, float>};
  if constexpr (kWidens) {
    if (dtype == kBF16) return {row_of<kFold, kMap, BFloat16>, columns<kFold, kMap, BFloat16>};
    if (dtype == kF16) return {row_of<kFold, kMap, Float16>, columns<kFold, kMap, Float16>};
  }
  return {};
}

FoldFrom find_fold_from(Fold fold, Map map, DType dtype) {
  if (fold == Fold::sum && map == Map::square) return from<Fold::sum, Map::square>(dtype);
  if (fold == Fold::sum && map == Map::abs) return from<Fold::sum, Map::abs>(dtype);
  if (map != Map::none) return {};
  if (fold == Fold::sum) return from<Fold::sum, Map::none>(dtype);
  if (fold == Fold::max) return from<Fold::max, Map::none>(dtype);
  return fold == Fold::min ? from<Fold::min, Map::none>(dtype) : FoldFrom{};
}

template <class S>
double dot(const void* a, const void* b, int64_t n) {
  using C = Accumulate<S>;
  const S *x = static_cast<const S*>(a), *y = static_cast<const S*>(b);
  double total = 0;
  for (; n > 0; x += kDotRun<C>, y += kDotRun<C>, n -= kDotRun<C>) {
    if (n <= kFoldedSingly) {
      double rest = 0;
      for (int64_t i = 0; i < n; ++i) rest += static_cast<double>(x[i]) * static_cast<double>(y[i]);
      return total + rest;
    }
    const int64_t length = std::min(n, kDotRun<C>);
    const auto load = [=](auto d, int64_t i) HWY_ATTR { return hn::Mul(load_as(d, x + i), load_as(d, y + i)); };
    const auto load_rest = [=](auto d, int64_t i) HWY_ATTR {
      return hn::Mul(load_first_as(d, x + i, length - i, C(0)), load_first_as(d, y + i, length - i, C(0)));
    };
    total += static_cast<double>(fold_block<Fold::sum, C>(length, load, load_rest));
  }
  return total;
}

DotLoop find_dot(DType dtype) {
  if (dtype == kF64) return dot<double>;
  if (dtype == kF32) return dot<float>;
  if constexpr (kWidens) {
    if (dtype == kBF16) return dot<BFloat16>;
    if (dtype == kF16) return dot<Float16>;
  }
  return nullptr;
}

template <class C>
void take(C* to, const C* x, int64_t stride, int64_t n) {
  const hn::ScalableTag<C> d;
  constexpr int64_t kN = hn::MaxLanes(d);
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  if (stride == 2) {
    // The last elements are left: a vector would read the element after them, which may lie outside the array.
    for (; i + kN < n; i += kN)
      hn::StoreU(hn::ConcatEven(d, hn::LoadU(d, x + 2 * i + kN), hn::LoadU(d, x + 2 * i)), d, to + i);
  }
#endif
  const auto at = row_starts(d, stride);
  for (; i + kN <= n; i += kN) hn::StoreU(hn::GatherIndex(d, x + i * stride, at), d, to + i);
  for (; i < n; ++i) to[i] = x[i * stride];
}

template <class C>
int64_t find(const C* x, int64_t n, C value) {
  const hn::ScalableTag<C> d;
  constexpr int64_t kN = hn::MaxLanes(d);
  const auto wanted = hn::Set(d, value);
  int64_t i = 0;
  // Highway 1.0's IsNaN takes no integers, and its Ne is false for a NaN on AVX.
  for (; i + kN <= n; i += kN) {
    const auto v = hn::LoadU(d, x + i);
    const intptr_t first = hn::FindFirstTrue(d, hn::Or(hn::Eq(v, wanted), hn::Not(hn::Eq(v, v))));
    if (first >= 0) return i + first;
  }
  while (i < n && x[i] != value && x[i] == x[i]) ++i;
  return i;
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
  return {row<kFold, C>, column<kFold, C>, take<C>, find<C>};
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
HWY_EXPORT(find_fold_from);
HWY_EXPORT(find_dot);

FoldFrom fold_from(Fold fold, Map map, DType dtype) { return HWY_DYNAMIC_DISPATCH(find_fold_from)(fold, map, dtype); }
DotLoop dot_loop(DType dtype) { return HWY_DYNAMIC_DISPATCH(find_dot)(dtype); }

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
