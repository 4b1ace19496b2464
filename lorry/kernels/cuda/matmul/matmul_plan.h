#pragma once

// Products by cuBLASLt. What the library has to be told of a product (descriptors) and what it answers (an algorithm)
// is a plan, made at the first product of a kind and found again by its key. Plans belong to a thread, so a repeated
// product takes no lock; algorithms that were chosen by timing are shared by all threads.
//
// Every algorithm adds up in a fixed order: partial sums of a long k either do not exist or lie in a workspace in the
// type of the accumulator and are added by a second pass.

#include <type_traits>

#include "lorry/device/stream.h"
#include "lorry/kernels/cuda/matmul/cublas_lt.h"
#include "lorry/kernels/cuda/matmul/matmul_problem.h"

namespace lorry::kernels::cuda {

/// Everything on which the choice of an algorithm depends.
struct PlanKey {
  int64_t m, n, k;
  int64_t leading[kMatmulOperands];
  int64_t batch_stride[kMatmulOperands];
  int32_t batches;
  uint8_t device;
  DType dtype;
  Precision precision;
  uint8_t transposed_a, transposed_b;
  uint8_t bias;                        ///< c is a vector
  uint8_t alignment[kMatmulOperands];  ///< log2 of the bytes that divide the address and the length along the unit
                                       ///< stride, at most 8
  uint8_t unused[2];

  bool operator==(const PlanKey& other) const;
  uint64_t hash() const;
};
static_assert(std::has_unique_object_representations_v<PlanKey>);

struct Algorithm {
  cublasLtMatmulAlgo_t how;
  int64_t workspace_bytes;
};

/// Reads its operands' addresses from the problem at each run. That of a bias is part of the descriptor, and each run
/// sets it.
struct MatmulPlan {
  PlanKey key;
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t layouts[kMatmulOperands];
  Algorithm algorithm;
  bool possible;  ///< the library has an algorithm
  bool tuned;     ///< the algorithm was chosen by timing

  /// Up to `count` algorithms, the one expected to be fastest first; `reduction` says how those that cut k may add up.
  /// Returns how many there are.
  int candidates(Algorithm* algorithms, int count,
                 cublasLtReductionScheme_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  cublasStatus_t run(const Algorithm& with, const Problem& part, void* out, void* workspace, Stream stream);
};

/// The most that an algorithm may ask for: what cuBLAS itself takes on Hopper.
inline constexpr int64_t kWorkspaceBytes = 32 << 20;
/// Batches of one call; longer ones are cut.
inline constexpr int64_t kMostBatches = 65535;

/// Whether sizes and dtype are within what the library can be asked for.
bool library_takes(const Problem& problem);
PlanKey plan_key(const Problem& part, Stream stream);
MatmulPlan make_plan(const PlanKey& key, const void* bias);

/// Enqueues a part (one batch dimension at most, an addend that is not `other`). False when the library does not take
/// it.
bool multiply_by_library(const Problem& part, Stream stream);

/// The fastest of the plan's algorithms for this part, timed on a stream of its own with results thrown away. Waits.
Algorithm fastest_algorithm(MatmulPlan& plan, const Problem& part, Stream stream);

}  // namespace lorry::kernels::cuda
