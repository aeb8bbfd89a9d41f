# heddle_test(NAME [SOURCES...] LIBS libs... [TIMEOUT seconds]): a GoogleTest program and a ctest entry for
# each of its tests. Without SOURCES, every .cc of the current folder and of those in it; a folder that has none yet is
# skipped. A source that defines main() replaces GoogleTest's.
#
# Labels follow the tests' names, so that a test says itself what it needs: a suite or test whose
# name begins with "Long" gets the label `long` (left out by scripts/test), one whose name contains
# "Gpu" the label `gpu`, one whose name contains "Fault" the label `fault`.
function(heddle_test name)
  set(long Long*:*/Long*:*.Long*)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "LIBS")
  set(sources ${arg_UNPARSED_ARGUMENTS})
  if(NOT sources)
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  endif()
  if(NOT sources)
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 600)
  endif()
  set(long_timeout 3600)
  if(HEDDLE_SANITIZE)  # several times as slow
    math(EXPR arg_TIMEOUT "4 * ${arg_TIMEOUT}")
    math(EXPR long_timeout "4 * ${long_timeout}")
  endif()

  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} heddle_tests_support GTest::gmock GTest::gtest GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  heddle_warnings(${name})
  heddle_sanitizers(${name})

  gtest_discover_tests(${name} TEST_PREFIX ${name}. TEST_FILTER -${long}:*Gpu*:*Fault*
                       TEST_LIST ${name}_usual DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT ${arg_TIMEOUT})
  gtest_discover_tests(${name} TEST_PREFIX ${name}. TEST_FILTER *Fault*-${long}:*Gpu*
                       TEST_LIST ${name}_fault DISCOVERY_TIMEOUT 60
                       PROPERTIES LABELS fault TIMEOUT ${arg_TIMEOUT})
  gtest_discover_tests(${name} TEST_PREFIX ${name}. TEST_FILTER ${long}-*Gpu*
                       TEST_LIST ${name}_long DISCOVERY_TIMEOUT 60
                       PROPERTIES LABELS long TIMEOUT ${long_timeout})
  # One at a time: each would otherwise disturb the others' timings.
  gtest_discover_tests(${name} TEST_PREFIX ${name}. TEST_FILTER *Gpu*
                       TEST_LIST ${name}_gpu DISCOVERY_TIMEOUT 60
                       PROPERTIES LABELS gpu TIMEOUT ${arg_TIMEOUT} RESOURCE_LOCK gpu)
endfunction()
