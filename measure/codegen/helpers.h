// Functions that generated code calls, and what stands before a kernel that calls them.
#ifndef HEDDLE_MEASURE_CODEGEN_HELPERS_H_
#define HEDDLE_MEASURE_CODEGEN_HELPERS_H_

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "measure/codegen/dialects.h"
#include "search_space/ir/matrix.h"

namespace heddle::measure {

struct Helper {
  std::string name;
  std::string text;
};
const std::vector<Helper>& HelpersOf(const Dialect& dialect);

// The function that adds a product of matrices of `type` to another by an instruction of a
// warpgroup: a helper of this name. Descriptors say where its operands are; not of A where that is
// `held` in registers.
std::string WarpgroupHelper(const search_space::MatrixShape& shape, search_space::DType type,
                            bool held);

// The function that starts a bulk copy from a tensor of so many dimensions: a helper of this name.
std::string BulkCopyHelper(size_t rank);

// Helpers that are made for a shape: calls `visit` with the name of each, and what gives its text
// in a dialect, in the order in which they are printed.
void VisitMadeHelpers(
    absl::FunctionRef<void(const std::string& name,
                           absl::FunctionRef<std::string(const Dialect& dialect)> text)>
        visit);

// What stands before a kernel that uses `helpers` and, when `float64`, double precision.
std::string Prelude(const Dialect& dialect, const std::set<std::string>& helpers, bool float64);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_CODEGEN_HELPERS_H_
