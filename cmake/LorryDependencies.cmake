# Everything that Lorry links comes from the system's packages. What is optional is looked for here and nowhere else.
find_package(fmt REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)
find_package(hwy REQUIRED)
find_package(nlohmann_json REQUIRED)

# Source lines of calls (base/call_stack.h).
set(LORRY_WITH_LIBDW OFF)
if(LORRY_LIBDW)
  find_package(Libdw QUIET)
  if(Libdw_FOUND)
    set(LORRY_WITH_LIBDW ON)
  else()
    message(STATUS "lorry: libdw is not installed (libdw-dev); calls have functions and no source lines")
  endif()
endif()

# oneDNN is built with GCC's OpenMP runtime; a ThreadSanitizer build uses LLVM's, and two runtimes do not share a team.
set(LORRY_WITH_ONEDNN OFF)
if(LORRY_ONEDNN AND NOT LORRY_SANITIZE STREQUAL "thread")
  find_package(OneDNN QUIET)
  if(OneDNN_FOUND)
    set(LORRY_WITH_ONEDNN ON)
  else()
    message(STATUS "lorry: oneDNN is not installed (libdnnl-dev); matrix products use the built-in kernels")
  endif()
endif()
