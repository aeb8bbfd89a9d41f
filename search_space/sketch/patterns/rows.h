// Rows: stages that reduce along one axis of memory and what is computed from the results along the
// same axis, so that whoever holds a row can compute all of them at once.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_PATTERNS_ROWS_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_PATTERNS_ROWS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "search_space/sketch/kernels/kernels.h"
#include "search_space/sketch/kernels/schedule_writer.h"

namespace heddle::search_space {

// What is computed of a tensor of the kernel.
struct RowStage {
  StageRef stage;
  // Has it an axis along the row? What reduces and has one is a reduction of the row's prefixes,
  // which the group makes together and holds (share_scan).
  bool reduces, has_column;
  size_t readers;

  bool scans() const { return reduces && has_column; }
};
// An input that is read along the rows.
struct RowInput {
  BufferRef tensor;
  size_t readers;
  bool holdable;                      // every reader reads it along one row, which is its own
  size_t along;                       // which of its indices runs along the row
  ExprList row;                       // where it begins, in the root's axes
  bool is_one_row;                    // is it the same of all reads along a row?
  std::vector<BufferRef> reductions;  // that read it run by run
};

// What is held in registers: nothing; what several stages read; all that is read along the row, so
// that it is on its way before the first reduction ends.
enum Hold : int64_t { kHoldNothing, kHoldShared, kHoldEverything };

// The stages that one kernel computes, and what its plan must know of them; valid only if `ok`.
struct Rows {
  StageRef root;
  std::vector<int64_t> extents;  // of the rows' axes, in the root's order
  bool has_column = false;       // has the root an axis along the row?
  size_t column_at = 0;          // among the axes of what has one, where that is
  // Where the root has, in front of its last axis, one that numbers several results of each row
  // instead: where that is among its axes.
  std::optional<size_t> results_at;
  int64_t length = 1;             // the longest reduction or column
  int64_t vector = 1;             // the widest access that all rows allow
  std::vector<RowStage> stages;   // all but the root, in definition order
  std::vector<StageRef> inlined;  // elementwise ones that are no rows; not in `stages`
  std::vector<RowInput> inputs;
  bool can_split = false;  // do the results depend on nothing but one reduction's, and its like?
  // How many results a thread may have at once: one, or those of all of the last axes.
  std::vector<int64_t> results = {1};
  // What is reduced over the rows beside the root (reduce_beside), with the root of what is left.
  struct Beside {
    StageRef root, reduction;
  };
  std::vector<Beside> beside;
  int64_t sums_beside = 0;  // with what is computed with these
  // Of its rows, so many in turn are of one result.
  int64_t rows_of_sum = 1;
  // Inputs of which a term reads some of the few elements that are its own, as those of a point's
  // coordinates, whichever the result.
  std::vector<BufferRef> term_inputs;
  bool ok = false;

  static bool IsHeld(const RowStage& s, int64_t hold) {
    return hold != kHoldNothing && !s.reduces && s.has_column && s.readers > 1;
  }
  static bool IsHeld(const RowInput& in, int64_t hold) {
    return in.holdable && hold != kHoldNothing && (hold == kHoldEverything || in.readers > 1);
  }
  // What is elementwise along the row and not held is computed where it is read.
  static bool IsInlined(const RowStage& s, int64_t hold) {
    return !s.reduces && s.has_column && !IsHeld(s, hold);
  }
  // Rows in registers: of prefixes always two, as they are read and as they are reduced.
  int64_t HeldTensors(int64_t hold) const;
  bool HasScans() const;
  // Is the input in registers because it is held, or because prefixes of it are reduced?
  bool IsKept(const RowInput& in, int64_t hold) const;
};

// Rows along the innermost axis of memory.
Rows FindRows(const ProgramShape& shape, const KernelShape& kernel);
// The same of at most `most_results` results, whatever they read and where it lies: so few that
// threads must share each, as the sum of every third element, or of what indices say.
Rows FindFewRows(const ProgramShape& shape, const KernelShape& kernel, int64_t most_results);
// Rows along another axis, of which neighbours lie side by side in memory: each has one reduced
// axis, and something of it is read again.
Rows FindStridedRows(const ProgramShape& shape, const KernelShape& kernel);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_PATTERNS_ROWS_H_
