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
  VisitStmts(kernel.body, [&](const StmtNode& s) {
    if (s.kind != StmtNode::Kind::kIntrin || s.intrinsic != Intrinsic::kPhaseInit) return;
    for (const Kernel::SharedBuffer& b : kernel.shared) {
      if (b.buffer != s.buffer) continue;
      phase_buffers_.emplace_back(b.offset, static_cast<int32_t>(phases_.size()));
      phases_.resize(phases_.size() + b.buffer->elements);
    }
  });
  known_ended_.resize(phases_.size() * kernel.thread->extent);
}

void SharedMemory::BeginBlock() {
  first_epoch_of_block_ = ++epoch_;
  for (AsyncState& thread : async_) {
    for (const AsyncState::Access& write : thread.pending) write.cell->pending_group = -1;
    thread.pending.clear();
    thread.open_group = 0;
  }
  for (std::vector<Cell*>& cells : unfenced_) cells.clear();
  std::fill(phases_.begin(), phases_.end(), Phase{});
  std::fill(known_ended_.begin(), known_ended_.end(), 0);
  known_ = {};
}

void SharedMemory::Barrier() {
  ++epoch_;
  ++turn_;
  // What one thread has waited for is there for all behind a barrier.
  const size_t threads = async_.size();
  for (size_t p = 0; p < phases_.size(); ++p) {
    int32_t most = 0;
    for (size_t t = 0; t < threads; ++t)
      most = std::max(most, known_ended_[t * phases_.size() + p]);
    for (size_t t = 0; t < threads; ++t) known_ended_[t * phases_.size() + p] = most;
  }
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
  if (cell.phase >= 0 && cell.write_epoch >= first_epoch_of_block_) {
    return KnownEnded(thread, cell.phase) > cell.phase_number ||
           Refuse("the bulk copy to it is not waited for");
  }
  if (cell.pending_group >= 0) {
    return Refuse(
        absl::StrCat("the asynchronous copy to it by thread ", cell.writer, " is not waited for"));
  }
  if (cell.write_epoch == epoch_ && cell.writer != thread) {
    const std::string writer =
        cell.writer == kSeveral ? "atomic updates" : absl::StrCat("thread ", cell.writer);
    return Refuse(absl::StrCat("data race: written by ", writer, " with no barrier between"));
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
    NoteRead(c, c.read_epoch == epoch_ && c.reader != thread ? kSeveral : thread);
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
    c.phase = -1;
    if (!unfenced_.empty()) unfenced_[thread].push_back(&c);
    if (is_async) {
      c.pending_group = async.open_group;
      async.pending.push_back({async.open_group, &c});
    }
  }
  cells[0].value = value;
  return true;
}

bool SharedMemory::Combine(const Buffer& buffer, int64_t byte, int32_t thread,
                           absl::FunctionRef<double(double)> combined) {
  const std::span<Cell> cells = CellsOf(buffer, byte);
  if (cells.empty()) return false;
  for (Cell& c : cells) {
    const bool is_combined = c.write_epoch == epoch_ && c.writer == kSeveral;
    if (!is_combined && !IsSettled(c, thread)) return false;
    if (c.write_epoch < first_epoch_of_block_) return Refuse("it was never written");
    if (c.buffer != &buffer) {
      return Refuse(absl::StrCat("its bytes were overwritten through ", c.buffer->name));
    }
    const bool is_stored = c.write_epoch == epoch_ && !is_combined;
    if (is_stored || c.read_epoch == epoch_) {
      return Refuse(absl::StrCat("data race: ", is_stored ? "stored to" : "read",
                                 " with no barrier between"));
    }
    c.write_epoch = epoch_;
    c.writer = kSeveral;
    c.fence_epoch = 0;
  }
  cells[0].value = combined(cells[0].value);
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
    if (c.phase >= 0) {
      if (!IsKnownInWarpgroup(c, warpgroup)) return Refuse("the bulk copy to it is not waited for");
    } else if (c.fence_epoch == 0 || c.fence_epoch == epoch_) {
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
    NoteRead(*read.cell, kSeveral);
    return true;
  });
}

void SharedMemory::ProxyFence(int32_t thread) {
  for (Phase& phase : phases_) {
    phase.is_fenced = phase.is_fenced || (phase.init_epoch != 0 && phase.init_thread == thread);
  }
  if (unfenced_.empty()) return;
  std::erase_if(unfenced_[thread], [&](Cell* cell) {
    if (cell->writer != thread) return true;
    if (cell->pending_group >= 0) return false;
    cell->fence_epoch = epoch_;
    return true;
  });
}

