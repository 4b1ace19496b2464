#pragma once

// The CPU's columns of the families built on reductions, scans and sorting.

#include "lorry/kernels/loss.h"
#include "lorry/kernels/norm.h"
#include "lorry/kernels/reduce.h"
#include "lorry/kernels/softmax.h"
#include "lorry/kernels/sort.h"

namespace lorry::kernels::cpu {

void scan(const ScanArgs& args, const Stream&);

const ReduceKernels& reduce_kernels();
const SoftmaxKernels& softmax_kernels();
const NormKernels& norm_kernels();
const LossKernels& loss_kernels();
const SortKernels& sort_kernels();

}  // namespace lorry::kernels::cpu
