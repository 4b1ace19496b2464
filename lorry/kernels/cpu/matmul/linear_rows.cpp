// Products whose rows have the same bits in every batch (LinearRowsArgs).
//
// The order of the sums. An element is the total of kLanes partial sums: 16 of f32, or 8 of f64. Partial sum l begins
// with zero and adds the products p = l, l + kLanes, l + 2 kLanes, ... one after the other, each by a fused
// multiply-add. Then the partial sums are added in halves: l and l + kLanes / 2, and so on until one is left. A last
// step with fewer products is filled up with zeros. Processors without a fused multiply-add round the products.
//
// The partial sums of a tile of kRows x kColumns elements stay in registers: 4 x 6 with AVX-512 (24 of 32), 2 x 3 with
// AVX2 (12 of 16), which needs two for each element. A tile reads its rows of x and of weight with unit stride, so
// weights are read where they lie. Those of 16 bits are widened on their way if there is one row, and otherwise once
// for kBlockRows rows. Nothing in this depends on how an element is computed, which is the same in every tile.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lorry/kernels/cpu/matmul/linear_rows.cpp"
#include <hwy/foreach_target.h>
//
#include <algorithm>

#include <hwy/highway.h>

#include "lorry/base/integers.h"
#include "lorry/device/cpu/team.h"
#include "lorry/kernels/cpu/common/load_store.h"
#include "lorry/kernels/cpu/common/scratch.h"
#include "lorry/kernels/cpu/common/vector_rows-inl.h"
#include "lorry/kernels/cpu/matmul/linear_rows.h"

