#include "search_space/sketch/patterns/sites.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/math.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/kernels/kernel_plan.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kMostOwn = 16;     // elements along an axis that a thread has alone
constexpr int64_t kMostStored = 64;  // of an output, by one site
constexpr int64_t kMostTerms = 32;   // of a reduction
// Of a reduction that reads the same of a tensor for many sites, as products of matrices do, which
// tiles in shared memory serve better; of tensors that are not small.
constexpr int64_t kMostSharedTerms = 4, kSmall = 256;
constexpr double kWrittenAgain = 2;  // times that operations are written out where all is inlined
constexpr int64_t kMostHeld = 160;   // elements of a site, at once
constexpr int64_t kFewestSites = 2048;  // fewer leave most of a device idle
constexpr size_t kMostStages = 64;

// What is found out of a stage from those that read it.
struct Reading {
  // Of each of its axes the root's axis whose sites it follows; nothing where it is read anywhere.
  std::vector<std::optional<size_t>> along;
  std::set<size_t> mixed;  // the root's axes that its other indices depend on
  size_t loads = 0;
  bool is_in_place = true;  // is it read once for each element of one reader, which is elementwise?
  bool is_indexed = false;  // do the values of tensors say where?
};

class SitesFinder {
 public:
  SitesFinder(const ProgramShape& shape, const KernelShape& kernel)
      : schedule_(shape.schedule), root_(shape.stage(kernel.root).tensor) {
    for (int s : StagesOf(shape, kernel)) members_.push_back(shape.stage(s).tensor);
  }

  std::optional<Sites> Find() {
    if (members_.size() > kMostStages) return std::nullopt;
    while (true) {
      Read();
      const std::optional<int> useless = OneToInline();
      if (!useless.has_value()) break;
      const BufferRef tensor = schedule_.stage(*useless).tensor;
      if (!Apply(Step(ComputeInline{tensor->name}), schedule_).ok()) return std::nullopt;
      inlined_.push_back(tensor);
      std::erase(members_, tensor);
    }
    Sites sites{.root = {root_}};
    if (!DivideAxes(sites) || !Keep(sites)) return std::nullopt;
    FindInputs(sites);
    for (const BufferRef& tensor : inlined_) sites.inlined.push_back({tensor});
    std::sort(sites.inlined.begin(), sites.inlined.end(),
              [&](const StageRef& a, const StageRef& b) {
                return schedule_.FindStage(a.tensor.get()) < schedule_.FindStage(b.tensor.get());
              });
    return sites;
  }

 private:
  const ScheduledStage& StageOf(const BufferRef& tensor) const {
    return schedule_.stage(schedule_.FindStage(tensor.get()));
  }
  size_t NumberOf(const Buffer* tensor) const {
    const auto at = std::find_if(members_.begin(), members_.end(),
                                 [&](const BufferRef& m) { return m.get() == tensor; });
    return static_cast<size_t>(at - members_.begin());
  }

  // From the root to what it is made of; members are in definition order.
  void Read() {
    readings_.assign(members_.size(), {});
    const size_t root = NumberOf(root_.get());
    for (size_t a = 0; a < root_->shape.size(); ++a) readings_[root].along.emplace_back(a);
    for (size_t m = members_.size(); m-- > 0;) {
      for (const ScheduledStage* s : schedule_.Together(StageOf(members_[m]))) {
        Visit(s->body, [&](const Expr& e) {
          if (e->op != Op::kLoad) return;
          const size_t read = NumberOf(e->buffer.get());
          if (read < members_.size()) ReadAt(*s, m, *e, readings_[read]);
        });
      }
    }
  }
  // A companion's axes are its leader's.
  std::optional<size_t> RootAxis(size_t member, const Var& axis) const {
    const int at = StageOf(members_[member]).FindAxis(axis);
    return at < 0 ? std::nullopt : readings_[member].along[static_cast<size_t>(at)];
  }
  void ReadAt(const ScheduledStage& reader, size_t member, const ExprNode& load, Reading& read) {
    std::vector<std::optional<size_t>> along;
    for (const Expr& index : load.args) {
      along.push_back(index->op == Op::kVar ? RootAxis(member, index->var) : std::nullopt);
      if (along.back().has_value()) continue;
      Visit(index, [&](const Expr& e) {
        read.is_indexed = read.is_indexed || e->op == Op::kLoad;
        if (e->op != Op::kVar) return;
        if (const auto axis = RootAxis(member, e->var)) read.mixed.insert(*axis);
      });
    }
    // Of what a reduction's term, or an element along an axis that it does not have, is made again.
    const size_t axes = readings_[member].along.size();
    read.is_in_place = read.loads == 0 && !reader.is_reduction() && load.args.size() == axes &&
                       std::none_of(along.begin(), along.end(),
                                    [](const auto& axis) { return !axis.has_value(); });
    if (read.loads++ == 0) {
      read.along = std::move(along);
      return;
    }
    for (size_t d = 0; d < along.size(); ++d) {
      if (read.along[d] == along[d]) continue;
      for (const auto& axis : {read.along[d], along[d]}) {
        if (axis.has_value()) read.mixed.insert(*axis);
      }
      read.along[d].reset();
    }
  }

