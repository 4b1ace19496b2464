#pragma once

#include <memory>

#include "lorry/compile/fuse.h"
#include "lorry/trace/evaluation.h"

namespace lorry::compiler {

/// The kernel of a unit other than a library unit. in_input: for each value, the input in whose memory it is computed;
/// -1: none.
std::shared_ptr<const kernels::FusedKernel> make_kernel(const trace::Graph& graph, const Unit& unit,
                                                        std::span<const int> in_input);

/// Runs the kernel, which must be ready, and stores the unit's outputs as values of the evaluation. Returns false,
/// having done nothing, if the kernel does not support the addresses.
bool run_fused(const Unit& unit, const std::shared_ptr<const kernels::FusedKernel>& kernel, Device device,
               trace::Evaluation& evaluation);

/// The device of a unit other than a library unit.
Device device_of(const trace::Graph& graph, const Unit& unit);

}  // namespace lorry::compiler
