// heddle serve: the service; heddle token: who may use it.
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/files.h"
#include "base/host.h"
#include "base/log.h"
#include "base/process/service_manager.h"
#include "base/status.h"
#include "cli/command.h"
#include "cli/executor.h"
#include "cli/interrupt.h"
#include "cli/kubernetes_engine.h"
#include "cli/local_daemon.h"
#include "cli/slurm_engine.h"
#include "server/api/server.h"
#include "server/db/trust/auth.h"

namespace heddle::cli {
namespace {

constexpr absl::Duration kGrace = absl::Seconds(10);

struct ServeFlags {
  server::ServerOptions options;
  double slice_s = 60;
  int searchers = 0;
  bool local = false;
  double lease_s = 30, remember_days = 7, keep_jobs_days = 90, keep_devices_days = 30;
  std::string executor = "fleet", folder;
  SlurmFlags slurm;
  ServerPodFlags kubernetes;
  double every_s = 10, replica_s = 10;
};

// Each connection takes one. The usual soft limit is for programs that use select, which nothing
// here does.
void TakeAllDescriptors() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Null: the fleet runs the jobs.
absl::StatusOr<std::unique_ptr<ClusterEngine>> MakeEngine(const ServeFlags& flags) {
  if (flags.executor == "fleet") return nullptr;
  if (flags.executor == "kubernetes") {
    if (flags.folder.empty()) {
      return absl::InvalidArgumentError(
          "--executor kubernetes wants a --folder, where the volume of --volume-claim is mounted");
    }
    // Flags that both have are the other's.
    ServerPodFlags kubernetes = flags.kubernetes;
    kubernetes.pods.gpu = flags.slurm.gpu;
    kubernetes.pods.parallel = flags.slurm.parallel;
    kubernetes.pods.deadline_s = int64_t{60} * flags.slurm.minutes;
    return MakeKubernetesEngine(std::move(kubernetes), absl::Seconds(flags.every_s));
  }
  if (flags.slurm.partition.empty() || flags.folder.empty()) {
    return absl::InvalidArgumentError(
        "--executor slurm wants a --partition, and a --folder that all its nodes see");
  }
  return MakeSlurmEngine(flags.slurm);
}

// Whoever gives a flag that the executor does not have expects something of it.
absl::Status RefuseFlagsOfOthers(const std::string& executor,
                                 const std::vector<CLI::Option*>& slurm,
                                 const std::vector<CLI::Option*>& kubernetes) {
  static const auto& both = *new std::set<std::string>{"--gpu", "--time", "--parallel"};
  const auto refuse = [&](const char* owner, const std::vector<CLI::Option*>& options) {
    for (const CLI::Option* option : options) {
      const std::string name = option->get_name();
      if (option->count() == 0 || (executor == "kubernetes" && both.contains(name))) continue;
      const char* instead =
          executor == "kubernetes" && name == "--cpus-per-task" ? "; a pod's cores are --cpu" : "";
      return absl::InvalidArgumentError(absl::StrCat(name, " is a flag of --executor ", owner,
                                                     ", and not of ", executor, "'s", instead));
    }
    return absl::OkStatus();
  };
  if (executor != "slurm") HEDDLE_RETURN_IF_ERROR(refuse("slurm", slurm));
  if (executor != "kubernetes") HEDDLE_RETURN_IF_ERROR(refuse("kubernetes", kubernetes));
  return absl::OkStatus();
}

Result RunServe(ServeFlags flags) {
  server::ServerOptions& options = flags.options;
  const auto is_socket = [](const std::string& a) { return absl::StartsWith(a, "unix:"); };
  const bool has_socket = std::any_of(options.listen.begin(), options.listen.end(), is_socket);
  // The local daemon has no token.
  if (options.listen.empty() || (flags.local && !has_socket)) {
    options.listen.push_back(DefaultSocket(options.db));
  }
  options.build = HEDDLE_VERSION;
  const int cores = UsableCores();
  options.engine.max_searchers = flags.searchers > 0 ? flags.searchers : cores;
  options.engine.lease = absl::Seconds(flags.lease_s);
  options.engine.remember_requests = absl::Hours(24 * flags.remember_days);
  options.engine.keep_jobs = absl::Hours(24 * flags.keep_jobs_days);
  options.engine.keep_devices = absl::Hours(24 * flags.keep_devices_days);
  options.engine.slice = absl::Seconds(flags.slice_s);
  if (flags.local) options.engine.own_host = HostId();
  HEDDLE_ASSIGN_OR_RETURN(engine, MakeEngine(flags));
  const bool is_replica = !options.replica_of.empty();
  if (is_replica && (engine != nullptr || flags.local)) {
    return absl::InvalidArgumentError(
        "--replica-of: a replica answers reads alone; leave --local and --executor out");
  }
  options.replica_every = absl::Seconds(flags.replica_s);
  if (is_replica || engine != nullptr) options.engine.max_searchers = 0;
  options.engine.heartbeat = std::min(absl::Seconds(5), options.engine.lease / 5);
  CatchInterrupts();
  ServiceManager manager;
  TakeAllDescriptors();
  // What the database and its copies hold, tokens and tenants' jobs, is the server's alone.
  umask(0077);
  auto server = server::Server::Start(options);
  if (absl::IsFailedPrecondition(server.status())) {
    return WithCode(absl::StatusCode::kInvalidArgument, server.status());
  }
  HEDDLE_RETURN_IF_ERROR(server);
  for (const std::string& address : (*server)->addresses()) {
    Say(absl::StrCat("heddle: serving on ", address));
  }
  const std::vector<std::string>& addresses = (*server)->addresses();
  const auto socket = std::find_if(addresses.begin(), addresses.end(), is_socket);
  LocalDaemon daemon(socket != addresses.end() ? *socket : "");
  std::optional<Executor> executor;
  if (engine != nullptr) {
    std::error_code error;
    const auto folder = std::filesystem::absolute(flags.folder);
    std::filesystem::create_directories(folder, error);
    if (error) {
      return absl::InvalidArgumentError(
          absl::StrCat("--folder: ", folder.string(), ": ", error.message()));
    }
    executor.emplace(**server, std::move(engine), folder.string(), absl::Seconds(flags.every_s));
  }
  manager.Ready();
  while (!Interrupted()) {
    manager.KeepAlive((*server)->ticks());
    if (flags.local) daemon.Keep();
    absl::SleepFor(absl::Milliseconds(100));
  }
  manager.Stopping();
  LogEvent(Severity::kInfo, "draining");
  // The daemon first: what it measures is reported while the server still listens.
  daemon.Stop(kGrace);
  executor.reset();
  (*server)->Drain(kGrace);
  server->reset();
  LogEvent(Severity::kInfo, "ended");
  return kDone;
}

// ---------------------------------------------------------------------------------------- tokens

struct TokenFlags {
  std::string db, role;
  server::TokenInfo token{.tenant = "default"};
  double expires_days = 0;  // 0 = never
  int64_t id = 0;
  bool json = false;
};

Result RunTokenCreate(TokenFlags flags) {
  HEDDLE_ASSIGN_OR_RETURN(records, OpenWritableRecords(flags.db));
  flags.token.role = *server::ParseRole(flags.role);
  const absl::Time now = absl::Now();
  if (flags.expires_days > 0) flags.token.expires = now + absl::Hours(24 * flags.expires_days);
  HEDDLE_ASSIGN_OR_RETURN(token, server::CreateToken(*records, flags.token, now));
  std::cout << token << "\n";
  Say("heddle: the token is shown only now; the database holds its hash.");
  return kDone;
}

std::string Day(absl::Time time) { return absl::FormatTime("%Y-%m-%d", time, absl::UTCTimeZone()); }

Result RunTokenList(const TokenFlags& flags) {
  HEDDLE_ASSIGN_OR_RETURN(records, OpenRecords(flags.db));
  HEDDLE_ASSIGN_OR_RETURN(tokens, server::ListTokens(*records));
  Json all = Json::array();
  for (const server::TokenInfo& token : tokens) {
    const std::string created = Day(token.created);
    const bool expired = token.expires && *token.expires <= absl::Now();
    all.push_back({{"id", token.id},
                   {"tenant", token.tenant},
                   {"role", NameOf(token.role)},
                   {"created", created},
                   {"revoked", token.revoked.has_value()},
                   {"expires", token.expires ? Json(Day(*token.expires)) : Json()},
                   {"expired", expired},
                   {"last_used", token.last_used ? Json(Day(*token.last_used)) : Json()},
                   {"host", token.host},
                   {"note", token.note}});
    if (flags.json) continue;
    std::cout << token.id << "\t" << token.tenant << "\t" << NameOf(token.role) << "\t" << created
              << "\t"
              << (token.revoked   ? "revoked"
                  : expired       ? "expired"
                  : token.expires ? "valid until " + Day(*token.expires)
                                  : "valid")
              << "\t" << (token.last_used ? "used " + Day(*token.last_used) : "never used") << "\t"
              << token.host << "\t" << token.note << "\n";
  }
  if (flags.json) PrintJson(all);
  return kDone;
}

Result RunTokenRevoke(const TokenFlags& flags) {
  HEDDLE_ASSIGN_OR_RETURN(records, OpenWritableRecords(flags.db));
  HEDDLE_RETURN_IF_ERROR(server::RevokeToken(*records, flags.id, absl::Now()));
  return kDone;
}

}  // namespace

void AddServe(CLI::App& app, Selected selected) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* sub = app.add_subcommand("serve", "serve tuning jobs, queries and a fleet of devices");
  server::ServerOptions& o = flags->options;
  AddDbFlag(*sub, o.db);
  sub->add_option("--listen", o.listen,
                  "where to listen; several times for several [a Unix socket beside the database]")
      ->type_name("unix:PATH|HOST:PORT");
  sub->add_option("--replica-of", o.replica_of,
                  "answer reads alone, from a copy of this database that --db is made and kept")
      ->type_name("FILE");
  sub->add_option("--replica-every", flags->replica_s,
                  "seconds between looks at whether it has changed")
      ->type_name("S")
      ->check(CLI::Range(0.01, 86400.0).description(""))
      ->capture_default_str();
  sub->add_flag("--local", flags->local, "also measure on this machine's devices");
  sub->add_option("--tls-cert", o.tls_cert, "the server's certificate chain (PEM)")
      ->type_name("FILE");
  sub->add_option("--tls-key", o.tls_key, "its key")->type_name("FILE");
  sub->add_option("--tls-client-ca", o.client_ca,
                  "callers must show a certificate that this authority has signed")
      ->type_name("FILE");
  sub->add_flag("--insecure-loopback", o.insecure_loopback,
                "callers on 127.0.0.1 need no token: every user of this machine may do everything");
  sub->add_option("--metrics", o.metrics, "serve Prometheus metrics there")->type_name("HOST:PORT");
  sub->add_option("--searchers", flags->searchers, "jobs that are searched at a time [cores]")
      ->type_name("N")
      ->check(CLI::Range(1, 1024).description(""));
  sub->add_option("--jobs-per-tenant", o.engine.open_jobs_per_tenant,
                  "jobs of a tenant that have not ended, at most")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 30).description(""))
      ->capture_default_str();
  sub->add_option("--ended-jobs-per-tenant", o.engine.ended_jobs_per_tenant,
                  "jobs of a tenant that have ended, beyond which each new one has the oldest two "
                  "forgotten")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 30).description(""))
      ->capture_default_str();
  sub->add_option("--running-jobs", o.engine.running_jobs_per_tenant,
                  "jobs of a tenant that are searched at a time, at most [no limit]")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 30).description(""));
  sub->add_option("--device-seconds", o.engine.device_seconds_per_day,
                  "of devices that a tenant gets a day (UTC), at most [no limit]")
      ->type_name("S")
      ->check(CLI::Range(1.0, 1e12).description(""));
  sub->add_option("--slice", flags->slice_s,
                  "seconds for which a job keeps its searcher while others wait")
      ->type_name("S")
      ->check(CLI::Range(1.0, 86400.0).description(""))
      ->capture_default_str();
  sub->add_option("--lease", flags->lease_s,
                  "seconds after which the work of a silent daemon is given to others")
      ->type_name("S")
      ->check(CLI::Range(1.0, 3600.0).description(""))
      ->capture_default_str();
  sub->add_option("--remember-requests", flags->remember_days,
                  "days for which a request that is sent again gives the same job")
      ->type_name("DAYS")
      ->check(CLI::Range(0.01, 36500.0).description(""))
      ->capture_default_str();
  const auto keep = [&](const char* flag, double& days, const char* what) {
    sub->add_option(flag, days, what)
        ->type_name("DAYS")
        ->check(CLI::Range(0.01, 36500.0).description(""))
        ->capture_default_str();
  };
  keep("--keep-jobs", flags->keep_jobs_days, "days for which jobs that have ended are listed");
  keep("--keep-devices", flags->keep_devices_days, "days for which devices that are gone are");
  sub->add_option("--executor", flags->executor,
                  "what runs the jobs: this server and its daemons, or a cluster's own scheduler "
                  "(docs/cluster.md), to which the flags below belong")
      ->type_name("fleet|slurm|kubernetes")
      ->check(OneOf({"fleet", "slurm", "kubernetes"}))
      ->capture_default_str();
  sub->add_option("--folder", flags->folder, "of the cluster's jobs; all its nodes see it")
      ->type_name("DIR");
  sub->add_option("--look-every", flags->every_s, "seconds between looks at the cluster")
      ->type_name("S")
      ->check(CLI::Range(0.1, 3600.0).description(""))
      ->capture_default_str();
  const auto options_of = [&](auto& engine) {
    const size_t before = sub->get_options().size();
    engine.Add(*sub);
    std::vector<CLI::Option*> options = sub->get_options();
    options.erase(options.begin(), options.begin() + before);
    return options;
  };
  const auto of_slurm = options_of(flags->slurm), of_kubernetes = options_of(flags->kubernetes);
  sub->footer(
      "Ports want tokens, and TLS beyond this machine; the socket is guarded by its permissions\n"
      "(docs/service.md).\n"
      "SIGTERM and Ctrl-C end it in order; jobs continue when it is started again.");
  sub->callback([=] {
    const absl::Status refused = RefuseFlagsOfOthers(flags->executor, of_slurm, of_kubernetes);
    *selected = [=] { return refused.ok() ? RunServe(*flags) : Result(refused); };
  });
}

