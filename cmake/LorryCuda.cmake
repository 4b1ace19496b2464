# CUDA is a column of every table, filled when there is a compiler for it; nothing else asks whether it is there.
# LORRY_WITH_CUDA says the outcome. Devices and libraries beyond the runtime are looked for when the program runs.
set(LORRY_WITH_CUDA OFF)
if(NOT LORRY_CUDA)
  message(STATUS "lorry: LORRY_CUDA is off; this build is for the CPU only; -DLORRY_CUDA=ON builds for GPUs too"
    " where nvcc is installed")
elseif(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  message(STATUS "lorry: code for GPUs is compiled beside GCC only, and this is ${CMAKE_CXX_COMPILER_ID}; "
    "this build is for the CPU only; -DCMAKE_CXX_COMPILER=g++ names GCC")
else()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 90 CACHE STRING "compute capabilities to compile for")
    endif()
    if(LORRY_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER "${LORRY_CCACHE}")
    endif()
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(LORRY_WITH_CUDA ON)
    # A kernel is known to the copy of the runtime beside it, and launched by the room `device`: shared rooms need one
    # runtime for all.
    set(LORRY_CUDART CUDA::cudart_static)
    if(BUILD_SHARED_LIBS)
      set(LORRY_CUDART CUDA::cudart)
      set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
    endif()
    # CMake older than 3.26 does not know C++20 for CUDA and drops CMAKE_CUDA_STANDARD 20 silently.
    string(APPEND CMAKE_CUDA_FLAGS " -std=c++20")
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
      string(APPEND CMAKE_CUDA_FLAGS " --compress-mode=size")  # a third of the size
    endif()
  else()
    message(STATUS "lorry: no CUDA compiler (nvcc); this build is for the CPU only; CUDACXX=/path/to/nvcc names one")
  endif()
endif()

# Instructions of compute capability 9.0 alone (sm_90a): warpgroups' matrix products. Their kernels are compiled where
# this is one of the capabilities.
set(LORRY_WITH_WARPGROUPS OFF)
if(LORRY_WITH_CUDA AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.0)
  set(capabilities "${CMAKE_CUDA_ARCHITECTURES}")
  if(capabilities STREQUAL "native")
    set(capabilities "${CMAKE_CUDA_ARCHITECTURES_NATIVE}")
  endif()
  if(capabilities MATCHES "(^|;)(90|all)")
    set(LORRY_WITH_WARPGROUPS ON)
  endif()
endif()

# NCCL's header; the library is opened when the program runs.
set(LORRY_WITH_NCCL OFF)
if(LORRY_WITH_CUDA)
  find_path(LORRY_NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  mark_as_advanced(LORRY_NCCL_INCLUDE_DIR)
  if(LORRY_NCCL_INCLUDE_DIR)
    set(LORRY_WITH_NCCL ON)
  else()
    message(STATUS "lorry: the header of NCCL is not installed (libnccl-dev); GPU tensors stay in their process")
  endif()
endif()

# lorry_cuda(ROOM SOURCES...): adds sources to a room when CUDA is there. They see LORRY_WITH_CUDA.
function(lorry_cuda room)
  if(NOT LORRY_WITH_CUDA)
    return()
  endif()
  target_sources(lorry_${room} PRIVATE ${ARGN})
  target_compile_definitions(lorry_${room} PRIVATE LORRY_WITH_CUDA=1)
  target_link_libraries(lorry_${room} PUBLIC ${LORRY_CUDART})
endfunction()
