// Chains of products over axes that are no whole matrices, such as attention over 77 or 197 tokens,
// as chains over longer ones: rows of zeros, and terms that change no maximum and no sum.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_PAD_TERMS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_PAD_TERMS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// The terms of `stage`, which other stages of the program make, become a multiple of so many, as
// the first step of a schedule.
struct PadTerms {
  std::string stage;
  int64_t multiple;

  HEDDLE_PRIMITIVE(PadTerms, "pad_terms", stage, multiple);
};

// The program with stage `name`, O[a] = sum(r) E[.., r, ..] * v, a sum of two tensors' elements,
// where the stage E is computed, directly or through others, from a sum T of several with an axis
// of its own for r, or E is read where a tensor of indices says for each r, along which no output
// lies, or r are the channels of a convolution of 16-bit numbers, as those of E[r, y + a, x + e],
// and the extent n of r is no multiple of `multiple`, 1 to 256, with that axis, and those of
// all stages that stand for it, as long as the next multiple:
//   T[.., j, ..] = sum(..) f, with every element of other tensors that j is an index of, zero where
//                  j >= n
//   E[.., j, ..] = select(j < n, e, 0), and so all that is computed elementwise
//   M[..] = max(r) select(r < n, e, -inf): reductions along it have their identity
// What a convolution reads of inputs, it reads of stages "input.padded" that are copies of them.
// Outputs and inputs stay as they are. Where values are finite O is what it was; where a factor of
// T is infinite, O may be NaN in the place of infinity. InvalidArgument where the stage is no such
// sum, or there would be too many elements to count.
absl::StatusOr<std::shared_ptr<const TensorProgram>> WithPaddedTerms(const TensorProgram& program,
                                                                     const std::string& name,
                                                                     int64_t multiple);

// A sum, and the multiple of which its terms are worth being: whole matrices of 16, and where that
// adds few terms as many as iterations of a loop take at once. Of sums over the same the first.
struct TermsToPad {
  std::string stage;
  int64_t multiple;
};
std::vector<TermsToPad> TermsWorthPadding(const TensorProgram& program);

// The same of sums over what is gathered by indices, which say nothing behind the end: their terms
// are zero there then, so that parts of them may have any length. The least multiple of 16 times a
// power of two that adds terms at all, where it adds few.
std::vector<TermsToPad> GatheredTermsWorthPadding(const TensorProgram& program);

// The same of convolutions' channels. A copy of the image with whole vectors of them is fetched as
// one with 16 times as many.
std::vector<TermsToPad> ChannelsWorthPadding(const TensorProgram& program);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_PAD_TERMS_H_
