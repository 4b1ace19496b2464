// Products of i8 with sums in i32: by cuBLASLt where it takes the operands. Its kernels for tensor cores want both
// contiguous along k, with sizes and distances between rows that are multiples of 4 (its manual on cublasLtMatmul). A
// large product whose operands lie otherwise is computed from copies, with k padded by zeros; any other by a built-in
// kernel. Sums of whole numbers are the same in any order.

#include <algorithm>

#include "lorry/base/events.h"
#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/common/scratch.h"
#include "lorry/kernels/cuda/matmul/matmul_builtin.h"
#include "lorry/kernels/cuda/matmul/matmul_plan.h"
#include "lorry/kernels/cuda/table.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int64_t kRunOfBytes = 16;
constexpr int64_t kWorthCopies = int64_t{1} << 26;  // multiplications

bool library_takes_int8(const Problem& p) {
  return p.k > 0 && std::max({p.m, p.n, p.k}) <= INT32_MAX && p.batch_rank <= 1 && p.batches() <= kMostBatches;
}

/// Makes `copy`, [batches, lines, padded], the operand: its k, then zeros.
void copy_along_k(Problem& p, Operand x, int64_t lines, int64_t line_stride, int64_t k_stride, int64_t padded,
                  const Scratch& copy, Stream stream) {
  const int64_t batches = p.batches(), own = p.batch_rank == 0 ? 0 : p.batch_strides[x][0];
  if (padded > p.k) lorry::cuda::fill_bytes(stream, copy.data(), 0, batches * lines * padded);
  const Dims sizes{batches, lines, p.k};
  copy_kernels().copy({copy.data(), kI8, Layout::strided(sizes, {lines * padded, padded, 1})},
                      {p.data[x], kI8, Layout::strided(sizes, {own, line_stride, k_stride})}, stream);
  p.data[x] = copy.as<char>();
  p.batch_strides[x][0] = lines * padded;
}

bool multiply_copies(Problem p, Stream stream) {
  if (p.m % 4 != 0 || p.m * p.n * p.k < kWorthCopies) return false;
  events::emit(events::Kind::hidden_copy, "int8_matmul",
               "an operand is not contiguous along the inner dimension, or that is no multiple of 4");
  const int64_t padded = (p.k + kRunOfBytes - 1) / kRunOfBytes * kRunOfBytes;
  const Scratch a(p.batches() * p.m * padded, stream), b(p.batches() * p.n * padded, stream);
  copy_along_k(p, kA, p.m, p.row[kA], p.column[kA], padded, a, stream);
  copy_along_k(p, kB, p.n, p.column[kB], p.row[kB], padded, b, stream);
  p.row[kA] = padded, p.column[kA] = 1;
  p.row[kB] = 1, p.column[kB] = padded;
  p.k = padded;
  return multiply_by_library(p, stream);
}

}  // namespace

void int8_matmul(const MatmulArgs& args, Stream stream) {
  if (args.out.numel() == 0) return;
  Problem p = describe(args);
  p.dtype = kI8;
  if (library_takes_int8(p) && (multiply_by_library(p, stream) || multiply_copies(p, stream))) return;
  multiply_builtin_int8(p, stream);
}

}  // namespace lorry::kernels::cuda
