// Sketches of a program's kernels, one for each choice among the plans that rules make of these.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_COMBINATIONS_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_COMBINATIONS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "search_space/sketch/programs/partition.h"
#include "search_space/sketch/programs/plans.h"
#include "search_space/sketch/programs/sketch.h"

namespace heddle::search_space {

// That of plan number choice[k] for kernel k.
Sketch MakeSketch(const std::vector<Plans>& plans, const std::shared_ptr<const ProgramShape>& shape,
                  const std::vector<size_t>& choice);

// Adds that of every combination of plans, the simplest first. Where they are too many, that one
// and those of the plans that know most: of the kernels with most plans the simplest are left out.
// Behind them come those that others supersede, as there would be without these.
void AddCombinations(const std::vector<Plans>& plans,
                     const std::shared_ptr<const ProgramShape>& shape,
                     std::vector<Sketch>& sketches);

// Adds sketches for units that multiply matrices, to be drawn as often together as all others are,
// since matrices are multiplied many times faster so.
void AddAsOften(std::vector<Sketch> added, std::vector<Sketch>& sketches);

// Of plans for a kernel that units for matrices can compute only theirs; of these the last rule's,
// which knows most of them.
void KeepMatrices(bool only_last, Plans& made);

// Has the program kernels, and each of them a plan?
bool IsEachMade(const std::vector<Plans>& plans);

// Does one of them have all in one kernel?
bool HasOneKernel(const std::vector<Sketch>& sketches);

// Draws of a sketch of one kernel beside several of more kernels, which differ by little: half as
// many as of all of these.
size_t DrawsBeside(const std::vector<Sketch>& sketches);

// Puts `first` in front of the steps of all of them.
void Prepend(const std::vector<Step>& first, absl::Span<Sketch> sketches);

// Of each kernel of a partition the plans that know most.
std::vector<Plans> PlansOfPartition(const ProgramShape& shape, const Target& target);

// For names of sketches: "[stored=N][merged=M|V]", by stages' names, and the stages that are
// computed together, "[P|Q]".
std::string NameOf(const Partition& partition);
std::string CompanionsIn(const Schedule& schedule);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_PROGRAMS_COMBINATIONS_H_
