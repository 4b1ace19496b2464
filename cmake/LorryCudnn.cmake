# cuDNN's fused attention. Two sets of headers are needed: cuDNN's own, which come with the library, and the frontend's,
# which only PyPI carries (tools/install-deps puts them into .venv); LORRY_CUDNN_FRONTEND_DIR names another place. The
# library itself is opened when the program runs. LORRY_WITH_CUDNN says the outcome.
set(LORRY_CUDNN_FRONTEND_DIR "" CACHE PATH "the folder of cudnn_frontend.h, or the one that holds it as include/")
set(LORRY_WITH_CUDNN OFF)
if(LORRY_WITH_CUDA)
  file(GLOB packages "${PROJECT_SOURCE_DIR}/.venv/lib*/python*/site-packages/include")
  find_path(LORRY_CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_path(LORRY_CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS "${LORRY_CUDNN_FRONTEND_DIR}"
    "${LORRY_CUDNN_FRONTEND_DIR}/include" ${packages})
  mark_as_advanced(LORRY_CUDNN_INCLUDE_DIR LORRY_CUDNN_FRONTEND_INCLUDE_DIR)
  if(LORRY_CUDNN_INCLUDE_DIR AND LORRY_CUDNN_FRONTEND_INCLUDE_DIR)
    set(LORRY_WITH_CUDNN ON)
  else()
    message(STATUS "lorry: the headers of cuDNN and of its frontend are not both installed (tools/install-deps); "
      "attention on CUDA uses the built-in kernels")
  endif()
endif()
