// heddle devices, heddle doctor: what there is to run on, and what is missing.
#include <unistd.h>

#include <filesystem>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/host.h"
#include "base/status.h"
#include "cli/command.h"
#include "cli/remote.h"
#include "measure/codegen/codegen.h"
#include "measure/codegen/dialects.h"
#include "measure/device/cuda/nvrtc.h"
#include "measure/run/detect.h"
#include "measure/run/processes/confine.h"
#include "measure/run/processes/messages.h"
#include "proto/values.h"

namespace heddle::cli {
namespace {

constexpr const char* kNoDevice =
    "No usable device. For an NVIDIA GPU install its driver and the CUDA toolkit's NVRTC; to run "
    "on "
    "the CPU install PoCL (Debian: apt install pocl-opencl-icd).";

}  // namespace

Json DeviceJson(const measure::DeviceInfo& d) {
  const search_space::Target& t = d.target;
  Json json{{"id", d.id},
            {"name", t.name},
            {"api", measure::DialectOf(t.api).name},
            {"arch", t.arch},
            {"usable", d.usable},
            {"driver", d.driver},
            {"compiler", d.compiler},
            {"uuid", d.uuid},
            {"sm_count", t.sm_count},
            {"clock_ghz", t.clock_ghz},
            {"memory_bytes", t.memory_bytes},
            {"l2_bytes", t.l2_bytes},
            {"shared_bytes_per_block", t.max_shared_bytes_per_block},
            {"peak_gflops", KnownOrNull(t.peak_gflops)},
            {"memory_gbs", KnownOrNull(t.memory_gbs)}};
  if (!d.usable) json["why_not"] = d.why_not;
  return json;
}

namespace {

// "opencl:0  pthread-... (opencl, 4 units, 23.4 GiB)".
std::string Describe(const measure::DeviceInfo& d) {
  if (!d.usable) return absl::StrFormat("%-10s %s  not usable: %s", d.id, d.target.name, d.why_not);
  return absl::StrFormat("%-10s %s  (%s, %d units, %.1f GiB, driver %s, compiler %s)", d.id,
                         d.target.name, d.target.arch, d.target.sm_count,
                         static_cast<double>(d.target.memory_bytes) / (1 << 30), d.driver,
                         d.compiler);
}

Result RunDevices(bool json) {
  bool usable = false;
  Listing listing(json);
  for (const auto& device : measure::ListDevices()) {
    usable |= device.usable;
    listing.Add(DeviceJson(device), Describe(device));
  }
  const Result ended = listing.End();
  if (!usable) return absl::UnavailableError(kNoDevice);
  return ended;
}

Json ToJson(const v1::FleetDevice& device) {
  Json json = DeviceJson(measure::FromProto(device.device()));
  json["fleet_name"] = device.name();
  json["host"] = device.hostname();
  json["state"] = WordOf(device.state());
  json["worker"] = WordOf(device.worker().state());
  json["detail"] = device.worker().detail();
  json["job"] = device.job();
  json["no_work_because"] = device.no_work_because();
  return json;
}

std::string Describe(const v1::FleetDevice& device) {
  const std::string& detail = device.worker().detail();
  return absl::StrFormat(
      "%-24s %-10s %-10s %s  (%s)%s%s", device.name(), WordOf(device.worker().state()),
      device.state() == v1::FleetDevice::STATE_DRAINING ? "draining" : "",
      device.device().target().name(), device.hostname(),
      device.job().empty() ? "" : "  works on " + device.job(),
      !device.no_work_because().empty() ? "  gets no work: " + device.no_work_because()
      : detail.empty()                  ? ""
                                        : "  " + detail);
}

Result ListServerDevices(client::Client& client, bool json) {
  HEDDLE_ASSIGN_OR_RETURN(devices, AllDevices(client));
  Listing listing(json);
  for (const v1::FleetDevice& device : devices) listing.Add(ToJson(device), Describe(device));
  const Result ended = listing.End();
  if (devices.empty()) {
    Say("No device yet: start `heddle measured --server ...` on a host that has one.");
  }
  return ended;
}

// One thing that doctor looked at.
struct Check {
  std::string what;
  bool ok;
  std::string text;  // what was found, or what is missing and the remedy
};

Check CheckDatabase(const std::string& db) {
  auto records = OpenRecords(db);
  if (!records.ok()) return {"database", false, std::string(records.status().message())};
  if (!(*records)->damage().empty()) return {"database", false, (*records)->damage()};
  if ((*records)->read_only()) {
    return {"database", false,
            (*records)->path() + " can only be read: tuning needs another --db or permissions"};
  }
  std::string text = (*records)->path();
  std::error_code error;
  auto space = std::filesystem::space(std::filesystem::absolute(text).parent_path(), error);
  if (!error) {
    absl::StrAppendFormat(&text, " (%.1f GiB free)",
                          static_cast<double>(space.available) / (1 << 30));
    constexpr uintmax_t kLittle = 64 << 20;
    if (space.available < kLittle) return {"database", false, text + ": the disk is nearly full"};
  }
  return {"database", true, text};
}

Check CheckNvrtc() {
  auto nvrtc = measure::FindNvrtc();
  if (!nvrtc.ok()) return {"NVRTC", false, std::string(nvrtc.status().message())};
  return {"NVRTC", true, absl::StrCat(nvrtc->major, ".", nvrtc->minor, " at ", nvrtc->path)};
}

Check CheckDisassembler() {
  // Nothing to disassemble is an error of another kind than nothing to do it with.
  absl::Status status = measure::Disassemble("").status();
  if (status.code() == absl::StatusCode::kNotFound) {
    return {"disassembler", false, std::string(status.message())};
  }
  return {"disassembler", true, "found: `heddle show --what sass` works"};
}

void PrintChecks(const std::vector<Check>& checks, bool can_tune, bool json) {
  if (json) {
    Json all = Json::array();
    for (const Check& c : checks) all.push_back({{"what", c.what}, {"ok", c.ok}, {"text", c.text}});
    PrintJson(Json{{"can_tune", can_tune}, {"checks", all}});
    return;
  }
  for (const Check& c : checks) {
    std::cout << absl::StrFormat("%-4s %-16s %s\n", c.ok ? "ok" : "--", c.what, c.text);
  }
  std::cout << (can_tune ? "Tuning works here.\n" : "Tuning does not work here yet.\n");
}

Result RunDoctor(const std::string& db, bool json) {
  std::vector<Check> checks;
  bool usable = false;
  for (const auto& device : measure::ListDevices()) {
    usable |= device.usable;
    checks.push_back({device.id.empty() ? "device" : "device " + device.id, device.usable,
                      device.usable ? device.target.name : device.why_not});
  }
  if (!usable) checks.push_back({"devices", false, kNoDevice});
  checks.push_back(CheckNvrtc());
  checks.push_back(CheckDisassembler());
  checks.push_back(CheckDatabase(db));
  bool database = checks.back().ok;
  const measure::Confinement confinement = measure::FindConfinement();
  checks.push_back({"confinement", confinement.whole, confinement.text});
  const int cores = UsableCores();
  checks.push_back({"processor", true, absl::StrCat(cores, " threads to compile with")});

  PrintChecks(checks, usable && database, json);
  if (!usable) return kUnavailable;
  return database ? kDone : kFailed;
}

Check CheckDevice(const v1::FleetDevice& device) {
  const v1::WorkerStatus& worker = device.worker();
  std::string text = WordOf(worker.state());
  if (!worker.detail().empty()) absl::StrAppend(&text, ": ", worker.detail());
  if (device.state() == v1::FleetDevice::STATE_DRAINING) text += " (taken out of service)";
  const bool works = worker.state() == v1::WorkerStatus::STATE_IDLE ||
                     worker.state() == v1::WorkerStatus::STATE_BUSY;
  return {"device " + device.name(), works && device.state() != v1::FleetDevice::STATE_DRAINING,
          text};
}

// Whether a server can tune: it answers, and has a device that works for its version.
Result RunServerDoctor(const ServerFlags& flags, bool json) {
  HEDDLE_ASSIGN_OR_RETURN(server, RemoteServer::Connect(flags.options));
  std::vector<Check> checks;
  auto info = (*server)->GetServerInfo();
  if (!info.ok()) {
    checks.push_back({"server", false, std::string(info.status().message())});
    PrintChecks(checks, false, json);
    return ExitCodeOf(info.status());
  }
  checks.push_back({"server", true,
                    absl::StrCat("version ", info->build(), ", generator ", info->generator(),
                                 ", started ", info->epoch(), " times")});
  if (info->generator() != measure::kGeneratorVersion) {
    checks.push_back(
        {"generator", false,
         absl::StrCat("this program has ", measure::kGeneratorVersion,
                      ": its kernels are not the server's; install the same version")});
  }
  bool works = false;
  const auto devices = AllDevices(**server);
  if (!devices.ok()) {
    checks.push_back({"devices", false, std::string(devices.status().message())});
  }
  for (const v1::FleetDevice& device : devices.value_or(std::vector<v1::FleetDevice>())) {
    checks.push_back(CheckDevice(device));
    if (checks.back().ok && device.generator() != info->generator()) {
      checks.back().ok = false;
      absl::StrAppend(&checks.back().text, ", but its daemon has generator ", device.generator(),
                      " and gets no work: install the server's version there");
    }
    works |= checks.back().ok;
  }
  if (!works) {
    checks.push_back({"devices", false,
                      "none takes work: start `heddle measured --server ...` on a host with one"});
  }
  PrintChecks(checks, works, json);
  return works ? kDone : kUnavailable;
}

}  // namespace

void AddDevices(CLI::App& app, Selected selected) {
  struct Flags {
    std::string db;
    ServerFlags server;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* devices = app.add_subcommand("devices", "list the devices found, and why not");
  devices->add_flag("--json", flags->json, "JSON on stdout");
  flags->server.Add(*devices, false);
  AddFleet(*devices, selected);
  devices->callback([=] {
    if (!devices->get_subcommands().empty()) return;
    if (flags->server.given()) {
      *selected = WithServer(flags->server, [=](client::Client& client) {
        return ListServerDevices(client, flags->json);
      });
    } else {
      *selected = [=] { return RunDevices(flags->json); };
    }
  });

  CLI::App* doctor =
      app.add_subcommand("doctor", "what works on this machine and what does not, with the remedy");
  auto look = std::make_shared<Flags>();
  AddDbFlag(*doctor, look->db);
  look->server.Add(*doctor, false);
  doctor->add_flag("--json", look->json, "JSON on stdout");
  doctor->footer("With --server: whether that server, its devices and its versions are well.");
  doctor->callback([=] {
    *selected = [=] {
      return look->server.given() ? RunServerDoctor(look->server, look->json)
                                  : RunDoctor(look->db, look->json);
    };
  });
}

}  // namespace heddle::cli
