// Programs of sites: all that is computed belongs to one element of the same few axes, such as a
// particle, a lattice's site or a window of an image, and has short axes of its own beside these,
// such as those of a small matrix. One thread computes all of it, each value once.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_PATTERNS_SITES_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_PATTERNS_SITES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "search_space/sketch/kernels/kernels.h"
#include "search_space/sketch/kernels/schedule_writer.h"

namespace heddle::search_space {

// Operations and operands of all that one thread computes, written out, at most.
inline constexpr int64_t kMostSiteNodes = 16000;

// A tensor of which a thread may read what belongs to its site at once.
struct SiteInput {
  BufferRef tensor;
  int64_t elements;  // of a site
};

struct Sites {
  StageRef root;
  std::vector<size_t> sites, own;  // the root's axes, in its order
  std::vector<StageRef> held;      // what a thread keeps of a site, in definition order
  std::vector<StageRef> inlined;   // what is not worth keeping, in definition order
  std::vector<SiteInput> inputs;
  int64_t elements = 0;       // that a thread keeps of a site at once, at most
  int64_t read_elements = 0;  // of the inputs
  int64_t nodes = 0;          // operations and operands of a site, written out
  int64_t width = 1;          // sites that neighbours in memory are stored at once, at most
  bool copies = false;        // is the root a copy of what is held?
};

// nullopt where the kernel, in which nothing is inlined, is no such program, or where that is no
// better than to compute everything where it is read: there is one reduction at most, and little
// would be written out again.
std::optional<Sites> FindSites(const ProgramShape& shape, const KernelShape& kernel);

// The program as one kernel for FindSites: several outputs are computed together, each a copy of
// what a thread keeps. Without kernels where they do not have the same axes.
ProgramShape FuseSites(std::shared_ptr<const TensorProgram> program);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_PATTERNS_SITES_H_
