# Compiles a program with fused multiply-adds where this processor has them, as many users do.
include(CheckCXXSourceRuns)
check_cxx_source_runs("int main() { return __builtin_cpu_supports(\"fma\") ? 0 : 1; }" HAS_FMA)
if(HAS_FMA)
  target_compile_options(consumer PRIVATE -mfma)
endif()
