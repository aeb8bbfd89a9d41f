// How the stages of a schedule read one another.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_READS_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_READS_H_

#include <set>
#include <vector>

#include "search_space/schedule/schedule.h"

namespace heddle::search_space {

using Tensors = std::vector<const Buffer*>;

// What the stage reads, once each, in the order of its first reads; the first adds what is not
// there.
void AddReads(const ScheduledStage& stage, Tensors& reads);
Tensors ReadsOf(const ScheduledStage& stage);

// What the stage reads, itself and through others.
Tensors AllReadsOf(const Schedule& schedule, const ScheduledStage& stage);

bool Contains(const Tensors& tensors, const Buffer* tensor);

// Does `reader` read `producer` only at its own element? `units`: the one of an axis of extent 1 is
// that, too, when the index is written as 0.
bool ReadsElementwise(const ScheduledStage& reader, const ScheduledStage& producer, bool units);

// The same of parts with a kernel of their own (parts.h) and what they are of, in front of whose
// axes they have theirs.
bool ReadsInParts(const ScheduledStage& reader, const ScheduledStage& producer);

// Is each of the producer's elements read for one term alone? A copy of it would be of no use.
bool ReadsEachOnce(const ScheduledStage& reader, const ScheduledStage& producer);

// Has a reader several elements of an output to compute for one of its own, as a sum of what an
// output is beside its neighbours has, or many loads for one, as its definition stands? What the
// output takes is loaded from memory then, as soon as it is there.
bool IsLessToLoad(const ScheduledStage& reader, const ScheduledStage& output);

// Is `s` made of reductions of rows, such as scales, that one elementwise stage reads for each
// element of these rows?
bool IsOfRows(const Schedule& schedule, const ScheduledStage& s);

// Is what is stored read by a sum of products whose terms end inside of a matrix? What is said to
// stay in memory is zero past its end there (IsZeroOutside), so that units for matrices take it.
bool IsReadInTails(const Schedule& schedule, const ScheduledStage& stored);

// Adds the stages whose loops a kernel needs beside those of `root`, up to `others`' roots; all by
// their numbers in the schedule.
void AddStages(const Schedule& schedule, int root, const std::set<int>& others,
               std::set<int>& stages);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_READS_H_
