// Any operator that the notation takes has a search space, or is told why not, at a cost that
// follows its text: scripts/fuzz bounds time and memory.
#include <map>
#include <memory>
#include <string>

#include "search_space/notation/notation.h"
#include "search_space/sketch/search_space.h"
#include "tests/fuzz/fuzz.h"

using namespace heddle::search_space;  // NOLINT(google-build-using-namespace)
using heddle::tests::Hold;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto operators = ParseOperators(std::string(reinterpret_cast<const char*>(data), size));
  if (!operators.ok() || operators->size() != 1) return 0;
  const Operator& op = operators->front();
  static const Target target = *FindTarget("h100");
  for (const int64_t extent : {5, 512}) {
    std::map<std::string, int64_t> shape;
    for (const auto& parameter : op.parameters()) {
      if (!parameter.default_value) shape[parameter.name] = extent;
    }
    auto program = op.Instantiate(shape, DType::kFloat32);
    if (!program.ok()) continue;
    const auto space =
        SearchSpace::Create(std::make_shared<const TensorProgram>(*std::move(program)), target);
    if (!space.ok()) {
      Hold(!space.status().message().empty(), "a refusal without a reason: " + op.text());
      continue;
    }
    Hold(space->Steps(space->Default()).ok(), "the default has no steps: " + op.text());
  }
  return 0;
}
