#pragma once

#include "lorry/trace/graph.h"
#include "lorry/trace/recorder.h"

namespace lorry::trace {

/// Makes the graph of a recording. Memory of arguments and captured tensors that the function wrote is written back
/// once, at the end. Throws CompileError if the recording has obstacles, or if the function accesses the same memory
/// with two dtypes.
Graph functionalise(const Recording& recording);

}  // namespace lorry::trace
