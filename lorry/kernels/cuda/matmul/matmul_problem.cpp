#include "lorry/kernels/cuda/matmul/matmul_problem.h"

#include <algorithm>
#include <utility>

namespace lorry::kernels::cuda {
namespace {

void transpose(Problem& p) {
  std::swap(p.m, p.n);
  std::swap(p.data[kA], p.data[kB]);
  std::swap(p.batch_strides[kA], p.batch_strides[kB]);
  std::swap(p.row[kA], p.column[kB]);
  std::swap(p.column[kA], p.row[kB]);
  std::swap(p.row[kOut], p.column[kOut]);
  std::swap(p.row[kC], p.column[kC]);
}

void drop_batch_dimension(Problem& p, int d) {
  --p.batch_rank;
  for (; d < p.batch_rank; ++d) {
    p.batch_sizes[d] = p.batch_sizes[d + 1];
    for (auto& strides : p.batch_strides) strides[d] = strides[d + 1];
  }
}

bool readable(int64_t rows, int64_t columns, int64_t row, int64_t column) {
  if (row == 1 || rows == 1) return columns == 1 || column >= rows;
  return (column == 1 || columns == 1) && row >= columns;
}

/// Turns batch dimension `d` into more columns if a is shared along it. If there was a single column, the column stride
/// becomes the batch's.
bool fold_into_columns(Problem& p, int d) {
  if (p.batch_strides[kA][d] != 0) return false;
  const int64_t columns = p.n * p.batch_sizes[d];
  int64_t column[kMatmulOperands];
  for (const Operand x : {kOut, kB, kC}) {
    const int64_t step = p.batch_strides[x][d];
    if (p.n > 1 && step != p.column[x] * p.n) return false;
    column[x] = p.n > 1 ? p.column[x] : step;
  }
  if (!readable(p.m, columns, p.row[kOut], column[kOut]) || !readable(p.k, columns, p.row[kB], column[kB]))
    return false;
  for (const Operand x : {kOut, kB, kC}) p.column[x] = column[x];
  p.n = columns;
  drop_batch_dimension(p, d);
  return true;
}

void fold_batch_into_columns(Problem& p) {
  for (int d = p.batch_rank - 1; d >= 0;) d = fold_into_columns(p, d) ? p.batch_rank - 1 : d - 1;
}

/// Merges neighbouring batch dimensions if the strides of every operand allow it.
bool merge_with_next(Problem& p, int d) {
  for (const auto& strides : p.batch_strides)
    if (strides[d] != strides[d + 1] * p.batch_sizes[d + 1]) return false;
  p.batch_sizes[d + 1] *= p.batch_sizes[d];
  drop_batch_dimension(p, d);
  return true;
}

}  // namespace

Reading read_matrix(int64_t rows, int64_t columns, int64_t row, int64_t column) {
  // A contiguous vector. As the leading dimension, its length tells BLAS more about its alignment than 1 would.
  if (rows == 1 && column == 1) return {true, columns};
  if (columns == 1 && row == 1) return {false, rows};
  if (rows == 1 || (row == 1 && columns > 1)) return {false, std::max<int64_t>(column, 1)};
  return {true, row};
}

Addend addend(const Problem& p) {
  if (!p.adds) return Addend::none;
  if (p.in_place) return Addend::in_place;
  if (p.row[kC] != 1 && p.m > 1) return Addend::other;
  // One column may be either, but an epilogue takes only a bias.
  const bool is_bias = p.n > 1 ? p.column[kC] == 0 : p.epilogue.kind != MatmulEpilogue::none;
  if (is_bias) return p.beta == 1 ? Addend::bias : Addend::other;
  return p.n == 1 || p.column[kC] >= p.m ? Addend::matrix : Addend::other;
}

Problem describe(const MatmulArgs& args) {
  const int r = args.out.layout.rank;
  Problem p;
  p.dtype = args.out.dtype;
  p.alpha = args.alpha, p.beta = args.beta;
  p.adds = args.beta != 0 && args.c.data != nullptr;
  p.in_place = p.adds && args.c.data == args.out.data && args.c.layout == args.out.layout;
  p.m = args.out.size(r - 2), p.n = args.out.size(r - 1), p.k = args.alpha == 0 ? 0 : args.a.size(r - 1);
  const Array* operands[kMatmulOperands] = {&args.out, &args.a, &args.b, p.adds ? &args.c : &args.out};
  p.batch_rank = 0;
  for (int d = 0; d < r - 2; ++d) {
    if (args.out.size(d) == 1) continue;
    p.batch_sizes[p.batch_rank] = args.out.size(d);
    for (int x = 0; x < kMatmulOperands; ++x) p.batch_strides[x][p.batch_rank] = operands[x]->stride(d);
    ++p.batch_rank;
  }
  for (int x = 0; x < kMatmulOperands; ++x) {
    p.data[x] = operands[x]->as<char>();
    p.row[x] = operands[x]->stride(r - 2), p.column[x] = operands[x]->stride(r - 1);
  }
  // [8, 128, 64] @ [64, 32] is one product, and so is a batch with a shared left operand.
  fold_batch_into_columns(p);
  transpose(p);
  fold_batch_into_columns(p);
  if (read_matrix(p.m, p.n, p.row[kOut], p.column[kOut]).transposed) transpose(p);
  for (const Operand x : {kOut, kC}) {
    if (x == kC && p.adds && !p.in_place) break;
    p.row[x] = 1;  // its stride is 1 already, or there is only one row
    if (p.n == 1) p.column[x] = p.m;
  }
  for (int d = p.batch_rank - 2; d >= 0; --d) merge_with_next(p, d);
  return p;
}

namespace {

bool is_aligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

/// Whether the columns of an operand are whole runs of 16 bytes, and begin at multiples of 16 bytes.
bool has_aligned_columns(const Problem& p, Operand x, const Reading& reading) {
  const int64_t run = 16 / size_of(p.dtype);
  return is_aligned(p.data[x]) && unit_length(p, x, reading) % run == 0 && reading.leading % run == 0;
}

}  // namespace

const char* epilogue_refused(const MatmulArgs& args, const MatmulEpilogue& epilogue) {
  const int r = args.out.layout.rank;
  if (args.out.dtype != kF16 && args.out.dtype != kBF16) return "only 16-bit floats have epilogues";
  if (args.out.numel() == 0 || args.a.size(r - 1) == 0 || args.alpha != 1) return "it is empty or scaled";
  Problem p = describe(args);
  p.epilogue = epilogue;
  // Then the product is described as the product of the transposes: the library's rows are the columns of out.
  const bool by_rows = args.out.stride(r - 1) == 1 && args.out.size(r - 1) > 1;
  if (p.batches() != 1) return "it is a batch of products";
  if (!by_rows || p.m != args.out.size(r - 1)) return "the rows of its result have no unit stride";
  const bool takes_bias = epilogue.kind == MatmulEpilogue::gelu || epilogue.kind == MatmulEpilogue::gelu_and_input ||
                          epilogue.kind == MatmulEpilogue::relu;
  if (const Addend form = addend(p); form != Addend::none && (form != Addend::bias || !takes_bias))
    return "it adds something that is no bias";
  if (epilogue.kind == MatmulEpilogue::sums_of_a && r != 2) return "its first operand is no matrix";
  if (std::max({p.m, p.n, p.k}) > INT32_MAX) return "it is too large";
  if (!has_aligned_columns(p, kOut, {false, p.column[kOut]}) ||
      !has_aligned_columns(p, kA, read_matrix(p.m, p.k, p.row[kA], p.column[kA])) ||
      !has_aligned_columns(p, kB, read_matrix(p.k, p.n, p.row[kB], p.column[kB])) || !is_aligned(epilogue.aux) ||
      !is_aligned(epilogue.sums))
    return "its rows are not whole runs of 16 bytes";
  return nullptr;
}

}  // namespace lorry::kernels::cuda
