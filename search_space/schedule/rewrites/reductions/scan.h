// Reductions of every prefix of an axis (cumulative sums, maxima, products) without computing each
// one anew: chunks are reduced, what precedes each chunk is found from that, and added to the
// prefixes within the chunk (reduce-then-scan; G. E. Blelloch, Prefix Sums and Their Applications,
// 1990).
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_SCAN_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_SCAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Puts the stages of ScanStages in the place of `stage`, in chunks of `chunk` terms.
struct ScanChunks {
  std::string stage;
  int64_t chunk;

  HEDDLE_PRIMITIVE(ScanChunks, "scan", stage, chunk);
};

// The stages that take the place of stage `index`, in definition order, if that reduces prefixes
// (PrefixMaskOf, whose letters these are): of chunks of `chunk` terms
//   S.part.acc[.., q, ..]   = combiner(.., t, ..) e at r = q * chunk + t
//   S.part                  = S.part.acc                             in a kernel of its own
//   S.offset.acc[.., q, ..] = combiner(p) select(p < q, S.part[.., p, ..], identity)
//   S.offset                = S.offset.acc                           in a kernel of its own
//   S.within[.., j, ..]     = combiner(.., u, ..) select(u <= j % chunk, e, identity)
//                             at r = j / chunk * chunk + u
//   S[.., j, ..]            = combiner of S.offset[.., j / chunk, ..] and S.within[.., j, ..]
// Where terms decay, by d(r, j) = exp(c * (L(j) - L(r))), those of a chunk do so to its edge, the
// last element, or the first one where the mask counts what is behind; S.offset has the chunk q,
// too, and an element takes that of the chunk p before its own. Levels ought to fall
// (DoLevelsFall): at an edge that is a peak all that is left would be infinite.
//   S.part.acc[.., q, ..]   = sum(.., t, ..) e * d(r, edge(q))
//   S.offset.acc[.., q, ..] = sum(p) select(p <= q, S.part[.., p, ..] * d(edge(p), edge(q)), 0)
//   S[.., j, ..]            = S.offset[.., p, ..] * d(edge(p), j) + S.within[.., j, ..]
// An element then takes 1 + chunk + length / chunk^2 terms instead of length; S.offset.acc is such
// a stage itself. Other parentheses than the definition's, and the same terms. InvalidArgument
// where ScanLength is 0, or is not more than `chunk`, which is at least 2.
absl::StatusOr<std::vector<ScheduledStage>> ScanStages(const Schedule& schedule, int index,
                                                       int64_t chunk);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_SCAN_H_
