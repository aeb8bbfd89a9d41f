// Sums of which a stride leaves most terms zero, by phases: a transposed convolution reads, for
// each result, only every s-th tap, and which ones depends on the result's position modulo s. With
// a stage for all positions of one phase no term is left that is always zero; this is the polyphase
// form of an interpolating filter (P. P. Vaidyanathan, Multirate Systems and Filter Banks, 1993).
// Where the definition reads quotients and remainders of positions instead, and so has no such
// terms, the sum of one phase is a product of matrices, which that of all phases is not.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_PHASES_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_PHASES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Puts the stages of PhaseStages in the place of `stage`.
struct Phases {
  std::string stage;

  HEDDLE_PRIMITIVE(Phases, "phases", stage);
};

// The stages that take the place of stage `index` of `schedule`, in definition order, where terms
// of the sum S vanish unless y + c = r or y + c = -r (mod s), for a constant c, an axis y and a
// reduced axis r of S; here of y + c = r:
//   S.phases.acc[.., u, p, ..] = sum(.., t, ..) body    at y = u * s + p - c and r = t * s + p
//   S.phases                   = S.phases.acc           in a kernel of its own
//   S[.., y, ..]               = S.phases[.., (y + c) / s, (y + c) % s, ..]
// and so for every such pair of axes. Terms that are left out are zero for finite inputs only.
// Where S reads (y + c) / s and (y + c) % s, for a constant c from 1 to s - 1, axis y becomes the
// same two. InvalidArgument where no factor of the sum has such a guard, and no two factors such
// indices.
absl::StatusOr<std::vector<ScheduledStage>> PhaseStages(const Schedule& schedule, int index);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_AXES_PHASES_H_
