#include "search_space/schedule/storage/pack.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {
namespace {

ExprList Permuted(const ExprList& indices, const std::vector<int64_t>& order) {
  ExprList permuted;
  for (int64_t d : order) permuted.push_back(indices[static_cast<size_t>(d)]);
  return permuted;
}

absl::Status CheckOrder(const Buffer& tensor, const std::vector<int64_t>& order) {
  std::vector<int64_t> all(tensor.shape.size());
  std::iota(all.begin(), all.end(), 0);
  if (std::is_permutation(order.begin(), order.end(), all.begin(), all.end())) {
    return absl::OkStatus();
  }
  return Refuse(absl::StrCat("the order [", absl::StrJoin(order, ", "), "] of dimensions of ",
                             tensor.name, " should hold each of [", absl::StrJoin(all, ", "),
                             "] once"));
}

// A tensor whose rows begin `pad` elements apart.
BufferRef Padded(const BufferRef& tight, int64_t pad) {
  if (pad == 0) return tight;
  auto padded = std::make_shared<Buffer>(*tight);
  padded->elements += tight->elements / tight->shape.back() * pad;
  int64_t stride = tight->shape.back() + pad;
  for (size_t d = tight->shape.size() - 1; d-- > 0;) {
    padded->strides[d] = stride;
    stride *= tight->shape[d];
  }
  return padded;
}

}  // namespace

absl::Status PackLayout::ApplyTo(ScheduleEditor& editor) const {
  const Schedule& schedule = editor.schedule();
  HEDDLE_ASSIGN_OR_RETURN(here, editor.FindStage(reader));
  BufferRef read;
  Visit(here->body, [&](const Expr& node) {
    if (node->op == Op::kLoad && node->buffer->name == tensor) read = node->buffer;
  });
  if (read == nullptr) return Refuse(absl::StrCat("stage ", reader, " does not read ", tensor));
  if (read->dtype == DType::kInt32) {
    return Refuse(absl::StrCat(tensor, " holds indices, which are read where they are used"));
  }
  HEDDLE_RETURN_IF_ERROR(CheckOrder(*read, order));
  if (pad < 0 || pad > read->shape[static_cast<size_t>(order.back())]) {
    return Refuse(
        absl::StrCat("rows are padded by 0 elements to as many as they have, not by ", pad));
  }
  const int producer = schedule.FindStage(read.get());
  const ScheduledStage* made_by = producer < 0 ? nullptr : &schedule.stage(producer);
  if (made_by != nullptr && (made_by->is_reduction() || !made_by->is_root())) {
    return Refuse(absl::StrCat(tensor, " is not stored: it is ",
                               made_by->is_reduction() ? "a reduction, whose reader packs it"
                                                       : "computed in another stage's loops"));
  }
  std::string name = absl::StrCat(tensor, ".packed");
  for (int n = 2; schedule.FindStage(name) >= 0; ++n) name = absl::StrCat(tensor, ".packed", n);
  Stage copy;
  std::vector<int64_t> shape;
  ExprList indices(read->shape.size());
  for (int64_t d : order) {
    const auto dim = static_cast<size_t>(d);
    const std::string axis = made_by == nullptr ? absl::StrCat("d", d) : made_by->axes[dim]->name;
    copy.axes.push_back(MakeVar(axis, read->shape[dim]));
    shape.push_back(read->shape[dim]);
    indices[dim] = VarExpr(copy.axes.back());
  }
  copy.body = Load(read, std::move(indices));
  copy.tensor =
      Padded(MakeBuffer(std::move(name), read->dtype, Scope::kGlobal, std::move(shape)), pad);
  ScheduledStage packed = MakeScheduledStage(copy);
  packed.materialized = true;
  here->body = Rewrite(here->body, [&](const Expr& node) -> Expr {
    if (node->op != Op::kLoad || node->buffer != read) return nullptr;
    return Load(packed.tensor, Permuted(node->args, order));
  });
  editor.Insert(schedule.IndexOf(*here), {std::move(packed)});
  return absl::OkStatus();
}

}  // namespace heddle::search_space