  bool IsShort(size_t root_axis) const { return root_->shape[root_axis] <= kMostOwn; }
  // Of a stage that does not follow all long axes of the root many threads compute the same.
  bool FollowsSites(const Reading& reading) const {
    for (size_t a = 0; a < root_->shape.size(); ++a) {
      const auto follows = std::count(reading.along.begin(), reading.along.end(), a);
      if (!IsShort(a) && (follows != 1 || reading.mixed.contains(a))) return false;
    }
    return true;
  }

  // An elementwise stage that is not worth keeping: read once for each of its elements, nothing but
  // a copy, or of other sites than its readers'.
  std::optional<int> OneToInline() const {
    for (size_t m = members_.size(); m-- > 0;) {
      const ScheduledStage& s = StageOf(members_[m]);
      if (members_[m] == root_ || s.is_reduction() || s.scope == Scope::kLocal) continue;
      const bool is_copy = s.body->op == Op::kLoad || s.body->op == Op::kFloat;
      if (readings_[m].is_in_place || is_copy || readings_[m].is_indexed ||
          !FollowsSites(readings_[m])) {
        return schedule_.IndexOf(s);
      }
    }
    return std::nullopt;
  }

  bool DivideAxes(Sites& sites) const {
    int64_t stored = 1, all = 1;
    for (size_t a = 0; a < root_->shape.size(); ++a) {
      const bool is_own =
          IsShort(a) && std::any_of(readings_.begin(), readings_.end(), [&](const Reading& r) {
            return r.mixed.contains(a) || std::count(r.along.begin(), r.along.end(), a) != 1;
          });
      (is_own ? sites.own : sites.sites).push_back(a);
      (is_own ? stored : all) *= root_->shape[a];
    }
    return !sites.sites.empty() && stored <= kMostStored && all >= kFewestSites;
  }

  bool IsOwn(const Sites& sites, size_t axis) const {
    return std::find(sites.own.begin(), sites.own.end(), axis) != sites.own.end();
  }

  // What a thread keeps, if it can; false where that is no better than to compute it where it is
  // read.
  bool Keep(Sites& sites) const {
    std::vector<int64_t> held(members_.size());
    for (size_t m = 0; m < members_.size(); ++m) {
      const ScheduledStage& s = StageOf(members_[m]);
      const std::optional<int64_t> elements = ElementsOf(sites, m);
      if (!elements.has_value() || ExtentOf(s.reduce_axes) > kMostTerms || SharesTerms(m)) {
        return false;
      }
      for (const ScheduledStage* each : schedule_.Together(s)) {
        sites.nodes += NodesOf(each->body) * *elements * ExtentOf(s.reduce_axes);
      }
      if (sites.nodes > kMostSiteNodes) return false;
      if (members_[m] == root_) {
        sites.copies = s.body->op == Op::kLoad && schedule_.FindStage(s.body->buffer.get()) >= 0 &&
                       StageOf(s.body->buffer).scope == Scope::kLocal;
        continue;
      }
      if (readings_[m].is_indexed || !FollowsSites(readings_[m])) return false;
      sites.held.push_back({members_[m]});
      held[m] = *elements;
    }
    sites.elements = AtOnce(held);
    return sites.elements <= kMostHeld && IsReadAgain(sites);
  }

  // The most elements that are needed at the same time, of so many of each member: from where they
  // are made to where they are read last.
  int64_t AtOnce(const std::vector<int64_t>& elements) const {
    std::vector<size_t> last(members_.size());
    for (size_t m = 0; m < members_.size(); ++m) {
      for (const ScheduledStage* s : schedule_.Together(StageOf(members_[m]))) {
        for (const Expr& load : LoadsIn(s->body)) {
          const size_t read = NumberOf(load->buffer.get());
          if (read < members_.size()) last[read] = m;
        }
      }
    }
    int64_t most = 0;
    for (size_t m = 0; m < members_.size(); ++m) {
      int64_t here = 0;
      for (size_t made = 0; made <= m; ++made) here += last[made] >= m ? elements[made] : 0;
      most = std::max(most, here);
    }
    return most;
  }

