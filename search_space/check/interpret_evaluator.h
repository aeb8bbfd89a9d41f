// What the threads of a block compute, read and write, one thread after another, and the faults
// of what they must not touch. Internal to interpret.cc.
#ifndef HEDDLE_SEARCH_SPACE_CHECK_INTERPRET_EVALUATOR_H_
#define HEDDLE_SEARCH_SPACE_CHECK_INTERPRET_EVALUATOR_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "search_space/check/interpret_code.h"
#include "search_space/check/interpret_globals.h"
#include "search_space/check/interpret_memory.h"

namespace heddle::search_space {

// Thrown by what runs a kernel; becomes the status of Interpret.
struct Fault {
  std::string message;
};

class Evaluator {
 public:
  // The kernels of a program are numbered from 1.
  Evaluator(KernelCode& code, int kernel_number, std::vector<Global>& globals)
      : code_(code),
        kernel_number_(kernel_number),
        globals_(globals),
        threads_(code.kernel->thread->extent),
        slots_(code.slot_count),
        local_(threads_ * code.local_elements, kUnwritten),
        shared_(*code.kernel),
        registers_(code.has_products ? local_.size() : 0),
        fences_((threads_ + kWarpgroupThreads - 1) / kWarpgroupThreads) {}

  KernelCode& code() { return code_; }
  SharedMemory& shared() { return shared_; }
  int64_t threads() const { return threads_; }

  void BeginBlock(int64_t block) {
    block_ = block;
    slots_[code_.block_slot] = block;
    shared_.BeginBlock();
  }
  // What follows is done by thread `t`.
  void SetThread(int64_t t) {
    thread_ = static_cast<int32_t>(t);
    slots_[code_.thread_slot] = t;
    my_local_ = local_.data() + t * code_.local_elements;
  }
  // By all of them, as messages tell it.
  void ClearThread() { thread_ = -1; }
  int32_t thread() const { return thread_; }
  void SetLoop(const StmtCode& s, int64_t i) {
    slots_[s.slot] = i;
    if (s.rotating_slot >= 0) slots_[s.rotating_slot] = i % s.rotating_extent;
  }

  double Value(const StmtCode& s) {
    return s.value_is_float ? Float(s.value) : static_cast<double>(Int(s.value));
  }
  // Integers and conditions.
  int64_t Int(int id);
  double Float(int id);

  // The physical element offset, checked.
  int64_t OffsetOf(AccessCode& a);
  double ReadAt(AccessCode& a, int64_t offset);
  // What lies in global memory becomes `combined` of it, at once (atomic_combine).
  void CombineGlobal(const AccessCode& a, int64_t offset,
                     absl::FunctionRef<double(double)> combined);
  void Write(const AccessCode& a, int64_t offset, double value, bool is_async);
  // Sets the buffer that a kAlloc declares to unwritten, for thread `t`.
  void ForgetLocal(const StmtCode& s, int64_t t) {
    double* first = local_.data() + t * code_.local_elements + s.local_begin;
    std::fill(first, first + s.local_size, kUnwritten);
  }
  static int64_t ByteOf(const AccessCode& a, int64_t offset) {
    return a.byte_offset + offset * SizeOf(a.buffer->dtype);
  }

  // A register that products in background read or add to.
  struct Register {
    int64_t product = 0;  // the group of the last that is under way, from 1; 0 = none is
    int64_t written = 0;  // by the thread itself, behind so many fences; 0 = never
  };
  // Of this thread, and what it holds; only where products go on in background.
  Register& StateOf(int64_t element) {
    return registers_[static_cast<size_t>(my_local_ - local_.data() + element)];
  }
  double& Local(int64_t element) { return my_local_[element]; }
  // Of operands that the warpgroup of thread `t` has made so far.
  int64_t& fences(int64_t t) { return fences_[static_cast<size_t>(t / kWarpgroupThreads)]; }

  std::string Name(const AccessCode& a);
  [[noreturn]] void FailPromise(const AccessCode& a, const char* what);
  [[noreturn]] void FailAccess(const char* what, const AccessCode& a);

 private:
  int64_t Sum(const ExprCode& e);
  bool Compare(const ExprCode& e);
  double FloatOperation(const ExprCode& e);
  double Read(AccessCode& a) { return ReadAt(a, OffsetOf(a)); }
  void CheckLane(AccessCode& a, int64_t offset);
  void CheckRegister(const AccessCode& a, int64_t offset);
  void WriteGlobal(const AccessCode& a, int64_t offset, double value);
  int64_t GlobalThread() const { return block_ * threads_ + thread_; }
  std::string NameOfThread(int64_t global_thread) const;

  KernelCode& code_;
  const int32_t kernel_number_;
  std::vector<Global>& globals_;
  const int64_t threads_;
  std::vector<int64_t> slots_;
  std::vector<double> local_;  // of all threads of the block
  SharedMemory shared_;
  std::vector<Register> registers_;  // beside local_, where products go on in background
  std::vector<int64_t> fences_;      // by warpgroup
  int64_t block_ = 0;
  int32_t thread_ = -1;
  double* my_local_ = nullptr;
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_CHECK_INTERPRET_EVALUATOR_H_
