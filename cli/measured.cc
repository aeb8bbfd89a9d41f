// heddle measured: the daemon that gives this host's devices to a server's jobs.
#include <unistd.h>

#include "base/process/service_manager.h"
#include "base/status.h"
#include "cli/command.h"
#include "cli/confined.h"
#include "cli/interrupt.h"
#include "cli/remote.h"
#include "daemon/daemon.h"

namespace heddle::cli {
namespace {

Result RunMeasured(const measure::DaemonOptions& options) {
  CatchInterrupts();
  ServiceManager manager;
  HEDDLE_ASSIGN_OR_RETURN(daemon, measure::Daemon::Create(options));
  manager.Ready();
  int64_t polls = 0;
  absl::Status status = daemon->Run([&] {
    manager.KeepAlive(++polls);
    return Interrupted();
  });
  // What a device did not end within the limit is left to the system, which kills it with us.
  if (absl::IsDeadlineExceeded(status)) _exit(kDone);
  HEDDLE_RETURN_IF_ERROR(status);
  return kDone;
}

}  // namespace

void AddMeasured(CLI::App& app, Selected selected) {
  struct Flags {
    measure::DaemonOptions options;
    ServerFlags server;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* sub =
      app.add_subcommand("measured", "give this host's devices to a server's tuning jobs");
  flags->server.Add(*sub, true);
  sub->add_option("--device", flags->options.devices,
                  "only this device, such as cuda:0; several times for several")
      ->type_name("D");
  sub->add_option(
         "--host-id", flags->options.host_id,
         "names this daemon among all of a server [/etc/machine-id, else host name and boot]")
      ->type_name("ID");
  sub->add_option("--metrics", flags->options.metrics, "serve Prometheus metrics there")
      ->type_name("HOST:PORT");
  AddUnconfined(*sub);
  sub->footer(
      "SIGTERM and Ctrl-C end it after the candidate that runs; a second one at once. It finds "
      "the\n"
      "server again when that was away, and reports then what was measured meanwhile.");
  sub->callback([=] {
    *selected = [=] {
      flags->options.server = flags->server.Get();
      flags->options.build = HEDDLE_VERSION;
      return RunMeasured(flags->options);
    };
  });
}

}  // namespace heddle::cli
