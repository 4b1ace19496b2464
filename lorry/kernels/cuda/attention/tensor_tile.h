#pragma once

// A 64 x 64 tile of attention's scores in f32, and the products around it on tensor cores (Dao 2023, section 3.3), one
// warp at a time: for f32, and in 16 bits for what warpgroups do not compute (warpgroup_tile.h). A warp has 16 rows;
// lane 4 g + t has columns 2 t and 2 t + 1 of every 8 of rows g and g + 8. That is how the tensor core leaves the sums
// of one product and takes the left operand of the next, so weights stay in registers. With two halves, four warps have
// columns 0 to 31 and four the others. Each half sums up its own columns, and the sums are added at the end: twice the
// warps hide the time that each product takes, for more copies of operands to registers.
//
// Operands go through shared memory in their own type, 64 columns at a time, so any width works. The rows of products
// stay there if they are at most 128 wide and fit. Other operands are copied to one of two buffers while a product
// computes on the other. 16-bit weights are rounded. f32 is split into two numbers of 11 digits, and a product into
// three (mma.h). Tensor cores cut sums off instead of rounding them, so the products of a tile are summed up from zero,
// and rounded when they are added to those of other tiles.

#include "lorry/device/cuda/capability.h"
#include "lorry/kernels/cuda/attention/attention_problem.h"
#include "lorry/kernels/cuda/common/allow_shared.h"
#include "lorry/kernels/cuda/common/copy_ahead.h"
#include "lorry/kernels/cuda/common/mma.h"

namespace lorry::kernels::cuda {

/// An operand of a product: columns of a matrix from `column` on.
template <class T>
struct TileOperand {
  Matrix<const T> from;
  int64_t column = 0;
  bool none = false;  ///< there is no further product
};

/// kForward: of the forward pass.
template <class T, bool kForward>
class TensorTile {
 public:
  static constexpr int kSide = kTileSide, kHalves = kForward && kHalf<T> ? 1 : 2, kThreads = 128 * kHalves;
  static constexpr int kRows = 2, kSumColumns = 16, kColumns = kSumColumns / kHalves;  ///< of a thread
  using Block = float[kRows][kColumns];
  using Sums = float[kRows][kSumColumns];

  /// The blocks of a multiprocessor, for a kernel with so many tiles of sums.
  static constexpr int blocks(int sums) { return kHalves == 1 ? (sums == 1 ? 3 : 2) : (sums == 1 ? 2 : 1); }
  /// The parts of kDepth columns of rows that stay in shared memory. operands: sets of rows; width: that of the widest;
  /// most: the bytes that a block can have.
  static int parts(int operands, int64_t width, int64_t most) {
    const int64_t needed = std::max<int64_t>(1, (width + kDepth - 1) / kDepth);
    return needed <= kMostParts && shared_bytes(operands, static_cast<int>(needed)) <= most ? static_cast<int>(needed)
                                                                                            : 1;
  }
  static int64_t shared_bytes(int operands, int parts) {
    return (2 + operands * parts) * kTileElements * static_cast<int64_t>(sizeof(T));
  }

  __device__ TensorTile(void* memory, int parts)
      : buffers_(static_cast<T*>(memory)), rows_(buffers_ + 2 * kTileElements), parts_(parts) {}

  /// The row and column of a thread's scores.
  static __device__ int row(int r) { return warp() % 4 * 16 + lane() / 4 + r * 8; }
  static __device__ int column(int c) { return half() * kHalfColumns + c / 2 * 8 + lane() % 4 * 2 + c % 2; }
  static __device__ int sum_column(int c) { return c / 2 * 8 + lane() % 4 * 2 + c % 2; }
  static __device__ int half() { return warp() / 4; }

  /// Copies the rows of later products, if they stay; before the first product.
  __device__ void copy_rows(int operand, const Matrix<const T>& rows) {
    if (stay(rows))
      for (int part = 0; part < parts_; ++part) copy(rows_of(operand, part), rows, part * kDepth);
  }
  /// Starts the copy of a product's operand to the free buffer: of the first product, or of the next one while a
  /// product computes.
  __device__ void start(const TileOperand<T>& operand) {
    if (!operand.none) copy(buffers_ + next_ * kTileElements, operand.from, operand.column);
  }

