target_sources(lorry_kernels PRIVATE
  common/recording.cpp
  cpu/optim/optim.cpp
  cpu/optim/compressed.cpp
  cpu/optim/recorded.cpp)
lorry_simd(kernels SOURCES cpu/optim/optim_runs.cpp cpu/optim/compressed_runs.cpp SUFFIX _optim)
# The compiler does not take both sides of a choice between floats, unless nobody reads the exception flags.
set_source_files_properties(cpu/optim/compressed_runs.cpp PROPERTIES COMPILE_OPTIONS "-fno-trapping-math")
lorry_cuda(kernels
  cuda/optim/emit_rule.cpp
  cuda/optim/optim_compressed.cu
  cuda/optim/optim_table.cpp
  cuda/optim/recorded.cu)
lorry_cuda_shares(rules cuda/optim/optim.cu 7)
