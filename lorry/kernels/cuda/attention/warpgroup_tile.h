#pragma once

// A 64 x 64 tile of attention's scores, and the products around it, for a warpgroup on the tensor cores of compute
// capability 9.0 (common/warpgroup_mma.h; Shah et al. 2024). The sums of one product are the left operand of the next,
// so weights stay in registers, rounded to 16 bits. Operands are at most 128 wide, and lie in shared memory in
// `panels`: all columns of 64 rows, with zeros beyond the operand.

#include "lorry/kernels/cuda/attention/attention_problem.h"
#include "lorry/kernels/cuda/common/allow_shared.h"
#include "lorry/kernels/cuda/common/copy_ahead.h"
#include "lorry/kernels/cuda/common/warpgroup_mma.h"

namespace lorry::kernels::cuda {

/// 64 rows of kParts * 64 columns in shared memory.
template <class T, int kParts>
struct alignas(1024) Panel {
  T parts[kParts][64 * 64];
};

/// kParts: parts of 64 columns of an operand.
template <class T, int kParts>
struct WarpgroupTile {
  static constexpr int kSide = kTileSide, kThreads = 128;
  static constexpr int kRows = 2, kColumns = 16, kSumColumns = 16;  ///< of a thread
  static constexpr int64_t kMostWidth = 128;
  using Block = WarpgroupSums;
  using Sums = WarpgroupSums;

  /// The row and column of a thread's elements. Lane 4 g + t has rows g and g + 8, and of every 8 columns 2 t and
  /// 2 t + 1.
  static __device__ int row(int r) { return thread() / 32 * 16 + thread() % 32 / 4 + r * 8; }
  static __device__ int column(int c) { return c / 2 * 8 + thread() % 4 * 2 + c % 2; }
  static __device__ int sum_column(int c) { return column(c); }
  static __device__ int thread() { return static_cast<int>(threadIdx.x) % kThreads; }
  /// The same in all threads of a warp as far as the compiler can see: products may depend on it.
  static __device__ int warpgroup() { return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kThreads, 0); }

  /// Waits for the copies of all threads of the block; products of this warpgroup may read them.
  static __device__ void wait_for_panels() {
    wait_for_copies();
    fence_operands();
    __syncthreads();
  }

  /// Starts sum = rows columns^T.
  static __device__ void start_products(Block& sum, const Panel<T, kParts>& rows, const Panel<T, kParts>& columns) {
    const WarpgroupOperand left(rows.parts), right(columns.parts);
    start_product<T, false>(sum, left, right);
#pragma unroll
    for (int k = 16; k < kParts * 64; k += 16) {
      const int at = k / 64 * static_cast<int>(sizeof(rows.parts[0])) + k % 64 * static_cast<int>(sizeof(T));
      start_product<T, true>(sum, left.after(at), right.after(at));
    }
    commit_products();
  }

  /// A thread's weights as left operands: [n] has columns 16 n to 16 n + 15.
  using Fragments = uint32_t[4][4];
  static __device__ void narrow(Fragments& to, const Block& weights) {
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int c = 4 * n + i / 2 * 2;
        to[n][i] = narrow_pair<T>(weights[i % 2][c], weights[i % 2][c + 1]);
      }
  }
  /// Starts sums += weights values.
  static __device__ void start_accumulate(Sums (&sums)[kParts], const Fragments& weights,
                                          const Panel<T, kParts>& values) {
    const WarpgroupOperand right(values.parts);
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int part = 0; part < kParts; ++part)
        start_product<T>(sums[part], weights[n],
                         right.after(part * static_cast<int>(sizeof(values.parts[0])) + n * 16 * 128));
    commit_products();
  }
};