  /// sum[r][c] = rows[row(r)] . columns[column(c)]. operand: that of copy_rows. The copy of columns from 0 on has been
  /// started. next() is the operand of the product after this.
  template <class Next>
  __device__ void products(Block& sum, int operand, const Matrix<const T>& rows, const Matrix<const T>& columns,
                           Next&& next) {
    Terms<kColumns> terms = {};
    int64_t depth = 0;
    do {
      const T* const right = arrived();
      start(depth + kDepth < rows.width ? TileOperand<T>{columns, depth + kDepth} : next());
      if (!stay(rows)) {
        copy(rows_of(operand, 0), rows, depth);
        wait_for_copies();
        __syncthreads();
      }
      const T* const left =
          rows_of(operand, stay(rows) ? static_cast<int>(depth / kDepth) : 0) + warp() % 4 * 16 * kPitch;
      const int steps = static_cast<int>(min(int64_t{kDepth}, rows.width - depth));
#pragma unroll(kUnroll)
      for (int k = 0; k < steps; k += kStep) {
        const Left a = load_left(left + k);
        const T* const b = right + half() * kHalfColumns * kPitch + k;
#pragma unroll
        for (int n = 0; n < kHalfColumns; n += 32) {
          const Right columns_of_n[2] = {load_right(b + n * kPitch), load_right(b + (n + 16) * kPitch)};
          multiply(terms, n, a, columns_of_n);
        }
      }
    } while ((depth += kDepth) < rows.width);
    terms.take(sum);
  }

  /// Adds the products of the half's weights with its rows of `values`, columns from `at` on, whose copy has been
  /// started. again: these are the columns of the last product, and no copy is started.
  template <class Next>
  __device__ void accumulate(Sums& sum, const Block& weights, const Matrix<const T>& values, int64_t at, bool again,
                             Next&& next) {
    const T* right = last_;
    if (!again) {
      right = arrived();
      start(next());
    }
    right += half() * kHalfColumns * kPitch;
    const int64_t width = values.width - at;
#pragma unroll
    for (int n = 0; n < kSide; n += 32) {
      if (n >= width) break;
      Terms<8> terms = {};
#pragma unroll
      for (int k = 0; k < kHalfColumns; k += kStep) {
        const Right columns_of_n[2] = {load_values(right + k * kPitch + n), load_values(right + k * kPitch + n + 16)};
        multiply(terms, 0, of_weights(weights, k), columns_of_n);
      }
      terms.add_to(sum, n / 4);
    }
  }

