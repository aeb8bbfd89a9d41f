// Instructions that multiply matrices, as the warps of a block execute them together. Internal to
// interpret.cc.
#ifndef HEDDLE_SEARCH_SPACE_CHECK_INTERPRET_MATRIX_H_
#define HEDDLE_SEARCH_SPACE_CHECK_INTERPRET_MATRIX_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "search_space/check/interpret_evaluator.h"

namespace heddle::search_space {

class MatrixUnit {
 public:
  explicit MatrixUnit(Evaluator& threads)
      : t_(threads), warpgroups_(threads.threads() / kWarpgroupThreads) {}

  static bool Executes(Intrinsic intrinsic);
  // An intrinsic of matrices, by the warps or warpgroups of threads first .. end - 1.
  void Run(const StmtCode& s, int64_t first, int64_t end);
  // At the end of a block: every product has been waited for.
  void Finish() const;

 private:
  struct Warpgroup {
    int64_t products = 0;                      // groups committed so far
    std::vector<Evaluator::Register*> locked;  // of products that are under way
  };
  // Who holds an element of a matrix.
  struct Place {
    int64_t lane, element;
  };

  void RunInWarp(const StmtCode& s);
  void LoadMatrix(const StmtCode& s);
  void Multiply(const StmtCode& s);
  void RunInWarpgroup(const StmtCode& s, Warpgroup& group);
  void WarpgroupMultiply(const StmtCode& s, Warpgroup& group);
  void Wait(const StmtCode& s, Warpgroup& group);
  double& Lock(AccessCode& a, int64_t offset, Warpgroup& group);
  std::vector<double> ReadRegisters(AccessCode& from, const FragmentLayout& layout,
                                    Warpgroup& group);
  std::vector<double> Gather(AccessCode& from, const FragmentLayout& layout);
  std::vector<double> ReadShared(AccessCode& from, const SharedMatrix& matrix, int64_t rows,
                                 int64_t cols);
  // Of all elements, row by row, by what matrix.h says.
  const std::vector<Place>& PlacesOf(const FragmentLayout& layout);
  void CheckElement(AccessCode& a, int64_t offset);

  Evaluator& t_;
  std::vector<Warpgroup> warpgroups_;
  int64_t warp_ = 0;  // the first thread of the warp or warpgroup that executes
  absl::flat_hash_map<const FragmentLayout*, std::vector<Place>> places_;
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_CHECK_INTERPRET_MATRIX_H_
