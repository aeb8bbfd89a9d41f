// The files of search_space/notation/operators/, embedded by CMake (embed_operators.cmake).
#ifndef HEDDLE_SEARCH_SPACE_NOTATION_BUILTIN_OPERATORS_H_
#define HEDDLE_SEARCH_SPACE_NOTATION_BUILTIN_OPERATORS_H_

#include <vector>

namespace heddle::search_space {

extern const std::vector<const char*> kBuiltinOperatorTexts;

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_NOTATION_BUILTIN_OPERATORS_H_