  /// Two values of the same rows in the other half. After the last product.
  __device__ void exchange(const float (&own)[2][kRows], float (&other)[2][kRows]) {
    auto* const slots = reinterpret_cast<float(*)[2][kSide]>(buffers_);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (lane() % 4 == 0) slots[half()][0][row(r)] = own[0][r], slots[half()][1][row(r)] = own[1][r];
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      other[0][r] = slots[1 - half()][0][row(r)], other[1][r] = slots[1 - half()][1][row(r)];
  }
  /// Adds the sums of the second half to those of the first. After the last product.
  __device__ void add_halves(Sums& sum) {
    if constexpr (kHalves == 1) return;
    float* const slots = reinterpret_cast<float*>(buffers_) + threadIdx.x % 128;
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kSumColumns; ++c)
        if (half() == 1) slots[(r * kSumColumns + c) * 128] = sum[r][c];
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kSumColumns; ++c)
        if (half() == 0) sum[r][c] += slots[(r * kSumColumns + c) * 128];
  }

 private:
  /// The sums of a tile's products. f32: those of first digits, and the rest. Where an operand is infinite, only the
  /// former say what the product is; the rest of an infinity is no number.
  template <int kCount>
  struct Terms {
    float high[kRows][kCount], low[kRows][kHalf<T> ? 1 : kCount];

    __device__ float sum(int r, int c) const {
      if constexpr (kHalf<T>) return high[r][c];
      return isfinite(high[r][c]) ? high[r][c] + low[r][c] : high[r][c];
    }
    __device__ void take(float (&to)[kRows][kCount]) const {
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int c = 0; c < kCount; ++c) to[r][c] = sum(r, c);
    }
    __device__ void add_to(Sums& to, int first) const {
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int c = 0; c < kCount; ++c) to[r][first + c] += sum(r, c);
    }
  };

  /// A warp's 16 rows of the left operand, kStep deep. f32: the first digits and the rest.
  struct Left {
    uint32_t high[4], low[kHalf<T> ? 1 : 4];
  };
  /// 16 columns of the right operand.
  struct Right {
    uint32_t high[2][2], low[kHalf<T> ? 1 : 2][2];
  };

  static constexpr int kDepth = 64, kPitch = kDepth + kRun<T>, kTileElements = kSide * kPitch;
  static constexpr int kStep = kHalf<T> ? 16 : 8;  ///< the depth of one product on a tensor core
  static constexpr int kHalfColumns = kSide / kHalves;
  static constexpr int kUnroll = kHalf<T> ? 4 : 1;
  static constexpr int kMostParts = 2;  ///< of kDepth columns, for rows that stay in shared memory

  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ int warp() { return static_cast<int>(threadIdx.x) / 32; }

  /// Whether the rows stay in shared memory.
  __device__ bool stay(const Matrix<const T>& rows) const { return rows.width <= parts_ * kDepth; }
  __device__ T* rows_of(int operand, int part) const { return rows_ + (operand * parts_ + part) * kTileElements; }

  /// The buffer whose copy was started last. The other one is free: all threads have read it.
  __device__ const T* arrived() {
    wait_for_copies();
    __syncthreads();
    last_ = buffers_ + next_ * kTileElements;
    next_ ^= 1;
    return last_;
  }

  /// Copies kSide rows and kDepth columns from column `at` on, with zeros beyond the matrix.
  static __device__ void copy(T* to, const Matrix<const T>& from, int64_t at) {
    const int thread = static_cast<int>(threadIdx.x);
    const int rows = static_cast<int>(min(int64_t{kSide}, from.rows)),
              width = static_cast<int>(max(int64_t{0}, min(int64_t{kDepth}, from.width - at)));
    if (from.runs) {
      constexpr int kPerRow = kDepth / kRun<T>, kStride = kThreads / kPerRow;
      const int c = thread % kPerRow * kRun<T>, first = thread / kPerRow;
      const T* source = from.data + first * from.row + at + c;
#pragma unroll
      for (int r = first; r < kSide; r += kStride, source += kStride * from.row) {
        if (r < rows && c < width)
          start_copy(to + r * kPitch + c, source);
        else
          *reinterpret_cast<uint4*>(to + r * kPitch + c) = {};
      }
    } else {
#pragma unroll 1
      for (int n = thread; n < kSide * kDepth; n += kThreads) {
        const int r = n / kDepth, c = n % kDepth;
        to[r * kPitch + c] = r < rows && c < width ? from.data[r * from.row + at + c] : T(0);
      }
    }
  }

  /// Adds the products with 32 columns from n on. The sums of a column are added to once in each pass, because the
  /// tensor core takes longer for one product than it needs to begin the next.
  template <int kCount>
  static __device__ void multiply(Terms<kCount>& terms, int n, const Left& left, const Right (&right)[2]) {
    const auto pass = [&](float(&sum)[kRows][kCount], auto&& add) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int c = n / 4 + 2 * i;
        add(sum[0][c], sum[0][c + 1], sum[1][c], sum[1][c + 1], right[i / 2], i % 2);
      }
    };
    const auto& high = left.high;
    if constexpr (kHalf<T>) {
      pass(terms.high, [&](float& s0, float& s1, float& s2, float& s3, const Right& b, int i) {
        multiply_add<T>(s0, s1, s2, s3, high[0], high[1], high[2], high[3], b.high[i][0], b.high[i][1]);
      });
    } else {
      pass(terms.low, [&](float& s0, float& s1, float& s2, float& s3, const Right& b, int i) {
        multiply_add_tf32(s0, s1, s2, s3, left.low, b.high[i]);
      });
      pass(terms.high, [&](float& s0, float& s1, float& s2, float& s3, const Right& b, int i) {
        multiply_add_tf32(s0, s1, s2, s3, high, b.high[i]);
      });
      pass(terms.low, [&](float& s0, float& s1, float& s2, float& s3, const Right& b, int i) {
        multiply_add_tf32(s0, s1, s2, s3, high, b.low[i]);
      });
    }
  }

  /// Rows 0 to 15 of `from`, in shared memory.
  static __device__ Left load_left(const T* from) {
    Left left;
    if constexpr (kHalf<T>) {
      load_tiles<false>(left.high, from + lane() % 16 * kPitch + lane() / 16 * 8);
    } else {
      const T* const at = from + lane() / 4 * kPitch + lane() % 4;
#pragma unroll
      for (int i = 0; i < 4; ++i) split_rounded(at[i % 2 * 8 * kPitch + i / 2 * 4], left.high[i], left.low[i]);
    }
    return left;
  }
  /// The weights of keys k to k + kStep - 1.
  static __device__ Left of_weights(const Block& weights, int k) {
    Left left;
    const int c = k / 4;
    if constexpr (kHalf<T>) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        left.high[i] = narrow_pair<T>(weights[i % 2][c + i / 2 * 2], weights[i % 2][c + i / 2 * 2 + 1]);
    } else {
      // Column t of the operand is column 2 t of the weights, and t + 4 is 2 t + 1: load_values has the same order.
#pragma unroll
      for (int i = 0; i < 4; ++i) split_rounded(weights[i % 2][c + i / 2], left.high[i], left.low[i]);
    }
    return left;
  }
  /// 16 rows of `from`, in shared memory, as columns of the operand.
  static __device__ Right load_right(const T* from) {
    Right right;
    if constexpr (kHalf<T>) {
      uint32_t tiles[4];
      load_tiles<false>(tiles, from + (lane() / 16 * 8 + lane() % 8) * kPitch + lane() / 8 % 2 * 8);
#pragma unroll
      for (int i = 0; i < 4; ++i) right.high[i / 2][i % 2] = tiles[i];
    } else {
      const T* const at = from + lane() / 4 * kPitch + lane() % 4;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        split_cut(at[i / 2 * 8 * kPitch + i % 2 * 4], right.high[i / 2][i % 2], right.low[i / 2][i % 2]);
    }
    return right;
  }
  /// kStep rows and 16 columns of `from`, in shared memory.
  static __device__ Right load_values(const T* from) {
    Right right;
    if constexpr (kHalf<T>) {
      uint32_t tiles[4];
      load_tiles<true>(tiles, from + lane() % 16 * kPitch + lane() / 16 * 8);
#pragma unroll
      for (int i = 0; i < 4; ++i) right.high[i / 2][i % 2] = tiles[i];
    } else {
      const T* const at = from + lane() % 4 * 2 * kPitch + lane() / 4;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        split_cut(at[i % 2 * kPitch + i / 2 * 8], right.high[i / 2][i % 2], right.low[i / 2][i % 2]);
    }
    return right;
  }

  T *const buffers_, *const rows_;
  const int parts_;
  int next_ = 0;  ///< the buffer for the next copy
  const T* last_ = nullptr;
};

