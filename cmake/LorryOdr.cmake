# The target lorry_odr (preset odr): compares all definitions of each type and variable across the files of the library
# and the command, contents included, and fails where two differ. GCC does so when it merges its intermediate code, as
# before link-time optimization; nothing is optimized, and no machine code is made. Every object of the archives takes
# part, whether a program needs it or not. Files for GPUs cannot: tools/check_types.py reads those.
if(NOT CMAKE_INTERPROCEDURAL_OPTIMIZATION OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  return()
endif()
get_property(libraries GLOBAL PROPERTY LORRY_LIBRARIES)
if(TARGET lorry_cli)
  list(APPEND libraries lorry_cli)
endif()
set(archives)
foreach(library IN LISTS libraries)
  get_target_property(type ${library} TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    list(APPEND archives $<TARGET_FILE:${library}>)
  endif()
endforeach()
set(merged "${CMAKE_CURRENT_BINARY_DIR}/odr.o")
add_custom_command(OUTPUT "${merged}"
  COMMAND ${CMAKE_CXX_COMPILER} -O0 -flto -r -nostdlib -flinker-output=rel
    -Wodr -Werror=odr -Werror=lto-type-mismatch -o "${merged}" -Wl,--whole-archive ${archives}
  DEPENDS ${libraries} ${archives} COMMENT "Comparing the definitions of types across all files" VERBATIM)
add_custom_target(lorry_odr DEPENDS "${merged}")
