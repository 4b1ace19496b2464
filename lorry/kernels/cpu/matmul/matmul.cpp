#include "lorry/kernels/cpu/table.h"

// Divides a batch of products into tiles; each tile is computed by one thread. The tiles, and the parts into which a
// long k is divided, depend on the shapes only, and every tile is a serial product. So the bits do not depend on the
// number of threads.

#include <algorithm>
#include <memory>
#include <utility>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/common/convert.h"
#include "lorry/kernels/cpu/common/scratch.h"
#include "lorry/kernels/cpu/matmul/gemm.h"
#include "lorry/kernels/cpu/matmul/gemm_int8.h"
#include "lorry/kernels/cpu/matmul/linear_rows.h"
#include "lorry/kernels/cpu/reduce/dot.h"

namespace lorry::kernels {

namespace {
/// Replaces strides by equivalent ones that suit a matrix product: a dimension of size 1 gets the stride it needs.
void settle_strides(int64_t rows, int64_t columns, int64_t& row, int64_t& column) {
  if (columns == 1) column = 1;
  if (rows == 1) row = column == 1 ? std::max<int64_t>(columns, 1) : 1;
}
}  // namespace

bool has_unit_stride(const Layout& layout) {
  const int64_t rows = layout.sizes[layout.rank - 2], columns = layout.sizes[layout.rank - 1];
  if (rows == 0 || columns == 0) return true;
  int64_t row = layout.strides[layout.rank - 2], column = layout.strides[layout.rank - 1];
  settle_strides(rows, columns, row, column);
  return (column == 1 && row >= columns) || (row == 1 && column >= rows);
}

namespace cpu {
namespace {

enum Operand { kOut, kA, kB, kC };

/// The products to compute, all of one shape: strides within a matrix, and the batch dimensions outside it.
struct Problem {
  int64_t m, n, k;
  int64_t row[4], column[4];
  int batch_rank = 0;
  int64_t batch_sizes[kMaxRank];
  int64_t batch_strides[4][kMaxRank];
  int64_t batches = 1;
  bool adds;      ///< beta is not 0 and there is a c
  bool in_place;  ///< c is out

  int64_t offset(Operand operand, int64_t batch) const {
    int64_t sum = 0;
    for (int d = batch_rank - 1; d > 0; --d) {
      sum += batch % batch_sizes[d] * batch_strides[operand][d];
      batch /= batch_sizes[d];
    }
    return batch_rank == 0 ? 0 : sum + batch * batch_strides[operand][0];
  }
};

/// Merges the innermost batch dimension into the rows if b is shared along it: [8, 128, 64] @ [64, 32] is one product.
void fold_batch_into_rows(Problem& p) {
  while (p.batch_rank > 0) {
    const int d = p.batch_rank - 1;
    const auto steps = [&](Operand x) { return p.batch_strides[x][d] == p.row[x] * p.m; };
    const bool folds =
        p.batch_sizes[d] == 1 || (p.batch_strides[kB][d] == 0 && steps(kOut) && steps(kA) && (!p.adds || steps(kC)));
    if (!folds) return;
    p.m *= p.batch_sizes[d];
    --p.batch_rank;
  }
}

/// Describes the problem with rows of unit stride in out. A column-major out is computed as the product of the
/// transposes; then a and b of the arguments are swapped.
Problem describe(MatmulArgs& args) {
  const int r = args.out.layout.rank;
  Problem p;
  p.adds = args.beta != 0 && args.c.data != nullptr;
  p.in_place = p.adds && args.c.data == args.out.data && args.c.layout == args.out.layout;
  const Array* operands[] = {&args.out, &args.a, &args.b, p.adds ? &args.c : &args.out};
  p.m = args.out.size(r - 2), p.n = args.out.size(r - 1), p.k = args.a.size(r - 1);
  for (int x = 0; x < 4; ++x) {
    p.row[x] = operands[x]->stride(r - 2), p.column[x] = operands[x]->stride(r - 1);
    for (int d = 0; d < r - 2; ++d) {
      p.batch_sizes[d] = args.out.size(d);
      p.batch_strides[x][d] = p.batch_sizes[d] == 1 ? 0 : operands[x]->stride(d);
    }
  }
  p.batch_rank = r - 2;
  settle_strides(p.m, p.n, p.row[kOut], p.column[kOut]);
  settle_strides(p.m, p.k, p.row[kA], p.column[kA]);
  settle_strides(p.k, p.n, p.row[kB], p.column[kB]);
  if (p.column[kOut] == 1 && p.row[kOut] >= p.n) {
    if (p.column[kA] == 1) fold_batch_into_rows(p);
  } else {
    std::swap(args.a, args.b);
    std::swap(p.batch_strides[kA], p.batch_strides[kB]);
    std::swap(p.m, p.n);
    const int64_t row_a = p.row[kA], column_a = p.column[kA];
    p.row[kA] = p.column[kB], p.column[kA] = p.row[kB];
    p.row[kB] = column_a, p.column[kB] = row_a;
    std::swap(p.row[kOut], p.column[kOut]);
    std::swap(p.row[kC], p.column[kC]);
  }
  for (int d = 0; d < p.batch_rank; ++d) p.batches *= p.batch_sizes[d];
  return p;
}

/// Tiles of at most 256 x 512, halved while there are few of them and they are larger than 64 x 128. Measured on the
/// shapes of a small GPT: smaller tiles pack b too often, larger ones leave threads without work.
struct Tiling {
  int64_t rows, columns, down, across;

