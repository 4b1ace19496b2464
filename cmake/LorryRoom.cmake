# Formulas promise the same bits on every path: the compiler never contracts a*b+c by itself. All rooms are compiled so,
# and, by lorry::formula, everything that instantiates a formula: users' code too.
set(LORRY_EXACT_CXX -ffp-contract=off)
# Frame pointers are there for walks of a thread's stack: call_stack (base/call_stack.h), profilers, debuggers.
add_library(lorry_warnings INTERFACE)
target_compile_options(lorry_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wno-unknown-pragmas ${LORRY_EXACT_CXX} -fno-omit-frame-pointer
  $<$<BOOL:${LORRY_WERROR}>:-Werror>>
  $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false --expt-relaxed-constexpr --expt-extended-lambda -DFMT_USE_CONSTEXPR=1
  -Xcompiler=-Wall,-Wno-unknown-pragmas,-ffp-contract=off,-fno-omit-frame-pointer
  $<$<BOOL:${LORRY_WERROR}>:-Werror=all-warnings>>)

# lorry_unity(TARGET): sources of the target are compiled four at a time, so that their headers are read once for all
# four. Names in their anonymous namespaces must differ.
function(lorry_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${LORRY_UNITY} UNITY_BUILD_BATCH_SIZE 4)
endfunction()

# lorry_room(NAME SOURCES... DEPENDS... PRIVATE...): one library a room, linked only upwards; static, or shared with
# BUILD_SHARED_LIBS.
#   DEPENDS  rooms and packages that its headers use
#   PRIVATE  packages that only its sources use
# A package of headers that only sources use is $<BUILD_INTERFACE:package::package>, so that users of Lorry need not
# have it.
function(lorry_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;DEPENDS;PRIVATE" ${ARGN})
  add_library(lorry_${name} ${ROOM_SOURCES})
  add_library(lorry::${name} ALIAS lorry_${name})
  set_target_properties(lorry_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON DEFINE_SYMBOL ""
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} INSTALL_RPATH "$ORIGIN")
  target_compile_features(lorry_${name} PUBLIC cxx_std_20)
  target_include_directories(lorry_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
  target_link_libraries(lorry_${name} PRIVATE $<BUILD_INTERFACE:lorry_warnings> PUBLIC ${ROOM_DEPENDS}
    PRIVATE ${ROOM_PRIVATE})
endfunction()
