#pragma once

#include "lorry/kernels/fused.h"

namespace lorry::kernels::cpu {

/// Whether a call is f32 throughout and over runs of memory, so that run_chain takes it.
bool is_chain(const FusedCall& call);
/// Computes all elements but the last few, fewer than a step of threaded code takes; returns the number computed.
int64_t run_chain(const FusedCall& call);

}  // namespace lorry::kernels::cpu
