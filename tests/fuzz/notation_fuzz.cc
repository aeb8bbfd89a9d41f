// Any text: the parser refuses it or understands it, and what it understood it prints so that it
// means the same again, operator and workload alike.
#include <map>
#include <string>

#include "search_space/notation/notation.h"
#include "tests/fuzz/fuzz.h"

using namespace heddle::search_space;  // NOLINT(google-build-using-namespace)
using heddle::tests::Hold;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  auto operators = ParseOperators(text);
  if (!operators.ok()) {
    Hold(!operators.status().message().empty(), "a refusal without a reason");
    return 0;
  }
  for (const Operator& op : *operators) {
    auto again = ParseOperators(op.text());
    Hold(again.ok() && again->size() == 1, "its own text is refused: " + op.text());
    Hold(again->front().text() == op.text(), "its own text changes: " + op.text());
    std::map<std::string, int64_t> shape;
    for (const auto& parameter : op.parameters()) {
      if (!parameter.default_value) shape[parameter.name] = 5;
    }
    auto program = op.Instantiate(shape, DType::kFloat32);
    if (!program.ok()) continue;
    auto same = ParseWorkload(program->canonical_text);
    Hold(same.ok(), "its own workload is refused: " + program->canonical_text);
    Hold(same->hash == program->hash && same->canonical_text == program->canonical_text,
         "a workload changes: " + program->canonical_text);
  }
  return 0;
}
