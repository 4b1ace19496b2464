# lorry_room(NAME SOURCES... DEPENDS... PRIVATE...): one static library a room, linked only upwards.
#   DEPENDS  rooms and packages that its headers use
#   PRIVATE  packages that only its sources use
function(lorry_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;DEPENDS;PRIVATE" ${ARGN})
  add_library(lorry_${name} STATIC ${ROOM_SOURCES})
  add_library(lorry::${name} ALIAS lorry_${name})
  set_target_properties(lorry_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  target_compile_features(lorry_${name} PUBLIC cxx_std_20)
  target_include_directories(lorry_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
  target_link_libraries(lorry_${name} PUBLIC ${ROOM_DEPENDS} PRIVATE ${ROOM_PRIVATE} $<BUILD_INTERFACE:lorry_warnings>)
endfunction()
