// Helpers of generated code that are made for a shape: one function for each that a kernel calls.
#ifndef HEDDLE_MEASURE_CODEGEN_MADE_HELPERS_H_
#define HEDDLE_MEASURE_CODEGEN_MADE_HELPERS_H_

#include <cstddef>
#include <string>

#include "absl/functional/function_ref.h"
#include "measure/codegen/dialects.h"
#include "search_space/ir/matrix.h"

namespace heddle::measure {

// The function that adds a product of matrices of `type` to another by an instruction of a
// warpgroup: a helper of this name. Descriptors say where its operands are; not of A where that is
// `held` in registers.
std::string WarpgroupHelper(const search_space::MatrixShape& shape, search_space::DType type,
                            bool held);

// The function that starts a bulk copy from a tensor of so many dimensions: a helper of this name.
std::string BulkCopyHelper(size_t rank);

// Calls `visit` with the name of each, and what gives its text in a dialect, in the order in which
// they are printed.
void VisitMadeHelpers(
    absl::FunctionRef<void(const std::string& name,
                           absl::FunctionRef<std::string(const Dialect& dialect)> text)>
        visit);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_CODEGEN_MADE_HELPERS_H_
