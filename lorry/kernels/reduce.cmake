target_sources(lorry_kernels PRIVATE
  cpu/reduce/dot.cpp
  cpu/reduce/reduce.cpp
  cpu/reduce/scan.cpp
  cpu/reduce/scan_loops.cpp)
lorry_cuda(kernels
  cuda/reduce/dot.cu
  cuda/reduce/reduce.cu
  cuda/reduce/reduce_extremum.cu
  cuda/reduce/reduce_max.cu
  cuda/reduce/reduce_min.cu
  cuda/reduce/reduce_moments.cu
  cuda/reduce/reduce_nonzero.cu
  cuda/reduce/reduce_prod.cu
  cuda/reduce/reduce_range.cu
  cuda/reduce/reduce_sum.cu
  cuda/reduce/scan.cu)
