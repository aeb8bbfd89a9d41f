// The typed outcome of one trial (docs/measurement.md).
#ifndef HEDDLE_MEASURE_DEVICE_OUTCOME_H_
#define HEDDLE_MEASURE_DEVICE_OUTCOME_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace heddle::measure {

enum class Outcome : uint8_t {
  kOk,
  kBuildError,     // the compiler refused the source
  kBuildTimeout,   // the compiler did not return
  kResourceLimit,  // needs more registers, shared memory or spill than is worth timing or allowed
  kLaunchError,    // the driver refused the launch
  kIllegalAccess,  // out-of-bounds access, or a crash by signal
  kRunTimeout,     // the kernel did not return
  kWrongAnswer,
  kImplausible,  // faster than the roofline allows
  kWorkerLost,   // the worker ended for a reason that is not the candidate's
};
const char* NameOf(Outcome outcome);  // "OK", "BUILD_ERROR", ...
std::optional<Outcome> ParseOutcome(const std::string& name);

enum class L2Policy : uint8_t { kCold, kWarm };
const char* NameOf(L2Policy policy);  // "cold", "warm"
std::optional<L2Policy> ParseL2Policy(const std::string& name);

// What is known of a candidate after it was tried.
struct TrialResult {
  Outcome outcome = Outcome::kWorkerLost;
  std::string detail;  // first lines of the evidence: compiler log, worst element, signal, ...
  // Microseconds for all kernels of the program; 0 unless outcome is kOk.
  double time_us = 0;
  double ci_low_us = 0, ci_high_us = 0;  // confidence interval of the median
  int samples = 0;
  bool noisy = false;         // the interval stayed wide at the time limit
  bool screened_out = false;  // dropped after its first sample, being far slower than the best
  double max_error = 0;       // largest |got - expected| / tolerance seen; below 1 is right
  int registers = 0;          // a thread, the largest of all kernels; 0 = unknown
  int64_t local_bytes = 0;    // spilled, a thread
  int64_t shared_bytes = 0;   // a block
  std::string source_hash;
  // Seconds spent in each phase.
  double compile_s = 0, load_s = 0, validate_s = 0, time_s = 0;
};

// Calls visit(name, field) for each field; `name` is the column of the records, the key in JSON
// lines and the field of the message. The order is that of checksums: new fields come last, as
// Later(visit)(name, field) (base/fields.h).
template <typename Result, typename Visitor>
void VisitResult(Result& r, Visitor&& visit) {
  visit("outcome", r.outcome);
  visit("detail", r.detail);
  visit("time_us", r.time_us);
  visit("ci_low_us", r.ci_low_us);
  visit("ci_high_us", r.ci_high_us);
  visit("samples", r.samples);
  visit("noisy", r.noisy);
  visit("screened_out", r.screened_out);
  visit("max_error", r.max_error);
  visit("registers", r.registers);
  visit("local_bytes", r.local_bytes);
  visit("shared_bytes", r.shared_bytes);
  visit("source_hash", r.source_hash);
  visit("compile_s", r.compile_s);
  visit("load_s", r.load_s);
  visit("validate_s", r.validate_s);
  visit("time_s", r.time_s);
}

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_DEVICE_OUTCOME_H_
