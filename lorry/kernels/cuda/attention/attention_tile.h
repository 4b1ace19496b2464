#pragma once

// Shared by the built-in attention kernels: a square tile of scores, and the matrix products around it. A block has
// kLanes x kLanes threads and computes kSide rows. Thread (x, y) has 4 x 4 scores: rows 4 y to 4 y + 3, columns 4 x to
// 4 x + 3. Operands go through shared memory in the compute type, 32 columns of depth at a time, so any width works. A
// thread reads 16 bytes at once, and no two threads of a quarter warp use the same bank. Each row of a result is
// computed by one block in a fixed order.

#include <algorithm>
#include <cmath>
#include <limits>

#include "lorry/kernels/attention.h"
#include "lorry/kernels/cuda/common/element.h"

namespace lorry::kernels::cuda {

template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// `rows` rows of `width` elements of unit stride.
template <class T>
struct Matrix {
  T* data;
  int64_t row, rows, width;
  bool runs;  ///< addresses and strides allow accesses of 4 elements (2 for f64)

  __device__ Matrix from(int64_t first) const { return {data + first * row, row, rows - first, width, runs}; }
};

/// A tensor [batch, heads, length, width], as kernels get it.
struct Heads {
  void* data = nullptr;
  int64_t batch = 0, head = 0, row = 0, rows = 0, width = 0;
  bool runs = false;

  Heads() = default;
  void addresses(auto& visit) const { visit(data); }
  explicit Heads(const Array& x)
      : data(x.data), batch(step(x, 0)), head(step(x, 1)), row(step(x, 2)), rows(x.size(2)), width(x.size(3)) {
    const int64_t run = x.dtype == kF64 ? 2 : 4;
    runs = reinterpret_cast<uintptr_t>(data) % (static_cast<size_t>(run) * size_of(x.dtype)) == 0 &&
           (batch | head | row) % run == 0;
  }
  template <class T>
  __device__ Matrix<T> at(int64_t b, int64_t h) const {
    return {static_cast<T*>(data) + b * batch + h * head, row, rows, width, runs};
  }

 private:
  static int64_t step(const Array& x, int dim) { return x.size(dim) == 1 ? 0 : x.stride(dim); }
};

/// A call, passed by value. Operands that are null or have width 0 are not read.
struct AttentionProblem {
  Heads q, k, v, out, grad_out;
  void* logsumexp;        ///< [b, h, t] of the compute type
  void* delta = nullptr;  ///< [b, h, t] of the compute type: the row sums of grad_out * out
  const void* mask;
  int64_t mask_strides[4] = {};
  bool mask_is_bool, causal, drops;
  int64_t batches, heads, shared, t, s;
  double scale, dropout_scale;  ///< dropout_scale: the factor of the weights that are not dropped
  uint64_t threshold;           ///< weights with words below it are not dropped (kernels/random.h)
  formula::RandomKey key;

  explicit AttentionProblem(const AttentionArgs& args)
      : q(args.q),
        k(args.k),
        v(args.v),
        out(args.out),
        logsumexp(args.logsumexp.data),
        mask(args.mask.data),
        mask_is_bool(args.mask.dtype == kBool),
        causal(args.causal),
        drops(args.dropout > 0),
        batches(args.q.size(0)),
        heads(args.q.size(1)),
        shared(args.k.size(1)),
        t(args.q.size(2)),
        s(args.k.size(2)),
        scale(args.scale),
        dropout_scale(args.dropout < 1 ? 1 / (1 - args.dropout) : 0),
        threshold(static_cast<uint64_t>(std::ceil((1 - args.dropout) * 4294967296.0))),
        key(args.key) {
    for (int i = 0; mask != nullptr && i < 4; ++i) mask_strides[i] = args.mask.stride(i);
  }

  __device__ bool sees(int64_t i, int64_t j) const { return i < t && j < s && (!causal || j <= i); }

  void addresses(auto& visit) const { visit(q, k, v, out, grad_out, logsumexp, delta, mask, key); }

  /// The score of query i and key j, from their product. Query i must attend to key j.
  template <class T>
  __device__ Compute<T> score(Compute<T> product, int64_t b, int64_t h, int64_t i, int64_t j) const {
    using C = Compute<T>;
    const C scaled = product * static_cast<C>(scale);
    if (mask == nullptr) return scaled;
    const int64_t at = b * mask_strides[0] + h * mask_strides[1] + i * mask_strides[2] + j * mask_strides[3];
    if (!mask_is_bool) return scaled + static_cast<C>(static_cast<const T*>(mask)[at]);
    return static_cast<const uint8_t*>(mask)[at] != 0 ? scaled : scaled - std::numeric_limits<C>::infinity();
  }

