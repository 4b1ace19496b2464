#pragma once

#include <memory>

#include "lorry/compile/fuse.h"
#include "lorry/trace/evaluation.h"

namespace lorry::compiler {

/// The kernel of a map or a row unit. in_input: of each value the input in whose memory it is made, -1.
std::unique_ptr<const kernels::FusedKernel> make_kernel(const trace::Graph& graph, const Unit& unit,
                                                        std::span<const int> in_input);

/// Runs it, when it is ready: the unit's outputs become values of the evaluation. False: the kernel did not take the
/// addresses, and nothing has happened.
bool run_fused(const Unit& unit, const kernels::FusedKernel& kernel, Device device, trace::Evaluation& evaluation);

/// Where a map or a row unit runs.
Device device_of(const trace::Graph& graph, const Unit& unit);

}  // namespace lorry::compiler
