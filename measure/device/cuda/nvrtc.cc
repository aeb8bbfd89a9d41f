#include "measure/device/cuda/nvrtc.h"

#include <glob.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/dynlib.h"

namespace heddle::measure {
namespace {

// NVRTC's interface as of 11.2, unchanged since; declared here so that the toolkit is not needed to
// build.
using NvrtcProgram = void*;
struct Api {
  int (*Version)(int*, int*);
  int (*GetNumSupportedArchs)(int*);
  int (*GetSupportedArchs)(int*);
  int (*CreateProgram)(NvrtcProgram*, const char* source, const char* name, int headers,
                       const char* const* header_texts, const char* const* header_names);
  int (*CompileProgram)(NvrtcProgram, int options, const char* const*);
  int (*DestroyProgram)(NvrtcProgram*);
  int (*GetProgramLogSize)(NvrtcProgram, size_t*);
  int (*GetProgramLog)(NvrtcProgram, char*);
  int (*GetPTXSize)(NvrtcProgram, size_t*);
  int (*GetPTX)(NvrtcProgram, char*);
  int (*GetCUBINSize)(NvrtcProgram, size_t*);
  int (*GetCUBIN)(NvrtcProgram, char*);
  const char* (*GetErrorString)(int);
};

struct Nvrtc {
  DynLib library;
  Api api;
  NvrtcInfo info;
};

template <typename Function>
absl::Status BindAll(const DynLib& library, const char* name, Function& function) {
  return library.Bind(absl::StrCat("nvrtc", name).c_str(), function);
}
template <typename Function, typename... Rest>
absl::Status BindAll(const DynLib& library, const char* name, Function& function, Rest&&... rest) {
  absl::Status status = BindAll(library, name, function);
  return status.ok() ? BindAll(library, std::forward<Rest>(rest)...) : status;
}

constexpr char kRemedy[] =
    "install the CUDA toolkit's NVRTC (package cuda-nvrtc, or pip install nvidia-cuda-nvrtc), or "
    "set HEDDLE_NVRTC to the path of libnvrtc.so";

absl::StatusOr<std::unique_ptr<Nvrtc>> LoadNvrtc() {
  absl::StatusOr<DynLib> library =
      DynLib::OpenFirst(CudaLibraryCandidates("libnvrtc.so", "HEDDLE_NVRTC"));
  if (!library.ok()) {
    return absl::UnavailableError(
        absl::StrCat("NVRTC was not found: ", kRemedy, " (", library.status().message(), ")"));
  }
  auto nvrtc = std::make_unique<Nvrtc>(Nvrtc{*std::move(library), {}, {}});
  Api& a = nvrtc->api;
  absl::Status bound =
      BindAll(nvrtc->library, "Version", a.Version, "GetNumSupportedArchs", a.GetNumSupportedArchs,
              "GetSupportedArchs", a.GetSupportedArchs, "CreateProgram", a.CreateProgram,
              "CompileProgram", a.CompileProgram, "DestroyProgram", a.DestroyProgram,
              "GetProgramLogSize", a.GetProgramLogSize, "GetProgramLog", a.GetProgramLog,
              "GetPTXSize", a.GetPTXSize, "GetPTX", a.GetPTX, "GetCUBINSize", a.GetCUBINSize,
              "GetCUBIN", a.GetCUBIN, "GetErrorString", a.GetErrorString);
  if (!bound.ok()) {
    return absl::UnavailableError(
        absl::StrCat("NVRTC is older than 11.2: ", bound.message(), "; ", kRemedy));
  }
  NvrtcInfo& info = nvrtc->info;
  info.path = nvrtc->library.path();
  info.build = nvrtc->library.build();
  int count = 0;
  if (a.Version(&info.major, &info.minor) != 0 || a.GetNumSupportedArchs(&count) != 0) {
    return absl::UnavailableError(absl::StrCat(info.path, " does not answer; ", kRemedy));
  }
  info.architectures.resize(static_cast<size_t>(count));
  a.GetSupportedArchs(info.architectures.data());
  return nvrtc;
}

// Loaded once and kept: compilers run in many threads and may outlive static destructors.
const absl::StatusOr<std::unique_ptr<Nvrtc>>& Loaded() {
  static const auto* nvrtc = new absl::StatusOr<std::unique_ptr<Nvrtc>>(LoadNvrtc());
  return *nvrtc;
}

std::string Fetch(NvrtcProgram program, int (*get_size)(NvrtcProgram, size_t*),
                  int (*get)(NvrtcProgram, char*), bool text) {
  size_t size = 0;
  if (get_size(program, &size) != 0) return "";
  std::string out(size, '\0');
  if (size == 0 || get(program, out.data()) != 0) return "";
  if (text) out.resize(out.find_last_not_of('\0') + 1);
  return out;
}

// The number that stands before `what`, 0 where there is none.
int64_t NumberBefore(const std::string& line, const std::string& what) {
  const size_t end = line.find(what);
  if (end == std::string::npos) return 0;
  size_t begin = end;
  while (begin > 0 && absl::ascii_isdigit(static_cast<unsigned char>(line[begin - 1]))) --begin;
  int64_t value = 0;
  return absl::SimpleAtoi(line.substr(begin, end - begin), &value) ? value : 0;
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::vector<std::string> Glob(const std::string& pattern) {
  glob_t found;
  std::vector<std::string> out;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    out.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  globfree(&found);
  std::reverse(out.begin(), out.end());  // newer versions first
  return out;
}

}  // namespace

const std::vector<std::string>& CudaCompileOptions() {
  static const auto* options = new std::vector<std::string>{"--std=c++17", "--ptxas-options=-v"};
  return *options;
}

std::vector<std::string> CudaLibraryCandidates(const std::string& stem,
                                               const std::string& override_variable) {
  if (const std::string path = Environment(override_variable.c_str()); !path.empty()) {
    return {path};  // what was asked for, or an error: never silently another
  }
  std::vector<std::string> out = {stem};
  for (const char* major : {".13", ".12", ".11.2"}) out.push_back(stem + major);
  std::vector<std::string> folders;
  if (const std::string home = Environment("CUDA_HOME"); !home.empty()) {
    folders.push_back(home + "/lib64");
  }
  folders.push_back("/usr/local/cuda/lib64");
  std::vector<std::string> roots = {"/usr/local/lib/python3*", "/usr/lib/python3*",
                                    "/opt/*/lib/python3*"};
  if (const std::string home = Environment("HOME"); !home.empty()) {
    roots.push_back(home + "/.local/lib/python3*");
  }
  if (const std::string venv = Environment("VIRTUAL_ENV"); !venv.empty()) {
    roots.insert(roots.begin(), venv + "/lib/python3*");
  }
  for (const std::string& root : roots) {
    for (const char* packages : {"/site-packages", "/dist-packages"}) {
      folders.push_back(absl::StrCat(root, packages, "/nvidia/*/lib"));
    }
  }
  for (const std::string& folder : folders) {
    for (std::string& file : Glob(absl::StrCat(folder, "/", stem, "*"))) {
      if (!absl::StrContains(file, ".alt.")) out.push_back(std::move(file));
    }
  }
  return out;
}

std::string NameOf(const NvrtcInfo& info) {
  return absl::StrCat("NVRTC ", info.major, ".", info.minor, " (build ", info.build, ")");
}

absl::StatusOr<NvrtcInfo> FindNvrtc() {
  if (!Loaded().ok()) return Loaded().status();
  return (*Loaded())->info;
}

KernelResources ParseResources(const std::string& log) {
  KernelResources out;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(log, '\n'))) {
    out.registers = std::max(out.registers, static_cast<int>(NumberBefore(line, " registers")));
    out.stack_bytes = std::max(out.stack_bytes, NumberBefore(line, " bytes stack frame"));
    out.spill_bytes = std::max(out.spill_bytes, NumberBefore(line, " bytes spill stores") +
                                                    NumberBefore(line, " bytes spill loads"));
    out.serialized =
        out.serialized || absl::StrContains(line, "wgmma.mma_async instructions are serialized");
    out.static_shared_bytes = std::max(out.static_shared_bytes, NumberBefore(line, " bytes smem"));
  }
  return out;
}

