#include "tuner/artefact/export.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/host.h"
#include "base/status.h"
#include "measure/device/backend.h"
#include "measure/judge/criteria.h"
#include "measure/judge/inputs.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/reference/samples.h"
#include "tuner/artefact/build.h"
#include "tuner/artefact/launchers.h"

namespace heddle::tuner {
namespace {

using Json = nlohmann::ordered_json;
using measure::InputKind;
using search_space::BufferRef;
using search_space::DType;
using search_space::SamplePoint;
using search_space::TensorProgram;

constexpr uint64_t kInputSeed = 1;
constexpr int64_t kSamples = 1024;  // of each output
constexpr int64_t kSampleOperations = int64_t{1} << 28;

// Inputs, and what each output should be at some places.
struct Expectation {
  InputKind kind = InputKind::kUniform;
  std::vector<std::vector<SamplePoint>> samples;  // of each output
  std::vector<measure::Allowed> allowed;          // of each output
  double told = 1;                                // measure::ToldShare, of the worst of them

  // Inputs lie in [low, low + scale).
  double low() const {
    return kind == InputKind::kPositive ? 0.25 : kind == InputKind::kSmall ? -1.0 / 16 : -1;
  }
  double scale() const { return kind == InputKind::kPositive ? 1 : -2 * low(); }
};

// nullopt: the definition is not finite everywhere on inputs of this kind.
std::optional<Expectation> ExpectOn(const TensorProgram& program, InputKind kind,
                                    double truncation) {
  auto input = [&](int tensor, int64_t offset) -> double {
    const int64_t extent = program.inputs[static_cast<size_t>(tensor)]->index_extent;
    if (extent == 0) return measure::InputValue(kInputSeed, tensor, offset, kind);
    return static_cast<double>(measure::InputIndex(kInputSeed, tensor, offset, extent));
  };
  const std::vector<BufferRef> outputs = measure::OutputsOf(program);
  Expectation expectation{kind, std::vector<std::vector<SamplePoint>>(outputs.size())};
  for (SamplePoint& s : search_space::EvaluateSamples(program, input, kSamples, kInputSeed,
                                                      kSampleOperations, UsableCores())) {
    if (!std::isfinite(s.value) || !std::isfinite(s.magnitude)) return std::nullopt;
    expectation.samples[static_cast<size_t>(s.output)].push_back(s);
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    // Where a few hang on a decision that rounding may turn, a right kernel may give another
    // number.
    std::vector<SamplePoint>& samples = expectation.samples[o];
    const auto uncertain = std::count_if(samples.begin(), samples.end(),
                                         [](const SamplePoint& s) { return s.uncertain; });
    if (2 * uncertain <= std::ssize(samples)) {
      std::erase_if(samples, [](const SamplePoint& s) { return s.uncertain; });
    }
    expectation.allowed.push_back(
        measure::AllowedOf(program, kind, outputs[o]->dtype, samples, truncation));
    expectation.told =
        std::min(expectation.told, measure::ToldShare(program, expectation.allowed[o], samples));
  }
  return expectation;
}

// On inputs where half of what is sampled tells a right kernel from one that writes zeros, or else
// on those where most does.
absl::StatusOr<Expectation> Expect(const TensorProgram& program,
                                   const search_space::Target& target) {
  constexpr double kMost = 0.5;
  const double truncation = measure::Truncation(program, target);
  const auto all_zero = [](const Expectation& e) {
    return std::all_of(e.samples.begin(), e.samples.end(), [](const auto& of_output) {
      return std::all_of(of_output.begin(), of_output.end(),
                         [](const SamplePoint& s) { return s.value == 0; });
    });
  };
  std::optional<Expectation> best;
  for (InputKind kind : {InputKind::kUniform, InputKind::kSmall, InputKind::kPositive}) {
    std::optional<Expectation> found = ExpectOn(program, kind, truncation);
    if (!found || (best && (found->told <= best->told || all_zero(*found)))) continue;
    best = std::move(found);
    if (best->told >= kMost) break;
  }
  if (best) return *std::move(best);
  return absl::FailedPreconditionError(
      absl::StrCat(program.op, " is not finite on random inputs: its kernels cannot be checked"));
}

std::string SamplesText(const TensorProgram& program, const Expectation& expectation) {
  const std::vector<BufferRef> outputs = measure::OutputsOf(program);
  std::string text = "# output, row-major element, expected value, largest allowed difference\n";
  for (size_t o = 0; o < outputs.size(); ++o) {
    for (const SamplePoint& s : expectation.samples[o]) {
      // As the kernel's type has it: beside what is exact no difference is allowed.
      const double value = outputs[o]->dtype == DType::kInt32
                               ? s.value
                               : static_cast<double>(static_cast<float>(s.value));
      // An output of nothing but zeros still has a tolerance to divide by.
      const double tolerance = std::max({measure::ToleranceAt(expectation.allowed[o], value), 1e-30,
                                         s.exact ? 0 : measure::Tolerance(program, s.magnitude)});
      absl::StrAppendFormat(&text, "%s %d %.17g %.9g\n", outputs[o]->name, s.offset, value,
                            tolerance);
    }
  }
  return text;
}

// Declaration order: inputs, outputs; then workspaces. Inputs and outputs have the workload's
// shapes, also where the kernels walk them over fewer dimensions.
std::vector<std::pair<BufferRef, std::string>> BuffersOf(const TensorProgram& workload,
                                                         const search_space::Program& program) {
  std::vector<std::pair<BufferRef, std::string>> buffers;
  for (const BufferRef& b : workload.inputs) buffers.emplace_back(b, "input");
  for (const search_space::Stage& s : workload.stages) {
    if (s.is_output) buffers.emplace_back(s.tensor, "output");
  }
  for (const BufferRef& b : program.workspaces) buffers.emplace_back(b, "workspace");
  return buffers;
}

// The elements that a launcher allocates: what lies behind the rows of a padded workspace is part
// of it.
std::vector<int64_t> AllocatedShape(const search_space::Buffer& buffer) {
  std::vector<int64_t> shape = buffer.shape;
  const size_t rank = shape.size();
  if (rank > 1) shape.back() = std::max(shape.back(), buffer.strides[rank - 2]);
  return shape;
}

// A folder of ours, or a new or empty one? Asked before anything is compiled.
absl::Status CheckFolder(const std::filesystem::path& folder) {
  std::error_code error;
  if (!std::filesystem::exists(folder, error)) return absl::OkStatus();
  if (!std::filesystem::is_directory(folder, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder.string(), " is a file where a folder is asked for"));
  }
  if (!std::filesystem::is_empty(folder, error) &&
      !std::filesystem::exists(folder / "manifest.json", error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder.string(), " is not empty and holds no earlier export: choose another"));
  }
  return absl::OkStatus();
}

