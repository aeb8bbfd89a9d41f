// A block's shared memory with a shadow that knows who touched what since the last barrier.
// Internal to interpret.cc.
#ifndef HEDDLE_SEARCH_SPACE_CHECK_INTERPRET_MEMORY_H_
#define HEDDLE_SEARCH_SPACE_CHECK_INTERPRET_MEMORY_H_

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "search_space/ir/stmt.h"

namespace heddle::search_space {

class SharedMemory {
 public:
  // Sized for the arena of `kernel`.
  explicit SharedMemory(const Kernel& kernel);

  // Forgets everything, copies under way included.
  void BeginBlock();
  // From here on all threads see what was written before.
  void Barrier();
  // From here on bulk copies of the first warp are behind what was read before.
  void HandBack() { handed_back_ = ++turn_; }

  // Access by `thread` to the element of `buffer` at `byte` of the arena. False when it must not
  // be made; problem() says why.
  bool Read(const Buffer& buffer, int64_t byte, int32_t thread, double& value);
  // `is_async`: the write is under way until a Wait that covers it.
  bool Write(const Buffer& buffer, int64_t byte, int32_t thread, double value, bool is_async);
  // What is there becomes `combined` of it; others may do so at the same time.
  bool Combine(const Buffer& buffer, int64_t byte, int32_t thread,
               absl::FunctionRef<double(double)> combined);
  const std::string& problem() const { return problem_; }

  // Closes the group of the asynchronous writes of `thread` since its last commit.
  void Commit(int32_t thread) { ++async_[thread].open_group; }
  // All but the last `pending` groups of `thread` are done: from here on ordinary writes of it.
  void Wait(int32_t thread, int64_t pending);

  // A product of a warpgroup reads the element, at any time until a WaitForProducts that covers its
  // group. False when it must not.
  bool ReadByProduct(const Buffer& buffer, int64_t byte, int64_t warpgroup, double& value);
  void CommitProducts(int64_t warpgroup) { ++products_[warpgroup].open_group; }
  void WaitForProducts(int64_t warpgroup, int64_t pending);
  // What `thread` has written, and waited for, is seen by products behind the next barrier.
  void ProxyFence(int32_t thread);

  // Phases of bulk copies (Intrinsic::kPhaseInit and those behind it): of the buffer or of its
  // element at `byte`, by `thread`. False where that goes wrong. A phase that may end ends when
  // somebody needs it to, no sooner.
  bool InitPhases(const Buffer& buffer, int64_t byte, int32_t thread);
  bool ExpectBytes(int64_t byte, int64_t announced);
  bool WaitForPhase(int64_t byte, int64_t parity, int32_t thread);
  // An element of a bulk copy whose bytes count to the phase at `phase_byte`.
  bool WriteByBulkCopy(const Buffer& buffer, int64_t byte, int64_t phase_byte, int32_t thread,
                       double value);
  // Is nothing under way at the end of a block?
  bool HaveCopiesEnded();

 private:
  // The shadow of the smallest unit that any buffer is made of. An epoch lies between two barriers
  // of one block, a turn between two of them or of what hands buffers back; both are numbered
  // through the whole run.
  struct Cell {
    double value = 0;                // of an element that begins here
    const Buffer* buffer = nullptr;  // through which it was written
    uint64_t write_epoch = 0;
    uint64_t read_epoch = 0;
    uint64_t read_turn = 0;
    int32_t writer = 0;          // kSeveral: threads that have combined their values with it
    int32_t reader = 0;          // kSeveral: more than one thread
    int64_t pending_group = -1;  // of the asynchronous write under way by `writer`; -1 = none
    int32_t products = 0;        // that may be reading it
    uint64_t fence_epoch = 0;    // in which its writer has fenced it; 0 = not since it was written
    int32_t phase = -1;          // counts the bulk copy that has written it; -1 = none has
    int32_t phase_number = 0;
  };

  // What counts the bytes of one phase after another.
  struct Phase {
    uint64_t init_epoch = 0;  // 0 = not made in this block
    int32_t init_thread = 0;
    bool is_fenced = false;
    bool is_announced = false;  // of the phase that goes on, as the bytes are
    int64_t announced = 0, come = 0;
    int32_t ended = 0;  // phases so far
  };
  static constexpr int32_t kSeveral = -1;

  // The asynchronous writes of one thread, or reads of one warpgroup.
  struct AsyncState {
    struct Access {
      int64_t group;
      Cell* cell;
    };
    int64_t open_group = 0;  // commits so far
    std::vector<Access> pending;
  };

  // The cells of an element; empty when it lies outside the arena.
  std::span<Cell> CellsOf(const Buffer& buffer, int64_t byte);
  // True unless `cell` is being written asynchronously or was written by another thread since the
  // last barrier.
  bool IsSettled(const Cell& cell, int32_t thread);
  // The number of the element at `byte`, all of which threads may use; -1: they may not.
  int32_t PhaseAt(int64_t byte);
  // Ends the phase that goes on if it may end.
  static void TryToEnd(Phase& phase);
  // Ended phases that `thread`, or all threads of a warpgroup, know of.
  int32_t& KnownEnded(int32_t thread, int32_t phase) {
    return known_ended_[static_cast<size_t>(thread) * phases_.size() + static_cast<size_t>(phase)];
  }
  bool IsKnownInWarpgroup(const Cell& cell, int64_t warpgroup);
  void NoteRead(Cell& cell, int32_t reader) const {
    cell.reader = reader;
    cell.read_epoch = epoch_;
    cell.read_turn = turn_;
  }
  bool Refuse(std::string problem);

  int64_t cell_bytes_ = 8;
  std::vector<Cell> cells_;
  std::vector<AsyncState> async_;             // by thread
  std::vector<AsyncState> products_;          // by warpgroup
  std::vector<std::vector<Cell*>> unfenced_;  // by writer; empty where there are no products
  std::vector<std::pair<int64_t, int32_t>> phase_buffers_;  // first byte, number of the first phase
  std::vector<Phase> phases_;
  std::vector<int32_t> known_ended_;  // by thread, then phase
  // The last that IsKnownInWarpgroup has found to be so.
  struct {
    int32_t phase = -1, number = 0;
    int64_t warpgroup = 0;
  } known_;
  uint64_t epoch_ = 0;
  uint64_t turn_ = 0;
  uint64_t handed_back_ = 0;  // the turn that began so last
  uint64_t first_epoch_of_block_ = 0;
  std::string problem_;
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_CHECK_INTERPRET_MEMORY_H_
