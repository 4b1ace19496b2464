// The packed matrix product (Goto and van de Geijn 2008). Blocks of A and B are copied once into panels that the inner
// kernel reads with unit stride, so all strides and source types cost the same; 16-bit sources are widened while
// packing. Operands that stay in the cache as they are, as those of small products do, are read where they lie.
//
// The inner kernel keeps up to kRows x 2 vectors of C in registers: 12 x 32 floats with AVX-512 (24 of 32 registers),
// 6 x 16 with AVX2 (12 of 16). An element of C sums k in order, in blocks of kDepth, so its bits do not depend on the
// division into tiles. Whole numbers are multiplied as unsigned ones, which wrap.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lorry/kernels/cpu/matmul/gemm_packed.cpp"
#include <hwy/foreach_target.h>
//
#include <algorithm>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "lorry/kernels/cpu/common/scratch.h"
#include "lorry/kernels/cpu/common/vector_rows-inl.h"
#include "lorry/kernels/cpu/matmul/gemm.h"

HWY_BEFORE_NAMESPACE();
namespace lorry::kernels::cpu::HWY_NAMESPACE {
namespace {

/// Tiles have one, two or three steps of rows.
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
constexpr int kRowStep = 2;
#else
constexpr int kRowStep = 4;
#endif
constexpr int kRows = 3 * kRowStep;
/// A panel of A and one of B of this depth fit into the first-level cache.
template <class T>
constexpr int64_t kDepth = 1024 / sizeof(T);
/// Up to so many bytes an operand is read in place: it stays in the first-level cache beside the other, or, for rows of
/// A, which are read along their elements, in the second-level cache.
constexpr int64_t kInPlace = int64_t{1} << 14, kRowsInPlace = int64_t{1} << 17;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
constexpr int64_t kColumns = 2 * static_cast<int64_t>(hn::MaxLanes(Tag<T>()));

/// The type in which products of S are summed.
template <class S>
using Sum =
    std::conditional_t<!std::is_integral_v<S>, Accumulate<S>, std::conditional_t<sizeof(S) == 8, uint64_t, uint32_t>>;

// ---- packing --------------------------------------------------------------------------------------------------------

/// Whether elements are only copied: signed ones become unsigned.
template <class S, class T>
constexpr bool kCopies = sizeof(S) == sizeof(T);

template <class T, class S>
HWY_INLINE hn::Vec<Tag<T>> load_wide(const S* from) {
  const Tag<T> d;
  if constexpr (kCopies<S, T>) {
    return hn::LoadU(d, reinterpret_cast<const T*>(from));
  } else if constexpr (kNarrowType<S>) {
    return load_as(d, from);
  } else {
    HWY_ALIGN T lanes[hn::MaxLanes(Tag<T>())];
    for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = static_cast<T>(from[i]);
    return hn::Load(d, lanes);
  }
}

/// Copies `count` contiguous elements.
template <class S, class T>
HWY_INLINE void copy_row(const S* from, int64_t count, T* to) {
  const Tag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(load_wide<T>(from + i), d, to + i);
  if constexpr (kCopies<S, T>) {
    if (i < count)
      store_first(d, load_first(d, reinterpret_cast<const T*>(from) + i, count - i, T(0)), count - i, to + i);
  } else {
    for (; i < count; ++i) to[i] = static_cast<T>(from[i]);
  }
}

/// Copies kLines contiguous rows, `line` apart, to columns of rows `width` apart. kLines: a vector of 16 bytes.
template <int64_t width, class T, int kLines = 16 / sizeof(T)>
HWY_INLINE void transpose_lines(const T* from, int64_t line, int64_t depth, T* to) {
  int64_t p = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<T, kLines> d;
  const hn::FixedTag<double, 2> pairs;
  const auto row = [&](int64_t i) HWY_ATTR { return hn::LoadU(d, from + i * line + p); };
  const auto put = [&](int64_t i, auto v) HWY_ATTR { hn::StoreU(hn::BitCast(d, v), d, to + (p + i) * width); };
  for (; p + kLines <= depth; p += kLines) {
    const auto a = row(0), b = row(1);
    if constexpr (kLines == 2) {
      put(0, hn::InterleaveLower(d, a, b));
      put(1, hn::InterleaveUpper(d, a, b));
    } else {
      const auto c = row(2), e = row(3);
      const auto ab = hn::BitCast(pairs, hn::InterleaveLower(d, a, b)),
                 ab2 = hn::BitCast(pairs, hn::InterleaveUpper(d, a, b)),
                 ce = hn::BitCast(pairs, hn::InterleaveLower(d, c, e)),
                 ce2 = hn::BitCast(pairs, hn::InterleaveUpper(d, c, e));
      put(0, hn::InterleaveLower(pairs, ab, ce));
      put(1, hn::InterleaveUpper(pairs, ab, ce));
      put(2, hn::InterleaveLower(pairs, ab2, ce2));
      put(3, hn::InterleaveUpper(pairs, ab2, ce2));
    }
  }
#endif
  for (; p < depth; ++p)
    for (int64_t i = 0; i < kLines; ++i) to[p * width + i] = from[i * line + p];
}

/// The same for two rows of floats.
template <int64_t width>
HWY_INLINE void transpose_pair(const float* from, int64_t line, int64_t depth, float* to) {
  int64_t p = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d;
  const hn::FixedTag<float, 2> pair;
  for (; p + 4 <= depth; p += 4) {
    const auto a = hn::LoadU(d, from + p), b = hn::LoadU(d, from + line + p);
    const auto put = [&](int64_t i, auto ab) HWY_ATTR {
      hn::StoreU(hn::LowerHalf(pair, ab), pair, to + (p + i) * width);
      hn::StoreU(hn::UpperHalf(pair, ab), pair, to + (p + i + 1) * width);
    };
    put(0, hn::InterleaveLower(d, a, b));
    put(2, hn::InterleaveUpper(d, a, b));
  }
#endif
  for (; p < depth; ++p)
    for (int64_t i = 0; i < 2; ++i) to[p * width + i] = from[i * line + p];
}

/// The same for `lines` contiguous rows of any type. depth: at most kDepth<T>.
template <int64_t width, class S, class T>
void pack_lines(const S* from, int64_t lines, int64_t line, int64_t depth, T* to) {
  constexpr int64_t kLines = 16 / sizeof(T);
  int64_t i = 0;
  for (; i + kLines <= lines; i += kLines, from += kLines * line) {
    if constexpr (kCopies<S, T>) {
      transpose_lines<width>(reinterpret_cast<const T*>(from), line, depth, to + i);
    } else {
      HWY_ALIGN T wide[kLines * kDepth<T>];
      for (int64_t l = 0; l < kLines; ++l) copy_row(from + l * line, depth, wide + l * depth);
      transpose_lines<width>(wide, depth, depth, to + i);
    }
  }
  if constexpr (std::is_same_v<S, float>)
    for (; i + 2 <= lines; i += 2, from += 2 * line) transpose_pair<width>(from, line, depth, to + i);
  for (; i < lines; ++i, from += line)
    for (int64_t p = 0; p < depth; ++p) to[p * width + i] = static_cast<T>(from[p]);
}

/// Packs `count` lines of `depth` elements into panels of `width` lines, depth outermost; missing lines are zero. One
/// of the distances `line` and `step` is 1.
template <int64_t width, class S, class T>
void pack(const S* from, int64_t count, int64_t line, int64_t depth, int64_t step, T* to) {
  const int64_t whole = count / width * width;
  if (whole < count) std::fill_n(to + whole * depth, width * depth, T(0));
  if (step == 1) {
    for (int64_t first = 0; first < count; first += width)
      pack_lines<width>(from + first * line, std::min(width, count - first), line, depth, to + first * depth);
    return;
  }
  // A few elements of each line at a time, in all panels, so that whole rows are read.
  constexpr int64_t kBlock = 8;
  for (int64_t begin = 0; begin < depth; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, depth);
    for (int64_t first = 0; first < whole; first += width)
      for (int64_t p = begin; p < end; ++p) {
        __builtin_prefetch(from + (p + kBlock) * step + first);
        copy_row(from + p * step + first, width, to + first * depth + p * width);
      }
    if (whole < count)
      for (int64_t p = begin; p < end; ++p)
        copy_row(from + p * step + whole, count - whole, to + whole * depth + p * width);
  }
}

// ---- multiplying ----------------------------------------------------------------------------------------------------

template <class T, class V>
HWY_INLINE V multiply_add(V a, V b, V c) {
  if constexpr (std::is_integral_v<T>) {
    return hn::Add(hn::Mul(a, b), c);
  } else {
    return hn::MulAdd(a, b, c);
  }
}

/// What a tile multiplies. Row p of B is at b + p * b_row. Element (i, p) of A is a[p * kRows + i] in a panel, and
/// a[i * a_row + p * a_col] in place.
template <class T, class O>
struct TileOperands {
  int64_t depth;
  const T* a;
  int64_t a_row, a_col;
  const T* b;
  int64_t b_row;
  O* c;
  int64_t c_row;
  T alpha, beta;
};

/// c[0, count) = v + beta * c[0, count), where v holds at least the first of them.
template <class T, class O>
HWY_INLINE void add_to(O* c, int64_t count, hn::Vec<Tag<T>> v, T beta) {
  const Tag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if constexpr (kCopies<O, T>) {
    T* const to = reinterpret_cast<T*>(c);
    if (count >= lanes) {
      if (beta != T(0)) v = multiply_add<T>(hn::LoadU(d, to), hn::Set(d, beta), v);
      hn::StoreU(v, d, to);
    } else {
      if (beta != T(0)) v = multiply_add<T>(load_first(d, to, count, T(0)), hn::Set(d, beta), v);
      store_first(d, v, count, to);
    }
  } else {
    HWY_ALIGN T sums[hn::MaxLanes(Tag<T>())];
    hn::Store(v, d, sums);
    for (int64_t j = 0; j < std::min(count, lanes); ++j)
      c[j] = static_cast<O>(beta == T(0) ? sums[j] : sums[j] + beta * static_cast<T>(c[j]));
  }
}

/// One register tile: C[rows, columns] = alpha * A B + beta * C, with rows <= kM and columns in kV vectors.
template <int kM, int kV, bool kPanel, class T, class O>
void register_tile(const TileOperands<T, O>& x, int64_t rows, int64_t columns) {
  const Tag<T> d;
  using V = hn::Vec<Tag<T>>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const T *line[kM], *a = x.a, *b = x.b;
  for (int64_t i = 0; i < kM; ++i) {
    line[i] = a + std::min(i, rows - 1) * x.a_row;
    for (int v = 0; v < kV; ++v) hwy::Prefetch(x.c + std::min(i, rows - 1) * x.c_row + v * lanes);
  }
  V sums[kM][kV];
#pragma GCC unroll 16
  for (int i = 0; i < kM; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kV; ++v) sums[i][v] = hn::Zero(d);
  const int64_t a_step = kPanel ? kRows : x.a_col;
  for (int64_t p = 0, at = 0; p < x.depth; ++p, at += a_step, b += x.b_row) {
    V right[kV];
#pragma GCC unroll 2
    for (int v = 0; v < kV; ++v) right[v] = hn::LoadU(d, b + v * lanes);
#pragma GCC unroll 16
    for (int i = 0; i < kM; ++i) {
      const V left = hn::Set(d, kPanel ? a[at + i] : line[i][at]);
#pragma GCC unroll 2
      for (int v = 0; v < kV; ++v) sums[i][v] = multiply_add<T>(left, right[v], sums[i][v]);
    }
  }
  const V scale = hn::Set(d, x.alpha);
  O* c = x.c;
#pragma GCC unroll 16
  for (int i = 0; i < kM; ++i, c += x.c_row) {
    if (i >= rows) break;
#pragma GCC unroll 2
    for (int v = 0; v < kV; ++v) add_to<T>(c + v * lanes, columns - v * lanes, hn::Mul(sums[i][v], scale), x.beta);
  }
}

/// The tiles of `m` rows below one another. In place they are about equally high, for a low one takes as long as it has
/// steps of k, each as long as a multiply-add.
template <int kV, bool kPanel, class T, class O>
void tiles(TileOperands<T, O> x, int64_t m, int64_t columns) {
  const int64_t parts = (m + kRows - 1) / kRows;
  const int64_t high = kPanel ? kRows : ((m + parts - 1) / parts + kRowStep - 1) / kRowStep * kRowStep;
  for (; m > 0; m -= high, x.a += high * (kPanel ? x.depth : x.a_row), x.c += high * x.c_row) {
    const int64_t rows = std::min(m, high);
    if (rows > 2 * kRowStep)
      register_tile<kRows, kV, kPanel>(x, rows, columns);
    else if (rows > kRowStep)
      register_tile<2 * kRowStep, kV, kPanel>(x, rows, columns);
    else
      register_tile<kRowStep, kV, kPanel>(x, rows, columns);
  }
}
template <bool kPanel, class T, class O>
void tiles(const TileOperands<T, O>& x, int64_t m, int64_t columns) {
  columns * 2 > kColumns<T> ? tiles<2, kPanel>(x, m, columns) : tiles<1, kPanel>(x, m, columns);
}

/// C = beta * C.
template <class T, class S, class O>
void scale_only(const Gemm<S, O>& g, T beta) {
  for (int64_t i = 0; i < g.m; ++i)
    for (O *c = g.c + i * g.c_row, *const end = c + g.n; c < end; ++c)
      *c = beta == T(0) ? O(0) : static_cast<O>(beta * static_cast<T>(*c));
}

template <class S, class O>
void packed_gemm(const Gemm<S, O>& g) {
  using T = Sum<S>;
  constexpr int64_t kWidth = kColumns<T>;
  const T alpha = static_cast<T>(g.alpha), first_beta = static_cast<T>(g.beta);
  if (g.k == 0) return scale_only(g, first_beta);
  const int64_t depth = std::min(kDepth<T>, g.k), line = depth * static_cast<int64_t>(sizeof(T));
  const bool a_in_place = kCopies<S, T> && g.m * line <= (g.a_col == 1 ? kRowsInPlace : kInPlace);
  const bool b_in_place = kCopies<S, T> && g.b_col == 1 && (g.m <= kRows || g.n * line <= kInPlace);
  T* const a = a_in_place ? nullptr : scratch<T>(Scratch::packed_a, (g.m + kRows - 1) / kRows * kRows * depth);
  T* const b =
      scratch<T>(Scratch::packed_b, b_in_place ? kWidth * depth : (g.n + kWidth - 1) / kWidth * kWidth * depth);
  for (int64_t p = 0; p < g.k; p += kDepth<T>) {
    const int64_t d = std::min(kDepth<T>, g.k - p);
    const S *const a_block = g.a + p * g.a_col, *const b_block = g.b + p * g.b_row;
    if (!a_in_place) pack<kRows>(a_block, g.m, g.a_row, d, g.a_col, a);
    if (!b_in_place) pack<kWidth>(b_block, g.n, g.b_col, d, g.b_row, b);
    for (int64_t j = 0; j < g.n; j += kWidth) {
      const int64_t columns = std::min(kWidth, g.n - j);
      TileOperands<T, O> x{d, a, 0, 0, b, kWidth, g.c + j, g.c_row, alpha, p == 0 ? first_beta : T(1)};
      if (!b_in_place) {
        x.b = b + j * d;
      } else if (columns % (kWidth / 2) == 0) {
        x.b = reinterpret_cast<const T*>(b_block + j), x.b_row = g.b_row;
      } else {
        pack<kWidth>(b_block + j, columns, int64_t{1}, d, g.b_row, b);
      }
      if constexpr (kCopies<S, T>) {
        if (a_in_place) {
          x.a = reinterpret_cast<const T*>(a_block), x.a_row = g.a_row, x.a_col = g.a_col;
          tiles<false>(x, g.m, columns);
          continue;
        }
      }
      tiles<true>(x, g.m, columns);
    }
  }
}

#define LORRY_DTYPE(name, Name, text, type, dlpack, safetensors) \
  void gemm_##name(const Gemm<type, Accumulate<type>>& g) { packed_gemm(g); }
#include "lorry/layout/dtypes.def"

}  // namespace
}  // namespace lorry::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lorry::kernels::cpu {

namespace packed {
#define LORRY_DTYPE(name, Name, text, type, dlpack, safetensors) \
  HWY_EXPORT(gemm_##name);                                       \
  void gemm(const Gemm<type, Accumulate<type>>& g) { HWY_DYNAMIC_DISPATCH(gemm_##name)(g); }
#include "lorry/layout/dtypes.def"
}  // namespace packed

}  // namespace lorry::kernels::cpu
#endif