absl::Status PrepareFolder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!std::filesystem::is_directory(folder)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot make the folder ", folder.string(), ": ", error.message()));
  }
  std::filesystem::remove(folder / "manifest.json", error);
  // What an earlier export with more kernels left.
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    std::string name = entry.path().filename().string();
    if (name.size() > 1 && name[0] == 'k' && name[1] >= '0' && name[1] <= '9') {
      std::filesystem::remove(entry.path(), error);
    }
  }
  return absl::OkStatus();
}

// With the names of its files; `assembly` is "" where there is none.
Json KernelJson(const measure::KernelSource& kernel, const search_space::Target& target,
                const std::string& source, const std::string& binary, const std::string& assembly) {
  Json entry{{"entry", kernel.launch.entry}, {"source", source}, {"binary", binary}};
  if (!assembly.empty()) entry["ptx"] = assembly;
  entry["grid"] = {kernel.launch.grid, 1, 1};
  entry["block"] = {kernel.launch.block, 1, 1};
  entry["shared_bytes"] = kernel.launch.dynamic_shared_bytes;
  entry["args"] = kernel.launch.arguments;
  for (const measure::TensorMap& map : kernel.launch.maps) {
    entry["args"].push_back({{"tensor_map", map.buffer},
                             {"element_bytes", map.element_bytes},
                             {"shape", map.shape},
                             {"strides", map.strides},
                             {"box", map.box},
                             {"swizzle_bytes", map.swizzle_bytes}});
  }
  entry["arch"] = target.arch + kernel.arch_suffix;
  return entry;
}

Json BuffersJson(const TensorProgram& workload, const search_space::Program& program) {
  Json buffers = Json::array();
  for (const auto& [buffer, role] : BuffersOf(workload, program)) {
    const bool is_tf32 = buffer->dtype == DType::kTF32;
    buffers.push_back({{"name", buffer->name},
                       {"role", role},
                       {"dtype", is_tf32 ? "float32" : search_space::NameOf(buffer->dtype)},
                       {"shape", AllocatedShape(*buffer)},
                       {"strides", buffer->strides},
                       {"align", 16}});
    if (is_tf32) buffers.back()["rounds_to"] = search_space::NameOf(buffer->dtype);
    if (buffer->index_extent > 0) buffers.back()["index_extent"] = buffer->index_extent;
  }
  return buffers;
}

// What the record says of the artefact, as far as it is still so.
void AddMeasured(const Artefact& artefact, const std::string& source_hash, Json& manifest) {
  Verdict verdict = artefact.verdict.value_or(Verdict{});
  const measure::TrialResult& result = artefact.measured->result;
  if (result.source_hash != source_hash && std::find(verdict.changed.begin(), verdict.changed.end(),
                                                     "source") == verdict.changed.end()) {
    verdict.changed.emplace_back("source");
    verdict = VerdictOf(std::move(verdict.changed));
  }
  manifest["standing"] = NameOf(verdict.standing);
  manifest["stale_because"] = verdict.changed;
  if (verdict.standing == Standing::kMeasured) {
    manifest["time_us"] = result.time_us;
    manifest["time_ci_us"] = {result.ci_low_us, result.ci_high_us};
    manifest["max_error"] = result.max_error;
    manifest["clocks"] = {{"nominal_ghz", artefact.device.target.clock_ghz},
                          {"throttled", artefact.measured->throttled},
                          {"other_processes", artefact.measured->other_processes}};
  }
}

