#pragma once

// Copies: between tensors, types and layouts, and to the host. The methods are declared in tensor/tensor.h.

#include "lorry/tensor/facts.h"
#include "lorry/tensor/tensor.h"

namespace lorry {

Tensor clone(const Tensor& x);
/// Row-major: x itself when it is, else a copy.
Tensor contiguous(const Tensor& x);

}  // namespace lorry