bool SharedMemory::InitPhases(const Buffer& buffer, int64_t byte, int32_t thread) {
  for (const auto& [first, number] : phase_buffers_) {
    if (first != byte) continue;
    for (int64_t i = 0; i < buffer.elements; ++i) {
      Phase& phase = phases_[static_cast<size_t>(number + i)];
      if (phase.init_epoch != 0) return Refuse("its phases are made a second time");
      phase.init_epoch = epoch_;
      phase.init_thread = thread;
    }
  }
  return true;
}

int32_t SharedMemory::PhaseAt(int64_t byte) {
  int32_t found = -1;
  for (const auto& [first, number] : phase_buffers_) {
    if (byte >= first)
      found = number + static_cast<int32_t>((byte - first) / SizeOf(DType::kInt64));
  }
  const Phase* const phase =
      found >= 0 && found < std::ssize(phases_) ? &phases_[static_cast<size_t>(found)] : nullptr;
  if (phase != nullptr && phase->is_fenced && phase->init_epoch < epoch_) return found;
  Refuse("it is not made, or not fenced, or no barrier follows");
  return -1;
}

void SharedMemory::TryToEnd(Phase& phase) {
  if (!phase.is_announced || phase.announced != phase.come) return;
  ++phase.ended;
  phase.is_announced = false;
  phase.announced = phase.come = 0;
}

bool SharedMemory::ExpectBytes(int64_t byte, int64_t announced) {
  const int32_t at = PhaseAt(byte);
  if (at < 0) return false;
  Phase& phase = phases_[static_cast<size_t>(at)];
  TryToEnd(phase);
  if (phase.is_announced) return Refuse("bytes are announced before those of the phase have come");
  phase.is_announced = true;
  phase.announced = announced;
  return true;
}

bool SharedMemory::WaitForPhase(int64_t byte, int64_t parity, int32_t thread) {
  const int32_t at = PhaseAt(byte);
  if (at < 0) return false;
  Phase& phase = phases_[static_cast<size_t>(at)];
  if (phase.ended % 2 == parity) {
    TryToEnd(phase);
    if (phase.ended % 2 == parity) {
      return Refuse(absl::StrCat("it would never end: phase ", phase.ended, " has ",
                                 phase.is_announced ? phase.announced : 0, " bytes announced and ",
                                 phase.come, " on their way"));
    }
  }
  KnownEnded(thread, at) = phase.ended;
  return true;
}

bool SharedMemory::WriteByBulkCopy(const Buffer& buffer, int64_t byte, int64_t phase_byte,
                                   int32_t thread, double value) {
  const int32_t at = PhaseAt(phase_byte);
  const std::span<Cell> cells = CellsOf(buffer, byte);
  if (at < 0 || cells.empty()) return false;
  Phase& phase = phases_[static_cast<size_t>(at)];
  TryToEnd(phase);
  for (Cell& c : cells) {
    if (!IsSettled(c, thread)) return false;
    if (c.products > 0) return Refuse("a product that reads it is not waited for");
    const bool is_handed_back = thread < kWarpThreads && c.read_turn < handed_back_;
    if (c.read_epoch == epoch_ && c.reader != thread && !is_handed_back) {
      return Refuse("data race: read by other threads with no barrier between");
    }
    const bool stored = c.phase < 0 && c.write_epoch >= first_epoch_of_block_;
    if (stored && (c.fence_epoch == 0 || c.fence_epoch == epoch_)) {
      return Refuse(absl::StrCat("what thread ", c.writer,
                                 " has written is not fenced, or no barrier follows"));
    }
    c.buffer = &buffer;
    c.write_epoch = epoch_;
    c.writer = thread;
    c.phase = at;
    c.phase_number = phase.ended;
  }
  cells[0].value = value;
  phase.come += SizeOf(buffer.dtype);
  return true;
}

bool SharedMemory::IsKnownInWarpgroup(const Cell& cell, int64_t warpgroup) {
  if (known_.phase == cell.phase && known_.number == cell.phase_number &&
      known_.warpgroup == warpgroup) {
    return true;
  }
  for (int64_t t = warpgroup * kWarpgroupThreads; t < (warpgroup + 1) * kWarpgroupThreads; ++t) {
    if (KnownEnded(static_cast<int32_t>(t), cell.phase) <= cell.phase_number) return false;
  }
  known_ = {cell.phase, cell.phase_number, warpgroup};
  return true;
}

bool SharedMemory::HaveCopiesEnded() {
  for (size_t p = 0; p < phases_.size(); ++p) {
    if (phases_[p].is_announced || phases_[p].come > 0) {
      return Refuse("the block ends before its bulk copies are waited for");
    }
  }
  return true;
}

}  // namespace heddle::search_space
