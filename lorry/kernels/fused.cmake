target_sources(lorry_kernels PRIVATE cpu/fused/chain.cpp cpu/fused/fused.cpp cpu/fused/rows.cpp)
lorry_simd(kernels SOURCES cpu/fused/threaded.cpp SUFFIX _threaded)
lorry_cuda(kernels cuda/fused/kernel_cache.cpp cuda/fused/nvrtc.cpp)
