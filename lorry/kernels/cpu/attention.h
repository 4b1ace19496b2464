#pragma once

#include "lorry/kernels/attention.h"

namespace lorry::kernels::cpu {

const AttentionKernels& attention_kernels();

}  // namespace lorry::kernels::cpu
