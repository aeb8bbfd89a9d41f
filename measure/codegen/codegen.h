// Kernel source from a lowered program: one printer, two dialects.
#ifndef HEDDLE_MEASURE_CODEGEN_CODEGEN_H_
#define HEDDLE_MEASURE_CODEGEN_CODEGEN_H_

#include <string>
#include <vector>

#include "search_space/ir/stmt.h"
#include "search_space/ir/target.h"

namespace heddle::measure {

// Bumped whenever the same steps would give other source, or steps exist that an older program does
// not know: daemons get work from servers of their own version only. Part of every record's
// fingerprint. tests/measure/codegen/codegen_test.cc has a hash of the golden sources and of the
// steps beside it, so that neither changes alone.
inline constexpr int kGeneratorVersion = 38;
// Since this version steps have only been added, and names and comments changed. Of a few programs
// the stages are others since 15 (schedule/analysis/finish.h), whose older steps give other source
// or none; exponentials and quotients that are rounded to 16 bits are other source since 16; points
// that pack rows pad them by more since 19, with other steps; since 22 there is pad_terms,
// split_operand takes factors that it refused before, and points of products with several axes on a
// side may tile another one; since 23 there are permute and expand, and since 24 reduce_in_parts,
// and row_fragments that are computed where they are read; since 25 there are split_axis, quotient,
// split_dim, merge_axes and separate_decay, and tiles that a mask leaves out are tested elsewhere
// in a few programs; since 26 there is narrow_factors; since 27 there are separate_window and
// recompute, merge_axes goes on through reductions and outputs, rows may have several results, and
// a remainder in what is read at a remainder is left out, which is other source and no other steps;
// since 28 so are what all sides of a choice read, functions that are rounded to 16 bits, and what
// does not change in a loop; since 29 there is scatter, and since 30 scatter_in_memory; greatest
// and least of shared memory are updated by instructions of integers since then; since 31 there are
// hoist_factors and rows_first; since 32 there is own_stages, and what is rounded to 16 bits later
// is computed as what is rounded at once; since 33 there is reduce_beside, reduce_in_parts takes
// inputs, and shift_moments takes differences from another term, which is other source; since 34
// there is compute_again, split_axis goes on through reductions, and numbers of indices are clamped
// the other way round and vectors go up to the end of an array of any length, which are other
// source; since 35 scans take terms that decay and those of windows, masks leave out the products
// that a sum's terms are made of, threads look through slices in groups, and ends of sums that are
// zeros have no guard, which are other source; since 36 there are join_sums and outline, pad_terms
// leaves alone what is read along several axes, and what is an element of one of several tensors is
// copied in the background, which are other source; since 37 sums that cannot cancel are rough
// before they are rounded, and guarded loads are vectors up to the end of an array, which are other
// source, and there is stack_products; since 38 both sides of a choice between functions of
// registers are computed, which is other source, and there is take_apart. What a record is of says
// its hash.
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
