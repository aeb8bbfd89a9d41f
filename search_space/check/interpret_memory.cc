#include "search_space/check/interpret_memory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "search_space/ir/background.h"

namespace heddle::search_space {

SharedMemory::SharedMemory(const Kernel& kernel) : async_(kernel.thread->extent) {
  for (const Kernel::SharedBuffer& s : kernel.shared) {
    cell_bytes_ = std::min(cell_bytes_, SizeOf(s.buffer->dtype));
  }
  cells_.resize(kernel.shared_bytes / cell_bytes_);
  products_.resize(kernel.thread->extent / kWarpgroupThreads);
  if (AnyRunsInBackground(kernel.body)) unfenced_.resize(kernel.thread->extent);
}

void SharedMemory::BeginBlock() {
  first_epoch_of_block_ = ++epoch_;
  for (AsyncState& thread : async_) {
    for (const AsyncState::Access& write : thread.pending) write.cell->pending_group = -1;
    thread.pending.clear();
    thread.open_group = 0;
  }
  for (std::vector<Cell*>& cells : unfenced_) cells.clear();
}

bool SharedMemory::Refuse(std::string problem) {
  problem_ = std::move(problem);
  return false;
}

std::span<SharedMemory::Cell> SharedMemory::CellsOf(const Buffer& buffer, int64_t byte) {
  const size_t first = byte / cell_bytes_, count = SizeOf(buffer.dtype) / cell_bytes_;
  if (first + count > cells_.size()) {
    Refuse(absl::StrCat("access out of bounds: byte ", byte, " of an arena of ",
                        cells_.size() * cell_bytes_));
    return {};
  }
  return std::span(&cells_[first], count);
}

bool SharedMemory::IsSettled(const Cell& cell, int32_t thread) {
  if (cell.pending_group >= 0) {
    return Refuse(
        absl::StrCat("the asynchronous copy to it by thread ", cell.writer, " is not waited for"));
  }
  if (cell.write_epoch == epoch_ && cell.writer != thread) {
    return Refuse(
        absl::StrCat("data race: written by thread ", cell.writer, " with no barrier between"));
  }
  return true;
}

bool SharedMemory::Read(const Buffer& buffer, int64_t byte, int32_t thread, double& value) {
  const std::span<Cell> cells = CellsOf(buffer, byte);
  if (cells.empty()) return false;
  for (Cell& c : cells) {
    if (!IsSettled(c, thread)) return false;
    if (c.write_epoch < first_epoch_of_block_) return Refuse("it was never written");
    if (c.buffer != &buffer) {
      return Refuse(absl::StrCat("its bytes were overwritten through ", c.buffer->name));
    }
    c.reader = c.read_epoch == epoch_ && c.reader != thread ? kSeveral : thread;
    c.read_epoch = epoch_;
  }
  value = cells[0].value;
  return true;
}

bool SharedMemory::Write(const Buffer& buffer, int64_t byte, int32_t thread, double value,
                         bool is_async) {
  const std::span<Cell> cells = CellsOf(buffer, byte);
  if (cells.empty()) return false;
  AsyncState& async = async_[thread];
  for (Cell& c : cells) {
    if (!IsSettled(c, thread)) return false;
    if (c.products > 0) return Refuse("a product that reads it is not waited for");
    if (c.read_epoch == epoch_ && c.reader != thread) {
      const std::string reader =
          c.reader == kSeveral ? "other threads" : absl::StrCat("thread ", c.reader);
      return Refuse(absl::StrCat("data race: read by ", reader, " with no barrier between"));
    }
    c.buffer = &buffer;
    c.write_epoch = epoch_;
    c.writer = thread;
    c.fence_epoch = 0;
    if (!unfenced_.empty()) unfenced_[thread].push_back(&c);
    if (is_async) {
      c.pending_group = async.open_group;
      async.pending.push_back({async.open_group, &c});
    }
  }
  cells[0].value = value;
  return true;
}

void SharedMemory::Wait(int32_t thread, int64_t pending) {
  AsyncState& async = async_[thread];
  std::erase_if(async.pending, [&](const AsyncState::Access& write) {
    if (write.group >= async.open_group - pending) return false;
    write.cell->pending_group = -1;
    write.cell->write_epoch = epoch_;
    return true;
  });
}

bool SharedMemory::ReadByProduct(const Buffer& buffer, int64_t byte, int64_t warpgroup,
                                 double& value) {
  const std::span<Cell> cells = CellsOf(buffer, byte);
  if (cells.empty()) return false;
  AsyncState& products = products_[warpgroup];
  for (Cell& c : cells) {
    if (c.write_epoch < first_epoch_of_block_) return Refuse("it was never written");
    if (c.pending_group >= 0) return IsSettled(c, c.writer);
    if (c.buffer != &buffer) {
      return Refuse(absl::StrCat("its bytes were overwritten through ", c.buffer->name));
    }
    if (c.fence_epoch == 0 || c.fence_epoch == epoch_) {
      return Refuse(absl::StrCat("what thread ", c.writer,
                                 " has written is not fenced for products, or no barrier follows"));
    }
    ++c.products;
    products.pending.push_back({products.open_group, &c});
  }
  value = cells[0].value;
  return true;
}

void SharedMemory::WaitForProducts(int64_t warpgroup, int64_t pending) {
  AsyncState& products = products_[warpgroup];
  std::erase_if(products.pending, [&](const AsyncState::Access& read) {
    if (read.group >= products.open_group - pending) return false;
    --read.cell->products;
    read.cell->read_epoch = epoch_;
    read.cell->reader = kSeveral;
    return true;
  });
}

void SharedMemory::ProxyFence(int32_t thread) {
  if (unfenced_.empty()) return;
  std::erase_if(unfenced_[thread], [&](Cell* cell) {
    if (cell->writer != thread) return true;
    if (cell->pending_group >= 0) return false;
    cell->fence_epoch = epoch_;
    return true;
  });
}

}  // namespace heddle::search_space
