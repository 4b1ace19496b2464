#pragma once

// The beginning of a kernel, also of generated ones.

#ifdef __CUDACC__
namespace lorry::cuda {

/// Waits until the kernel before this one on the stream has ended and its results are visible, and lets the kernel after
/// this one start as soon as all blocks of this one have (programmatic dependent launch: CUDA C++ Programming Guide,
/// "Programmatic Dependent Launch and Synchronization"). So the next launch is over when this kernel ends, about 1 us
/// earlier. Must come before any access to global memory, except to memory that no kernel writes. All threads may call
/// it; those of a kernel that was launched otherwise go on at once.
__device__ __forceinline__ void begin_programmatic() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace lorry::cuda
#endif
