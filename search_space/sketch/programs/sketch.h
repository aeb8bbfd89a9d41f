// Sketches: a program's schedule with holes, one plan for each of its kernels.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_SKETCH_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_SKETCH_H_

#include <memory>
#include <string>
#include <vector>

#include "search_space/sketch/kernels/kernel_plan.h"
#include "search_space/sketch/kernels/kernels.h"

namespace heddle::search_space {

// Its holes are the plans' holes one after another.
struct Sketch {
  std::string name;
  std::shared_ptr<const ProgramShape> shape;             // of the algorithm that it schedules
  std::vector<std::shared_ptr<const KernelPlan>> plans;  // one for each of its kernels
  std::vector<Hole> holes;         // of all plans; names prefixed where there are several kernels
  std::vector<size_t> plan_begin;  // first hole of each plan
  // Is there a better one for all that it does? Points of it stay valid, but are not drawn.
  bool superseded = false;
  // How often it is drawn for once that each of most others is.
  size_t draws = 1;
  // Is the program divided among kernels as only a partition does it (partition.h)?
  bool is_partition = false;
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_SKETCH_H_