  Tiling(int64_t m, int64_t n, int64_t batches) {
    split(m, 256, rows, down);
    split(n, 512, columns, across);
    while (batches * down * across < 8 && rows * columns > (batches * down * across < 2 ? 8192 : 16384)) {
      if (rows >= columns) {
        split(m, (rows + 1) / 2, rows, down);
      } else {
        split(n, (columns + 1) / 2, columns, across);
      }
    }
  }
  int64_t count() const { return down * across; }

 private:
  /// Equal parts of at most `most`, in multiples of 16 if they are long enough.
  static void split(int64_t size, int64_t most, int64_t& share, int64_t& parts) {
    parts = (size + most - 1) / most;
    share = (size + parts - 1) / parts;
    if (share > 16) share = (share + 15) / 16 * 16;
    parts = (size + share - 1) / share;
  }
};

/// For fewer multiply-adds, waking a thread costs more than it saves.
constexpr int64_t kGrain = int64_t{1} << 18;

int64_t grain(int64_t m, int64_t n, int64_t k) {
  return std::max<int64_t>(1, kGrain / std::max<int64_t>(1, m * n * k));
}

/// The matrices of one batch entry.
template <class S>
struct Matrices {
  S* out;
  const S *a, *b, *c;
};

template <class S>
Matrices<S> matrices(const MatmulArgs& args, const Problem& p, int64_t batch) {
  return {args.out.as<S>() + p.offset(kOut, batch), args.a.as<S>() + p.offset(kA, batch),
          args.b.as<S>() + p.offset(kB, batch), p.adds ? args.c.as<S>() + p.offset(kC, batch) : nullptr};
}

/// alpha * total + beta * addend; integers wrap.
template <class T>
T combine(T alpha, T total, T beta, T addend) {
  if constexpr (std::is_integral_v<T>) {
    const auto u = [](T x) { return static_cast<uint64_t>(x); };
    return static_cast<T>(u(alpha) * u(total) + u(beta) * u(addend));
  } else {
    return alpha * total + beta * addend;
  }
}

/// out = alpha * total + beta * c for a block whose first element is (i0, j0). `total` may be out itself. If it is
/// wider than out, it is overwritten: rows are computed there, then rounded by a conversion that uses vectors.
template <class S, class T>
void finish(const Problem& p, const Matrices<S>& x, T alpha, T beta, int64_t i0, int64_t j0, int64_t m, int64_t n,
            T* total, int64_t total_row) {
  const bool one_run = total_row == n && p.row[kOut] == n && (!p.adds || (p.row[kC] == n && p.column[kC] == 1));
  if (one_run) n *= std::exchange(m, 1);
  for (int64_t i = 0; i < m; ++i, total += total_row) {
    S* const out = x.out + (i0 + i) * p.row[kOut] + j0;
    const S* const c = p.adds ? x.c + (i0 + i) * p.row[kC] + j0 * p.column[kC] : nullptr;
    const auto compute = [&](auto* to) {
      if (c == nullptr) {
        for (int64_t j = 0; j < n; ++j) to[j] = combine(alpha, total[j], T(0), T(0));
      } else if (p.column[kC] == 1) {
        for (int64_t j = 0; j < n; ++j) to[j] = combine(alpha, total[j], beta, static_cast<T>(c[j]));
      } else {
        for (int64_t j = 0; j < n; ++j) to[j] = combine(alpha, total[j], beta, static_cast<T>(c[j * p.column[kC]]));
      }
    };
    if constexpr (std::is_same_v<S, T>) {
      compute(out);
    } else {
      compute(total);
      converter(dtype_of<T>, dtype_of<S>)(total, 1, out, 1, n);
    }
  }
}

template <class S, class T>
void tile(const Problem& p, const Matrices<S>& x, T alpha, T beta, int64_t i, int64_t j, int64_t m, int64_t n) {
  Gemm<S, T> g{m,
               n,
               p.k,
               x.a + i * p.row[kA],
               p.row[kA],
               p.column[kA],
               x.b + j * p.column[kB],
               p.row[kB],
               p.column[kB],
               nullptr,
               n,
               alpha,
               T(0),
               p.batches > 1};
  if constexpr (std::is_same_v<S, T>) {
    g.c = x.out + i * p.row[kOut] + j;
    g.c_row = p.row[kOut];
    if (p.in_place) g.beta = beta;
    gemm(g);
    // Add c now, while the tile is in the cache. If it were written first, its stores would wait for memory.
    if (p.adds && !p.in_place) finish(p, x, T(1), beta, i, j, m, n, g.c, g.c_row);
  } else {
    g.c = scratch<T>(Scratch::tile, m * n);
    g.alpha = T(1);
    gemm(g);
    finish(p, x, alpha, beta, i, j, m, n, g.c, n);
  }
}

/// Products of a row and a column.
template <class S, class T>
void dots(const MatmulArgs& args, const Problem& p, T alpha, T beta) {
  lorry::cpu::parallel_for(p.batches, grain(1, 1, p.k), [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      const Matrices<S> x = matrices<S>(args, p, b);
      T total = static_cast<T>(dot(x.a, p.column[kA], x.b, p.row[kB], p.k));
      finish(p, x, alpha, beta, 0, 0, 1, 1, &total, 1);
    }
  });
}

/// For a small out and a long k (the gradient of a narrow weight): computes parts of k in parallel and adds them in
/// order.
template <class S, class T>
void split_depth(const Problem& p, const Matrices<S>& x, T alpha, T beta, int64_t depth) {
  const int64_t parts = (p.k + depth - 1) / depth, size = p.m * p.n;
  const auto sums = std::make_unique<T[]>(static_cast<size_t>(parts * size));
  lorry::cpu::for_each_chunk(p.k, depth, [&](int64_t part, int64_t begin, int64_t end) {
    gemm(Gemm<S, T>{p.m, p.n, end - begin, x.a + begin * p.column[kA], p.row[kA], p.column[kA], x.b + begin * p.row[kB],
                    p.row[kB], p.column[kB], sums.get() + part * size, p.n, T(1), T(0)});
  });
  for (int64_t part = 1; part < parts; ++part)
    for (int64_t i = 0; i < size; ++i) sums[i] = combine(T(1), sums[i], T(1), sums[part * size + i]);
  finish(p, x, alpha, beta, 0, 0, p.m, p.n, sums.get(), p.n);
}

template <class S>
void run(MatmulArgs args) {
  using T = Accumulate<S>;
  Problem p = describe(args);
  if (args.alpha == 0) p.k = 0;  // as in BLAS: a and b are not read
  const T alpha = static_cast<T>(args.alpha), beta = static_cast<T>(args.beta);
  if (p.m == 1 && p.n == 1) return dots<S>(args, p, alpha, beta);
  constexpr int64_t kDepth = 4096;
  if (p.m * p.n <= 4096 && p.k >= 4 * kDepth) {
    for (int64_t b = 0; b < p.batches; ++b) split_depth(p, matrices<S>(args, p, b), alpha, beta, kDepth);
    return;
  }
  const Tiling tiling(p.m, p.n, p.batches);
  lorry::cpu::parallel_for(
      p.batches * tiling.count(), grain(tiling.rows, tiling.columns, p.k), [&](int64_t first, int64_t last) {
        for (int64_t t = first; t < last; ++t) {
          const int64_t i = t % tiling.count() / tiling.across * tiling.rows, j = t % tiling.across * tiling.columns;
          tile(p, matrices<S>(args, p, t / tiling.count()), alpha, beta, i, j, std::min(tiling.rows, p.m - i),
               std::min(tiling.columns, p.n - j));
        }
      });
}

void matmul(const MatmulArgs& args, Stream) {
  if (args.out.numel() == 0) return;
  visit(args.out.dtype, [&]<class S>(Type<S>) {
    if constexpr (!std::is_same_v<S, bool>) run<S>(args);
  });
}

/// Sums of whole numbers are the same in any order, so tiles are only for the threads.
void int8_matmul(const MatmulArgs& given, Stream) {
  if (given.out.numel() == 0) return;
  MatmulArgs args = given;
  const Problem p = describe(args);
  const Tiling tiling(p.m, p.n, p.batches);
  lorry::cpu::parallel_for(
      p.batches * tiling.count(), grain(tiling.rows, tiling.columns, p.k), [&](int64_t first, int64_t last) {
        for (int64_t t = first; t < last; ++t) {
          const int64_t batch = t / tiling.count(), i = t % tiling.count() / tiling.across * tiling.rows,
                        j = t % tiling.across * tiling.columns;
          gemm_int8({std::min(tiling.rows, p.m - i), std::min(tiling.columns, p.n - j), p.k,
                     args.a.as<int8_t>() + p.offset(kA, batch) + i * p.row[kA], p.row[kA], p.column[kA],
                     args.b.as<int8_t>() + p.offset(kB, batch) + j * p.column[kB], p.row[kB], p.column[kB],
                     args.out.as<int32_t>() + p.offset(kOut, batch) + i * p.row[kOut] + j, p.row[kOut]});
        }
      });
}

}  // namespace

const MatmulKernels& matmul_kernels() {
  static constexpr MatmulKernels kKernels{.matmul = matmul, .int8_matmul = int8_matmul, .linear_rows = linear_rows};
  return kKernels;
}

}  // namespace cpu
}  // namespace lorry::kernels
