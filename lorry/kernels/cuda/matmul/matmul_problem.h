#pragma once

// A matrix product in BLAS's terms: a batch of products of matrices, with dimensions merged as far as strides allow.
// Computed from layouts only; nothing here uses a device.

#include "lorry/kernels/matmul.h"

namespace lorry::kernels::cuda {

enum Operand { kOut, kA, kB, kC };
inline constexpr int kMatmulOperands = 4;

/// out [m, n] = alpha * a [m, k] @ b [k, n] + beta * c [m, n] over a batch. The columns of out have unit stride; a
/// row-major out is described as the product of the transposes. Strides are in elements. If alpha is 0, k is 0.
struct Problem {
  DType dtype;
  int64_t m, n, k;
  char* data[kMatmulOperands];
  int64_t row[kMatmulOperands], column[kMatmulOperands];
  int batch_rank;
  int64_t batch_sizes[kMaxRank];
  int64_t batch_strides[kMatmulOperands][kMaxRank];
  double alpha, beta;
  bool adds;      ///< beta is not 0 and there is a c; if false, c's fields equal out's
  bool in_place;  ///< c is out
  MatmulEpilogue epilogue;

  void addresses(auto& visit) const { visit(data); }

  LORRY_HOST_DEVICE int64_t batches() const {
    int64_t count = 1;
    for (int d = 0; d < batch_rank; ++d) count *= batch_sizes[d];
    return count;
  }
  /// The offset of an operand's matrix in batch entry `batch`.
  LORRY_HOST_DEVICE int64_t offset(Operand operand, int64_t batch) const {
    int64_t sum = 0;
    for (int d = batch_rank - 1; d >= 0; --d) {
      sum += batch % batch_sizes[d] * batch_strides[operand][d];
      batch /= batch_sizes[d];
    }
    return sum;
  }
};

Problem describe(const MatmulArgs& args);

/// MatmulKernels::refused: the library's rules (its manual on cublasLtEpilogue_t and the attributes beside it), and
/// unaligned rows, which are multiplied faster in parts (for_each_aligned_part).
const char* epilogue_refused(const MatmulArgs& args, const MatmulEpilogue& epilogue);

/// A matrix as BLAS reads it: columns of unit stride, `leading` elements apart; if transposed, rows instead of columns.
struct Reading {
  bool transposed;
  int64_t leading;
};
Reading read_matrix(int64_t rows, int64_t columns, int64_t row, int64_t column);

/// How c is passed to BLAS.
enum class Addend : uint8_t {
  none,
  in_place,  ///< c is out
  bias,      ///< one column, added to all columns, with beta 1
  matrix,    ///< a matrix with columns of unit stride
  other,     ///< cannot be passed: c must be copied to out first
};
Addend addend(const Problem& problem);

/// The size of x's matrix along its dimension of unit stride.
inline int64_t unit_length(const Problem& p, Operand x, const Reading& reading) {
  if (x == kOut || x == kC) return p.m;
  return x == kA ? (reading.transposed ? p.k : p.m) : (reading.transposed ? p.n : p.k);
}

/// Makes out the addend: its matrices now hold c.
inline void add_in_place(Problem& p) {
  p.in_place = true;
  p.data[kC] = p.data[kOut], p.row[kC] = p.row[kOut], p.column[kC] = p.column[kOut];
  for (int d = 0; d < p.batch_rank; ++d) p.batch_strides[kC][d] = p.batch_strides[kOut][d];
}

/// Calls f(part) with problems that have at most one batch dimension, of at most `most_batches` entries. It is the
/// longest batch dimension of `problem`; there is a part for every index of the others.
template <class F>
void for_each_part(const Problem& problem, int64_t most_batches, F&& f) {
  Problem others = problem, part = problem;
  int64_t count = 1;
  part.batch_rank = 0;
  if (problem.batch_rank > 0) {
    int longest = 0;
    for (int d = 1; d < problem.batch_rank; ++d)
      if (problem.batch_sizes[d] > problem.batch_sizes[longest]) longest = d;
    count = problem.batch_sizes[longest];
    others.batch_sizes[longest] = 1;
    part.batch_rank = 1;
    for (int x = 0; x < kMatmulOperands; ++x) part.batch_strides[x][0] = problem.batch_strides[x][longest];
  }
  const int64_t bytes = size_of(problem.dtype), parts = others.batches();
  for (int64_t i = 0; i < parts; ++i) {
    for (int64_t first = 0; first < count; first += most_batches) {
      part.batch_sizes[0] = count - first < most_batches ? count - first : most_batches;
      for (int x = 0; x < kMatmulOperands; ++x) {
        const int64_t step = part.batch_rank == 0 ? 0 : part.batch_strides[x][0];
        part.data[x] = problem.data[x] + (others.offset(static_cast<Operand>(x), i) + first * step) * bytes;
      }
      f(static_cast<const Problem&>(part));
    }
  }
}

/// Calls f(part) with products that together make this one. The library's kernels for tensor cores read 16 bytes at a
/// time along an operand's unit stride and need a length that is a multiple of 16 bytes. If the length is not, but the
/// columns start at multiples of 16 bytes (50,257 logits in rows of 50,264), the product is split: a body with an
/// aligned length, and the rest. A split along k adds the rest to the body's result, which costs one more rounding.
/// Products of fewer than `worth` multiplications are not split, because a second launch would cost more.
template <class F>
void for_each_aligned_part(const Problem& p, F&& f, int64_t worth = int64_t{1} << 30) {
  const int64_t run = 16 / size_of(p.dtype);
  if (p.dtype == kF64 || p.batches() != 1 || p.m * p.n * p.k < worth) return f(p);
  const auto aligned = [&](int64_t stride) { return stride % run == 0; };
  const bool a_along_m = p.row[kA] == 1, b_along_n = p.column[kB] == 1;
  const auto cut = [&](int64_t Problem::*size, const auto& advance) {
    const int64_t whole = p.*size / run * run;
    Problem body = p, rest = p;
    body.*size = whole;
    rest.*size = p.*size - whole;
    advance(rest, whole);
    for_each_aligned_part(body, f, worth);
    f(rest);
  };
  const auto move = [&](Problem& part, Operand x, int64_t elements) { part.data[x] += elements * size_of(p.dtype); };
  if (p.m % run != 0 && p.m > run && (aligned(p.column[kOut]) || (a_along_m && aligned(p.column[kA]))))
    return cut(&Problem::m, [&](Problem& rest, int64_t at) {
      move(rest, kOut, at), move(rest, kC, at * p.row[kC]), move(rest, kA, at * p.row[kA]);
    });
  if (p.n % run != 0 && p.n > run && b_along_n && aligned(p.row[kB]))
    return cut(&Problem::n, [&](Problem& rest, int64_t at) {
      move(rest, kOut, at * p.column[kOut]), move(rest, kC, at * p.column[kC]), move(rest, kB, at);
    });
  if (p.k % run != 0 && p.k > run && ((!a_along_m && aligned(p.row[kA])) || (!b_along_n && aligned(p.column[kB]))))
    return cut(&Problem::k, [&](Problem& rest, int64_t at) {
      move(rest, kA, at * p.column[kA]), move(rest, kB, at * p.row[kB]);
      rest.adds = true, rest.beta = 1;
      add_in_place(rest);
    });
  f(p);
}

}  // namespace lorry::kernels::cuda
