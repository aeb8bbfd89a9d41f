// Reductions of every prefix, or suffix, of an axis (cumulative sums, maxima, products): which
// stages are such.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_SCANS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_SCANS_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "search_space/schedule/scheduled_stage.h"

namespace heddle::search_space {

// What a stage
//   S[.., j, ..] = combiner(.., r, ..) select(r <= j, e, identity)
// with r and j of one extent and no other j in e leaves out; `<`, `>=` and `>` in the place of
// `<=`, too, and further conditions without j.
struct PrefixMask {
  size_t axis, reduced;          // j and r, of axes and of reduce_axes
  bool reversed;                 // r >= j
  bool strict;                   // r < j, or r > j
  std::vector<Expr> conditions;  // the further ones

  Expr Allows(const Expr& r, const Expr& j) const;
};
std::optional<PrefixMask> PrefixMaskOf(const ScheduledStage& stage);

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

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_SCANS_H_
