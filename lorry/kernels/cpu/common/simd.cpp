#include "lorry/kernels/cpu/common/simd.h"

#include <hwy/targets.h>

#include "lorry/base/env.h"
#include "lorry/base/error.h"

namespace lorry::kernels::cpu {
namespace {

SimdLevel detect() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  require(__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("aes"),
          "simd: this processor is too old; expected x86-64 with SSE4.2, PCLMUL and AES");
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  const SimdLevel best = avx512 ? SimdLevel::avx512 : avx2 ? SimdLevel::avx2 : SimdLevel::sse4;
  const auto wanted = env::text("LORRY_SIMD");
  if (!wanted) return best;
  const bool known = *wanted == "sse4" || *wanted == "avx2" || *wanted == "avx512";
  require<ValueError>(known, "environment: LORRY_SIMD is not usable; got '{}'; expected sse4, avx2 or avx512", *wanted);
  const SimdLevel level = *wanted == "sse4" ? SimdLevel::sse4 : *wanted == "avx2" ? SimdLevel::avx2 : SimdLevel::avx512;
  return level < best ? level : best;
#else
  return SimdLevel::native;
#endif
}

}  // namespace

SimdLevel simd_level() {
  static const SimdLevel level = [] {
    const SimdLevel chosen = detect();
#if defined(__x86_64__)
    // Restrict kernels that Highway selects itself (foreach_target.h) to the same level.
    if (chosen == SimdLevel::avx2) hwy::DisableTargets(HWY_AVX3);
    if (chosen == SimdLevel::sse4) hwy::DisableTargets(HWY_AVX3 | HWY_AVX2);
#endif
    return chosen;
  }();
  return level;
}

}  // namespace lorry::kernels::cpu
