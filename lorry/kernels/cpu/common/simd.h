#pragma once

// Vector instruction sets. A source listed in lorry_simd() is compiled once per level, inside `namespace LORRY_SIMD`.
// Other code calls its functions through LORRY_SIMD_CHOOSE, which selects the best level that this processor supports.
// Such a source may call only vector code, formulas and <cmath>. Otherwise an inline function of a common header,
// compiled there for a newer instruction set, could be the copy that the linker keeps for all callers.

#include <cstdint>

namespace lorry::kernels::cpu {

/// How far ahead loops over long arrays prefetch. The processor's own prefetching ends at each page, and beside a long
/// formula it does not catch up.
inline constexpr int64_t kAheadBytes = 2048;

enum class SimdLevel { sse4, avx2, avx512, native };

/// The level of this process: the best that processor and system support, or lower if LORRY_SIMD=sse4|avx2 requests it.
/// Throws Error on an x86 processor without SSE4.2 (older than 2010).
SimdLevel simd_level();

}  // namespace lorry::kernels::cpu

#if defined(__x86_64__)
#define LORRY_SIMD_DECLARE(declaration) \
  namespace sse4 {                      \
  declaration;                          \
  }                                     \
  namespace avx2 {                      \
  declaration;                          \
  }                                     \
  namespace avx512 {                    \
  declaration;                          \
  }
#define LORRY_SIMD_CHOOSE(function)                                                                   \
  (::lorry::kernels::cpu::simd_level() == ::lorry::kernels::cpu::SimdLevel::avx512 ? avx512::function \
   : ::lorry::kernels::cpu::simd_level() == ::lorry::kernels::cpu::SimdLevel::avx2 ? avx2::function   \
                                                                                   : sse4::function)
#else
#define LORRY_SIMD_DECLARE(declaration) \
  namespace native {                    \
  declaration;                          \
  }
#define LORRY_SIMD_CHOOSE(function) native::function
#endif
