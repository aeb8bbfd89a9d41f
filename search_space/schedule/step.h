// Schedule steps: a schedule is a plain list of these values. Stages and loops are named by text,
// so that a step can be stored, served and read by people; parse(print(steps)) == steps.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_STEP_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_STEP_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "search_space/ir/expr.h"

namespace heddle::search_space {

// Splits a loop into factors.size() + 1 loops; factors are the extents of all but the outermost,
// which becomes ceil(extent / product). The parts of `i` are named i.0, i.1, ... outermost first.
struct Split {
  std::string stage, loop;
  std::vector<int64_t> factors;
  bool operator==(const Split&) const = default;
};
// Fuses adjacent loops, outermost first, into one named "a@b".
struct Fuse {
  std::string stage;
  std::vector<std::string> loops;
  bool operator==(const Fuse&) const = default;
};
// Puts the named loops, into the given order, at the positions that they occupy together.
struct Reorder {
  std::string stage;
  std::vector<std::string> loops;
  bool operator==(const Reorder&) const = default;
};
enum class BindTo : uint8_t { kBlock, kThread, kVthread, kSlice };
// Binds a loop to the fused block axis, the fused thread axis or a virtual thread. A reduction loop
// of a local stage that is bound to thread is shared by a group of neighbouring threads, which all
// get the result; bound to slice, by threads of equal parts of the block, of which those of the
// last get it.
struct Bind {
  std::string stage, loop;
  BindTo to;
  bool operator==(const Bind&) const = default;
};
// Inserts a stage "tensor.scope" that copies the region of `tensor` read by `reader`, which reads
// the copy from then on. In scope global the copy is a kernel of its own. Reader "all" (where no
// stage has that name): all stages that read the tensor share the copy.
struct CacheRead {
  std::string tensor;
  Scope scope;
  std::string reader;
  bool operator==(const CacheRead&) const = default;
};
struct SetScope {
  std::string stage;
  Scope scope;
  bool operator==(const SetScope&) const = default;
};
// Computes `stage` inside loop `loop` of `consumer`: its axes shrink to the region needed there.
struct ComputeAt {
  std::string stage, consumer, loop;
  bool operator==(const ComputeAt&) const = default;
};
// Substitutes an elementwise stage into its readers.
struct ComputeInline {
  std::string stage;
  bool operator==(const ComputeInline&) const = default;
};
// All threads of the block fill a shared stage together, `vector` elements an access.
struct Fetch {
  std::string stage;
  int64_t threads, vector;
  bool operator==(const Fetch&) const = default;
};
// Turns a part of a reduction loop into an axis of a new stage "stage.rf" of partial results, which
// `stage` then combines.
struct Rfactor {
  std::string stage, loop;
  bool operator==(const Rfactor&) const = default;
};
// Keeps a local stage that is not attached yet spread over groups of `threads` neighbouring
// threads: along its last axis, runs of `vector` elements are dealt out to the threads of a group
// in turn. Who reads an element must be the thread that holds it.
struct Spread {
  std::string stage, axis;
  int64_t threads, vector;
  bool operator==(const Spread&) const = default;
};
// Adds an innermost loop "lane" of `threads` iterations to a kernel's stage, of which the last
// stores: threads that only help with the reductions computed inside.
struct Replicate {
  std::string stage;
  int64_t threads;
  bool operator==(const Replicate&) const = default;
};
// Computes a sum over a 3x3 window by Winograd's F(2x2, 3x3): puts the stages of winograd.h in the
// place of `stage`.
struct Winograd {
  std::string stage;
  bool operator==(const Winograd&) const = default;
};
// Computes over fewer dimensions (collapse.h): those of extent 1 go, and neighbouring axes of
// `stage` that are only ever walked together become one. Comes before all other steps.
struct CollapseAxes {
  std::string stage;
  bool operator==(const CollapseAxes&) const = default;
};
struct Vectorize {
  std::string stage, loop;
  bool operator==(const Vectorize&) const = default;
};
struct Unroll {
  std::string stage, loop;
  bool operator==(const Unroll&) const = default;
};
// Physical layout of a cached stage: axis order outermost first, elements of padding appended to
// each innermost row, XOR swizzle with chunks of `swizzle` elements (0 = none).
struct StorageLayout {
  std::string stage;
  std::vector<std::string> order;
  int64_t pad, swizzle;
  bool operator==(const StorageLayout&) const = default;
};
// The cached region along `axis` starts and ends where the index that it reads there is a multiple
// of `multiple` elements.
struct Align {
  std::string stage, axis;
  int64_t multiple;
  bool operator==(const Align&) const = default;
};
enum class PipelineKind : uint8_t { kRegisters, kAsyncCopy };
// Overlaps the fetches attached to a loop with its body, `depth` buffers deep.
struct Pipeline {
  std::string stage, loop;
  PipelineKind kind;
  int64_t depth;
  bool operator==(const Pipeline&) const = default;
};
// Starts the asynchronous copies of the pipeline around `loop` in equal parts, one in each of its
// iterations, after the registers of that iteration are read: all at once they would keep the
// block's own reads of shared memory waiting. Source: CUTLASS, whose multistage main loop does so.
struct Interleave {
  std::string stage, loop;
  bool operator==(const Interleave&) const = default;
};
// Groups `rows` rows of blocks, so that blocks that run together share more of L2.
struct BlockSwizzle {
  std::string stage;
  int64_t rows;
  bool operator==(const BlockSwizzle&) const = default;
};
struct LaunchBounds {
  std::string stage;
  int64_t min_blocks;
  bool operator==(const LaunchBounds&) const = default;
};

using Step =
    std::variant<Split, Fuse, Reorder, Bind, CacheRead, SetScope, ComputeAt, ComputeInline, Fetch,
                 Rfactor, Spread, Replicate, Winograd, CollapseAxes, Vectorize, Unroll,
                 StorageLayout, Align, Pipeline, Interleave, BlockSwizzle, LaunchBounds>;

// "split(D, i, [8, 4])"
std::string ToString(const Step& step);
// One step a line.
std::string ToString(const std::vector<Step>& steps);
// InvalidArgument names the line, the column and what was expected. Empty lines and comments from
// # to the end of the line are skipped.
absl::StatusOr<std::vector<Step>> ParseSteps(const std::string& text);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_STEP_H_
