# LORRY_SANITIZE instruments every target of the build, but no CUDA source: sanitizers do not follow code for GPUs.
# ThreadSanitizer needs Clang: its OpenMP runtime tells the sanitizer where threads meet (Archer); GCC's does not, and
# every parallel loop would look like a race.
if(LORRY_SANITIZE)
  set(known address undefined thread fuzzer)
  if(NOT LORRY_SANITIZE IN_LIST known)
    message(FATAL_ERROR "LORRY_SANITIZE is '${LORRY_SANITIZE}'; expected address, undefined, thread or fuzzer")
  endif()
  if(LORRY_SANITIZE MATCHES "thread|fuzzer" AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "LORRY_SANITIZE=${LORRY_SANITIZE} needs Clang; got ${CMAKE_CXX_COMPILER_ID}; "
      "use the preset, or set CMAKE_CXX_COMPILER")
  endif()
  set(flags -fsanitize=${LORRY_SANITIZE} -fno-omit-frame-pointer)
  if(LORRY_SANITIZE STREQUAL "undefined")
    list(APPEND flags -fno-sanitize-recover=all)
  elseif(LORRY_SANITIZE STREQUAL "fuzzer")
    set(flags -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  endif()
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${flags}>")
  add_link_options(${flags})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # the packaged library, made by GCC, exports format_to under another name than Clang asks for
    add_compile_definitions(FMT_HEADER_ONLY)
  endif()
  if(LORRY_SANITIZE STREQUAL "thread")
    # Linked into each program, Archer is found by the OpenMP runtime without a setting in the environment.
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-resource-dir OUTPUT_VARIABLE resources
      OUTPUT_STRIP_TRAILING_WHITESPACE)
    get_filename_component(llvm_libraries "${resources}/../.." ABSOLUTE)
    find_library(LORRY_ARCHER archer HINTS "${llvm_libraries}" REQUIRED)
    add_link_options("LINKER:--no-as-needed,${LORRY_ARCHER},-rpath,${llvm_libraries},--as-needed")
  endif()
endif()
