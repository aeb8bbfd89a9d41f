// The terms that the analytic time is made of: the name, the meaning and the weight of each, on a
// GPU and on a processor, in one table. kernel_cost.cc and processor_cost.cc fill them; features,
// `heddle explain` and docs/features.md have from here what they say of them.
#ifndef HEDDLE_TUNER_MODEL_ANALYTIC_TERMS_H_
#define HEDDLE_TUNER_MODEL_ANALYTIC_TERMS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace heddle::tuner {

// In the order of the table.
enum class Term : uint8_t {
  kFma,
  kIssue,
  kShared,
  kL1,
  kL2,
  kSpecial,
  kLatency,
  kBurst,
  kBulkRows,
  kUpdate,
  kDram,
  kLaunch
};
inline constexpr size_t kTerms = static_cast<size_t>(Term::kLaunch) + 1;

// Microseconds of each term, if nothing else mattered.
class Terms {
 public:
  double& operator[](Term term) { return us_[static_cast<size_t>(term)]; }
  double operator[](Term term) const { return us_[static_cast<size_t>(term)]; }
  Terms& operator+=(const Terms& other);

 private:
  std::array<double, kTerms> us_{};
};

// What a term is on one kind of device.
struct TermOn {
  const char* what = nullptr;  // that a kernel is held back by; nullptr: nothing that is known of
  double weight = 0;           // how much of it shows in the end
  // What shows beside, divided by the warps that each scheduler has to hide it.
  double exposed = 0;
};

struct TermInfo {
  Term term;
  const char* name;     // snake_case; its feature's, where the model learns from it as such
  const char* formula;  // of a GPU's; of a processor's there is `what`, and processor_cost.cc
  const char* source;
  TermOn gpu, processor;

  const TermOn& On(bool of_processor) const { return of_processor ? processor : gpu; }
};

// One row a term.
absl::Span<const TermInfo> TermTable();
const TermInfo& InfoOf(Term term);

// The analytic time: launches, then whatever takes longer of the multiprocessors' work and of what
// memory does beside it (the root of the sum of their squares, as neither hides the other in full).
// `warps_per_scheduler` is positive; a processor has no use for it.
double TotalUs(const Terms& terms, bool processor, double warps_per_scheduler = 1);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_MODEL_ANALYTIC_TERMS_H_
