target_sources(lorry_kernels PRIVATE
  cpu/pointwise/block_table.cpp
  cpu/pointwise/copy.cpp
  cpu/pointwise/creation.cpp
  cpu/pointwise/join.cpp
  cpu/pointwise/pointwise.cpp
  cpu/pointwise/transpose.cpp)
foreach(share 0 1 2 3)
  lorry_simd(kernels SOURCES cpu/pointwise/blocks.cpp DEFINITIONS LORRY_SHARE=${share} SUFFIX _blocks${share})
endforeach()
lorry_cuda(kernels
  cuda/pointwise/copy.cu
  cuda/pointwise/creation.cu
  cuda/pointwise/join.cu
  cuda/pointwise/pointwise.cu)
lorry_cuda_shares(rows cuda/pointwise/pointwise_rows.cu 7)
