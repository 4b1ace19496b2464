target_sources(lorry_kernels PRIVATE
  cpu/attention/attention.cpp
  cpu/attention/attention_backward.cpp
  cpu/attention/attention_rows.cpp
  cpu/attention/rotary.cpp)
lorry_simd(kernels SOURCES cpu/attention/rotary_runs.cpp SUFFIX _attention)
lorry_cuda(kernels
  cuda/attention/attention.cpp
  cuda/attention/delta.cu
  cuda/attention/fma_backward.cu
  cuda/attention/fma_forward.cu
  cuda/attention/rotary.cu
  cuda/attention/tensor_backward.cu
  cuda/attention/tensor_forward.cu)
if(LORRY_WITH_WARPGROUPS)
  foreach(pass forward backward)
    lorry_cuda_objects(lorry_kernels_cuda_warpgroup_${pass} cuda/attention/warpgroup_${pass}.cu)
    set_target_properties(lorry_kernels_cuda_warpgroup_${pass} PROPERTIES CUDA_ARCHITECTURES 90a)
  endforeach()
  set_property(SOURCE cuda/attention/attention.cpp APPEND PROPERTY COMPILE_DEFINITIONS LORRY_WITH_WARPGROUPS=1)
endif()
if(LORRY_WITH_CUDNN)
  lorry_cuda(kernels cuda/attention/attention_cudnn.cpp)
  target_include_directories(lorry_kernels SYSTEM PRIVATE
    "${LORRY_CUDNN_FRONTEND_INCLUDE_DIR}" "${LORRY_CUDNN_INCLUDE_DIR}")
  set_property(SOURCE cuda/attention/attention.cpp APPEND PROPERTY COMPILE_DEFINITIONS LORRY_WITH_CUDNN=1)
  set_source_files_properties(cuda/attention/attention_cudnn.cpp PROPERTIES COMPILE_DEFINITIONS
    "NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING;CUDNN_FRONTEND_SKIP_JSON_LIB"
    COMPILE_OPTIONS $<$<CONFIG:Release>:-O1>)  # it plans; optimising its many templates takes twice as long
endif()