/// Whether the device has tensor cores for these kernels.
inline bool has_tensor_cores(Stream stream) { return lorry::cuda::capability(stream.device.index) >= 80; }

/// Calls f.operator()<kColumnTiles, kMasks>() with the tiles of columns for a result of `width` columns.
template <int kSide, class F>
void with_tiles(const AttentionProblem& p, int64_t width, F f) {
  const auto with = [&]<Masks kMasks>() {
    width > kSide ? f.template operator()<2, kMasks>() : f.template operator()<1, kMasks>();
  };
  p.masks() == Masks::none ? with.template operator()<Masks::none>() : with.template operator()<Masks::any>();
}

/// Launches kernel(arguments..., parts) for `operands` sets of rows, the widest of `width`; parts: as Tile::parts has
/// it. variables: the bytes of the kernel's own variables in shared memory.
template <auto kKernel, class Tile, class... Arguments>
void launch_attention(Stream stream, int64_t blocks, int64_t columns, int operands, int64_t width, size_t variables,
                      const Arguments&... arguments) {
  const auto& gpu = lorry::cuda::properties(stream.device.index);
  const int64_t most = gpu.shared_bytes_per_block - static_cast<int64_t>(variables + 15) / 16 * 16;
  allow_shared_once<kKernel>(stream.device.index, static_cast<size_t>(most));
  const int parts = Tile::parts(operands, width, most);
  const lorry::cuda::Shape shape{{grid_of(blocks), static_cast<unsigned>(columns)},
                                 {Tile::kThreads},
                                 static_cast<size_t>(Tile::shared_bytes(operands, parts))};
  lorry::cuda::launch(stream, shape, kKernel, arguments..., parts);
}

}  // namespace lorry::kernels::cuda
