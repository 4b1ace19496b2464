target_sources(lorry_kernels PRIVATE
  common/list.cpp
  common/walk.cpp
  cpu/common/converter.cpp
  cpu/common/fold_loops.cpp
  cpu/common/scratch.cpp
  cpu/common/simd.cpp
  cpu/common/load_store.cpp)
lorry_simd(kernels SOURCES cpu/common/convert.cpp SUFFIX _convert)
lorry_simd(kernels SOURCES cpu/common/move_runs.cpp SUFFIX _moves)
lorry_cuda(kernels cuda/common/launch_slots.cpp cuda/common/stream_memory.cpp cuda/common/tickets.cpp)
