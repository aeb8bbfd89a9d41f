// Spelling suggestions for error messages.
#ifndef HEDDLE_BASE_NEAREST_NAME_H_
#define HEDDLE_BASE_NEAREST_NAME_H_

#include <string>
#include <vector>

namespace heddle {

// What to append to "unknown ... 'name'": "; did you mean 'matmul'?" with up to three names within
// a small edit distance, nearest first; where none is near, "; known: a, b, c" (at most 24 of
// them); and nothing where there are no candidates.
std::string Suggest(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace heddle

#endif  // HEDDLE_BASE_NEAREST_NAME_H_
