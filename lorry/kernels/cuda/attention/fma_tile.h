#pragma once

// A square tile of scores, and the matrix products around it, without tensor cores: for f64, for f32 over few keys, and
// for devices before compute capability 8.0. A block has kLanes x kLanes threads and computes kSide rows. Thread (x, y)
// has 4 x 4 scores: rows 4 y to 4 y + 3, columns 4 x to 4 x + 3. Operands go through shared memory in the compute type,
// 32 columns of depth at a time, so any width works. A thread reads 16 bytes at once, and no two threads of a quarter
// warp use the same bank. Each row of a result is computed by one block in a fixed order.

#include "lorry/device/cuda/capability.h"
#include "lorry/kernels/cuda/attention/attention_problem.h"

namespace lorry::kernels::cuda {

/// Whether the kernels are needed for T: tensor cores compute the rest.
template <class T>
inline constexpr bool kNeedsFma = sizeof(T) == 8 || lorry::cuda::kCompiledFor < 80;

/// For a dtype whose kernels are left out because tensor cores compute it.
[[noreturn]] inline void refuse_left_out(DType dtype) {
  raise<DTypeError>(
      "attention of {} without tensor cores is not compiled for devices of compute capability 8.0 or later",
      name(dtype));
}

/// Whether query i attends to key j, but for the mask.
__device__ __forceinline__ bool sees(const AttentionProblem& p, int64_t i, int64_t j) {
  return i < p.t && j < p.s && (!p.causal || j <= i);
}

/// The score of query i and key j, from their product. Query i must attend to key j.
template <class T>
__device__ __forceinline__ Compute<T> score_of(const AttentionProblem& p, Compute<T> product, int64_t b, int64_t h,
                                               int64_t i, int64_t j) {
  using C = Compute<T>;
  const C scaled = product * static_cast<C>(p.scale);
  if (p.mask == nullptr) return scaled;
  const int64_t at = b * p.mask_strides[0] + h * p.mask_strides[1] + i * p.mask_strides[2] + j * p.mask_strides[3];
  if (!p.mask_is_bool) return scaled + static_cast<C>(static_cast<const T*>(p.mask)[at]);
  return static_cast<const uint8_t*>(p.mask)[at] != 0 ? scaled : scaled - std::numeric_limits<C>::infinity();
}

/// The factors of dropout for query i and keys j to j + 3. A Philox block has four words, so at most two blocks are
/// needed.
template <class C>
__device__ __forceinline__ void dropout_factors(const AttentionProblem& p, C (&factor)[4], int64_t b, int64_t h,
                                                int64_t i, int64_t j) {
  const uint64_t first = static_cast<uint64_t>(((b * p.heads + h) * p.t + i) * p.s + j);
  const int skipped = static_cast<int>(first % 4);
  formula::Words4 words = formula::random_block(p.key, first / 4);
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    if (skipped != 0 && skipped + n == 4) words = formula::random_block(p.key, first / 4 + 1);
    const int at = (skipped + n) % 4;
    const uint32_t word =
        at < 2 ? (at == 0 ? words.word[0] : words.word[1]) : (at == 2 ? words.word[2] : words.word[3]);
    factor[n] = p.keeps(word) ? static_cast<C>(p.dropout_scale) : C(0);
  }
}

template <class T>
struct FmaTile {
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
