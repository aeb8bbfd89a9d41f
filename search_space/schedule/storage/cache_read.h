#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_STORAGE_CACHE_READ_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_STORAGE_CACHE_READ_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Inserts a stage "tensor.scope" that copies the region of `tensor` read by `reader`, which reads
// the copy from then on. In scope global the copy is a kernel of its own. Reader "all" (where no
// stage has that name): all stages that read the tensor share the copy; "all@K": those of them that
// are computed in the kernel of stage K.
struct CacheRead {
  std::string tensor;
  Scope scope;
  std::string reader;

  HEDDLE_PRIMITIVE(CacheRead, "cache_read", tensor, scope, reader);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_STORAGE_CACHE_READ_H_
