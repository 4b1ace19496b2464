target_sources(lorry_kernels PRIVATE cpu/fused/fused.cpp)
