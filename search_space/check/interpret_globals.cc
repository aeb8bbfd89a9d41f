#include "search_space/check/interpret_globals.h"

#include <functional>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/float_format.h"

namespace heddle::search_space {
namespace {

// Calls `visit(row-major position, physical offset)` for every element.
template <typename F>
void ForEachElement(const Buffer& b, const F& visit) {
  const int64_t count =
      std::accumulate(b.shape.begin(), b.shape.end(), int64_t{1}, std::multiplies<>());
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, offset = 0;
    for (size_t d = b.shape.size(); d-- > 0;) {
      offset += rest % b.shape[d] * b.strides[d];
      rest /= b.shape[d];
    }
    visit(i, offset);
  }
}

}  // namespace

absl::StatusOr<std::vector<Global>> MakeGlobals(const Program& program,
                                                const TensorValues& values) {
  std::vector<Global> globals;
  for (const BufferRef& input : program.inputs) {
    Global g{input.get(), Role::kInput, std::vector<double>(input->elements, kUnwritten), {}};
    auto given = values.find(input->name);
    const size_t size = given == values.end() ? 0 : given->second.size();
    size_t count = 0;
    ForEachElement(*input, [&](int64_t i, int64_t offset) {
      ++count;
      if (i < static_cast<int64_t>(size)) {
        g.data[offset] = RoundTo(input->dtype, given->second[i]);
      }
    });
    if (size != count) {
      return absl::InvalidArgumentError(
          absl::StrCat("input ", input->name, " needs ", count, " values and was given ", size));
    }
    globals.push_back(std::move(g));
  }
  for (const auto* buffers : {&program.outputs, &program.workspaces}) {
    for (const BufferRef& b : *buffers) {
      globals.push_back({b.get(), buffers == &program.outputs ? Role::kOutput : Role::kWorkspace,
                         std::vector<double>(b->elements, kUnwritten),
                         std::vector<Global::Writer>(b->elements)});
    }
  }
  return globals;
}

absl::StatusOr<std::vector<double>> ValuesOf(const Global& output) {
  std::vector<double> values;
  absl::Status status;
  ForEachElement(*output.buffer, [&](int64_t i, int64_t offset) {
    values.push_back(output.data[offset]);
    if (status.ok() && IsUnwritten(values.back())) {
      status = absl::InternalError(absl::StrCat("no thread wrote element ", i, " of output ",
                                                output.buffer->name, " (row-major)"));
    }
  });
  if (!status.ok()) return status;
  return values;
}

}  // namespace heddle::search_space
