// Reductions of every prefix of an axis (cumulative sums, maxima, products) without computing each
// one anew: chunks are reduced, what precedes each chunk is found from that, and added to the
// prefixes within the chunk (reduce-then-scan; G. E. Blelloch, Prefix Sums and Their Applications,
// 1990).
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_SCAN_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_SCAN_H_

#include <cstdint>
#include <optional>
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

// The extent of the axis j of stage `index` where that is
//   S[.., j, ..] = combiner(.., r, ..) select(r <= j, e, identity)
// with r and j of one extent and no other j in e; `<`, `>=` and `>` in the place of `<=`, too, and
// further conditions without j. 0 where it is not.
int64_t ScanLength(const Schedule& schedule, int index);

// Such a stage by what it does to one term an element: the reductions of prefixes, or suffixes, of
//   terms[.., j, ..] = combiner(..) e at r = j, over the reduced axes but r
struct Scan {
  size_t axis, reduced;  // j and r, of axes and of reduce_axes
  bool reversed;         // from the end on
  bool strict;           // an element's own term is not among those that it reduces
  Expr term;             // in the stage's axes and reduced axes; the identity where none counts
};
std::optional<Scan> ScanOf(const ScheduledStage& stage);

// A maximum or minimum of prefixes in which what is left out has a value of its own,
//   S[.., j, ..] = max(.., r, ..) select(r <= j, e, value)
// is that of `terms`, where it has the identity, and of `value` at all elements that leave
// something out: `where`, in the stage's axes; null: all.
struct BoundedScan {
  Expr terms, value, where;
};
std::optional<BoundedScan> BoundedScanOf(const ScheduledStage& stage);

// The stages that take the place of such a stage, in definition order: of chunks of `chunk` terms
//   S.part.acc[.., q, ..]   = combiner(.., t, ..) e at r = q * chunk + t
//   S.part                  = S.part.acc                             in a kernel of its own
//   S.offset.acc[.., q, ..] = combiner(p) select(p < q, S.part[.., p, ..], identity)
//   S.offset                = S.offset.acc                           in a kernel of its own
//   S.within[.., j, ..]     = combiner(.., u, ..) select(u <= j % chunk, e, identity)
//                             at r = j / chunk * chunk + u
//   S[.., j, ..]            = combiner of S.offset[.., j / chunk, ..] and S.within[.., j, ..]
// An element then takes 1 + chunk + length / chunk^2 terms instead of length; S.offset.acc is such
// a stage itself. Other parentheses than the definition's, and the same terms. InvalidArgument
// where ScanLength is 0, or is not more than `chunk`, which is at least 2.
absl::StatusOr<std::vector<ScheduledStage>> ScanStages(const Schedule& schedule, int index,
                                                       int64_t chunk);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_SCAN_H_