#ifndef LORRY_LINEAR_ROWS_CALL
#define LORRY_LINEAR_ROWS_CALL
namespace lorry::kernels::cpu {

/// A call with x in the type of sums and rows of unit stride.
template <class S>
struct LinearRows {
  using T = Accumulate<S>;
  int64_t m, n, k;
  const T* x;
  int64_t x_row;
  const S* weight;
  int64_t weight_row, weight_column;
  const S* bias;
  int64_t bias_step;
  S* out;
  int64_t out_row;
};

constexpr int64_t kBlockRows = 64;

}  // namespace lorry::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lorry::kernels::cpu::HWY_NAMESPACE {
namespace {

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
constexpr int64_t kLanes = 64 / static_cast<int64_t>(sizeof(T));
/// The registers that hold the partial sums of an element.
template <class T>
constexpr int kVectors = static_cast<int>(kLanes<T> / static_cast<int64_t>(hn::MaxLanes(Tag<T>())));
constexpr int kRows = kVectors<float> == 1 ? 4 : kVectors<float> == 2 ? 2 : 1;
constexpr int kColumns = kVectors<float> == 1 ? 6 : kVectors<float> == 2 ? 3 : 2;
/// The partial sums of a tile.
template <int kM, int kN, class T>
struct Tile {
  hn::Vec<Tag<T>> at[kM][kN][kVectors<T>];
};

template <int kM, int kN, class T>
HWY_INLINE void clear(Tile<kM, kN, T>& sums) {
#pragma GCC unroll 16
  for (int i = 0; i < kM; ++i)
#pragma GCC unroll 16
    for (int j = 0; j < kN; ++j)
#pragma GCC unroll 16
      for (int v = 0; v < kVectors<T>; ++v) sums.at[i][j][v] = hn::Zero(Tag<T>());
}

/// Adds kLanes products to each element, from p on.
template <int kM, int kN, class T, class W>
HWY_INLINE void add_step(Tile<kM, kN, T>& sums, const T* const (&x)[kM], const W* const (&weight)[kN], int64_t p) {
  const Tag<T> d;
#pragma GCC unroll 16
  for (int v = 0; v < kVectors<T>; ++v) {
    const int64_t at = p + v * static_cast<int64_t>(hn::Lanes(d));
    hn::Vec<Tag<T>> w[kN];
#pragma GCC unroll 16
    for (int j = 0; j < kN; ++j) w[j] = load_as(d, weight[j] + at);
#pragma GCC unroll 16
    for (int i = 0; i < kM; ++i) {
      const auto row = hn::LoadU(d, x[i] + at);
#pragma GCC unroll 16
      for (int j = 0; j < kN; ++j) sums.at[i][j][v] = hn::MulAdd(row, w[j], sums.at[i][j][v]);
    }
  }
}

/// Adds the last products, fewer than kLanes.
template <int kM, int kN, class T, class W>
HWY_INLINE void add_rest(Tile<kM, kN, T>& sums, const T* const (&x)[kM], const W* const (&weight)[kN], int64_t p,
                         int64_t k) {
  HWY_ALIGN T x_rest[kM][kLanes<T>] = {};
  HWY_ALIGN T weight_rest[kN][kLanes<T>] = {};
  const T *x_rows[kM], *weight_rows[kN];
  for (int i = 0; i < kM; ++i) {
    std::copy(x[i] + p, x[i] + k, x_rest[i]);
    x_rows[i] = x_rest[i];
  }
  for (int j = 0; j < kN; ++j) {
    for (int64_t at = p; at < k; ++at) weight_rest[j][at - p] = static_cast<T>(weight[j][at]);
    weight_rows[j] = weight_rest[j];
  }
  add_step<kM, kN, T, T>(sums, x_rows, weight_rows, 0);
}

/// Adds the registers of an element in halves, until one is left.
template <class T>
HWY_INLINE hn::Vec<Tag<T>> one_register(hn::Vec<Tag<T>> (&sums)[kVectors<T>]) {
#pragma GCC unroll 16
  for (int count = kVectors<T> / 2; count > 0; count /= 2)
#pragma GCC unroll 16
    for (int v = 0; v < count; ++v) sums[v] = hn::Add(sums[v], sums[v + count]);
  return sums[0];
}

#if HWY_TARGET != HWY_SCALAR
/// Adds the partial sums in halves, until four are left.
template <class D>
HWY_INLINE auto four_sums(D, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    return four_sums(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    return v;
  }
}
/// The totals of four elements, by the same additions as one at a time.
HWY_INLINE void four_totals(hn::Vec<Tag<float>> a, hn::Vec<Tag<float>> b, hn::Vec<Tag<float>> c, hn::Vec<Tag<float>> e,
                            float* to) {
  const Tag<float> d;
  const hn::CappedTag<float, 4> four;
  const auto a4 = four_sums(d, a), b4 = four_sums(d, b), c4 = four_sums(d, c), e4 = four_sums(d, e);
  const auto ab = hn::Add(hn::InterleaveLower(four, a4, b4), hn::InterleaveUpper(four, a4, b4));
  const auto ce = hn::Add(hn::InterleaveLower(four, c4, e4), hn::InterleaveUpper(four, c4, e4));
  hn::StoreU(hn::Add(hn::ConcatLowerLower(four, ce, ab), hn::ConcatUpperUpper(four, ce, ab)), four, to);
}
#endif

/// The totals of a row of a tile. to: room for a multiple of four.
template <int kN, class T>
HWY_INLINE void row_totals(hn::Vec<Tag<T>> (&sums)[kN][kVectors<T>], T* to) {
  hn::Vec<Tag<T>> one[kN];
#pragma GCC unroll 16
  for (int c = 0; c < kN; ++c) one[c] = one_register<T>(sums[c]);
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<T, float>) {
#pragma GCC unroll 16
    for (int c = 0; c < kN; c += 4)
      four_totals(one[c], one[std::min(c + 1, kN - 1)], one[std::min(c + 2, kN - 1)], one[std::min(c + 3, kN - 1)],
                  to + c);
    return;
  }
#endif
#pragma GCC unroll 16
  for (int c = 0; c < kN; ++c)
    to[c] = fold_lanes(Tag<T>(), one[c], [](auto, auto u, auto v) HWY_ATTR { return hn::Add(u, v); });
}