  /// The factors of dropout for query i and keys j to j + 3. A Philox block has four words, so at most two blocks are
  /// needed.
  template <class C>
  __device__ void factors(C (&factor)[4], int64_t b, int64_t h, int64_t i, int64_t j) const {
    const uint64_t first = static_cast<uint64_t>(((b * heads + h) * t + i) * s + j);
    const int skipped = static_cast<int>(first % 4);
    formula::Words4 words = formula::random_block(key, first / 4);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      if (skipped != 0 && skipped + n == 4) words = formula::random_block(key, first / 4 + 1);
      const int at = (skipped + n) % 4;
      const uint32_t word =
          at < 2 ? (at == 0 ? words.word[0] : words.word[1]) : (at == 2 ? words.word[2] : words.word[3]);
      factor[n] = word < threshold ? static_cast<C>(dropout_scale) : C(0);
    }
  }
};

template <class T>
struct AttentionTile {
  using C = Compute<T>;
  static constexpr int kSide = sizeof(C) == 8 ? 32 : 64, kLanes = kSide / 4, kThreads = kLanes * kLanes;
  static constexpr int kBlocks = sizeof(C) == 8 ? 4 : 2;  ///< minimum blocks per multiprocessor
  static constexpr int kVector = 16 / static_cast<int>(sizeof(C)), kDepth = 32;
  static constexpr int kPitch = kSide + kVector, kDepthPitch = kDepth + kVector;
  using Block = C[4][4];

  struct Shared {
    alignas(16) C operands[2 * kSide * kDepthPitch];
    alignas(16) C weights[kSide * kPitch];
  };

  static __device__ int x() { return static_cast<int>(threadIdx.x) % kLanes; }
  static __device__ int y() { return static_cast<int>(threadIdx.x) / kLanes; }

  static __device__ void clear(Block& block) {
#pragma unroll
    for (int r = 0; r < 4; ++r)
#pragma unroll
      for (int c = 0; c < 4; ++c) block[r][c] = 0;
  }

  /// A thread's runs of kSide rows of kColumns columns, on their way from memory to shared memory.
  template <int kColumns>
  struct Slice {
    static constexpr int kPerRow = kColumns / kVector, kRuns = kSide * kPerRow / kThreads;
    Run<T, kVector> runs[kRuns];

    /// Loads columns from `column` on; zeros beyond the matrix.
    __device__ void load(const Matrix<const T>& from, int64_t column) {
      const int64_t width = from.width - column;
#pragma unroll
      for (int i = 0; i < kRuns; ++i) {
        const int n = static_cast<int>(threadIdx.x) + i * kThreads, r = n / kPerRow, c = n % kPerRow * kVector;
#pragma unroll
        for (int u = 0; u < kVector; ++u) runs[i].at[u] = T(0);
        if (r >= from.rows) continue;
        const T* const data = from.data + r * from.row + column + c;
        if (from.runs && c + kVector <= width) {
          runs[i] = load_run<T, kVector>(data);
        } else {
#pragma unroll
          for (int u = 0; u < kVector; ++u)
            if (c + u < width) runs[i].at[u] = data[u];
        }
      }
    }
    /// Interleaved: row 4 x + c is stored at position kLanes c + x, so that the rows of neighbouring lanes are
    /// adjacent.
    template <int kRowPitch, bool kInterleaved>
    __device__ void store(C* to) const {
#pragma unroll
      for (int i = 0; i < kRuns; ++i) {
        const int n = static_cast<int>(threadIdx.x) + i * kThreads, r = n / kPerRow, c = n % kPerRow * kVector;
        const int place = kInterleaved ? r % 4 * kLanes + r / 4 : r;
        Run<C, kVector> run;
#pragma unroll
        for (int u = 0; u < kVector; ++u) run.at[u] = static_cast<C>(runs[i].at[u]);
        store_run(to + place * kRowPitch + c, run);
      }
    }
  };
  /// The operands of one step of `products`, and those of `accumulate`.
  struct Slices {
    Slice<kDepth> rows, columns;
    __device__ void load(const Matrix<const T>& a, const Matrix<const T>& b, int64_t depth) {
      rows.load(a, depth);
      columns.load(b, depth);
    }
  };
  using Values = Slice<kSide>;

