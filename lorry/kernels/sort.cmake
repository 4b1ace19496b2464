target_sources(lorry_kernels PRIVATE cpu/sort/sort.cpp)
lorry_cuda(kernels
  cuda/sort/radix.cu
  cuda/sort/sort.cu
  cuda/sort/sort_rows.cu
  cuda/sort/unique.cu)
