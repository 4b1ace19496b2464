target_sources(lorry_kernels PRIVATE cpu/tokens/tokens.cpp)
lorry_cuda(kernels cuda/tokens/tokens.cu)