  // Of a site; nothing where they are too many along an axis.
  std::optional<int64_t> ElementsOf(const Sites& sites, size_t member) const {
    const ScheduledStage& s = StageOf(members_[member]);
    int64_t elements = 1;
    for (size_t d = 0; d < s.axes.size(); ++d) {
      const std::optional<size_t>& axis = readings_[member].along[d];
      if (axis.has_value() && !IsOwn(sites, *axis)) continue;
      if (s.axes[d]->extent > kMostOwn) return std::nullopt;
      elements *= s.axes[d]->extent;
    }
    return elements;
  }

  bool SharesTerms(size_t member) const {
    const ScheduledStage& s = StageOf(members_[member]);
    if (ExtentOf(s.reduce_axes) <= kMostSharedTerms) return false;
    const std::vector<Expr> loads = LoadsIn(s.body);
    return std::any_of(loads.begin(), loads.end(), [&](const Expr& load) {
      if (load->buffer->elements <= kSmall) return false;
      std::set<size_t> along;
      Visit(load, [&](const Expr& e) {
        if (e->op != Op::kVar) return;
        if (const auto axis = RootAxis(member, e->var)) along.insert(*axis);
      });
      for (size_t a = 0; a < root_->shape.size(); ++a) {
        if (!IsShort(a) && !along.contains(a)) return true;
      }
      return false;
    });
  }

  // Would there be a kernel for each of several reductions, or would much be written out again?
  bool IsReadAgain(const Sites& sites) const {
    size_t reductions = 0;
    bool is_read = schedule_.HasCompanions(StageOf(root_));
    double once = 0, written = 0;
    std::vector<double> all(members_.size());
    for (size_t m = 0; m < members_.size(); ++m) {
      for (const ScheduledStage* s : schedule_.Together(StageOf(members_[m]))) {
        const auto nodes = static_cast<double>(NodesOf(s->body));
        once += nodes;
        all[m] += nodes;
        Visit(s->body, [&](const Expr& e) {
          const size_t read = e->op == Op::kLoad ? NumberOf(e->buffer.get()) : members_.size();
          if (read < members_.size()) all[m] += all[read];
        });
      }
      written = std::max(written, all[m]);
      if (!StageOf(members_[m]).is_reduction()) continue;
      ++reductions;
      for (size_t a : sites.own) {
        const auto& along = readings_[m].along;
        is_read = is_read || std::count(along.begin(), along.end(), a) == 0;
      }
      is_read = is_read || readings_[m].loads > 1;
    }
    return reductions > 1 || (reductions == 1 && is_read) || written >= kWrittenAgain * once;
  }

  // Tensors from elsewhere, and how many neighbours one access stores.
  void FindInputs(Sites& sites) const {
    // Of the root, if it numbers sites; else none of its axes.
    const size_t last_axis = root_->shape.size() - 1;
    const size_t last_site = IsOwn(sites, last_axis) ? root_->shape.size() : last_axis;
    if (last_site == last_axis) {
      sites.width = AccessWidths(root_->shape[last_axis], root_->dtype).back();
    }
    std::vector<BufferRef> seen;
    for (size_t m = 0; m < members_.size(); ++m) {
      for (const ScheduledStage* s : schedule_.Together(StageOf(members_[m]))) {
        Visit(s->body, [&](const Expr& e) {
          const bool is_new = e->op == Op::kLoad && NumberOf(e->buffer.get()) == members_.size() &&
                              std::find(seen.begin(), seen.end(), e->buffer) == seen.end();
          if (!is_new) return;
          seen.push_back(e->buffer);
          if (auto input = InputOf(sites, e->buffer, last_site)) {
            sites.read_elements += input->elements;
            sites.inputs.push_back(*std::move(input));
          }
        });
      }
    }
  }

