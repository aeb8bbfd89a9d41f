// Products whose rows are reduced, and then stored with what they were reduced to: heads that are
// normalised, the probabilities of a router. Where a tile has whole rows one kernel does it all.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_MATRIX_WHOLE_ROWS_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_MATRIX_WHOLE_ROWS_H_

#include <set>
#include <string>
#include <vector>

#include "search_space/ir/tensor_program.h"

namespace heddle::search_space {

struct WholeRows {
  std::set<std::string> inside;  // the product, and what is computed of its rows
  std::string stored;            // the last stage, of its elements
};
// Of each product whose rows, short enough for a tile, are reduced along one axis: the stages
// behind it that are elements or reductions of its rows and, but for the last, only read by others
// of these, each at its own element or row. The last is an output, or read by sums of columns, as
// of a product with its transpose: chains know more of what goes on along the rows. Nor are rows
// among them that are stored as well, or read by two outputs.
std::vector<WholeRows> WholeRowsOf(const TensorProgram& program);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_MATRIX_WHOLE_ROWS_H_
