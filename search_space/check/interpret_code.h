// A kernel translated for the interpreter: variables in numbered slots, index expressions as sums
// of slots, buffers resolved. Internal to interpret.cc.
#ifndef HEDDLE_SEARCH_SPACE_CHECK_INTERPRET_CODE_H_
#define HEDDLE_SEARCH_SPACE_CHECK_INTERPRET_CODE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "search_space/ir/stmt.h"

namespace heddle::search_space {

// A summand of an integer expression: coef * (a variable's slot, or another expression).
struct SumTerm {
  int slot;  // -1: `expr` counts
  int expr;
  int64_t coef;
};

struct ExprCode {
  Op op;
  DType type = DType::kInt64;
  bool is_sum = false;      // constant + terms[first_term .. first_term + term_count)
  bool is_float = false;    // how the result is evaluated
  bool float_args = false;  // how the arguments are
  int args[3] = {-1, -1, -1};
  int first_term = 0;
  int term_count = 0;
  int access = -1;  // kLoad
  int64_t constant = 0;
  double value = 0;
  // Bounds of integers from the extents of their variables; infinite where unknown.
  double min = 0;
  double max = 0;
};

// One place in the program where a buffer is read or written.
struct AccessCode {
  const Buffer* buffer;
  int storage;               // global: index into the interpreter's arrays; shared: index into
                             // Kernel::shared; local: first element in the thread's local memory
  int64_t byte_offset = 0;   // shared: of the buffer in the arena
  std::vector<int> indices;  // expressions, for checks and messages
  int offset = -1;           // sum of index * stride, when the indices need no run-time check
  int lanes = 1;
  int lane_slot = -1;  // lanes > 1: the vector loop's variable
  // State while a vector loop runs: lanes seen so far and the chunk's first offset.
  int64_t lanes_seen = 0;
  int64_t chunk_offset = 0;
};

struct StmtCode {
  StmtNode::Kind kind;
  ExecutionScope scope = ExecutionScope::kThread;  // of the widest intrinsic in it
  bool is_vector = false;                          // kFor: body is Ifs around one writing statement
  int slot = -1;
  int64_t extent = 0;
  int64_t stride = 1;  // kFor; its first iteration is `value`, or 0
  int rotating_slot = -1;
  int64_t rotating_extent = 1;
  int condition = -1;
  int access = -1;
  int value = -1;
  bool value_is_float = true;
  Intrinsic intrinsic = Intrinsic::kBarrier;
  int64_t int_value = 0;
  Combiner combiner = Combiner::kNone;
  std::array<SharedMatrix, 2> operands;
  std::vector<int64_t> box;
  int phases = -1;          // kBulkCopy: the access to the element that counts its bytes
  int64_t local_begin = 0;  // kAlloc
  int64_t local_size = 0;
  std::vector<int> vector_accesses;  // is_vector: those with lanes > 1
  std::vector<StmtCode> body;
};

struct KernelCode {
  const Kernel* kernel;
  StmtCode body;
  std::vector<ExprCode> exprs;
  std::vector<SumTerm> terms;
  std::vector<AccessCode> accesses;
  int slot_count = 0;
  int block_slot = 0;
  int thread_slot = 0;
  int64_t local_elements = 0;  // of one thread
  bool has_products = false;   // that go on in background
};

// Resolves everything by name and number. Fails on what cannot run at all: variables outside their
// loops, buffers the kernel does not declare, stores to what is not marked as written, vector
// loops of another form than stmt.h demands.
absl::StatusOr<KernelCode> CompileKernel(const Kernel& kernel,
                                         const absl::flat_hash_map<std::string, int>& globals);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_CHECK_INTERPRET_CODE_H_
