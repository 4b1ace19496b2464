include_guard(GLOBAL)  # for each of tests, examples and bench
find_package(GTest REQUIRED)
include(GoogleTest)

find_package(nlohmann_json REQUIRED)

# What tests of several rooms share: numerical gradients, and where values stored from peers lie.
add_library(lorry_test_support STATIC "${PROJECT_SOURCE_DIR}/tests/support/gradcheck.cpp"
  "${PROJECT_SOURCE_DIR}/tests/support/main.cpp")
target_link_libraries(lorry_test_support PUBLIC lorry::lorry lorry_warnings GTest::gtest nlohmann_json::nlohmann_json)
target_compile_definitions(lorry_test_support PUBLIC LORRY_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")

# lorry_test(ROOM FILES...): adds test sources of a room to its one executable, lorry_ROOM_test. May be called several
# times.
function(lorry_test room)
  set(target lorry_${room}_test)
  if(TARGET ${target})
    target_sources(${target} PRIVATE ${ARGN})
    return()
  endif()
  add_executable(${target} ${ARGN})
  lorry_unity(${target})
  target_link_libraries(${target} PRIVATE lorry_test_support lorry::lorry lorry_warnings GTest::gtest)
  # compiles a third faster; what is tested is in the libraries
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  gtest_discover_tests(${target} TEST_PREFIX "${room}." DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${room} TIMEOUT 600)
endfunction()

# lorry_test_on_cuda(ROOMS...): runs the rooms' tests once more with every tensor on the GPU, a room as one test;
# skipped by name where there is none.
function(lorry_test_on_cuda)
  foreach(room IN LISTS ARGN)
    add_test(NAME cuda.${room} COMMAND lorry_${room}_test --gtest_brief=1)
    set_tests_properties(cuda.${room} PROPERTIES LABELS cuda
      ENVIRONMENT LORRY_TEST_DEVICE=cuda SKIP_RETURN_CODE 77 TIMEOUT 1200)
  endforeach()
endfunction()
