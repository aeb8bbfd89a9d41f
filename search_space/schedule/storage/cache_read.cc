#include "search_space/schedule/storage/cache_read.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {
namespace {

// A stage at the root that copies all of `tensor`, which stage `producer` defines unless it is -1,
// to elements of `type`.
ScheduledStage CopyOf(const BufferRef& tensor, DType type, int producer, const std::string& name,
                      const Schedule& schedule) {
  Stage copy;
  Buffer buffer = *MakeBuffer(name, type, Scope::kGlobal, tensor->shape);
  buffer.index_extent = tensor->index_extent;
  copy.tensor = std::make_shared<const Buffer>(std::move(buffer));
  ExprList indices;
  for (size_t i = 0; i < tensor->shape.size(); ++i) {
    const std::string axis =
        producer >= 0 ? schedule.stage(producer).axes[i]->name : absl::StrCat("d", i);
    copy.axes.push_back(MakeVar(axis, tensor->shape[i]));
    indices.push_back(VarExpr(copy.axes.back()));
  }
  copy.body = Load(tensor, std::move(indices));
  return MakeScheduledStage(copy);
}

bool IsLoadOf(const Expr& e, const BufferRef& tensor) {
  return e->op == Op::kLoad && e->buffer == tensor;
}

// The type to which everybody who reads `tensor` in `e` converts it; its own where somebody does
// not, or they differ.
DType TypeWanted(const std::vector<ScheduledStage*>& readers, const BufferRef& tensor) {
  int loads = 0, casts = 0;
  DType wanted = tensor->dtype;
  bool agree = true;
  for (const ScheduledStage* s : readers) {
    Visit(s->body, [&](const Expr& e) {
      loads += IsLoadOf(e, tensor) ? 1 : 0;
      if (e->op != Op::kCast || !IsLoadOf(e->args[0], tensor)) return;
      agree = agree && (casts == 0 || e->type == wanted);
      wanted = e->type;
      ++casts;
    });
  }
  return agree && casts == loads ? wanted : tensor->dtype;
}

// The stages that `reader` may mean; `all` tells whether they are to share a copy.
absl::StatusOr<std::vector<ScheduledStage*>> FindReaders(ScheduleEditor& editor,
                                                         const std::string& reader, bool& all) {
  const Schedule& schedule = editor.schedule();
  std::vector<ScheduledStage*> readers;
  const bool of_kernel = absl::StartsWith(reader, "all@");
  all = (of_kernel || reader == "all") && schedule.FindStage(reader) < 0;
  if (!all) {
    HEDDLE_ASSIGN_OR_RETURN(nest, editor.FindStage(reader));
    for (ScheduledStage& s : editor.stages()) {
      if (&s == nest || s.leader == nest->tensor) readers.push_back(&s);
    }
    return readers;
  }
  const ScheduledStage* kernel = nullptr;
  if (of_kernel) {
    HEDDLE_ASSIGN_OR_RETURN(named, editor.FindStage(reader.substr(std::strlen("all@"))));
    kernel = &schedule.KernelOf(*named);
  }
  for (ScheduledStage& s : editor.stages()) {
    if (kernel == nullptr || &schedule.KernelOf(s) == kernel) readers.push_back(&s);
  }
  return readers;
}

}  // namespace

absl::Status CacheRead::ApplyTo(ScheduleEditor& editor) const {
  const Schedule& schedule = editor.schedule();
  bool all = false;
  HEDDLE_ASSIGN_OR_RETURN(readers, FindReaders(editor, reader, all));
  BufferRef read;
  for (const ScheduledStage* s : readers) {
    Visit(s->body, [&](const Expr& node) {
      if (node->op == Op::kLoad && node->buffer->name == tensor) read = node->buffer;
    });
  }
  if (read == nullptr) {
    return Refuse(absl::StrCat("stage ", reader, " does not read ", tensor));
  }
  const auto says_where = [&](const ScheduledStage* s) { return SaysWhere(s->body, read.get()); };
  if (read->dtype == DType::kInt32 && std::any_of(readers.begin(), readers.end(), says_where)) {
    return Refuse(absl::StrCat(tensor, " says where others are read, not through a copy"));
  }
  std::string name = absl::StrCat(tensor, ".", NameOf(scope));
  for (int n = 2; schedule.FindStage(name) >= 0; ++n) {
    name = absl::StrCat(tensor, ".", NameOf(scope), n);
  }
  const int producer = schedule.FindStage(read.get());
  // Registers hold what arithmetic needs, so that each element is converted once.
  const bool may_convert = scope == Scope::kLocal && IsFloat(read->dtype);
  const DType type = may_convert ? TypeWanted(readers, read) : read->dtype;
  const bool converts = type != read->dtype;
  ScheduledStage copy = CopyOf(read, type, producer, name, schedule);
  copy.scope = scope;
  for (ScheduledStage* s : readers) {
    s->body = Rewrite(s->body, [&](const Expr& node) -> Expr {
      if (converts && node->op != Op::kCast) return nullptr;
      const Expr& load = converts ? node->args[0] : node;
      return IsLoadOf(load, read) ? Load(copy.tensor, load->args) : nullptr;
    });
  }
  // As early as it can be when it is shared, so that its loads are under way first.
  editor.Insert(all ? producer + 1 : schedule.IndexOf(*readers[0]), {std::move(copy)});
  return absl::OkStatus();
}

}  // namespace heddle::search_space
