// Products of i8 with sums in i32: by cuBLASLt where it takes the operands. Its kernels for tensor cores want both
// contiguous along k, with sizes and distances between rows that are multiples of 4 (its manual on cublasLtMatmul).
// Operands of a large product that lie otherwise are copied, with k padded by zeros. Of what the library refuses,
// small products, and those of any size whose columns are no multiple of 4, go to a built-in kernel. Sums of whole
// numbers are the same in any order.

#include <algorithm>
#include <optional>

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

/// An operand as lines along k: `count` of them, `distance` apart, with elements `step` apart.
struct Lines {
  int64_t count;
  int64_t &distance, &step;
};

/// Whether the library takes the operand as it lies.
bool lies_well(const Problem& p, Operand x, const Lines& lines) {
  const int64_t batch_stride = p.batch_rank == 0 ? 0 : p.batch_strides[x][0];
  const bool aligned = (reinterpret_cast<uintptr_t>(p.data[x]) | static_cast<uintptr_t>(batch_stride)) % 4 == 0;
  return lines.step == 1 && lines.distance % 4 == 0 && lines.distance >= p.k && p.k % 4 == 0 && aligned;
}

/// Makes a copy, [batches, lines, padded], the operand: its k, then zeros.
void copy_along_k(Problem& p, Operand x, Lines lines, int64_t padded, std::optional<Scratch>& memory, Stream stream) {
  const int64_t batches = p.batches(), own = p.batch_rank == 0 ? 0 : p.batch_strides[x][0];
  const Scratch& copy = memory.emplace(batches * lines.count * padded, stream);
  if (padded > p.k) lorry::cuda::fill_bytes(stream, copy.data(), 0, batches * lines.count * padded);
  const Dims sizes{batches, lines.count, p.k};
  copy_kernels().copy({copy.data(), kI8, Layout::strided(sizes, {lines.count * padded, padded, 1})},
                      {p.data[x], kI8, Layout::strided(sizes, {own, lines.distance, lines.step})}, stream);
  p.data[x] = copy.as<char>();
  p.batch_strides[x][0] = lines.count * padded;
  lines.distance = padded, lines.step = 1;
}

bool multiply_copies(Problem p, Stream stream) {
  if (p.m % 4 != 0 || p.m * p.n * p.k < kWorthCopies) return false;
  const Lines a{p.m, p.row[kA], p.column[kA]}, b{p.n, p.column[kB], p.row[kB]};
  const bool a_lies_well = lies_well(p, kA, a), b_lies_well = lies_well(p, kB, b);
  if (a_lies_well && b_lies_well) return false;  // the library has no kernel for it anyway
  events::emit(events::Kind::hidden_copy, "int8_matmul",
               "an operand does not lie as cuBLASLt needs it: contiguous along the inner dimension, in multiples of 4");
  const int64_t padded = p.k % 4 == 0 ? p.k : (p.k + kRunOfBytes - 1) / kRunOfBytes * kRunOfBytes;
  std::optional<Scratch> copy_of_a, copy_of_b;
  if (!a_lies_well) copy_along_k(p, kA, a, padded, copy_of_a, stream);
  if (!b_lies_well) copy_along_k(p, kB, b, padded, copy_of_b, stream);
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
