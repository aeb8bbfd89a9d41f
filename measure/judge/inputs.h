// What a workload is run on to be checked and timed, and what its definition makes of that
// (docs/measurement.md). Nothing here needs a device.
#ifndef HEDDLE_MEASURE_JUDGE_INPUTS_H_
#define HEDDLE_MEASURE_JUDGE_INPUTS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "measure/judge/criteria.h"
#include "measure/judge/peaks.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/reference/samples.h"

namespace heddle::measure {

// In definition order.
std::vector<search_space::BufferRef> OutputsOf(const search_space::TensorProgram& program);

// InvalidArgument unless all inputs and outputs have types that memory can be filled with and
// compared in; the message names the tensor that has not.
absl::Status CheckTypes(const search_space::TensorProgram& program);

// As in "integer inputs".
const char* NameOf(InputKind kind);

// What the definition makes of inputs of one kind.
struct Sampled {
  InputKind kind;
  std::vector<search_space::SamplePoint> samples;
  std::vector<Allowed> allowed;  // of each output
  double told = 1;               // ToldShare, of the output of which it is least
};

class Inputs {
 public:
  // `program` must outlive it. `truncation`: of the device that is to compute it (criteria.h).
  Inputs(const search_space::TensorProgram& program, uint64_t seed, double truncation = 0);

  uint64_t seed() const { return seed_; }
  // Element `offset` of input `tensor`, rounded to its type. Thread-safe.
  double At(InputKind kind, int tensor, int64_t offset) const;
  // nullopt when what the definition gives is not all finite, or too large to be exact where it
  // should be.
  std::optional<Sampled> Sample(InputKind kind) const;
  // One or two kinds: where there is one, first that in which one lost term of a reduction shows;
  // last that which is timed. Small inputs come first where others show too few elements' errors.
  // FailedPrecondition: the program is not finite on any, or none can tell a kernel that writes
  // nothing but zeros.
  absl::StatusOr<std::vector<Sampled>> Choose() const;

 private:
  const search_space::TensorProgram* program_;
  uint64_t seed_;
  double truncation_;
  Peaks peaks_, extremes_;
  double powers_;  // the share of kPowers that is not 1
};

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_JUDGE_INPUTS_H_