absl::StatusOr<CudaBinary> CompileCuda(const std::string& source, const std::string& name,
                                       const std::string& arch) {
  if (!Loaded().ok()) return Loaded().status();
  const Nvrtc& nvrtc = **Loaded();
  const NvrtcInfo& info = nvrtc.info;
  const bool known = std::any_of(info.architectures.begin(), info.architectures.end(), [&](int a) {
    return absl::StartsWith(arch, absl::StrCat("sm_", a));
  });
  if (!known) {
    return absl::InvalidArgumentError(absl::StrCat("NVRTC ", info.major, ".", info.minor,
                                                   " does not compile for ", arch, "; it knows sm_",
                                                   absl::StrJoin(info.architectures, ", sm_")));
  }
  NvrtcProgram program = nullptr;
  if (int error =
          nvrtc.api.CreateProgram(&program, source.c_str(), name.c_str(), 0, nullptr, nullptr)) {
    return absl::InternalError(
        absl::StrCat("NVRTC could not begin: ", nvrtc.api.GetErrorString(error)));
  }
  const std::string arch_option = absl::StrCat("--gpu-architecture=", arch);
  std::vector<const char*> options = {arch_option.c_str()};
  for (const std::string& o : CudaCompileOptions()) options.push_back(o.c_str());
  const int error =
      nvrtc.api.CompileProgram(program, static_cast<int>(options.size()), options.data());
  CudaBinary out;
  out.log = Fetch(program, nvrtc.api.GetProgramLogSize, nvrtc.api.GetProgramLog, true);
  if (error == 0) {
    out.cubin = Fetch(program, nvrtc.api.GetCUBINSize, nvrtc.api.GetCUBIN, false);
    out.ptx = Fetch(program, nvrtc.api.GetPTXSize, nvrtc.api.GetPTX, true);
    out.resources = ParseResources(out.log);
  }
  nvrtc.api.DestroyProgram(&program);
  if (error != 0 || out.cubin.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("NVRTC refused ", name, " for ", arch, " (",
                                                   nvrtc.api.GetErrorString(error), "):\n",
                                                   out.log));
  }
  return out;
}

}  // namespace heddle::measure
