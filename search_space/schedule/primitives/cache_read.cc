#include "search_space/schedule/primitives/cache_read.h"

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {
namespace {

// A stage at the root that copies all of `tensor`, which stage `producer` defines unless it is -1.
ScheduledStage CopyOf(const BufferRef& tensor, int producer, const std::string& name,
                      const Schedule& schedule) {
  Stage copy;
  copy.tensor = MakeBuffer(name, tensor->dtype, Scope::kGlobal, tensor->shape);
  ExprList indices;
  for (size_t i = 0; i < tensor->shape.size(); ++i) {
    const std::string axis = producer >= 0
                                 ? schedule.stages()[static_cast<size_t>(producer)].axes[i]->name
                                 : absl::StrCat("d", i);
    copy.axes.push_back(MakeVar(axis, tensor->shape[i]));
    indices.push_back(VarExpr(copy.axes.back()));
  }
  copy.body = Load(tensor, std::move(indices));
  return MakeScheduledStage(copy);
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
  std::string name = absl::StrCat(tensor, ".", NameOf(scope));
  for (int n = 2; schedule.FindStage(name) >= 0; ++n) {
    name = absl::StrCat(tensor, ".", NameOf(scope), n);
  }
  const int producer = schedule.FindStage(read.get());
  ScheduledStage copy = CopyOf(read, producer, name, schedule);
  copy.scope = scope;
  for (ScheduledStage* s : readers) {
    s->body = Rewrite(s->body, [&](const Expr& node) -> Expr {
      if (node->op != Op::kLoad || node->buffer != read) return nullptr;
      return Load(copy.tensor, node->args);
    });
  }
  // As early as it can be when it is shared, so that its loads are under way first.
  editor.Insert(all ? producer + 1 : schedule.IndexOf(*readers[0]), {std::move(copy)});
  return absl::OkStatus();
}

}  // namespace heddle::search_space
