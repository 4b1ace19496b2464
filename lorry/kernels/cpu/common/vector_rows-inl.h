// Sums and maps over contiguous rows, compiled once for each instruction set (see Highway's foreach_target.h). Sums use
// a fixed number of lanes, combined in a fixed tree, so that they do not depend on the vector width.

#if defined(LORRY_KERNELS_CPU_VECTOR_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LORRY_KERNELS_CPU_VECTOR_ROWS_INL_H
#undef LORRY_KERNELS_CPU_VECTOR_ROWS_INL_H
#else
#define LORRY_KERNELS_CPU_VECTOR_ROWS_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "lorry/kernels/cpu/common/fold_loops.h"

HWY_BEFORE_NAMESPACE();
namespace lorry::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Whether vector instructions widen 16-bit floats: from AVX2 on.
constexpr bool kWidens = hn::MaxLanes(hn::ScalableTag<float>()) >= 8;

/// Lane by lane, what formula::fold_one gives: a NaN, once met, stays.
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
    if constexpr (kFold == Fold::max) return hn::IfThenElse(hn::Or(hn::Gt(b, a), hn::IsNaN(b)), b, a);
    if constexpr (kFold == Fold::min) return hn::IfThenElse(hn::Or(hn::Lt(b, a), hn::IsNaN(b)), b, a);
  }
}

/// Folds the lanes of a vector by halving: lane i with lane i + half. The tree is the same for every vector width.
template <class D, class V, class F>
HWY_INLINE hn::TFromD<D> fold_lanes(D, V v, [[maybe_unused]] F fold) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(D()) > 1) {
    const hn::Half<D> half;
    return fold_lanes(half, fold(half, hn::LowerHalf(half, v), hn::UpperHalf(half, v)), fold);
  }
#endif
  return hn::GetLane(v);
}

/// The first `left` elements at x, fewer than a vector has, and `pad` in the other lanes.
template <class D>
HWY_INLINE hn::Vec<D> load_first(D d, const hn::TFromD<D>* x, int64_t left, hn::TFromD<D> pad) {
#if HWY_MEM_OPS_MIGHT_FAULT
  alignas(64) hn::TFromD<D> lanes[hn::MaxLanes(D())];
  std::fill(std::copy(x, x + left, lanes), lanes + hn::MaxLanes(d), pad);
  return hn::Load(d, lanes);
#else
  const auto first = hn::FirstN(d, static_cast<size_t>(left));
  return hn::IfThenElse(first, hn::MaskedLoad(first, d, x), hn::Set(d, pad));
#endif
}
template <class D>
HWY_INLINE void store_first(D d, hn::Vec<D> v, int64_t left, hn::TFromD<D>* to) {
#if HWY_MEM_OPS_MIGHT_FAULT
  alignas(64) hn::TFromD<D> lanes[hn::MaxLanes(D())];
  hn::Store(v, d, lanes);
  std::copy(lanes, lanes + left, to);
#else
  hn::BlendedStore(v, hn::FirstN(d, static_cast<size_t>(left)), d, to);
#endif
}

/// Elements of the narrow type S, given as their bits, in the compute type.
template <class S, class D>
HWY_INLINE hn::Vec<D> widen(D d, hn::Vec<hn::Rebind<uint16_t, D>> bits) {
  // Without the processor's help, before AVX2, Highway makes the infinity of f16 a finite number.
  constexpr bool kOneByOne = HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2 && std::is_same_v<S, Float16>;
  if constexpr (std::is_same_v<S, BFloat16>) {
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<D>(), bits)));
  } else if constexpr (kOneByOne) {
    HWY_ALIGN uint16_t narrow[hn::MaxLanes(D())];
    HWY_ALIGN float wide[hn::MaxLanes(D())];
    hn::Store(bits, hn::Rebind<uint16_t, D>(), narrow);
    for (size_t i = 0; i < hn::Lanes(d); ++i) wide[i] = static_cast<float>(Float16::from_bits(narrow[i]));
    return hn::Load(d, wide);
  } else {
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
  }
}

