target_sources(lorry_kernels PRIVATE
  cpu/list/foreach.cpp
  cpu/list/list_norm.cpp)
lorry_simd(kernels SOURCES cpu/list/list_norm_runs.cpp SUFFIX _list)
lorry_cuda(kernels
  cuda/list/foreach.cu
  cuda/list/list.cu
  cuda/list/list_norm.cu
  cuda/list/list_table.cu)
lorry_cuda_shares(foreach cuda/list/foreach_rows.cu 7)
