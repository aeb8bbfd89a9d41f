// What must hold of matrix instructions. Internal to verify.cc.
#ifndef HEDDLE_SEARCH_SPACE_CHECK_VERIFY_MATRIX_H_
#define HEDDLE_SEARCH_SPACE_CHECK_VERIFY_MATRIX_H_

#include <string>

#include "search_space/ir/stmt.h"
#include "search_space/ir/target.h"

namespace heddle::search_space {

// Why an intrinsic of matrices cannot be, in blocks of so many threads on `target`; empty where it
// can, and for other intrinsics. That accesses are inside their buffers is not looked at,
// but that what follows them in one place is.
std::string FindMatrixProblem(const StmtNode& s, int64_t threads, const Target& target);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_CHECK_VERIFY_MATRIX_H_
