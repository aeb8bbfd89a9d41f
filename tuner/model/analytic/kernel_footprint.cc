#include "tuner/model/analytic/kernel_footprint.h"

#include <algorithm>

namespace heddle::tuner {
namespace {

// Bytes of the smallest box that holds the access for the variables' present ranges, inside the
// buffer.
double BoxBytes(const SampledVariables& vars, const Access& access) {
  const search_space::Buffer& b = *access.buffer;
  double elements = 1;
  for (size_t i = 0; i < access.indices.size(); ++i) {
    const Range r = vars.RangeOf(access.indices[i]);
    const double last = static_cast<double>(b.shape[i] - 1);
    const double low = std::clamp(r.min, 0.0, last);
    const double high = std::clamp(r.max, low, last);
    elements *= high - low + 1;
  }
  return elements * access.element_bytes();
}

}  // namespace

void MeasureFootprints(KernelProfile& p) {
  SampledVariables& vars = p.variables;
  vars.Fix(p.block_slot);
  for (const LoopProfile& l : p.loops) l.Fix(vars);
  for (Access& a : p.accesses) {
    if (a.buffer->scope != search_space::Scope::kGlobal) continue;
    double executions = a.issued / a.trips;  // conditions leave some of them out
    const auto add = [&] {
      const double most = executions * p.threads * a.lanes * a.element_bytes();
      a.footprint.push_back(std::min(BoxBytes(vars, a), most));
    };
    add();
    for (size_t i = a.loops.size(); i-- > 0;) {
      LoopProfile& loop = p.loops[static_cast<size_t>(a.loops[i])];
      vars.Relax(loop.slot);
      if (!loop.vector || a.lanes == 1) executions *= loop.extent;
      add();
      loop.working_set += a.footprint.back();
    }
    for (int l : a.loops) p.loops[static_cast<size_t>(l)].Fix(vars);
  }
}

double FootprintOf(KernelProfile& p, const Access& access, double blocks) {
  SampledVariables& vars = p.variables;
  vars.SetRange(p.block_slot, {0, std::min(blocks, p.blocks) - 1});
  for (int l : access.loops) vars.Relax(p.loops[static_cast<size_t>(l)].slot);
  const double most = blocks * access.footprint.back();
  const double box = BoxBytes(vars, access);
  for (int l : access.loops) p.loops[static_cast<size_t>(l)].Fix(vars);
  vars.Fix(p.block_slot);
  return std::min(box, most);
}

}  // namespace heddle::tuner