/// The elements from `from` on, in their compute type. Single ones are converted by the C++ types, with the same bits.
template <class D>
HWY_INLINE hn::Vec<D> load_as(D d, const hn::TFromD<D>* from) {
  return hn::LoadU(d, from);
}
template <class D, class S>
requires kNarrowType<S> HWY_INLINE hn::Vec<D> load_as(D d, const S* from) {
  if constexpr (hn::MaxLanes(d) == 1)
    return hn::Set(d, static_cast<float>(*from));
  else
    return widen<S>(d, hn::LoadU(hn::Rebind<uint16_t, D>(), reinterpret_cast<const uint16_t*>(from)));
}

/// load_first in the compute type.
template <class D>
HWY_INLINE hn::Vec<D> load_first_as(D d, const hn::TFromD<D>* x, int64_t left, hn::TFromD<D> pad) {
  return load_first(d, x, left, pad);
}
template <class D, class S>
requires kNarrowType<S> HWY_INLINE hn::Vec<D> load_first_as(D d, const S* x, int64_t left, float pad) {
  const hn::Rebind<uint16_t, D> narrow;
  return widen<S>(d, load_first(narrow, reinterpret_cast<const uint16_t*>(x), left, S(pad).bits));
}

/// Stores elements of the compute type, rounded as by the C++ types.
template <class D>
HWY_INLINE void store_as(D d, hn::Vec<D> v, hn::TFromD<D>* to) {
  hn::StoreU(v, d, to);
}
template <class D, class S>
requires kNarrowType<S> HWY_INLINE void store_as(D d, hn::Vec<D> v, S* to) {
  if constexpr (hn::MaxLanes(d) == 1) {
    *to = S(hn::GetLane(v));
  } else if constexpr (std::is_same_v<S, BFloat16>) {
    const hn::RebindToUnsigned<D> wide;
    const hn::Rebind<uint16_t, D> narrow;
    const auto bits = hn::BitCast(wide, v), odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(wide, 1u));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(wide, 0x7fffu)));
    const auto quiet = hn::Or(bits, hn::Set(wide, 0x400000u));  // a NaN
    const auto chosen = hn::IfThenElse(hn::RebindMask(wide, hn::Eq(v, v)), rounded, quiet);
    hn::StoreU(hn::TruncateTo(narrow, hn::ShiftRight<16>(chosen)), narrow, reinterpret_cast<uint16_t*>(to));
  } else {
    const hn::Rebind<hwy::float16_t, D> narrow;
    hn::StoreU(hn::DemoteTo(narrow, v), narrow, reinterpret_cast<hwy::float16_t*>(to));
  }
}

/// store_first of elements of the compute type, rounded as by the C++ types.
template <class D>
HWY_INLINE void store_first_as(D d, hn::Vec<D> v, int64_t left, hn::TFromD<D>* to) {
  store_first(d, v, left, to);
}
template <class D, class S>
requires kNarrowType<S> HWY_INLINE void store_first_as(D d, hn::Vec<D> v, int64_t left, S* to) {
  alignas(64) S lanes[hn::MaxLanes(D())];
  store_as(d, v, lanes);
  std::copy(lanes, lanes + left, to);
}

/// Sums are taken in so many lanes, and in f64 over blocks of so many elements.
template <class C>
inline constexpr int64_t kSumLanes = 256 / sizeof(C);
template <class C>
inline constexpr int64_t kSumBlock = 16 * kSumLanes<C>;

/// Sums f(d, a[i], b[i]), of elements converted to the compute type C, and stores each term in `out` if kStore. The row
/// is padded to whole vectors with (pad, 0), for which f must give 0.
template <bool kStore, class C, class S, class F>
HWY_INLINE double sum_map(C* out, const S* a, const S* b, int64_t n, C pad, F f) {
  constexpr int64_t kLanes = kSumLanes<C>, kBlock = kSumBlock<C>;
  const hn::ScalableTag<C> d;
  constexpr int kN = hn::MaxLanes(d), kVectors = kLanes / kN;
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(n, begin + kBlock);
    hn::Vec<decltype(d)> acc[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) acc[v] = hn::Zero(d);
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        const auto term = f(d, load_as(d, a + i + v * kN), load_as(d, b + i + v * kN));
        if constexpr (kStore) hn::StoreU(term, d, out + i + v * kN);
        acc[v] = hn::Add(acc[v], term);
      }
    }
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v, i += kN) {
      if (i >= end) break;
      const int64_t left = end - i;
      const auto term = left >= kN ? f(d, load_as(d, a + i), load_as(d, b + i))
                                   : f(d, load_first_as(d, a + i, left, pad), load_first_as(d, b + i, left, C(0)));
      if constexpr (kStore) left >= kN ? hn::StoreU(term, d, out + i) : store_first(d, term, left, out + i);
      acc[v] = hn::Add(acc[v], term);
    }
