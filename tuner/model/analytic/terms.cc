#include "tuner/model/analytic/terms.h"

#include <cmath>
#include <iterator>

namespace heddle::tuner {
namespace {

constexpr const char* kRoofline = "S. Williams et al., Roofline (CACM 2009), a roof for each unit";

// Weights of GPUs were fitted to 1,249 measured points (docs/results/compiler.md): what few warps
// cannot hide shows as longer instructions, and float arithmetic is among the instructions.
// Those of processors are in the constants of processor_cost.cc.
constexpr TermInfo kTable[] = {
    {Term::kFma,
     "fma_us",
     "float arithmetic of the busiest multiprocessor / its rate",
     kRoofline,
     {"float arithmetic", 0},
     {}},
    {Term::kIssue,
     "issue_us",
     "instructions of the busiest multiprocessor / 4 a cycle",
     kRoofline,
     {"issuing instructions", 0.47, 1.2},
     {"executing instructions", 1}},
    {Term::kShared,
     "shared_us",
     "passes of the busiest multiprocessor's banks / 1 a cycle",
     kRoofline,
     {"shared memory", 0.7},
     {}},
    {Term::kL1,
     "l1_us",
     "l1_bytes of the busiest multiprocessor / its rate",
     kRoofline,
     {"the first-level cache", 1.6},
     {"what work items keep beyond the first-level cache", 1}},
    {Term::kL2,
     "l2_us",
     "l2_bytes of the busiest multiprocessor / its share of L2",
     kRoofline,
     {"L2", 0.22},
     {}},
    {Term::kSpecial,
     "special_us",
     "special functions / 16 results a cycle",
     kRoofline,
     {"special functions", 1},
     {}},
    {Term::kLatency,
     "latency_us",
     "waves * what a block waits for loads and barriers",
     "kernel_cost.cc",
     {"waiting for loads and barriers", 0.02},
     {"what work items keep across barriers and iterations", 1}},
    {Term::kBurst,
     "burst_us",
     "waves * what copies of a burst beyond its first 4 keep the block waiting",
     "docs/notebook.md, interleave",
     {"bursts of asynchronous copies", 1},
     {}},
    {Term::kBulkRows,
     "bulk_rows_us",
     "what rows of the busiest multiprocessor's bulk copies lack of 128 bytes, at 64 bytes a cycle",
     "docs/notebook.md, short rows of bulk copies",
     {"short rows of bulk copies", 1},
     {}},
    {Term::kUpdate,
     "update_us",
     "atomic updates of global memory / what the L2 cache makes of them",
     "docs/notebook.md, terms that name their place",
     {"updating global memory", 1},
     {}},
    {Term::kDram,
     "dram_us",
     "dram_bytes / memory bandwidth",
     kRoofline,
     {"device memory", 1},
     {"memory", 0}},
    {Term::kLaunch,
     "launch_us",
     "a constant for each kernel, on a processor also for each of its groups",
     "docs/results/compiler.md",
     {"launching kernels", 1},
     {"launching kernels and their groups", 1}},
};
static_assert(std::size(kTable) == kTerms);

}  // namespace

Terms& Terms::operator+=(const Terms& other) {
  for (size_t i = 0; i < kTerms; ++i) us_[i] += other.us_[i];
  return *this;
}

absl::Span<const TermInfo> TermTable() { return kTable; }
const TermInfo& InfoOf(Term term) { return kTable[static_cast<size_t>(term)]; }

double TotalUs(const Terms& terms, bool processor, double warps_per_scheduler) {
  double busy = 0, memory = 0, launches = 0;
  for (const TermInfo& info : kTable) {
    const TermOn& on = info.On(processor);
    const double shows = terms[info.term] * (on.weight + on.exposed / warps_per_scheduler);
    (info.term == Term::kDram ? memory : info.term == Term::kLaunch ? launches : busy) += shows;
  }
  return launches + std::hypot(busy, memory);
}

}  // namespace heddle::tuner
