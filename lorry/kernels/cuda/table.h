#pragma once

// The families of the CUDA column, each defined with its kernels. A missing family is a link error.

#include "lorry/kernels/backend.h"

namespace lorry::kernels::cuda {

const AttentionKernels& attention_kernels();
const CopyKernels& copy_kernels();
const CreationKernels& creation_kernels();
const ForeachKernels& foreach_kernels();
const FusedKernels& fused_kernels();
const IndexingKernels& indexing_kernels();
const ListNormKernels& list_norm_kernels();
const LossKernels& loss_kernels();
const MatmulKernels& matmul_kernels();
const NormKernels& norm_kernels();
const OptimKernels& optim_kernels();
const PagedKernels& paged_kernels();
const PointwiseKernels& pointwise_kernels();
const QuantizeKernels& quantize_kernels();
const RandomKernels& random_kernels();
const ReduceKernels& reduce_kernels();
const RotaryKernels& rotary_kernels();
const SoftmaxKernels& softmax_kernels();
const SortKernels& sort_kernels();
const TokenKernels& token_kernels();

}  // namespace lorry::kernels::cuda
