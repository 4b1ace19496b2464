target_sources(lorry_kernels PRIVATE
  cpu/rowwise/loss.cpp
  cpu/rowwise/norm.cpp
  cpu/rowwise/softmax.cpp)
lorry_cuda(kernels
  cuda/rowwise/loss.cu
  cuda/rowwise/norm.cu
  cuda/rowwise/norm_backward.cu
  cuda/rowwise/softmax.cu)
