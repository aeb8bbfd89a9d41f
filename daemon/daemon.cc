#include "daemon/daemon.h"

#include <unistd.h>

#include <algorithm>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/host.h"
#include "base/log.h"
#include "base/status.h"
#include "measure/codegen/codegen.h"
#include "measure/run/detect.h"
#include "measure/run/processes/confine.h"
#include "measure/run/processes/messages.h"
#include "proto/values.h"

namespace heddle::measure {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(100);
constexpr absl::Duration kCallLimit = absl::Seconds(20);
constexpr absl::Duration kLastBeatLimit = absl::Seconds(2);

// Of this process; its number alone comes again, and is the same in every container.
std::string NewInstance() {
  return absl::StrCat(getpid(), "-", absl::Hex(std::random_device()(), absl::kZeroPad8));
}

struct Owned {
  DeviceInfo info;
  DeviceLock lock;
};

// The devices asked for, or all that can be had.
absl::StatusOr<std::vector<Owned>> TakeDevices(const std::vector<std::string>& wanted) {
  std::vector<Owned> owned;
  std::vector<std::string> why_not;
  for (DeviceInfo& device : ListDevices()) {
    const bool named = std::find(wanted.begin(), wanted.end(), device.id) != wanted.end();
    if (!wanted.empty() && !named) continue;
    absl::Status status;
    if (!device.usable) {
      status = absl::UnavailableError(absl::StrCat(device.id, ": ", device.why_not));
    } else if (auto lock = DeviceLock::Acquire(device); lock.ok()) {
      owned.push_back({std::move(device), *std::move(lock)});
      continue;
    } else {
      status = lock.status();
    }
    if (named) return status;
    why_not.push_back(std::string(status.message()));
  }
  if (owned.size() < wanted.size()) {
    return absl::UnavailableError(absl::StrCat("not all of ", absl::StrJoin(wanted, ", "),
                                               " exist here: see `heddle devices`"));
  }
  if (!owned.empty()) return owned;
  return absl::UnavailableError(
      absl::StrCat("no device to measure on: ",
                   why_not.empty() ? "see `heddle doctor`" : absl::StrJoin(why_not, "; ")));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Create(const DaemonOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(devices, TakeDevices(options.devices));
  v1::RegisterRequest registration;
  registration.set_host_uuid(options.host_id.empty() ? HostId() : options.host_id);
  registration.set_boot_id(BootId());
  registration.set_instance(NewInstance());
  registration.set_hostname(HostName());
  registration.set_generator(kGeneratorVersion);
  registration.set_build(options.build);
  for (const Owned& device : devices) *registration.add_devices() = ToProto(device.info);

  std::unique_ptr<Daemon> daemon(new Daemon(options, std::move(registration)));
  if (!options.metrics.empty()) {
    HEDDLE_RETURN_IF_ERROR(daemon->metrics_.Listen(options.metrics));
  }
  if (const Confinement found = FindConfinement(); !IsConfined() || !found.whole) {
    LogEvent(Severity::kWarning, "unconfined",
             {{"detail", IsConfined() ? found.text : "as was asked for"}});
  }
  const int count = static_cast<int>(devices.size());
  const int cores = UsableCores();
  for (Owned& device : devices) {
    daemon->agents_.push_back(std::make_unique<DeviceAgent>(
        std::move(device.info), std::move(device.lock), count == 1 ? 0 : std::max(1, cores / count),
        options.idle_limit, daemon->session_, daemon->metrics_));
  }
  return daemon;
}

Daemon::Daemon(const DaemonOptions& options, v1::RegisterRequest registration)
    : options_(options), session_(options.server, std::move(registration)) {}

Daemon::~Daemon() = default;

void Daemon::Beat(const StopSignal& stop) {
  // Of the moment: what is tried for a while must not hide what was leased meanwhile.
  const auto request = [this] {
    v1::HeartbeatRequest now;
    for (const auto& agent : agents_) {
      *now.add_device_states() = agent->Status();
      if (auto running = agent->Running()) now.add_running(*running);
      for (int64_t lease : agent->Leases()) now.add_leases(lease);
    }
    return now;
  };
  v1::HeartbeatResponse response;
  absl::Status status = session_.Call<v1::HeartbeatRequest, v1::HeartbeatResponse>(
      &v1::Fleet::Stub::async::Heartbeat, request, response, kCallLimit, stop);
  if (!status.ok()) {
    if (!absl::IsCancelled(status)) {
      LogEvent(Severity::kError, "heartbeat_refused", {{"detail", std::string(status.message())}});
    }
    return;
  }
  metrics_.Beat();
  for (const auto& agent : agents_) {
    agent->Revoke({response.revoke().begin(), response.revoke().end()});
    agent->Pause(response.drain());
  }
}

void Daemon::HeartbeatLoop() {
  if (absl::Status status = session_.Register(end_); !status.ok()) {
    if (absl::IsCancelled(status)) return;
    std::lock_guard lock(mutex_);
    refused_ = status;
    return;
  }
  do {
    Beat(end_);
  } while (!end_.Wait(
      absl::Seconds(std::max(0.05, SecondsOf(session_.registered().heartbeat_interval())))));
  Beat(give_up_);
}

bool Daemon::AllEnded() const {
  return std::all_of(agents_.begin(), agents_.end(), [](const auto& a) { return a->ended(); });
}

absl::Status Daemon::Run(const std::function<bool()>& interrupted) {
  std::atomic<bool> silent = false;
  std::thread heart([this, &silent] {
    HeartbeatLoop();
    silent = true;
  });
  while (!interrupted() && !silent) absl::SleepFor(kPoll);
  LogEvent(Severity::kInfo, "draining");
  for (const auto& agent : agents_) agent->Drain();
  SteadyTime deadline = SteadyNow() + options_.drain_limit;
  while (!AllEnded() && SteadyNow() < deadline) absl::SleepFor(kPoll);
  const bool ended = AllEnded();
  end_.Set();
  deadline = SteadyNow() + kLastBeatLimit;
  while (!silent && SteadyNow() < deadline) absl::SleepFor(kPoll);
  give_up_.Set();
  heart.join();
  LogEvent(Severity::kInfo, "ended", {{"completely", ended}});
  HEDDLE_RETURN_IF_ERROR(refused_);
  return ended ? absl::OkStatus() : absl::DeadlineExceededError("a device did not end what it ran");
}

}  // namespace heddle::measure
