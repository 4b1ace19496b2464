#pragma once

// Ranges for another profiler that watches the process (NVIDIA's NVTX). Without one they cost a few nanoseconds, and in
// a build without CUDA nothing.

namespace lorry::profile {

void nvtx_push(const char* name) noexcept;
void nvtx_pop() noexcept;

}  // namespace lorry::profile
