#pragma once

/// Formulas are inlined on the host and, where nvcc or NVRTC compiles them, on the device.
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define LORRY_FORMULA __host__ __device__ __forceinline__
#else
#define LORRY_FORMULA inline __attribute__((always_inline))
#endif