Json Manifest(const Artefact& artefact, const measure::BuiltSource& built,
              const Expectation& expectation, Json kernels) {
  const TensorProgram& workload = *artefact.program;
  const search_space::Target& target = artefact.device.target;
  Json shape = Json::object();
  for (const auto& [name, value] : workload.shape) shape[name] = value;
  Json manifest{
      {"op", workload.op},
      {"shape", shape},
      {"dtype", search_space::NameOf(workload.dtype)},
      {"workload", workload.canonical_text},
      {"device", target.name},
      {"arch", target.arch},
      {"time_us", nullptr},
      {"time_ci_us", nullptr},
      {"tolerance", measure::Tolerance(workload, 1)},
      {"max_error", nullptr},
      {"standing", nullptr},
      {"stale_because", Json::array()},
      {"clocks", nullptr},
      {"heddle", artefact.version},
      {"generator", measure::kGeneratorVersion},
      {"source_hash", built.source_hash},
      {"buffers", BuffersJson(workload, built.program)},
      {"kernels", std::move(kernels)},
      {"compile_options", measure::BackendOf(artefact.device).compile_options()},
      {"floating_point", "no fast-math: multiply-adds may contract, sums may be reordered"},
      {"point", artefact.point},
      {"check",
       {{"samples", "samples.txt"},
        {"input_seed", kInputSeed},
        {"input_low", expectation.low()},
        {"input_scale", expectation.scale()}}}};
  if (artefact.measured) AddMeasured(artefact, built.source_hash, manifest);
  return manifest;
}

}  // namespace

absl::Status Export(const Artefact& artefact, const std::string& folder_name) {
  const TensorProgram& workload = *artefact.program;
  HEDDLE_RETURN_IF_ERROR(measure::CheckTypes(workload));
  const std::filesystem::path folder(folder_name);
  HEDDLE_RETURN_IF_ERROR(CheckFolder(folder));
  HEDDLE_ASSIGN_OR_RETURN(built,
                          BuildSource(artefact.program, artefact.steps, artefact.device.target));
  HEDDLE_ASSIGN_OR_RETURN(expectation, Expect(workload, artefact.device.target));

  // Everything that can fail for the schedule's sake comes before the first file.
  const measure::Backend& backend = measure::BackendOf(artefact.device);
  std::map<std::string, std::string> files;
  Json kernels = Json::array();
  std::vector<measure::KernelLaunch> launches;
  std::vector<std::string> loaded;  // by the launcher
  for (size_t i = 0; i < built.kernels.size(); ++i) {
    const measure::KernelSource& kernel = built.kernels[i];
    HEDDLE_ASSIGN_OR_RETURN(binary, backend.compile(kernel, artefact.device));
    const std::string stem = absl::StrCat("k", i);
    const std::string source_name = stem + backend.source_suffix;
    const std::string binary_name = stem + backend.binary_suffix;
    std::string assembly_name;
    files[source_name] = kernel.source;
    files[binary_name] = std::move(binary.binary);
    if (backend.assembly_suffix != nullptr) {
      assembly_name = stem + backend.assembly_suffix;
      files[assembly_name] = std::move(binary.assembly);
    }
    kernels.push_back(
        KernelJson(kernel, artefact.device.target, source_name, binary_name, assembly_name));
    launches.push_back(kernel.launch);
    loaded.push_back(backend.launcher.loads_source ? source_name : binary_name);
  }
  std::vector<LauncherBuffer> buffers;
  for (const auto& [buffer, role] : BuffersOf(workload, built.program)) {
    buffers.push_back({buffer->name, role, buffer->elements, search_space::NameOf(buffer->dtype),
                       buffer->index_extent});
  }
  files["schedule.txt"] = search_space::ToString(artefact.steps);
  files["loops.txt"] = search_space::ToString(built.program);
  files["samples.txt"] = SamplesText(workload, expectation);
  files["run.py"] = kPythonLauncher;
  files["run.cc"] = CppLauncher(backend.launcher, buffers, launches, loaded, kInputSeed,
                                expectation.low(), expectation.scale());

  HEDDLE_RETURN_IF_ERROR(PrepareFolder(folder));
  for (const auto& [name, content] : files) {
    HEDDLE_RETURN_IF_ERROR(WriteFile((folder / name).string(), content));
  }
  Json manifest = Manifest(artefact, built, expectation, std::move(kernels));
  return WriteFile((folder / "manifest.json").string(), manifest.dump(2) + "\n");
}

}  // namespace heddle::tuner
