#pragma once

// Clusters: blocks that run at the same time and read each other's shared memory, from compute capability 9.0 on. On
// older devices a kernel is launched without, as if each block were a cluster of one.

#include <cstdint>

#include "lorry/device/cuda/capability.h"

namespace lorry::kernels::cuda {

/// Whether a device has clusters of several blocks. 8 blocks are the most on which every such device can run.
template <int kCompiled = lorry::cuda::kCompiledFor>
bool has_clusters(int device) {
  return lorry::cuda::capability<kCompiled>(device) >= 90;
}

#ifdef __CUDACC__
/// The number of this block in its cluster.
__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank = 0;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  return rank;
}

/// The two halves of cluster_sync(), for threads that have something to do in between. Each thread calls them in turn.
/// What threads wrote before they arrived is visible after the wait.
__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait;" ::: "memory");
#else
  __syncthreads();
#endif
}

/// A barrier for all threads of the cluster. What they wrote before, to shared memory too, is visible after it. A block
/// may not end before others have read its shared memory: it waits here.
__device__ __forceinline__ void cluster_sync() { cluster_arrive(), cluster_wait(); }

/// The address at which block `rank` of the cluster has what this block has at `shared`.
template <class T>
__device__ __forceinline__ T* in_block(T* shared, uint32_t rank) {
#if __CUDA_ARCH__ >= 900
  uint64_t address;
  asm("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(reinterpret_cast<uint64_t>(shared)), "r"(rank));
  return reinterpret_cast<T*>(address);
#else
  return shared;
#endif
}
#endif

}  // namespace lorry::kernels::cuda
