#pragma once

/// Marks functions for host and device: nvcc compiles the layout and formula rooms too.
#if defined(__CUDACC__)
#define LORRY_HOST_DEVICE __host__ __device__
#else
#define LORRY_HOST_DEVICE
#endif

#define LORRY_INLINE LORRY_HOST_DEVICE inline __attribute__((always_inline))
