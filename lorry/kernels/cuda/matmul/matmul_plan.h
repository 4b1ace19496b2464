#pragma once

// Products by cuBLASLt. A plan is the library's description of a product (descriptors) and the chosen algorithm. It is
// made at the first product of a kind and found again by its key. Plans are per thread, so that a repeated product
// takes no lock; algorithms chosen by timing are shared by all threads.
//
// Every algorithm adds in a fixed order: it either does not split k, or stores partial sums in a workspace, in the type
// of the accumulator, and adds them in a second pass.

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
  DType dtype;  ///< of a and b; i8: out and c are i32
  Precision precision;
  uint8_t transposed_a, transposed_b;
  uint8_t bias;                        ///< whether c is a vector
  uint8_t alignment[kMatmulOperands];  ///< log2 of the bytes that divide the address and the length along the unit
                                       ///< stride, at most 8
  MatmulEpilogue::Kind epilogue;
  uint8_t epilogue_alignment;  ///< the same of the addresses of aux and, times 16, sums

  bool operator==(const PlanKey& other) const;
  uint64_t hash() const;
};
static_assert(std::has_unique_object_representations_v<PlanKey>);

struct Algorithm {
  cublasLtMatmulAlgo_t how;
  int64_t workspace_bytes;
};

/// A plan. Addresses of operands are taken from the problem at each run; those of a bias and of an epilogue are part of
/// the descriptor and are set at each run.
struct MatmulPlan {
  PlanKey key;
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t layouts[kMatmulOperands];
  Algorithm algorithm;
  bool possible;  ///< whether the library has an algorithm
  bool tuned;     ///< whether the algorithm was chosen by timing

  /// Fills in up to `count` algorithms, the one expected to be fastest first, and returns their number. reduction: how
  /// algorithms that split k may add.
  int candidates(Algorithm* algorithms, int count,
                 cublasLtReductionScheme_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  cublasStatus_t run(const Algorithm& with, const Problem& part, void* out, void* workspace, Stream stream);
};

/// matmul.h's int8_matmul.
void int8_matmul(const MatmulArgs& args, Stream stream);

/// The maximum workspace of an algorithm: as much as cuBLAS itself uses on Hopper.
inline constexpr int64_t kWorkspaceBytes = 32 << 20;
/// The maximum number of batch entries per call; larger batches are split.
inline constexpr int64_t kMostBatches = 65535;

/// Whether the library supports the sizes and the dtype.
bool library_takes(const Problem& problem);
PlanKey plan_key(const Problem& part, Stream stream);
MatmulPlan make_plan(const PlanKey& key, const void* bias, const MatmulEpilogue& epilogue = {});

/// Enqueues a part (at most one batch dimension, and an addend other than `other`), with its epilogue. Returns false if
/// the library does not support it.
bool multiply_by_library(const Problem& part, Stream stream);

/// The fastest of the plan's algorithms for this part. They are timed on a separate stream, and the results are
/// discarded. Waits for the device.
Algorithm fastest_algorithm(MatmulPlan& plan, const Problem& part, Stream stream);

}  // namespace lorry::kernels::cuda
