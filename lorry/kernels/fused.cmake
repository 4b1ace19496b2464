target_sources(lorry_kernels PRIVATE cpu/fused/chain.cpp cpu/fused/fused.cpp cpu/fused/rows.cpp)
lorry_simd(kernels SOURCES cpu/fused/threaded.cpp SUFFIX _threaded)

if(LORRY_WITH_CUDA)
  # What generated kernels include. Each header must compile with NVRTC (tests/kernels/nvrtc_test.cpp).
  set(standard lorry/base/nvrtc)
  file(GLOB headers RELATIVE "${PROJECT_SOURCE_DIR}" CONFIGURE_DEPENDS
    "${PROJECT_SOURCE_DIR}/lorry/formula/*.h" "${PROJECT_SOURCE_DIR}/${standard}/*")
  list(FILTER headers EXCLUDE REGEX "README")
  list(APPEND headers lorry/base/macros.h lorry/layout/dtype_enum.h lorry/layout/dtypes.def lorry/layout/half.h
    lorry/device/cuda/begin_programmatic.h lorry/device/state_type.h lorry/kernels/common/master_kind.h
    lorry/kernels/cuda/list/list.h lorry/kernels/cuda/list/tile.h lorry/kernels/cuda/optim/branch_free.h
    lorry/kernels/cuda/optim/step.h lorry/kernels/cuda/optim/step_compressed.h
    lorry/kernels/cuda/common/divider.h lorry/kernels/cuda/common/element.h lorry/kernels/cuda/common/fast_math.h
    lorry/kernels/cuda/common/last_block.h lorry/kernels/cuda/fused/column_kernel.h
    lorry/kernels/cuda/fused/map_kernel.h lorry/kernels/cuda/fused/row_kernel.h
    lorry/kernels/cuda/pointwise/evaluate.h lorry/kernels/cuda/rowwise/row_steps.h lorry/kernels/cuda/rowwise/rows.h)
  set(embedded "${CMAKE_CURRENT_BINARY_DIR}/embedded_headers.cpp")
  list(JOIN headers "," joined)
  list(TRANSFORM headers PREPEND "${PROJECT_SOURCE_DIR}/")
  set(script "${PROJECT_SOURCE_DIR}/cmake/embed_headers.cmake")
  add_custom_command(OUTPUT "${embedded}"
    COMMAND "${CMAKE_COMMAND}" "-DROOT=${PROJECT_SOURCE_DIR}" "-DOUT=${embedded}" "-DHEADERS=${joined}"
            "-DSTANDARD=${standard}" -P "${script}"
    DEPENDS ${headers} "${script}" VERBATIM)
  lorry_cuda(kernels cuda/fused/argument.cpp cuda/fused/column_arguments.cpp cuda/fused/emit.cpp
    cuda/fused/emit_columns.cpp cuda/fused/emit_rows.cpp cuda/fused/fused.cpp
    cuda/fused/kernel_cache.cpp cuda/fused/map_arguments.cpp cuda/fused/nvrtc.cpp cuda/fused/row_arguments.cpp
    cuda/fused/runtime_compiler.cpp cuda/fused/source_text.cpp "${embedded}")
endif()
