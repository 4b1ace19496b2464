// Chooses how a product is computed: floating types by cuBLASLt; dot products, integers, and products that the library
// does not support, by built-in kernels. Every operand is read from memory once, c included. Nothing is copied, except
// c if BLAS cannot express its layout (a repeated column with a beta other than 1, or rows of unit stride with an out
// whose columns have unit stride); then c is copied to out once.

#include "lorry/base/events.h"
#include "lorry/kernels/cuda/matmul/linear_rows.h"
#include "lorry/kernels/cuda/matmul/matmul_builtin.h"
#include "lorry/kernels/cuda/matmul/matmul_plan.h"
#include "lorry/kernels/cuda/matmul/matmul_problem.h"
#include "lorry/kernels/cuda/reduce/dot.h"
#include "lorry/kernels/cuda/table.h"

namespace lorry::kernels::cuda {
namespace {

/// An operand with the shape of out, as an Array.
Array array(const Problem& p, Operand x) {
  Dims sizes, strides;
  for (int d = 0; d < p.batch_rank; ++d) {
    sizes.push_back(p.batch_sizes[d]);
    strides.push_back(p.batch_strides[x][d]);
  }
  sizes.push_back(p.n), strides.push_back(p.column[x]);
  sizes.push_back(p.m), strides.push_back(p.row[x]);
  return {p.data[x], p.dtype, Layout::strided(sizes, strides)};
}

void put_addend_into_out(Problem& p, Stream stream) {
  copy_kernels().copy(array(p, kOut), array(p, kC), stream);
  add_in_place(p);
}

void multiply_part(Problem part, Stream stream) {
  if (multiply_by_library(part, stream)) return;
  if (part.adds && !part.in_place) {
    put_addend_into_out(part, stream);
    if (multiply_by_library(part, stream)) return;
  }
  events::emit(events::Kind::warning, "matmul",
               "cuBLASLt has no algorithm for this layout; a built-in, slower kernel computes it");
  multiply_builtin(part, stream);
}

void matmul(const MatmulArgs& args, Stream stream) {
  if (args.out.numel() == 0) return;
  Problem problem = describe(args);
  if (problem.m == 1 && problem.n == 1 && problem.batches() == 1 && !problem.adds && has_dot(problem.dtype))
    return dot({problem.data[kA], problem.data[kB], problem.column[kA], problem.row[kB], problem.k, problem.alpha,
                problem.data[kOut], problem.dtype},
               stream);
  if (!library_takes(problem)) return multiply_builtin(problem, stream);
  if (addend(problem) == Addend::other) {
    copy_kernels().copy(args.out, args.c, stream);
    MatmulArgs in_place = args;
    in_place.c = args.out;
    problem = describe(in_place);  // without c's strides, more batch dimensions may merge
  }
  for_each_aligned_part(problem, [&](const Problem& whole) {
    for_each_part(whole, kMostBatches, [&](const Problem& part) { multiply_part(part, stream); });
  });
}

bool with_epilogue(const MatmulArgs& args, const MatmulEpilogue& epilogue, Stream stream) {
  if (epilogue_refused(args, epilogue) != nullptr) return false;
  Problem problem = describe(args);
  problem.epilogue = epilogue;
  return multiply_by_library(problem, stream);
}

}  // namespace

const MatmulKernels& matmul_kernels() {
  static constexpr MatmulKernels kKernels{.matmul = matmul,
                                          .int8_matmul = int8_matmul,
                                          .linear_rows = linear_rows,
                                          .refused = epilogue_refused,
                                          .with_epilogue = with_epilogue,
                                          .linear_rows_with = linear_rows_with,
                                          .linear_rows_limits = linear_rows_limits};
  return kKernels;
}

}  // namespace lorry::kernels::cuda
