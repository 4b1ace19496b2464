#pragma once

#include "lorry/kernels/rowwise.h"

namespace lorry::kernels::cuda {

void layer_norm_backward(const NormBackwardArgs& args, const Stream& stream);

}  // namespace lorry::kernels::cuda