/// The elements of kM rows, or `rows` if these are fewer, from row i on, and of `columns` columns from j on.
/// weight: these columns.
template <int kM, class S, class W>
HWY_INLINE void compute_tile(const LinearRows<S>& call, int64_t i, int64_t rows, int64_t j, int64_t columns,
                             const W* const (&weight)[kColumns]) {
  using T = Accumulate<S>;
  const T* x[kM];
  for (int64_t r = 0; r < kM; ++r) x[r] = call.x + (i + std::min(r, rows - 1)) * call.x_row;
  Tile<kM, kColumns, T> sums;
  clear(sums);
  const int64_t whole = call.k / kLanes<T> * kLanes<T>;
  for (int64_t p = 0; p < whole; p += kLanes<T>) add_step(sums, x, weight, p);
  if (whole < call.k) add_rest(sums, x, weight, whole, call.k);
  T totals[kM][(kColumns + 3) / 4 * 4];
#pragma GCC unroll 16
  for (int r = 0; r < kM; ++r) row_totals<kColumns, T>(sums.at[r], totals[r]);
  for (int64_t r = 0; r < std::min<int64_t>(kM, rows); ++r)
    for (int64_t c = 0; c < columns; ++c) {
      T sum = totals[r][c];
      if (call.bias != nullptr) sum += static_cast<T>(call.bias[(j + c) * call.bias_step]);
      call.out[(i + r) * call.out_row + j + c] = static_cast<S>(sum);
    }
}

/// The elements of rows [first, last) and `columns` columns from j on.
template <class S, class W>
HWY_INLINE void compute_rows(const LinearRows<S>& call, int64_t first, int64_t last, int64_t j, int64_t columns,
                             const W* const (&weight)[kColumns]) {
  int64_t i = first;
  if constexpr (std::is_same_v<W, Accumulate<S>>) {
    for (; last - i > kRows / 2; i += kRows) compute_tile<kRows>(call, i, last - i, j, columns, weight);
    if constexpr (kRows > 2)
      for (; last - i > 1; i += 2) compute_tile<2>(call, i, last - i, j, columns, weight);
  }
  for (; i < last; ++i) compute_tile<1>(call, i, 1, j, columns, weight);
}

/// Widens k elements of unit stride.
template <class S, class T>
HWY_INLINE void widen_row(const S* from, int64_t k, T* to) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t p = 0;
  for (; p + lanes <= k; p += lanes) hn::StoreU(load_as(d, from + p), d, to + p);
  for (; p < k; ++p) to[p] = static_cast<T>(from[p]);
}

/// Copies a row of weight to memory of unit stride, in the type of sums.
template <class S, class T>
void take_row(const LinearRows<S>& call, const S* from, T* to) {
  if constexpr (kWidens && !std::is_same_v<S, T>) {
    if (call.weight_column == 1) return widen_row(from, call.k, to);
  }
  load(to, from, dtype_of<S>, call.weight_column, call.k);
}

/// The elements of rows [first_row, last_row) and columns [first_column, last_column).
template <class S>
void compute_block(const LinearRows<S>& call, int64_t first_row, int64_t last_row, int64_t first_column,
                   int64_t last_column) {
  using T = Accumulate<S>;
  const bool in_place = call.weight_column == 1 && (std::is_same_v<S, T> || (kWidens && last_row - first_row == 1));
  for (int64_t j = first_column; j < last_column; j += kColumns) {
    const int64_t columns = std::min<int64_t>(kColumns, last_column - j);
    const auto row = [&](int64_t c) { return call.weight + (j + std::min(c, columns - 1)) * call.weight_row; };
    if (in_place) {
      if constexpr (std::is_same_v<S, T> || kWidens) {
        const S* weight[kColumns];
        for (int64_t c = 0; c < kColumns; ++c) weight[c] = row(c);
        compute_rows(call, first_row, last_row, j, columns, weight);
      }
    } else {
      T* const wide = scratch<T>(Scratch::packed_b, kColumns * call.k);
      const T* weight[kColumns];
      for (int64_t c = 0; c < kColumns; ++c) {
        if (c < columns) take_row(call, row(c), wide + c * call.k);
        weight[c] = wide + std::min(c, columns - 1) * call.k;
      }
      compute_rows(call, first_row, last_row, j, columns, weight);
    }
  }
}

