find_package(GTest REQUIRED)
include(GoogleTest)

# lorry_test(ROOM FILES...): adds test sources of a room to its one executable, lorry_ROOM_test. May be called several times.
function(lorry_test room)
  set(target lorry_${room}_test)
  if(TARGET ${target})
    target_sources(${target} PRIVATE ${ARGN})
    return()
  endif()
  add_executable(${target} ${ARGN})
  target_link_libraries(${target} PRIVATE lorry::lorry lorry_warnings GTest::gtest_main)
  gtest_discover_tests(${target} TEST_PREFIX "${room}." DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 PROPERTIES LABELS ${room} TIMEOUT 600)
endfunction()
