// A block's shared memory with a shadow that knows who touched what since the last barrier.
// Internal to interpret.cc.
#ifndef HEDDLE_SEARCH_SPACE_CHECK_INTERPRET_MEMORY_H_
#define HEDDLE_SEARCH_SPACE_CHECK_INTERPRET_MEMORY_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "search_space/ir/stmt.h"

namespace heddle::search_space {

class SharedMemory {
 public:
  // Sized for the arena of `kernel`.
  explicit SharedMemory(const Kernel& kernel);

  // Forgets everything, copies under way included.
  void BeginBlock();
  // From here on all threads see what was written before.
  void Barrier() { ++epoch_; }

  // Access by `thread` to the element of `buffer` at `byte` of the arena. False when it must not
  // be made; problem() says why.
  bool Read(const Buffer& buffer, int64_t byte, int32_t thread, double& value);
  // `is_async`: the write is under way until a Wait that covers it.
  bool Write(const Buffer& buffer, int64_t byte, int32_t thread, double value, bool is_async);
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

 private:
  // The shadow of the smallest unit that any buffer is made of. An epoch lies between two barriers
  // of one block; epochs are numbered through the whole run.
  struct Cell {
    double value = 0;                // of an element that begins here
    const Buffer* buffer = nullptr;  // through which it was written
    uint64_t write_epoch = 0;
    uint64_t read_epoch = 0;
    int32_t writer = 0;
    int32_t reader = 0;          // kSeveral: more than one thread
    int64_t pending_group = -1;  // of the asynchronous write under way by `writer`; -1 = none
    int32_t products = 0;        // that may be reading it
    uint64_t fence_epoch = 0;    // in which its writer has fenced it; 0 = not since it was written
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
  bool Refuse(std::string problem);

  int64_t cell_bytes_ = 8;
  std::vector<Cell> cells_;
  std::vector<AsyncState> async_;             // by thread
  std::vector<AsyncState> products_;          // by warpgroup
  std::vector<std::vector<Cell*>> unfenced_;  // by writer; empty where there are no products
  uint64_t epoch_ = 0;
  uint64_t first_epoch_of_block_ = 0;
  std::string problem_;
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_CHECK_INTERPRET_MEMORY_H_
