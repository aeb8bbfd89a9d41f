# heddle_library(NAME DEPS...): the library of the current folder: every .cc of it is compiled, and
# headers are included by their path from the repository root. A folder that has no .cc yet gives a
# library without code, so that the link graph can name it.
function(heddle_library name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  if(sources)
    add_library(${name} STATIC ${sources})
    target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
    target_link_libraries(${name} PUBLIC ${ARGN})
    heddle_warnings(${name})
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
    target_link_libraries(${name} INTERFACE ${ARGN})
  endif()
endfunction()

# heddle_executable(NAME DEPS...): the program of the current folder, from every .cc of it.
function(heddle_executable name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  if(NOT sources)
    return()
  endif()
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE ${ARGN})
  heddle_warnings(${name})
  heddle_sanitizers(${name})
endfunction()

# What a program needs to run with sanitizers, as the system's libraries are not built for them.
function(heddle_sanitizers name)
  if(HEDDLE_SANITIZE MATCHES "address")
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/lsan_suppressions.cc)
  endif()
  if(HEDDLE_SANITIZE MATCHES "thread")
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/tsan_sync.cc)
    target_link_libraries(${name} PRIVATE absl::synchronization ${CMAKE_DL_LIBS})
  endif()
endfunction()

# gcc 12 reports -Wrestrict inside std::string's operator+ where there is nothing (its bug 105651),
# and with sanitizers -Wmaybe-uninitialized inside absl::InlinedVector.
function(heddle_warnings name)
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wno-missing-field-initializers
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
                         $<$<BOOL:${HEDDLE_WERROR}>:-Werror>)
  if(HEDDLE_SANITIZE)
    target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  endif()
endfunction()

# heddle_compile_alone(SOURCES...): sources of the current folder whose anonymous namespaces have names that
# others of their target have, too, so that a unity build (presets test, asan, tsan, fuzz) does not put them together.
function(heddle_compile_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
