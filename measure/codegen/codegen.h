// Kernel source from a lowered program: one printer, two dialects.
#ifndef HEDDLE_MEASURE_CODEGEN_CODEGEN_H_
#define HEDDLE_MEASURE_CODEGEN_CODEGEN_H_

#include <string>
#include <vector>

#include "search_space/ir/stmt.h"
#include "search_space/ir/target.h"

namespace heddle::measure {

// Part of every record's fingerprint. Raised by whoever lets the same steps give other source, or
// adds steps that an older program does not know: daemons get work from servers of their own
// version only. docs/records.md ("Versions of the generator") gets a line of what has changed.
// tests/measure/codegen/codegen_test.cc has a hash of the golden sources and of the steps beside
// it, so that neither changes alone.
inline constexpr int kGeneratorVersion = 40;
// Raised with it where times of older versions no longer count. Since this one steps have only been
// added, names and comments changed, and a few programs' kernels: the hash of its source says so of
// each record.
inline constexpr int kSameCodeSince = 12;
// Whether two versions give the same code from the same steps, up to names and comments.
constexpr bool SameCode(int a, int b) {
  const auto is_recent = [](int v) { return v >= kSameCodeSince && v <= kGeneratorVersion; };
  return a == b || (is_recent(a) && is_recent(b));
}

// A tensor as bulk copies read it, box by box: cuTensorMapEncodeTiled. Dimensions outermost first.
struct TensorMap {
  std::string buffer;
  int64_t element_bytes = 2;            // 4: of tf32, to which it is rounded on the way
  std::vector<int64_t> shape, strides;  // elements; bytes, of all dimensions but the innermost
  std::vector<int64_t> box;             // elements
  int64_t swizzle_bytes = 0;            // a line of shared memory, that of the box: 32, 64 or 128
};

// What a launch needs to know besides the binary.
struct KernelLaunch {
  std::string entry;  // function name
  int64_t grid = 1;   // blocks
  int64_t block = 1;  // threads a block
  int64_t dynamic_shared_bytes = 0;
  std::vector<std::string> arguments;  // buffer names, in argument order
  std::vector<TensorMap> maps;         // arguments of 128 bytes each, behind these
  // Of the buffers that it writes those whose last bits may differ from run to run: floats are
  // added up, or multiplied, in any order (atomic_combine), here or in a kernel whose results it
  // reads.
  std::vector<std::string> rounded_anew;
};

struct KernelSource {
  KernelLaunch launch;
  std::string source;  // a complete translation unit
  // The same with other names and without comments that explain them: what hashes are of, so that
  // what was measured under other names is known again (Naming::kNormal).
  std::string normal;
  // Behind the target's architecture where instructions are used that later ones do not have: "a".
  std::string arch_suffix;
};

// One translation unit per kernel. `header` is printed as a comment on top (workload and steps).
// The text depends on nothing but its arguments.
std::vector<KernelSource> GenerateSource(const search_space::Program& program,
                                         const search_space::Target& target,
                                         const std::string& header);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_CODEGEN_CODEGEN_H_
