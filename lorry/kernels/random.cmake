target_sources(lorry_kernels PRIVATE
  cpu/random/random.cpp
  cpu/random/random_tile.cpp
  cpu/random/sampling.cpp)
# The normals take a square root that the compiler may only vectorise when nobody reads errno or the exception flags.
set_source_files_properties(cpu/random/random_tile.cpp PROPERTIES COMPILE_OPTIONS "-fno-math-errno;-fno-trapping-math")
lorry_cuda(kernels
  cuda/random/random.cu
  cuda/random/sampling.cu)
