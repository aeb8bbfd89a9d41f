#include "search_space/ir/expr/queries.h"

namespace heddle::search_space {

int64_t NodesOf(const Expr& e) {
  int64_t nodes = 0;
  Visit(e, [&](const Expr&) { ++nodes; });
  return nodes;
}

void AddIfNew(const Expr& e, std::vector<Expr>& list) {
  const bool known = std::any_of(list.begin(), list.end(),
                                 [&](const Expr& other) { return StructurallyEqual(e, other); });
  if (!known) list.push_back(e);
}

std::vector<Expr> LoadsIn(const Expr& e) {
  std::vector<Expr> loads;
  VisitDistinct(e, [&](const Expr& node) {
    if (IsValueLoad(node)) AddIfNew(node, loads);
    if (node->op != Op::kCast || IsFloat(node->args[0]->type)) return;
    Visit(node->args[0], [&](const Expr& number) {
      if (number->op == Op::kLoad) AddIfNew(number, loads);
    });
  });
  return loads;
}

void VisitLoads(const Expr& e, absl::FunctionRef<void(const Expr&)> visit) {
  if (e->op == Op::kLoad) return visit(e);
  for (const Expr& arg : e->args) VisitLoads(arg, visit);
}

bool ReadsSeveralTensors(const Expr& e) {
  absl::flat_hash_set<const Buffer*> tensors;
  Visit(e, [&](const Expr& node) {
    if (IsValueLoad(node)) tensors.insert(node->buffer.get());
  });
  return tensors.size() > 1;
}

bool ReadsMemory(const Expr& e) {
  bool reads = false;
  Visit(e, [&](const Expr& node) { reads = reads || node->op == Op::kLoad; });
  return reads;
}

bool ReadsAny(const Expr& e, const absl::flat_hash_set<const Buffer*>& tensors) {
  bool reads = false;
  Visit(e, [&](const Expr& node) {
    reads = reads || (node->op == Op::kLoad && tensors.contains(node->buffer.get()));
  });
  return reads;
}

bool ReadsByIndex(const Expr& e) {
  bool reads = false;
  Visit(e, [&](const Expr& node) {
    reads = reads ||
            (IsValueLoad(node) && std::any_of(node->args.begin(), node->args.end(), ReadsIndices));
  });
  return reads;
}

bool SaysWhere(const Expr& e, const Buffer* tensor) {
  bool says = false;
  Visit(e, [&](const Expr& load) {
    if (load->op != Op::kLoad) return;
    for (const Expr& index : load->args) says = says || ReadsAny(index, {tensor});
  });
  return says;
}

}  // namespace heddle::search_space
