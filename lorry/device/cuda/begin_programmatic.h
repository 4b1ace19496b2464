#pragma once

// The beginning of a kernel, also of those that are compiled at run time.

#ifdef __CUDACC__
namespace lorry::cuda {

/// Waits until the work in front of this kernel on its stream has ended and its results are visible, and lets the next
/// kernel start as soon as all blocks of this one have (programmatic dependent launch: CUDA C++ Programming Guide,
/// "Programmatic Dependent Launch and Synchronization"). So the launch of a kernel is over when the kernel in front of
/// it ends. All threads may call it. In a kernel that was launched otherwise, or that is compiled for a compute
/// capability below 9.0, it does nothing.
__device__ __forceinline__ void begin_programmatic() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace lorry::cuda
#endif
