target_sources(lorry_kernels PRIVATE
  cpu/indexing/indexing.cpp
  cpu/indexing/nonzero.cpp
  cpu/indexing/put.cpp
  cpu/indexing/take.cpp)
lorry_cuda(kernels
  cuda/indexing/indexing.cpp
  cuda/indexing/nonzero.cu
  cuda/indexing/put.cu
  cuda/indexing/put_add.cu
  cuda/indexing/put_few.cu
  cuda/indexing/put_last.cu
  cuda/indexing/put_fold.cu
  cuda/indexing/repeat.cu
  cuda/indexing/take.cu)
