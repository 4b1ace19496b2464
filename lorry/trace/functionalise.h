#pragma once

#include "lorry/trace/graph.h"
#include "lorry/trace/recorder.h"

namespace lorry::trace {

/// The graph of a recording. Memory that the function wrote, an argument's or a captured tensor's, is written back once
/// at the end. Throws CompileError where the recording has obstacles, and for memory that the function sees in two
/// dtypes.
Graph functionalise(const Recording& recording);

}  // namespace lorry::trace
