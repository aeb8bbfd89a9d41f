// Work that several threads share out among themselves.
#ifndef HEDDLE_BASE_PARALLEL_H_
#define HEDDLE_BASE_PARALLEL_H_

#include <atomic>
#include <cstddef>
#include <functional>

namespace heddle {

// Calls `work` on as many threads as there are pieces, and on `threads` at most, this one among
// them. Each takes pieces, numbers below `count`, by counting `next` up until there are none.
void InParallel(size_t count, int threads,
                const std::function<void(std::atomic<size_t>& next)>& work);

}  // namespace heddle

#endif  // HEDDLE_BASE_PARALLEL_H_
