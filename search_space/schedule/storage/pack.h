#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_STORAGE_PACK_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_STORAGE_PACK_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Transforms a layout: inserts a stage "tensor.packed", a kernel of its own, that holds `tensor`
// with its dimensions in another order, `order` of them counted from 0 and the outermost first, and
// `pad` unused elements behind each row of the innermost. `reader` reads that from then on,
// wherever it read the tensor. [0, 2, 3, 1] makes images whose channels come last of such whose
// channels come first; [0, 1] with a pad of 61 lets rows of 4099 elements of 16 bits begin
// with whole lines.
struct PackLayout {
  std::string tensor;
  std::string reader;
  std::vector<int64_t> order;
  int64_t pad;

  HEDDLE_PRIMITIVE(PackLayout, "pack", tensor, reader, order, pad);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_STORAGE_PACK_H_
