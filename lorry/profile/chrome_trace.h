#pragma once

// A recording as a trace in the format of Chrome, which Perfetto and PyTorch's tools read. Names of categories and
// arguments are those of PyTorch's profiler: cpu_op, user_annotation, cuda_runtime, cuda_sync, kernel, gpu_memcpy,
// gpu_memset; flows "ac2g" lead from launches to kernels; "External id" joins a call and its kernels.

#include <string>

#include "lorry/profile/recording.h"

namespace lorry::profile {

/// Writes the trace beside its final name and renames it. Throws IoError if it cannot be written; the recording is
/// still there then.
void write_chrome_trace(const Recording& recording, const std::string& path);
/// The trace as text: for small recordings.
std::string chrome_trace(const Recording& recording);

}  // namespace lorry::profile
