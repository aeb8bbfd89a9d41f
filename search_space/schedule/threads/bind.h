#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_BIND_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_BIND_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

enum class BindTo : uint8_t { kBlock, kThread, kVthread, kSlice, kSliceAll };
constexpr auto WordsOf(BindTo /*unused*/) {
  return std::array{"block", "thread", "vthread", "slice", "slice_all"};
}

// Binds a loop to the fused block axis, the fused thread axis or a virtual thread. A reduction loop
// of a local stage that is bound to thread is shared by a group of neighbouring threads, which all
// get the result; bound to slice, by threads of equal parts of the block, of which those of the
// last get it; bound to slice_all, all of them get it.
struct Bind {
  std::string stage, loop;
  BindTo to;

  HEDDLE_PRIMITIVE(Bind, "bind", stage, loop, to);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_BIND_H_
