#include "tuner/model/features.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "tuner/model/analytic/kernel_cost.h"
#include "tuner/model/analytic/kernel_footprint.h"
#include "tuner/model/analytic/kernel_profile.h"
#include "tuner/model/analytic/profiler.h"
#include "tuner/model/analytic/terms.h"

namespace heddle::tuner {
namespace {

using search_space::Scope;

// One kernel, as the rows below see it.
struct Measures {
  Measures(const search_space::Kernel& kernel, const search_space::Target& t)
      : profile(ProfileOf(kernel)), cost(CostOf(profile, t)), target(&t) {}

  KernelProfile profile;
  KernelCost cost;
  const search_space::Target* target;
  // Its buffers in global memory, most requested first.
  struct GlobalBuffer {
    const search_space::Buffer* buffer = nullptr;
    // Bytes; the others a warp, weighted by instructions.
    double requested = 0, unique = 0;
    double sectors = 0, ideal_sectors = 0, instructions = 0, width = 0, conditional = 0;
  };
  std::vector<GlobalBuffer> buffers;

  const KernelProfile& p() const { return profile; }
  const KernelCost& c() const { return cost; }
  double warps() const { return p().warps * p().blocks; }
  // Warp instructions.
  double Count(double Instructions::*kind) const {
    return p().instructions.*kind * p().warps * p().blocks;
  }
  // Sum over the accesses that `which` admits, a warp.
  template <typename W, typename F>
  double Accesses(const W& which, const F& f) const {
    double sum = 0;
    for (const Access& a : p().accesses) {
      if (which(a)) sum += f(a);
    }
    return sum;
  }
};

bool IsGlobal(const Access& a) { return a.buffer->scope == Scope::kGlobal; }
bool IsGlobalLoad(const Access& a) { return IsGlobal(a) && !a.store; }
bool IsGlobalStore(const Access& a) { return IsGlobal(a) && a.store; }
bool IsSharedLoad(const Access& a) { return !IsGlobal(a) && !a.store; }
bool IsSharedStore(const Access& a) { return !IsGlobal(a) && a.store; }
double Issued(const Access& a) { return a.issued; }
double Requested(const Access& a) { return a.requested(); }

double Ratio(double a, double b) { return b > 0 ? a / b : 0; }

using Admit = bool (*)(const Access&);
// Mean bytes a thread and instruction.
double Width(const Measures& m, Admit which) {
  return Ratio(
      m.Accesses(which, [](const Access& a) { return a.issued * a.lanes * a.element_bytes(); }),
      m.Accesses(which, Issued));
}
double SectorsPer(const Measures& m, Admit which) {
  return Ratio(m.Accesses(which, [](const Access& a) { return a.issued * a.sectors; }),
               m.Accesses(which, Issued));
}
double Efficiency(const Measures& m, Admit which) {
  return Ratio(m.Accesses(which, [](const Access& a) { return a.issued * a.ideal_sectors; }),
               m.Accesses(which, [](const Access& a) { return a.issued * a.sectors; }));
}
double Wavefronts(const Measures& m, Admit which) {
  return m.Accesses(which, [](const Access& a) { return a.issued * a.wavefronts; });
}
double Conflicts(const Measures& m, Admit which) {
  return Ratio(Wavefronts(m, which),
               m.Accesses(which, [](const Access& a) { return a.issued * a.ideal_wavefronts; }));
}
// Iterations of the serial loops with a barrier inside.
double Steps(const Measures& m) {
  double steps = 0;
  for (const LoopProfile& l : m.p().loops) {
    if (l.has_barrier) steps = std::max(steps, l.trips);
  }
  return steps;
}
// Loads of global memory that are issued without waiting for one another, bytes a block.
double BytesInFlight(const Measures& m) {
  return m.Accesses(IsGlobalLoad, [&](const Access& a) {
    double together = 1;
    for (size_t i = a.loops.size(); i-- > 0;) {
      const LoopProfile& l = m.p().loops[static_cast<size_t>(a.loops[i])];
      if (l.serial) {
        together *= std::max(1, l.lookahead);
        break;
      }
      together *= l.extent;
    }
    return together * a.active * m.p().warps * a.element_bytes();
  });
}
// Bytes that a block touches between two uses of the same datum: the working set of the innermost
// serial loop whose iterations read something again.
double ReuseDistance(const Measures& m) {
  double distance = 0, requested = 0;
  for (const Access& a : m.p().accesses) {
    if (!IsGlobalLoad(a) || a.requested() <= requested) continue;
    for (size_t i = a.loops.size(), level = 1; i-- > 0; ++level) {
      const LoopProfile& l = m.p().loops[static_cast<size_t>(a.loops[i])];
      if (a.footprint[level] >= 0.99 * l.extent * a.footprint[level - 1]) continue;
      distance = l.working_set;
      requested = a.requested();
      break;
    }
  }
  return distance;
}

// What a program's feature is of those of its kernels.
enum class Of : uint8_t { kSlowest, kSum };
struct Row {
  FeatureInfo info;
  double (*value)(const Measures&);
  Of of = Of::kSlowest;
};
struct BufferRow {
  FeatureInfo info;  // name with $, for the buffer's rank
  double (*value)(const Measures::GlobalBuffer&);
};

constexpr const char* kAnsor = "Ansor (L. Zheng et al., OSDI 2020), per-store features";
constexpr const char* kBankRule = "CUDA C++ Best Practices Guide, shared memory; profiler.cc";
constexpr const char* kCache = "working sets against cache sizes, kernel_cost.cc";
constexpr const char* kLoops = "counted from the loops, profiler.cc";
constexpr const char* kOccupancy = "CUDA's occupancy calculator, cuda_occupancy.h";
constexpr const char* kRegisters = "fitted to what NVRTC reports, register_estimate.cc";
constexpr const char* kRoofline = "S. Williams et al., Roofline (CACM 2009), a roof for each unit";
constexpr const char* kSampling = "addresses of sampled warps, sampled_eval.h";

using M = Measures;

// A term of the analytic time, as terms.cc explains it.
template <Term kTerm>
Row TermRow() {
  const TermInfo& info = InfoOf(kTerm);
  return {{info.name, "us", info.formula, info.source},
          [](const M& m) { return m.c().terms[kTerm]; },
          Of::kSum};
}

const Row kRows[] = {
    // Launch.
    {{"kernels", "kernels", "launches of one execution", kLoops},
     [](const M&) { return 1.0; },
     Of::kSum},
    {{"blocks", "blocks", "grid size, or what blocks that stay share", kLoops},
     [](const M& m) { return m.p().blocks; }},
    {{"turns", "1", "blocks / grid size, 1 where no block stays", kLoops},
     [](const M& m) { return m.p().turns; }},
    {{"threads", "threads", "block size", kLoops}, [](const M& m) { return m.p().threads; }},
    {{"total_threads", "threads", "blocks * threads", kLoops},
     [](const M& m) { return m.p().blocks * m.p().threads; }},
    {{"min_blocks", "blocks", "launch bounds' request, 0 = none", kLoops},
     [](const M& m) { return m.p().min_blocks; }},
    {{"shared_bytes", "bytes", "shared memory of a block", kLoops},
     [](const M& m) { return m.p().shared_bytes; }},
    {{"blocks_by_threads", "blocks", "that a multiprocessor's threads and slots admit", kOccupancy},
     [](const M& m) { return std::min(m.c().occupancy.by_threads, m.c().occupancy.by_blocks); }},
    {{"blocks_by_registers", "blocks", "that a multiprocessor's registers admit", kOccupancy},
     [](const M& m) { return m.c().occupancy.by_registers; }},
    {{"blocks_by_shared", "blocks", "that a multiprocessor's shared memory admits", kOccupancy},
     [](const M& m) { return m.c().occupancy.by_shared; }},
    {{"limiter", "code", "0 block slots, 1 threads, 2 registers, 3 shared memory", kOccupancy},
     [](const M& m) { return static_cast<double>(m.c().occupancy.limiter); }},
    {{"occupancy", "1", "warps that fit on a multiprocessor / its most", kOccupancy},
     [](const M& m) {
       return m.c().occupancy.blocks() * m.p().warps * kLanes /
              static_cast<double>(m.target->max_threads_per_sm);
     }},
    {{"active_warps", "warps", "on the busiest multiprocessor, grid considered", kOccupancy},
     [](const M& m) { return m.c().resident_blocks * m.p().warps; }},
    {{"waves", "1", "ceil(ceil(blocks / multiprocessors) / resident blocks)", kOccupancy},
     [](const M& m) { return m.c().waves; }},
    {{"balance", "1", "blocks / (multiprocessors * ceil(blocks / multiprocessors))", kLoops},
     [](const M& m) {
       return m.p().blocks / (m.c().busiest_blocks * static_cast<double>(m.target->sm_count));
     }},
    {{"tail", "1", "idle share of the block slots in the last wave", kOccupancy},
     [](const M& m) {
       const double slots = m.c().resident_blocks * static_cast<double>(m.target->sm_count);
       return std::ceil(m.p().blocks / slots) - m.p().blocks / slots;
     }},
    // Work.
    {{"flops", "operations", "float operations, a multiply-add 2, padding included", kLoops},
     [](const M& m) { return m.p().flops; },
     Of::kSum},
    {{"instructions", "warp instructions", "of all kinds below", kLoops},
     [](const M& m) { return m.p().instructions.total() * m.p().warps * m.p().blocks; },
     Of::kSum},
    {{"fma", "warp instructions", "float multiply-adds", kLoops},
     [](const M& m) { return m.Count(&Instructions::fma); },
     Of::kSum},
    {{"add_mul", "warp instructions", "other float arithmetic", kLoops},
     [](const M& m) { return m.Count(&Instructions::add_mul); },
     Of::kSum},
    {{"special", "warp instructions", "of the special function unit", kLoops},
     [](const M& m) { return m.Count(&Instructions::special); },
     Of::kSum},
    {{"integer", "warp instructions", "addresses, conditions, loop counters", kLoops},
     [](const M& m) { return m.Count(&Instructions::integer); },
     Of::kSum},
    {{"global_load", "warp instructions", "from global memory", kLoops},
     [](const M& m) { return m.Count(&Instructions::global_load); },
     Of::kSum},
    {{"global_store", "warp instructions", "to global memory", kLoops},
     [](const M& m) { return m.Count(&Instructions::global_store); },
     Of::kSum},
    {{"shared_load", "warp instructions", "from shared memory", kLoops},
     [](const M& m) { return m.Count(&Instructions::shared_load); },
     Of::kSum},
    {{"shared_store", "warp instructions", "to shared memory", kLoops},
     [](const M& m) { return m.Count(&Instructions::shared_store); },
     Of::kSum},
    {{"async_copy", "warp instructions", "from global to shared memory", kLoops},
     [](const M& m) { return m.Count(&Instructions::async_copy); },
     Of::kSum},
    {{"barrier", "warp instructions", "barriers and waits for copies", kLoops},
     [](const M& m) { return m.Count(&Instructions::barrier); },
     Of::kSum},
    {{"fma_share", "1", "fma / instructions, slowest kernel", kLoops},
     [](const M& m) { return Ratio(m.p().instructions.fma, m.p().instructions.total()); }},
    {{"fma_per_thread", "1", "multiply-adds of a thread, slowest kernel", kLoops},
     [](const M& m) { return m.p().instructions.fma; }},
    {{"fma_per_memory", "1", "fma / loads, stores and copies, slowest kernel", kLoops},
     [](const M& m) { return Ratio(m.p().instructions.fma, m.p().instructions.memory()); }},
    {{"integer_per_fma", "1", "integer / fma, slowest kernel", kLoops},
     [](const M& m) { return Ratio(m.p().instructions.integer, m.p().instructions.fma); }},
    // Structure.
    {{"code_size", "instructions", "in the text, unrolled loops written out", kLoops},
     [](const M& m) { return m.p().code_size; }},
    {{"loop_depth", "loops", "deepest nest of loops that are not unrolled", kLoops},
     [](const M& m) { return static_cast<double>(m.p().loop_depth); }},
    {{"steps", "iterations", "of the loop with barriers inside, a block", kLoops},
     [](const M& m) { return Steps(m); }},
    {{"fma_per_step", "1", "multiply-adds of a thread between barriers", kLoops},
     [](const M& m) { return m.p().instructions.fma / std::max(1.0, Steps(m)); }},
    {{"pipeline_depth", "buffers", "of the deepest pipeline, 1 = none", kLoops},
     [](const M& m) { return static_cast<double>(m.p().pipeline_depth); }},
    {{"burst", "warp instructions", "asynchronous copies of a warp in a row", kLoops},
     [](const M& m) { return m.p().burst; }},
    {{"async", "1", "1 when copies to shared memory are asynchronous", kLoops},
     [](const M& m) { return m.p().instructions.async_copy > 0 ? 1.0 : 0.0; }},
    // Registers.
    {{"registers", "registers", "of a thread, estimated, within launch bounds", kRegisters},
     [](const M& m) { return m.c().registers; }},
    {{"register_demand", "registers", "of a thread, estimated, without limits", kRegisters},
     [](const M& m) { return m.c().register_demand; }},
    {{"spilled", "registers", "register_demand - registers", kRegisters},
     [](const M& m) { return m.c().spilled; }},
    {{"local_registers", "registers", "local buffers that live at the same time", kLoops},
     [](const M& m) { return m.p().live_locals; }},
    {{"accumulators", "registers", "largest local buffer: independent multiply-adds", kLoops},
     [](const M& m) { return m.p().largest_local; }},
    // Global memory.
    {{"requested_bytes", "bytes", "that threads ask of global memory", kLoops},
     [](const M& m) { return m.c().requested_bytes; },
     Of::kSum},
    {{"l1_bytes", "bytes", "in whole sectors, multiprocessor to first-level cache", kSampling},
     [](const M& m) { return m.c().l1_bytes; },
     Of::kSum},
    {{"l2_bytes", "bytes", "first-level cache to L2", kCache},
     [](const M& m) { return m.c().l2_bytes; },
     Of::kSum},
    {{"dram_bytes", "bytes", "L2 to memory, L2 cold", kCache},
     [](const M& m) { return m.c().dram_bytes; },
     Of::kSum},
    {{"unique_bytes", "bytes", "distinct bytes of all buffers, kernel by kernel", kAnsor},
     [](const M& m) { return m.c().unique_bytes; },
     Of::kSum},
    {{"block_bytes", "bytes", "distinct bytes of global memory that a block touches", kAnsor},
     [](const M& m) {
       return m.Accesses(IsGlobal, [](const Access& a) { return a.footprint.back(); });
     }},
    {{"reuse_distance", "bytes",
      "global bytes a block touches between two uses, most requested buffer with reuse", kAnsor},
     [](const M& m) { return ReuseDistance(m); }},
    {{"load_width", "bytes", "a thread and load of global memory, mean", kLoops},
     [](const M& m) { return Width(m, IsGlobalLoad); }},
    {{"store_width", "bytes", "a thread and store to global memory, mean", kLoops},
     [](const M& m) { return Width(m, IsGlobalStore); }},
    {{"load_sectors", "sectors", "32-byte sectors a load of global memory, mean", kSampling},
     [](const M& m) { return SectorsPer(m, IsGlobalLoad); }},
    {{"store_sectors", "sectors", "32-byte sectors a store to global memory, mean", kSampling},
     [](const M& m) { return SectorsPer(m, IsGlobalStore); }},
    {{"load_efficiency", "1", "fewest sectors possible / sectors, loads", kSampling},
     [](const M& m) { return Efficiency(m, IsGlobalLoad); }},
    {{"store_efficiency", "1", "fewest sectors possible / sectors, stores", kSampling},
     [](const M& m) { return Efficiency(m, IsGlobalStore); }},
    {{"bytes_in_flight", "bytes", "loaded without waiting in between, a multiprocessor", kLoops},
     [](const M& m) { return BytesInFlight(m) * m.c().resident_blocks; }},
    // Shared memory.
    {{"shared_load_width", "bytes", "a thread and load of shared memory, mean", kLoops},
     [](const M& m) { return Width(m, IsSharedLoad); }},
    {{"shared_store_width", "bytes", "a thread and store to shared memory, mean", kLoops},
     [](const M& m) { return Width(m, IsSharedStore); }},
    {{"shared_load_conflicts", "1", "passes of the banks / fewest possible, loads", kBankRule},
     [](const M& m) { return Conflicts(m, IsSharedLoad); }},
    {{"shared_store_conflicts", "1", "passes of the banks / fewest possible, stores", kBankRule},
     [](const M& m) { return Conflicts(m, IsSharedStore); }},
    {{"shared_wavefronts", "passes", "of the banks, whole grid", kBankRule},
     [](const M& m) {
       return (Wavefronts(m, IsSharedLoad) + Wavefronts(m, IsSharedStore)) * m.warps();
     }},
    {{"wavefronts_per_fma", "1", "passes of the banks / fma", kBankRule},
     [](const M& m) {
       return Ratio(Wavefronts(m, IsSharedLoad) + Wavefronts(m, IsSharedStore),
                    m.p().instructions.fma);
     }},
    {{"shared_bytes_per_fma", "bytes", "loaded from shared memory by a thread / its fma", kLoops},
     [](const M& m) {
       return Ratio(m.Accesses(IsSharedLoad, Requested) / kLanes, m.p().instructions.fma);
     }},
    // Intensity.
    {{"flops_per_l2_byte", "operations / byte", "flops / l2_bytes", kRoofline},
     [](const M& m) { return Ratio(m.p().flops, m.c().l2_bytes); }},
    {{"flops_per_dram_byte", "operations / byte", "flops / dram_bytes", kRoofline},
     [](const M& m) { return Ratio(m.p().flops, m.c().dram_bytes); }},
    // Times, each if nothing else mattered.
    TermRow<Term::kFma>(),
    TermRow<Term::kIssue>(),
    TermRow<Term::kSpecial>(),
    TermRow<Term::kShared>(),
    TermRow<Term::kL1>(),
    TermRow<Term::kL2>(),
    TermRow<Term::kDram>(),
    TermRow<Term::kLatency>(),
    {{"analytic_us", "us", "the terms above together, and launches; AnalyticTimeUs", kRoofline},
     [](const M& m) { return m.c().total_us; },
     Of::kSum},
};

// For the three buffers in global memory of which the slowest kernel's threads ask most.
constexpr size_t kBuffers = 3;
const BufferRow kBufferRows[] = {
    {{"buffer$_requested", "bytes", "that threads ask of the buffer", kAnsor},
     [](const M::GlobalBuffer& b) { return b.requested; }},
    {{"buffer$_unique", "bytes", "distinct bytes of the buffer that the kernel touches", kAnsor},
     [](const M::GlobalBuffer& b) { return b.unique; }},
    {{"buffer$_reuse", "1", "requested / unique bytes of the buffer", kAnsor},
     [](const M::GlobalBuffer& b) { return Ratio(b.requested, b.unique); }},
    {{"buffer$_sectors", "1", "sectors / fewest possible of the buffer's accesses", kSampling},
     [](const M::GlobalBuffer& b) { return Ratio(b.sectors, b.ideal_sectors); }},
    {{"buffer$_width", "bytes", "a thread and instruction on the buffer, mean", kLoops},
     [](const M::GlobalBuffer& b) { return Ratio(b.width, b.instructions); }},
    {{"buffer$_conditional", "1", "share of the buffer's accesses under a condition", kLoops},
     [](const M::GlobalBuffer& b) { return Ratio(b.conditional, b.instructions); }},
};

void FindBuffers(Measures& m) {
  KernelProfile& p = m.profile;
  for (const Access& a : p.accesses) {
    if (!IsGlobal(a)) continue;
    auto b = std::find_if(m.buffers.begin(), m.buffers.end(),
                          [&](const M::GlobalBuffer& x) { return x.buffer == a.buffer.get(); });
    if (b == m.buffers.end()) b = m.buffers.insert(b, {a.buffer.get()});
    b->requested += a.requested() * m.warps();
    b->sectors += a.issued * a.sectors;
    b->ideal_sectors += a.issued * a.ideal_sectors;
    b->instructions += a.issued;
    b->width += a.issued * a.lanes * a.element_bytes();
    b->conditional += a.conditional ? a.issued : 0;
    b->unique = std::max(b->unique, FootprintOf(p, a, p.blocks));
  }
  std::stable_sort(
      m.buffers.begin(), m.buffers.end(),
      [](const M::GlobalBuffer& a, const M::GlobalBuffer& b) { return a.requested > b.requested; });
}

const std::vector<FeatureInfo>& Table() {
  static const auto& table = *new std::vector<FeatureInfo>([] {
    std::vector<FeatureInfo> rows;
    for (const Row& row : kRows) rows.push_back(row.info);
    for (size_t b = 0; b < kBuffers; ++b) {
      for (const BufferRow& row : kBufferRows) {
        rows.push_back(row.info);
        rows.back().name = absl::StrReplaceAll(row.info.name, {{"$", absl::StrCat(b)}});
      }
    }
    return rows;
  }());
  return table;
}

}  // namespace

absl::Span<const FeatureInfo> FeatureTable() { return Table(); }

int FeatureIndex(const std::string& name) {
  const auto& table = Table();
  for (size_t i = 0; i < table.size(); ++i) {
    if (table[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

absl::StatusOr<std::vector<KernelFeatures>> FeaturesOfKernels(const search_space::Program& program,
                                                              const search_space::Target& target) {
  if (program.kernels.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(program.op, " has no kernel"));
  }
  if (target.sm_count < 1 || target.clock_ghz <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("target ", target.name, " has ", target.sm_count,
                                                   " multiprocessors at ", target.clock_ghz,
                                                   " GHz; both must be positive"));
  }
  std::vector<KernelFeatures> kernels;
  for (const search_space::Kernel& kernel : program.kernels) {
    Measures m(kernel, target);
    FindBuffers(m);
    kernels.emplace_back().reserve(Table().size());
    for (const Row& row : kRows) kernels.back().push_back(row.value(m));
    for (size_t b = 0; b < kBuffers; ++b) {
      for (const BufferRow& row : kBufferRows) {
        kernels.back().push_back(b < m.buffers.size() ? row.value(m.buffers[b]) : 0);
      }
    }
  }
  return kernels;
}

FeatureVector Combine(absl::Span<const KernelFeatures* const> kernels) {
  static const auto time = static_cast<size_t>(FeatureIndex("analytic_us"));
  const KernelFeatures& slowest = **std::max_element(
      kernels.begin(), kernels.end(),
      [](const KernelFeatures* a, const KernelFeatures* b) { return (*a)[time] < (*b)[time]; });
  FeatureVector features(slowest.begin(), slowest.end());
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (kRows[i].of != Of::kSum) continue;
    double sum = 0;
    for (const KernelFeatures* kernel : kernels) sum += (*kernel)[i];
    features[i] = static_cast<float>(sum);
  }
  return features;
}

absl::StatusOr<FeatureVector> FeaturesOf(const search_space::Program& program,
                                         const search_space::Target& target) {
  HEDDLE_ASSIGN_OR_RETURN(kernels, FeaturesOfKernels(program, target));
  std::vector<const KernelFeatures*> all;
  for (const KernelFeatures& kernel : kernels) all.push_back(&kernel);
  return Combine(all);
}

double AnalyticTimeUs(const FeatureVector& features) {
  static const auto index = static_cast<size_t>(FeatureIndex("analytic_us"));
  return features[index];
}

}  // namespace heddle::tuner