  // Of what is read at the thread's sites and, along other axes, anywhere: again, or in wide
  // accesses.
  std::optional<SiteInput> InputOf(const Sites& sites, const BufferRef& tensor,
                                   size_t last_site) const {
    if (tensor->dtype == DType::kInt32) return std::nullopt;
    const size_t last = tensor->shape.size() - 1;
    int64_t elements = 1, reads = 0;
    bool ok = true;
    // The same dimensions of all reads follow the same axes of the root, none (its rank) where a
    // thread reads anything.
    std::vector<std::optional<size_t>> follows(tensor->shape.size());
    for (size_t m = 0; m < members_.size(); ++m) {
      for (const ScheduledStage* s : schedule_.Together(StageOf(members_[m]))) {
        for (const Expr& load : LoadsIn(s->body)) {
          if (load->buffer != tensor) continue;
          int64_t others = 1;
          for (size_t d = 0; d <= last; ++d) {
            const Expr& index = load->args[d];
            const size_t none = root_->shape.size();
            const size_t axis =
                index->op == Op::kVar ? RootAxis(m, index->var).value_or(none) : none;
            const bool is_site = axis != none && !IsOwn(sites, axis);
            if (is_site) {
              ok = ok && root_->shape[axis] == tensor->shape[d];
            } else {
              ok = ok && tensor->shape[d] <= kMostOwn && !MentionsSite(sites, m, index);
              others *= tensor->shape[d];
            }
            const size_t followed = is_site ? axis : none;
            ok = ok && follows[d].value_or(followed) == followed &&
                 (d != last || !is_site || axis == last_site);
            follows[d] = followed;
          }
          elements = std::max(elements, others);
          reads += ElementsOf(sites, m).value_or(1) * ExtentOf(s->reduce_axes);
        }
      }
    }
    if (!ok || reads == 0 || elements > kMostStored) return std::nullopt;
    const bool is_wide = AccessWidths(tensor->shape[last], tensor->dtype).back() > 1;
    if (!is_wide && reads <= elements) return std::nullopt;
    return SiteInput{.tensor = tensor, .elements = elements};
  }
  bool MentionsSite(const Sites& sites, size_t member, const Expr& index) const {
    bool found = false;
    Visit(index, [&](const Expr& e) {
      found = found || e->op == Op::kLoad;
      if (e->op != Op::kVar) return;
      const auto axis = RootAxis(member, e->var);
      found = found || (axis.has_value() && !IsOwn(sites, *axis));
    });
    return found;
  }

  Schedule schedule_;
  const BufferRef root_;
  std::vector<BufferRef> members_, inlined_;
  std::vector<Reading> readings_;  // of the members
};

// Axes of `leader`, in order, of the extents of `output`'s; empty where it has not all of them.
std::vector<std::string> AxesFor(const Buffer& output, const ScheduledStage& leader) {
  std::vector<std::string> axes;
  size_t next = 0;
  for (size_t d = 0; d < output.shape.size(); ++d) {
    while (next < leader.axes.size() && leader.axes[next]->extent != output.shape[d]) ++next;
    if (next == leader.axes.size()) return {};
    axes.push_back(leader.axes[next++]->name);
  }
  return axes;
}

}  // namespace

std::optional<Sites> FindSites(const ProgramShape& shape, const KernelShape& kernel) {
  if (!kernel.fused) return std::nullopt;
  return SitesFinder(shape, kernel).Find();
}

ProgramShape FuseSites(std::shared_ptr<const TensorProgram> program) {
  ProgramShape shape{{}, Schedule(program), {}};
  Schedule& schedule = shape.schedule;
  const auto apply = [&](Step step) {
    const bool ok = Apply(step, schedule).ok();
    if (ok) shape.steps.push_back(std::move(step));
    return ok;
  };
  std::vector<BufferRef> outputs;
  for (const ScheduledStage& s : schedule.stages()) {
    if (s.is_output) outputs.push_back(s.tensor);
  }
  if (outputs.empty() || schedule.stages().size() > kMostStages) return shape;
  BufferRef leader = outputs[0];
  for (const BufferRef& output : outputs) {
    if (output->shape.size() >= leader->shape.size() && output->elements >= leader->elements) {
      leader = output;
    }
    const bool is_read = !schedule.ReadersOf(output.get()).empty();
    if (outputs.size() == 1 && !is_read) break;
    if (!apply(CacheWrite{output->name, Scope::kLocal})) return shape;
    if (is_read && !apply(ComputeInline{output->name})) return shape;
  }
  for (const BufferRef& output : outputs) {
    if (output == leader) continue;
    ComputeWith step{output->name, leader->name, {}};
    step.axes = AxesFor(*output, schedule.stage(schedule.FindStage(leader.get())));
    if (step.axes.empty() || !apply(std::move(step))) return shape;
  }
  KernelShape kernel{.root = schedule.FindStage(leader.get()), .fused = true};
  for (size_t s = 0; s < schedule.stages().size(); ++s) {
    if (schedule.stages()[s].is_reduction()) kernel.reductions.push_back(static_cast<int>(s));
  }
  shape.kernels.push_back(std::move(kernel));
  return shape;
}

}  // namespace heddle::search_space
