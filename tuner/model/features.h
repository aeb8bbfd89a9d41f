// Features of a lowered program in closed form: what a cost model learns from. No device and no
// compiler is asked. docs/features.md prints the table below.
#ifndef HEDDLE_TUNER_MODEL_FEATURES_H_
#define HEDDLE_TUNER_MODEL_FEATURES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "search_space/ir/stmt.h"
#include "search_space/ir/target.h"
#include "tuner/records/feature_version.h"

namespace heddle::tuner {

struct FeatureInfo {
  std::string name;     // unique, snake_case
  std::string unit;     // "1" for ratios
  std::string formula;  // what it is, in terms of the program and of other features
  std::string source;   // where the idea or the numbers come from
};

// One row per element of a FeatureVector, in its order.
absl::Span<const FeatureInfo> FeatureTable();
// Position of the feature of that name; -1 when there is none.
int FeatureIndex(const std::string& name);

using FeatureVector = std::vector<float>;

// One kernel's part in each feature.
using KernelFeatures = std::vector<double>;
// Of each kernel of a program, under the conditions of FeaturesOf.
absl::StatusOr<std::vector<KernelFeatures>> FeaturesOfKernels(const search_space::Program& program,
                                                              const search_space::Target& target);
// The features of a program of these kernels, at least one, in this order.
FeatureVector Combine(absl::Span<const KernelFeatures* const> kernels);

// Quantities of work and time are sums over the program's kernels, everything else is that of its
// slowest kernel by the analytic time. InvalidArgument when the program has no kernel or the target
// lacks what the formulas divide by (multiprocessors, clock). All values are finite.
absl::StatusOr<FeatureVector> FeaturesOf(const search_space::Program& program,
                                         const search_space::Target& target);

// A time that needs no model, microseconds: the roofline of every unit that a kernel uses, with
// latencies, waves and launches, summed over the kernels. Good for ranking points of one workload
// as long as nothing was measured.
double AnalyticTimeUs(const FeatureVector& features);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_MODEL_FEATURES_H_
