#pragma once

// The CPU's kernels in a form that records their calls. While a thread records (device/cpu/calls.h), `backend` gives it
// this table: each function calls the kernel and adds the call, with copies of its arguments, to the thread's calls.

#include <memory>
#include <span>

#include "lorry/kernels/backend.h"

namespace lorry::kernels {

namespace cpu {
const Backend& recording_table();
}

/// Runs a fused kernel, and records the call on a thread that records. The call holds the kernel.
bool run(const std::shared_ptr<const FusedKernel>& kernel, std::span<void* const> inputs,
         std::span<void* const> outputs, Stream stream);

}  // namespace lorry::kernels