#pragma GCC unroll 4
    for (int half = kVectors / 2; half > 0; half /= 2)
      for (int v = 0; v < half; ++v) acc[v] = hn::Add(acc[v], acc[v + half]);
    total += static_cast<double>(fold_lanes(d, acc[0], [](auto, auto u, auto v) HWY_ATTR { return hn::Add(u, v); }));
  }
  return total;
}

/// Rows of at most so many elements are computed side by side, one in each lane.
constexpr int64_t kShortRow = 16;

/// Sums n <= kMost vectors in the order in which sum_map adds the elements of a row. No element may be -0. kMost: a
/// power of two up to kSumLanes.
template <int64_t kMost, class D>
HWY_INLINE hn::Vec<D> sum_short(D, hn::Vec<D>* terms, int64_t n) {
  for (int64_t half = kMost / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half && i + half < n; ++i) terms[i] = hn::Add(terms[i], terms[i + half]);
  return terms[0];
}

/// Lane by lane, the sum of term(i) for the i of a block, begin <= i < end <= begin + kSumBlock, in the order in which
/// sum_map adds the elements of a row.
template <class D, class F>
HWY_INLINE hn::Vec<D> sum_column_block(D d, int64_t begin, int64_t end, F term) {
  constexpr int64_t kLanes = kSumLanes<hn::TFromD<D>>;
  const int64_t first = std::min(end, begin + kLanes);
  hn::Vec<D> acc[kLanes];
  for (int64_t i = begin; i < first; ++i) acc[i - begin] = hn::Add(hn::Zero(d), term(i));  // a term of -0 becomes 0
  for (int64_t at = first; at < end; at += kLanes)
    for (int64_t i = at; i < std::min(end, at + kLanes); ++i) acc[i - at] = hn::Add(acc[i - at], term(i));
  return sum_short<kLanes>(d, acc, first - begin);
}
/// finish(total) of each lane's total over i < n, which sum_map gives for a row in f64.
template <class D, class F, class Finish>
HWY_INLINE hn::Vec<D> sum_columns(D d, int64_t n, F term, Finish finish) {
  using C = hn::TFromD<D>;
  constexpr int64_t kN = hn::MaxLanes(D());
  double totals[kN] = {};
  HWY_ALIGN C lanes[kN];
  for (int64_t begin = 0; begin < n; begin += kSumBlock<C>) {
    hn::Store(sum_column_block(d, begin, std::min(n, begin + kSumBlock<C>), term), d, lanes);
    for (int64_t c = 0; c < kN; ++c) totals[c] += static_cast<double>(lanes[c]);
  }
  for (int64_t c = 0; c < kN; ++c) lanes[c] = static_cast<C>(finish(totals[c]));
  return hn::Load(d, lanes);
}

/// The positions of the first elements of contiguous rows of n, for each lane.
template <class D>
HWY_INLINE auto row_starts(D, int64_t n) {
  const hn::RebindToSigned<D> di;
  return hn::Mul(hn::Iota(di, 0), hn::Set(di, static_cast<hn::TFromD<decltype(di)>>(n)));
}

/// Calls f(d, i) for the whole vectors of a row, and for the single elements at its end: the same formula for both.
template <class C, class F>
HWY_INLINE void for_each_vector(int64_t n, F f) {
  const hn::ScalableTag<C> d;
  const hn::CappedTag<C, 1> one;
  constexpr int64_t kN = hn::MaxLanes(d);
  int64_t i = 0;
  for (; i + kN <= n; i += kN) f(d, i);
  for (; i < n; ++i) f(one, i);
}

/// Stores n elements of the compute type.
template <class S>
void store_row(S* to, const Accumulate<S>* from, int64_t n) {
  for_each_vector<Accumulate<S>>(n, [=](auto d, int64_t i) HWY_ATTR { store_as(d, hn::LoadU(d, from + i), to + i); });
}

}  // namespace lorry::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