/// Copies a matrix of an operand, a panel after the other, by the threads of one warpgroup.
template <class T, int kParts>
class PanelCopier {
 public:
  __device__ explicit PanelCopier(const Heads& from) : row_(from.row), rows_(from.rows), width_(from.width) {
    const int thread = WarpgroupTile<T, kParts>::thread(), chunk = thread % kChunks;
    row_of_thread_ = thread / kChunks, column_ = chunk * 8;
    place_ = chunk / 8 * 64 * 64 + swizzled(row_of_thread_, chunk % 8);
    runs_ = from.runs, whole_ = from.runs && column_ < width_;
  }

  /// The next panel begins with this row.
  __device__ __forceinline__ void begin(const T* matrix, int64_t row) {
    source_ = matrix + (row + row_of_thread_) * row_ + column_;
    left_ = rows_ - row;
  }
  /// Starts the copy of 64 rows.
  __device__ __forceinline__ void copy(Panel<T, kParts>& to) {
    const T* source = source_;
    T* const place = to.parts[0] + place_;
    if (whole_ && left_ >= 64) {
#pragma unroll
      for (int i = 0; i < 64 / kStep; ++i, source += kStep * row_) start_copy(place + i * kStep * 64, source);
    } else {
      copy_edge(place, source);
    }
    source_ += 64 * row_, left_ -= 64;
  }

 private:
  static constexpr int kChunks = kParts * 8;  ///< of 16 bytes, of a row
  /// Rows from one of a thread's chunks to the next: a multiple of 8, so that all have the same position in their rows.
  static constexpr int kStep = 128 / kChunks;

  /// With zeros beyond the matrix, and from any address.
  __device__ __forceinline__ void copy_edge(T* place, const T* source) const {
#pragma unroll 1
    for (int i = 0; i < 64 / kStep; ++i, source += kStep * row_, place += kStep * 64) {
      const bool has_row = row_of_thread_ + i * kStep < left_;
      if (runs_) {
        const bool valid = has_row && column_ < width_;
        start_copy(place, source, valid ? 16 : 0);  // an invalid one reads nothing
      } else {
        Run<T, 8> run;
#pragma unroll
        for (int u = 0; u < 8; ++u) run.at[u] = has_row && column_ + u < width_ ? source[u] : T(0);
        store_run(place, run);
      }
    }
  }

  const T* source_ = nullptr;
  int64_t left_ = 0;  ///< rows
  int64_t row_, rows_, width_;
  int row_of_thread_, column_, place_;
  bool runs_, whole_;
};

/// Whether warpgroups can compute the call: 16-bit operands of at most 128 columns, on compute capability 9.0.
inline bool suits_warpgroups(const AttentionArgs& args, Stream stream) {
  constexpr int64_t kMostWidth = WarpgroupTile<BFloat16, 2>::kMostWidth;
  return (args.q.dtype == kF16 || args.q.dtype == kBF16) && args.q.size(3) <= kMostWidth &&
         args.v.size(3) <= kMostWidth && lorry::cuda::properties(stream.device.index).compute_capability == 90;
}

/// Calls f.operator()<T, kParts, kMasks>() for the call's type, widths and masks.
template <class F>
void with_panels(const AttentionArgs& args, const AttentionProblem& p, F f) {
  const int64_t width = std::max(p.q.width, p.v.width);
  const auto with = [&]<class T, int kParts>() {
    switch (p.masks()) {
      case Masks::none:
        return f.template operator()<T, kParts, Masks::none>();
      case Masks::of_bool:
        return f.template operator()<T, kParts, Masks::of_bool>();
      case Masks::of_floats:
        return f.template operator()<T, kParts, Masks::of_floats>();
      case Masks::dropout:
        return f.template operator()<T, kParts, Masks::dropout>();
      case Masks::any:
        return f.template operator()<T, kParts, Masks::any>();
    }
  };
  const auto as = [&]<class T>() { width > 64 ? with.template operator()<T, 2>() : with.template operator()<T, 1>(); };
  args.q.dtype == kF16 ? as.template operator()<Float16>() : as.template operator()<BFloat16>();
}

}  // namespace lorry::kernels::cuda
