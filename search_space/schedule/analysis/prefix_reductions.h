// Reductions of every prefix, or suffix, of an axis (cumulative sums, maxima, products): which
// stages are such, and what they reduce.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_ANALYSIS_PREFIX_REDUCTIONS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_ANALYSIS_PREFIX_REDUCTIONS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "search_space/schedule/scheduled_stage.h"

namespace heddle::search_space {

// Which terms a stage
//   S[.., j, ..] = combiner(.., r, ..) select(r <= j, e, identity)
// reduces: r and j are of one extent, and e does not mention j. `<`, `>=` and `>` may stand in the
// place of `<=`, and further conditions without j beside it. Of a sum, terms may also decay on the
// way from r to j, as in linear recurrences and the states of state-space models: e is what does
// not mention j times exp(c * (L(j) - L(r))) for a number c, where L depends on no reduced axis. Or
// the prefixes of windows of the axis, as `scan` makes them,
//   S[.., j, ..] = combiner(.., u, ..) select(u <= j % c, e at r = j / c * c + u, identity)
// with c the extent of u.
struct PrefixMask {
  size_t axis, reduced;          // j and r, of axes and of reduce_axes
  bool reversed;                 // r >= j
  bool strict;                   // r < j, or r > j
  bool in_windows;               // the reduced axis is u
  std::vector<Expr> conditions;  // the further ones
  Expr term;                     // e, but for what decays
  Expr level;                    // L, in the stage's axes; null where nothing decays
  double slope = 1;              // c

  // The comparison of r with j alone.
  Expr Allows(const Expr& r, const Expr& j) const;
};
// nullopt of every other stage, also of one that has a value of its own in the place of the
// identity (BoundedScanOf).
std::optional<PrefixMask> PrefixMaskOf(const ScheduledStage& stage);

// Such a stage by what it does to one term an element: the reductions of prefixes, or suffixes, of
//   terms[.., j, ..] = combiner(..) e at r = j, over the reduced axes but r
// What decays is summed up relative to the level, of those of its terms that are not zero, from
// which nothing grows on the way to another one, so that no factor is infinite and none is lost
// that is not small beside others.
struct Scan {
  size_t axis, reduced;  // j and r, of axes and of reduce_axes
  bool reversed;         // from the end on
  bool strict;           // an element's own term is not among those that it reduces
  bool in_windows;       // of the extent of the reduced axis
  Expr term;             // in the stage's axes and reduced axes; the identity where none counts
  Expr level;            // L, in the stage's axes; null where nothing decays
  double slope = 1;      // c
};
std::optional<Scan> ScanOf(const ScheduledStage& stage);
// exp(slope * (to - from)): what is left at level `to` of what is there at `from`.
Expr DecayOf(double slope, const Expr& from, const Expr& to);
// The extent of what the stage reduces prefixes of (ScanOf): an axis, or a window; 0: none.
int64_t ScanLength(const ScheduledStage& stage);

// A maximum or minimum of prefixes in which what is left out has a value of its own,
//   S[.., j, ..] = max(.., r, ..) select(r <= j, e, value)
// is that of `terms`, where it has the identity, and of `value` at all elements that leave
// something out: `where`, in the stage's axes; null: all.
struct BoundedScan {
  Expr terms, value, where;
};
std::optional<BoundedScan> BoundedScanOf(const ScheduledStage& stage);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_ANALYSIS_PREFIX_REDUCTIONS_H_