void AddToken(CLI::App& app, Selected selected) {
  auto flags = std::make_shared<TokenFlags>();
  CLI::App* sub = app.add_subcommand("token", "who may use a server over the network");
  sub->require_subcommand(1);
  CLI::App* create = sub->add_subcommand("create", "print a new token");
  create->add_option("--tenant", flags->token.tenant, "whose jobs it sees")
      ->type_name("NAME")
      ->capture_default_str();
  create->add_option("--role", flags->role, "what it may do")
      ->type_name("reader|tuner|daemon|measurer|admin")
      ->check(OneOf({"reader", "tuner", "daemon", "measurer", "admin"}))
      ->required();
  create->add_option("--note", flags->token.note, "who has it, for the list")->type_name("TEXT");
  create->add_option("--expires", flags->expires_days, "days for which it is valid [for ever]")
      ->type_name("DAYS")
      ->check(CLI::Range(0.001, 36500.0).description(""));
  create
      ->add_option("--host", flags->token.host,
                   "of a daemon: the only host that it may speak for, as `devices hosts` lists it")
      ->type_name("HOST");
  CLI::App* list = sub->add_subcommand("list", "all tokens, without their secret");
  list->add_flag("--json", flags->json, "one JSON document on stdout");
  CLI::App* revoke = sub->add_subcommand("revoke", "makes a token invalid, at once");
  revoke->add_option("id", flags->id, "as `token list` shows it")->type_name("ID")->required();
  for (CLI::App* each : {create, list, revoke}) AddDbFlag(*each, flags->db);
  create->callback([=] { *selected = [=] { return RunTokenCreate(*flags); }; });
  list->callback([=] { *selected = [=] { return RunTokenList(*flags); }; });
  revoke->callback([=] { *selected = [=] { return RunTokenRevoke(*flags); }; });
}

}  // namespace heddle::cli
