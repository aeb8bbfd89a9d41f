// Pipelines: tiles are copied into shared memory while the block computes with earlier ones.
#ifndef HEDDLE_SEARCH_SPACE_LOWER_COPIES_PIPELINE_H_
#define HEDDLE_SEARCH_SPACE_LOWER_COPIES_PIPELINE_H_

#include <memory>
#include <vector>

#include "search_space/lower/context/carried.h"
#include "search_space/lower/context/kernel_context.h"
#include "search_space/lower/copies/fetch.h"

namespace heddle::search_space {

// A loop whose iterations each compute with one tile, and the stages that a tile consists of.
struct PipelinedLoop {
  int stage = -1;
  size_t depth = 0;  // of the loop in the stage's nest
  Var loop;
  Var slot;  // the buffer that holds the tile of this iteration
  int64_t buffers = 0;
  Var prefetch;      // a loop directly inside, whose registers run an iteration ahead; or null
  Var interleave;    // the loop inside whose iterations start a share of the copies each; or null
  bool last = true;  // is nothing filled with tiles again after the loop?
  // Is the computation products of a warpgroup, which go on in background? Of how many tiles before
  // the one that the threads are at?
  bool in_background = false;
  int64_t in_flight = 0;
  std::vector<int> fetched;
  Assumptions assumptions;  // what holds around the loop
};

// One way to copy tiles: what stands at the places of the skeleton that EmitPipeline makes,
//
//     Prepare
//     Issue of the tiles that come first
//     for every tile
//       Acquire         (or at the end of the iteration before, of the next tile)
//       Issue           of the tile that is ahead() iterations further
//       the computation with the tile in its slot
//       Consumed
//     Release
//
// In a block that stays (persist) Prepare and the first Issues stand in front of all that it does.
// In their place here is a barrier, in that of Release another one and the Issues that come first
// the next time.
//
// A tile's buffer is filled again only after an Acquire behind the computation with it. What is
// computed in background is begun in front of Issue, and waited for behind.
class TileCopies {
 public:
  virtual ~TileCopies() = default;
  // What is done before the first Issue; null where nothing is.
  virtual Stmt Prepare() { return nullptr; }
  // Tiles that are under way while the block computes with one; less than there are buffers.
  virtual int64_t ahead() const = 0;
  // Does Acquire stand behind the computation with the tile before, instead of in front of that
  // with the tile itself?
  virtual bool AcquiresEarly() const = 0;
  // Starts to copy a tile, if it `exists`, into a buffer. Or a share of it: these stand inside the
  // computation, and Consumed comes behind the last of them.
  virtual Stmt Issue(const Expr& tile, const Expr& slot, const Expr& exists,
                     const Share& share) = 0;
  // The tile, if it `exists`, is in its buffer for all threads, which are done with the tile
  // before.
  virtual Stmt Acquire(const Expr& tile, const Expr& slot, const Expr& exists) = 0;
  // The thread is done with a tile; null where that needs no statement.
  virtual Stmt Consumed() = 0;
  // The buffers may be used for something else; null where the last Acquire says so already.
  virtual Stmt Release() = 0;
  // May all of it come once more, in a block that stays, with the first tiles' Issue in front of
  // what else is done with the last ones' results?
  virtual bool MayGoOn() const { return false; }
  // Registers that hold tiles on their way.
  virtual std::vector<BufferRef> registers() const { return {}; }
};

// Loads a tile into registers in front of the computation and stores it behind.
std::unique_ptr<TileCopies> CopiesThroughRegisters(KernelContext& context,
                                                   const PipelinedLoop& pipeline);
// Copies in the background, in groups that are waited for.
std::unique_ptr<TileCopies> AsynchronousCopies(KernelContext& context,
                                               const PipelinedLoop& pipeline);

// Boxes of tensors in the background, each started by one thread and swizzled on its way.
std::unique_ptr<TileCopies> BulkCopies(KernelContext& context, const PipelinedLoop& pipeline);

// `s` where `condition` holds, which may be known: `s` itself or nothing (null).
Stmt When(const Expr& condition, const Stmt& s);

// How a nest is emitted in which a pipeline's loop stands: functions of nests/nest.cc, which calls
// EmitPipeline, so that either calls the other. Pointers to them keep that out of the includes
// alone: this file knows nothing of nests/nest.h.
struct NestEmitter {
  Stmt (*stage)(KernelContext& context, int s, const Assumptions& assumptions);
  Stmt (*loops)(KernelContext& context, int s, size_t depth, Carried carried);
  Stmt (*loop_body)(KernelContext& context, int s, size_t depth, const Carried& carried);
};

// The loop at `depth` of stage `s`, which its annotation Pipeline names.
Stmt EmitPipeline(KernelContext& context, int s, size_t depth, const Carried& carried,
                  const NestEmitter& emit);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_LOWER_COPIES_PIPELINE_H_
