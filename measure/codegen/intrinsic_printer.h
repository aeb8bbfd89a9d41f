// Intrinsics: barriers, exchanges between threads, products of matrices, copies that run in the
// background. Internal to measure/codegen.
#ifndef HEDDLE_MEASURE_CODEGEN_INTRINSIC_PRINTER_H_
#define HEDDLE_MEASURE_CODEGEN_INTRINSIC_PRINTER_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "measure/codegen/kernel_text.h"
#include "measure/codegen/store_printer.h"
#include "search_space/ir/stmt.h"

namespace heddle::measure {

class IntrinsicPrinter {
 public:
  // `async_copies`: the device has them; without, they are done at once, and nothing is pending.
  IntrinsicPrinter(const search_space::Kernel& kernel, bool async_copies, KernelText& out,
                   StorePrinter& stores)
      : kernel_(kernel), async_copies_(async_copies), out_(out), stores_(stores) {}

  // Parameters of the kernel behind its buffers; their order is that of KernelLaunch::maps.
  std::string MapParameters();
  // What intrinsics need at the kernel's beginning.
  void Declare();
  void Print(const search_space::StmtNode& s);
  // Of a whole vector loop, or of one statement when var is null.
  void PrintAsyncCopy(const search_space::StmtNode& s, const search_space::Var& var);
  void PrintAtomicCombine(const search_space::StmtNode& s, const search_space::Var& var);

 private:
  void DeclareWarpgroup();
  void DeclareLanes();
  void PrintWarpReduce(const search_space::StmtNode& s);
  void PrintWarpScan(const search_space::StmtNode& s);
  // Puts every thread's value where all can read it, into `lanes`, and `next` in its place.
  void ShareValues(const std::string& value, const std::string& lanes, const std::string& next);
  // The combination of what an exchange is over with `other`, a new constant.
  search_space::Expr CombinedWith(const search_space::StmtNode& s, const std::string& other);
  void PrintLoadMatrix(const search_space::StmtNode& s);
  void PrintMatrixMultiply(const search_space::StmtNode& s);
  void PrintWarpgroupMultiply(const search_space::StmtNode& s);
  void PrintPhase(const search_space::StmtNode& s);
  void PrintBulkCopy(const search_space::StmtNode& s);
  // An index, with what is the same for all threads of a warpgroup said so.
  search_space::Expr ByWarpgroup(const search_space::Expr& index) const;
  std::string DescriptorOf(const search_space::Expr& load,
                           const search_space::SharedMatrix& matrix);
  std::string PairsAt(const search_space::BufferRef& buffer, const search_space::ExprList& indices);

  const search_space::Kernel& kernel_;
  const bool async_copies_;
  KernelText& out_;
  StorePrinter& stores_;
  search_space::Var warpgroup_;                       // its number; null where nothing asks for it
  std::map<search_space::DType, std::string> lanes_;  // arrays for exchanges between threads
  // Descriptions of tensors that the launch passes: each of the first copies from it, its name.
  std::vector<std::pair<const search_space::StmtNode*, std::string>> maps_;
};

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_CODEGEN_INTRINSIC_PRINTER_H_
