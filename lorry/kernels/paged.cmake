target_sources(lorry_kernels PRIVATE cpu/paged/paged.cpp)
lorry_cuda(kernels cuda/paged/paged.cu cuda/paged/paged_write.cu)
