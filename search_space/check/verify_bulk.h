// What must hold of bulk copies and their phases. Internal to verify.cc.
#ifndef HEDDLE_SEARCH_SPACE_CHECK_VERIFY_BULK_H_
#define HEDDLE_SEARCH_SPACE_CHECK_VERIFY_BULK_H_

#include <string>

#include "search_space/ir/stmt.h"
#include "search_space/ir/target.h"

namespace heddle::search_space {

// Is it one of those that FindBulkProblem looks at?
bool IsOfBulkCopies(const StmtNode& s);

// Why a bulk copy, or what is done with phases, cannot be on `target`; empty where it can, and for
// other intrinsics. That first elements and phases are inside their buffers is not looked at, but
// that what follows them in one place is.
std::string FindBulkProblem(const StmtNode& s, const Target& target);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_CHECK_VERIFY_BULK_H_