#define LORRY_FLOATING_DTYPE(name, Name, text, type, dlpack, safetensors)                                    \
  void block_##name(const LinearRows<type>& call, int64_t first_row, int64_t last_row, int64_t first_column, \
                    int64_t last_column) {                                                                   \
    compute_block(call, first_row, last_row, first_column, last_column);                                     \
  }
#include "lorry/layout/dtypes.def"

}  // namespace
}  // namespace lorry::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lorry::kernels::cpu {
namespace {

#define LORRY_FLOATING_DTYPE(name, Name, text, type, dlpack, safetensors)                             \
  HWY_EXPORT(block_##name);                                                                           \
  void block(const LinearRows<type>& call, int64_t first_row, int64_t last_row, int64_t first_column, \
             int64_t last_column) {                                                                   \
    HWY_DYNAMIC_DISPATCH(block_##name)(call, first_row, last_row, first_column, last_column);         \
  }
#include "lorry/layout/dtypes.def"

/// A task is a block of kBlockRows x kBlockColumns elements. 48 is a multiple of every kColumns.
constexpr int64_t kBlockColumns = 48;
/// For fewer multiply-adds, waking a thread costs more than it saves.
constexpr int64_t kGrain = int64_t{1} << 18;

/// x in the type of sums, with rows of unit stride: itself, or a copy.
template <class S>
void take_rows(LinearRows<S>& call, const Array& x) {
  using T = Accumulate<S>;
  if constexpr (std::is_same_v<S, T>) {
    if (x.stride(1) == 1 || x.size(1) == 1) {
      call.x = x.as<T>();
      call.x_row = x.stride(0);
      return;
    }
  }
  T* const copy = scratch<T>(Scratch::packed_a, call.m * call.k);
  lorry::cpu::parallel_for(call.m, ceil_div(kGrain / 8, std::max<int64_t>(1, call.k)),
                           [&](int64_t first, int64_t last) {
                             for (int64_t i = first; i < last; ++i)
                               load(copy + i * call.k, x.as<S>() + i * x.stride(0), x.dtype, x.stride(1), call.k);
                           });
  call.x = copy;
  call.x_row = call.k;
}

template <class S>
void run(const LinearRowsArgs& args) {
  LinearRows<S> call{.m = args.out.size(0),
                     .n = args.out.size(1),
                     .k = args.x.size(1),
                     .x = nullptr,
                     .x_row = 0,
                     .weight = args.weight.as<S>(),
                     .weight_row = args.weight.stride(0),
                     .weight_column = args.weight.size(1) == 1 ? 1 : args.weight.stride(1),
                     .bias = args.bias.as<S>(),
                     .bias_step = args.bias.data == nullptr ? 0 : args.bias.stride(0),
                     .out = args.out.as<S>(),
                     .out_row = args.out.stride(0)};
  take_rows(call, args.x);
  // Blocks of the same columns are neighbours, so that their weights are still in the cache.
  const int64_t down = ceil_div(call.m, kBlockRows), across = ceil_div(call.n, kBlockColumns);
  const int64_t work = std::min(kBlockRows, call.m) * kBlockColumns * std::max<int64_t>(1, call.k);
  lorry::cpu::parallel_for(down * across, ceil_div(kGrain, work), [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      const int64_t i = t % down * kBlockRows, j = t / down * kBlockColumns;
      block(call, i, std::min(i + kBlockRows, call.m), j, std::min(j + kBlockColumns, call.n));
    }
  });
}

}  // namespace

void linear_rows(const LinearRowsArgs& args, Stream) {
  if (args.out.numel() == 0) return;
  visit_floating(args.out.dtype, [&]<class S>(Type<S>) { run<S>(args); });
}

}  // namespace lorry::kernels::cpu
#endif
