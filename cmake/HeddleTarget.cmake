# heddle_library(NAME DEPS...): the library of the current folder: every .cc of it is compiled, and
# headers are included by their path from the repository root.
function(heddle_library name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  add_library(${name} STATIC ${sources})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  target_link_libraries(${name} PUBLIC ${ARGN})
  heddle_warnings(${name})
endfunction()

function(heddle_warnings name)
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wno-missing-field-initializers -Werror)
endfunction()
