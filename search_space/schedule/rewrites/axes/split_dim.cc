#include "search_space/schedule/rewrites/axes/split_dim.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kAccess = 16;  // bytes of the widest

bool IsLeaf(const Expr& index) { return index->args.empty(); }

bool IsWithoutQuotients(const Expr& index) {
  bool is_plain = true;
  Visit(index, [&](const Expr& e) {
    is_plain = is_plain && e->op != Op::kDiv && e->op != Op::kMod && e->op != Op::kLoad;
  });
  return is_plain;
}

// The indices at which a dimension of an input is read; none where no reduction reads it.
std::vector<Expr> IndicesAlong(const TensorProgram& program, const BufferRef& input, size_t dim) {
  std::vector<Expr> indices;
  bool is_reduced = false;
  for (const Stage& reader : program.stages) {
    Visit(reader.body, [&](const Expr& e) {
      if (e->op != Op::kLoad || e->buffer != input) return;
      is_reduced = is_reduced || reader.is_reduction();
      indices.push_back(e->args[dim]);
    });
  }
  if (!is_reduced) indices.clear();
  return indices;
}

// The numbers that divide an extent into two parts or more of two or more, the greatest first.
std::vector<int64_t> WidthsOf(int64_t extent) {
  std::vector<int64_t> wide, narrow;
  for (int64_t d = 2; d * d <= extent; ++d) {
    if (extent % d != 0) continue;
    wide.push_back(extent / d);
    if (d * d < extent) narrow.push_back(d);
  }
  wide.insert(wide.end(), narrow.rbegin(), narrow.rend());
  return wide;
}

// Are all of them block * width + place, and some of more than a number?
bool AreParts(const std::vector<Expr>& indices, int64_t width) {
  bool any = false;
  for (const Expr& index : indices) {
    const Expr block = Simplify(index / Int(width)), place = Simplify(index % Int(width));
    if (!IsWithoutQuotients(block) || !IsWithoutQuotients(place)) return false;
    any = any || (block->op != Op::kInt && place->op != Op::kInt);
  }
  return any;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithSplitDim(const TensorProgram& program,
                                                                  const std::string& name,
                                                                  int64_t dim, int64_t width) {
  auto made = std::make_shared<TensorProgram>(program);
  const auto input = std::find_if(made->inputs.begin(), made->inputs.end(),
                                  [&](const BufferRef& own) { return own->name == name; });
  if (input == made->inputs.end()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no input ", name));
  }
  const BufferRef before = *input;
  if (dim < 0 || dim >= static_cast<int64_t>(before->shape.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has no dimension ", dim, ", but ", before->shape.size(), ", from 0"));
  }
  const auto at = static_cast<size_t>(dim);
  const int64_t extent = before->shape[at];
  if (width < 2 || extent % width != 0 || extent == width) {
    return absl::InvalidArgumentError(
        absl::StrCat("parts of ", width, " of dimension ", dim, " of ", name, ", which has ",
                     extent, " elements, are not two or more of two or more"));
  }
  std::vector<int64_t> shape = before->shape;
  shape[at] = width;
  shape.insert(shape.begin() + dim, extent / width);
  Buffer split = *MakeBuffer(before->name, before->dtype, before->scope, std::move(shape));
  split.index_extent = before->index_extent;
  *input = std::make_shared<const Buffer>(std::move(split));
  for (Stage& stage : made->stages) {
    stage.body = Simplify(Rewrite(stage.body, [&](const Expr& e) -> Expr {
      if (e->op != Op::kLoad || e->buffer != before) return nullptr;
      ExprList indices = e->args;
      indices[at] = e->args[at] % Int(width);
      indices.insert(indices.begin() + dim, e->args[at] / Int(width));
      return Load(*input, std::move(indices));
    }));
  }
  return made;
}

std::optional<DimParts> DimWorthSplitting(const TensorProgram& program) {
  for (const BufferRef& input : program.inputs) {
    if (!IsHalf(input->dtype)) continue;
    for (size_t d = 0; d < input->shape.size(); ++d) {
      const bool is_row = d + 1 == input->shape.size();
      const std::vector<Expr> indices = IndicesAlong(program, input, d);
      if (std::all_of(indices.begin(), indices.end(), IsLeaf)) continue;
      for (const int64_t width : WidthsOf(input->shape[d])) {
        const bool fits = !is_row || width * SizeOf(input->dtype) % kAccess == 0;
        if (fits && AreParts(indices, width)) {
          return DimParts{input->name, static_cast<int64_t>(d), width};
        }
      }
    }
  }
  return std::nullopt;
}

absl::Status SplitDim::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(tensor, [&](const TensorProgram& program, const std::string& name) {
    return WithSplitDim(program, name, dim, width);
  });
}

}  // namespace heddle::search_space
