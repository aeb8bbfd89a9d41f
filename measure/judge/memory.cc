#include "measure/judge/memory.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "measure/judge/validate.h"

namespace heddle::measure {
namespace {

// Device memory beyond what is measured: the driver's own, binaries, stacks.
constexpr double kUsableMemory = 0.9;

}  // namespace

absl::Status CheckMemory(const search_space::TensorProgram& program, const std::string& device,
                         int64_t memory_bytes) {
  const int64_t needed = MemoryNeeded(program), total = memory_bytes;
  if (total == 0 || static_cast<double>(needed) <= kUsableMemory * static_cast<double>(total)) {
    return absl::OkStatus();
  }
  std::vector<std::string> shape;
  for (const auto& [name, value] : program.shape) shape.push_back(absl::StrCat(name, "=", value));
  constexpr double kGib = 1 << 30;
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%s at %s needs %.2f GiB of memory to be measured (inputs twice, outputs four times, "
      "intermediate tensors), "
      "%s has %.2f GiB: choose a smaller shape",
      program.op, absl::StrJoin(shape, ","), static_cast<double>(needed) / kGib, device,
      static_cast<double>(total) / kGib));
}

}  // namespace heddle::measure
