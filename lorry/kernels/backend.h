#pragma once

// The table of kernels: one column per device type, one member per family. A family's header declares a struct of
// function pointers; each backend fills its column. The column of a backend that is not built is null; only `backend`
// reports this.

#include "lorry/kernels/attention.h"
#include "lorry/kernels/fused.h"
#include "lorry/kernels/indexing.h"
#include "lorry/kernels/list.h"
#include "lorry/kernels/matmul.h"
#include "lorry/kernels/pointwise.h"
#include "lorry/kernels/random.h"
#include "lorry/kernels/reduce.h"
#include "lorry/kernels/rowwise.h"
#include "lorry/kernels/sort.h"
#include "lorry/layout/device.h"

namespace lorry::kernels {

struct OptimKernels;     // declared in kernels/optim.h, which includes all rules and is rarely needed
struct PagedKernels;     // declared in kernels/paged.h
struct QuantizeKernels;  // declared in kernels/quantize.h
struct TokenKernels;     // declared in kernels/tokens.h

struct Backend {
  const AttentionKernels* attention = nullptr;
  const CopyKernels* copy = nullptr;
  const CreationKernels* creation = nullptr;
  const ForeachKernels* foreach = nullptr;
  const FusedKernels* fused = nullptr;  ///< null: operators run one by one
  const IndexingKernels* indexing = nullptr;
  const ListNormKernels* list_norm = nullptr;
  const LossKernels* loss = nullptr;
  const MatmulKernels* matmul = nullptr;
  const NormKernels* norm = nullptr;
  const OptimKernels* optim = nullptr;
  const PagedKernels* paged = nullptr;
  const PointwiseKernels* pointwise = nullptr;
  const QuantizeKernels* quantize = nullptr;
  const RandomKernels* random = nullptr;
  const ReduceKernels* reduce = nullptr;
  const RotaryKernels* rotary = nullptr;
  const SoftmaxKernels* softmax = nullptr;
  const SortKernels* sort = nullptr;
  const TokenKernels* tokens = nullptr;
};

/// The kernels of a device. Throws DeviceError if this build or machine has none for it.
const Backend& backend(Device device);

namespace cpu {
const Backend& table();
}
namespace cuda {
const Backend& table();
}
namespace meta {
/// Kernels that do nothing (meta.cpp).
const Backend& table();
}  // namespace meta

}  // namespace lorry::kernels