  /// sum[r][c] = rows[4 y + r] . columns[4 x + c]. kAhead: `slices` holds the operands of the first step, and the next
  /// ones are loaded while a step computes, those of load_next() in the last.
  template <bool kAhead, class F>
  static __device__ void products(Block& sum, Shared& shared, const Matrix<const T>& rows,
                                  const Matrix<const T>& columns, Slices& slices, F&& load_next) {
    C *const a = shared.operands, *const b = a + kSide * kDepthPitch;
    clear(sum);
    if (kAhead && rows.width == 0) load_next();
    for (int64_t depth = 0; depth < rows.width; depth += kDepth) {
      __syncthreads();  // all threads have read the old contents
      if constexpr (!kAhead) slices.load(rows, columns, depth);
      slices.rows.template store<kDepthPitch, false>(a);
      slices.columns.template store<kDepthPitch, true>(b);
      __syncthreads();
      if (kAhead && depth + kDepth < rows.width)
        slices.load(rows, columns, depth + kDepth);
      else if (kAhead)
        load_next();
#pragma unroll 2
      for (int k = 0; k < kDepth; k += kVector) {
        Run<C, kVector> row[4], col[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) row[r] = load_run<C, kVector>(a + (y() * 4 + r) * kDepthPitch + k);
#pragma unroll
        for (int c = 0; c < 4; ++c) col[c] = load_run<C, kVector>(b + (x() + kLanes * c) * kDepthPitch + k);
#pragma unroll
        for (int u = 0; u < kVector; ++u)
#pragma unroll
          for (int r = 0; r < 4; ++r)
#pragma unroll
            for (int c = 0; c < 4; ++c) sum[r][c] = fma(row[r].at[u], col[c].at[u], sum[r][c]);
      }
    }
  }

  static __device__ void products(Block& sum, Shared& shared, const Matrix<const T>& rows,
                                  const Matrix<const T>& columns) {
    Slices slices;
    products<false>(sum, shared, rows, columns, slices, [] {});
  }

  /// Stores the tile in shared memory, where `accumulate` reads it.
  static __device__ void keep(Shared& shared, const Block& block) {
    __syncwarp();  // a thread's rows are read only by lanes of the same y, all in one warp
#pragma unroll
    for (int r = 0; r < 4; ++r)
#pragma unroll
      for (int c = 0; c < 4; c += kVector) {
        Run<C, kVector> run;
#pragma unroll
        for (int u = 0; u < kVector; ++u) run.at[u] = block[r][c + u];
        store_run(shared.weights + (y() * 4 + r) * kPitch + x() * 4 + c, run);
      }
  }

  /// sum[r][c] += row 4 y + r of the stored tile times column 4 x + c of `values`. While it computes, the loads of
  /// load_next() are in flight.
  template <class F>
  static __device__ void accumulate(Block& sum, Shared& shared, const Values& values, F&& load_next) {
    __syncthreads();
    values.template store<kPitch, false>(shared.operands);
    __syncthreads();
    load_next();
#pragma unroll 2
    for (int k = 0; k < kSide; k += kVector) {
      Run<C, kVector> row[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) row[r] = load_run<C, kVector>(shared.weights + (y() * 4 + r) * kPitch + k);
#pragma unroll
      for (int u = 0; u < kVector; ++u) {
#pragma unroll
        for (int c = 0; c < 4; c += kVector) {
          const auto value = load_run<C, kVector>(shared.operands + (k + u) * kPitch + x() * 4 + c);
#pragma unroll
          for (int r = 0; r < 4; ++r)
#pragma unroll
            for (int w = 0; w < kVector; ++w) sum[r][c + w] = fma(row[r].at[u], value.at[w], sum[r][c + w]);
        }
      }
    }
  }

  /// The columns of `values` from `column` on.
  static __device__ void accumulate(Block& sum, Shared& shared, const Matrix<const T>& values, int64_t column) {
    Values slice;
    slice.load(values, column);
    accumulate(sum, shared, slice, [] {});
  }

  /// Folds over the lanes of a row, in a fixed order.
  template <class F>
  static __device__ C over_row(C value, F combine) {
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2) value = combine(value, __shfl_xor_sync(0xffffffffu, value, step));
    return value;
  }

  /// Writes the tile to columns from `column` on, within the matrix.
  static __device__ void write(const Matrix<T>& to, const Block& block, int64_t column) {
    const int64_t width = to.width - column - x() * 4;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      if (y() * 4 + r >= to.rows) break;
      T* const data = to.data + (y() * 4 + r) * to.row + column + x() * 4;
#pragma unroll
      for (int c = 0; c < 4; c += kVector) {
        Run<T, kVector> run;
#pragma unroll
        for (int u = 0; u < kVector; ++u) run.at[u] = static_cast<T>(block[r][c + u]);
        if (to.runs && c + kVector <= width) {
          store_run(data + c, run);
        } else {
#pragma unroll
          for (int u = 0; u < kVector; ++u)
            if (c + u < width) data[c + u] = run.at[u];
        }
      }
    }
  }
};

}  // namespace lorry::kernels::cuda
