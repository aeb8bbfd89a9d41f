// Instructions that go on while the threads that started them do other work.
#ifndef HEDDLE_SEARCH_SPACE_IR_BACKGROUND_H_
#define HEDDLE_SEARCH_SPACE_IR_BACKGROUND_H_

#include "search_space/ir/stmt.h"

namespace heddle::search_space {

// What one asynchronous copy (Intrinsic::kAsyncCopy) moves at least: cp.async.
inline constexpr int64_t kLeastAsyncBytes = 4;

// What one bulk copy (Intrinsic::kBulkCopy) can move: cp.async.bulk.tensor.
inline constexpr int64_t kMostBulkExtent = 256, kMostBulkRank = 5;
bool HasBulkCopies(const Target& target);
// Can they read `tensor`: do its rows begin at multiples of 16 bytes?
bool IsBulkCopied(const Buffer& tensor);
// Is it select(condition, x, 0), which copies of x fill with zeros?
bool IsGuarded(const Expr& element);
// The load that they make of an element: the element itself, or x of select(inside, x, 0) where
// `inside` says no more than that its indices are in front of the tensor's ends, since what lies
// behind these is zero; null where it is none.
Expr BulkLoadOf(const Expr& element);
// The first that a kernel makes of each box of each tensor, for which a launch describes them.
std::vector<const StmtNode*> BulkCopiesOf(const Stmt& body);

// Products that access memory themselves, past the threads' caches and by descriptors of whole
// buffers. As the intrinsic's row says: a whole warpgroup starts what is complete with its group.
bool RunsInBackground(const StmtNode& s);
// Whether any statement below does. Such a kernel needs fences of what it stores to shared memory,
// and is compiled for one architecture alone.
bool AnyRunsInBackground(const Stmt& body);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_IR_BACKGROUND_H_
