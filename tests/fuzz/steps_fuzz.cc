// Any text: the step parser refuses it or prints what it understood as the same steps again, and
// applying them to a workload ends with a program that verifies or with a refusal.
#include <memory>
#include <string>
#include <vector>

#include "search_space/check/verify.h"
#include "search_space/notation/notation.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/search_space.h"
#include "tests/fuzz/fuzz.h"

using namespace heddle::search_space;  // NOLINT(google-build-using-namespace)
using heddle::tests::Hold;

namespace {

std::shared_ptr<const TensorProgram> Matmul() {
  auto op = FindOperator(BuiltinOperators(), "matmul");
  return std::make_shared<const TensorProgram>(
      *op->Instantiate({{"m", 32}, {"n", 24}, {"k", 16}}, DType::kFloat32));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto* program = new std::shared_ptr<const TensorProgram>(Matmul());
  static const auto* target = new Target(*FindTarget("sm_90"));
  const std::string text(reinterpret_cast<const char*>(data), size);
  auto steps = ParseSteps(text);
  if (!steps.ok()) {
    Hold(!steps.status().message().empty(), "a refusal without a reason");
    return 0;
  }
  const std::string printed = ToString(*steps);
  auto again = ParseSteps(printed);
  Hold(again.ok(), "its own text is refused: " + printed);
  Hold(ToString(*again) == printed, "its own text changes: " + printed);
  // Long lists only repeat what short ones do.
  constexpr size_t kMaxApplied = 64;
  if (steps->size() > kMaxApplied) return 0;
  auto lowered = LowerSteps(*program, *steps);
  if (lowered.ok()) Verify(*lowered, *target).IgnoreError();
  return 0;
}
