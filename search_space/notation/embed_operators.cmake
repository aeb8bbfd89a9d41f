# embed_operators(TARGET): compiles the text of operators/*.op into TARGET (builtin_operators.h).
function(embed_operators target)
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/operators/*.op)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
  set(texts "")
  foreach(file ${files})
    file(READ ${file} text)
    string(APPEND texts "R\"op(${text})op\",\n")
  endforeach()
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/builtin_operators.cc)
  file(CONFIGURE OUTPUT ${generated} @ONLY CONTENT
"// Generated from search_space/notation/operators/*.op.
#include \"search_space/notation/builtin_operators.h\"

namespace heddle::search_space {

const std::vector<const char*> kBuiltinOperatorTexts = {
@texts@};

}  // namespace heddle::search_space
")
  target_sources(${target} PRIVATE ${generated})
endfunction()
