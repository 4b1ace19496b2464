target_sources(lorry_kernels PRIVATE
  cpu/sort/radix.cpp
  cpu/sort/sort.cpp
  cpu/sort/unique.cpp)
lorry_simd(kernels SOURCES cpu/sort/key_runs.cpp cpu/sort/radix_runs.cpp SUFFIX _sort)
lorry_cuda(kernels
  cuda/sort/radix.cu
  cuda/sort/select.cu
  cuda/sort/sort.cu
  cuda/sort/sort_rows.cu
  cuda/sort/unique.cu)
