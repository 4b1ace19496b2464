target_sources(lorry_kernels PRIVATE
  common/matmul.cpp
  cpu/matmul/gemm.cpp
  cpu/matmul/gemm_int8.cpp
  cpu/matmul/gemm_packed.cpp
  cpu/matmul/linear_rows.cpp
  cpu/matmul/matmul.cpp)
lorry_simd(kernels SOURCES cpu/matmul/gemm_int8_loops.cpp SUFFIX _matmul)
if(LORRY_WITH_ONEDNN)
  target_sources(lorry_kernels PRIVATE cpu/matmul/gemm_bf16.cpp cpu/matmul/onednn.cpp)
  target_compile_definitions(lorry_kernels PRIVATE LORRY_WITH_ONEDNN=1)
  target_link_libraries(lorry_kernels PRIVATE DNNL::dnnl)
endif()
lorry_cuda(kernels
  cuda/matmul/cublas_lt.cpp
  cuda/matmul/int8.cpp
  cuda/matmul/linear_rows.cu
  cuda/matmul/linear_rows_fma.cu
  cuda/matmul/matmul.cpp
  cuda/matmul/matmul_builtin.cu
  cuda/matmul/matmul_plan.cpp
  cuda/matmul/matmul_problem.cpp
  cuda/matmul/matmul_tune.cpp
  cuda/matmul/timed_graph.cpp)
