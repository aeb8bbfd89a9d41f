#include "server/api/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <unistd.h>

#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "measure/codegen/codegen.h"
#include "server/api/services.h"
#include "server/metrics/health_metrics.h"

namespace heddle::server {
namespace {

// Commits that fail in a row until the server says that it is ill.
constexpr int kMaxFailedCommits = 3;
constexpr absl::Duration kProbeEvery = absl::Seconds(1);
constexpr absl::Duration kTick = absl::Milliseconds(100);
constexpr int kLightThreads = 4, kHeavyThreads = 4;
// How often certificates are looked at again.
constexpr unsigned kCertificateSeconds = 10;
// How often it is looked at when they end, and from when on the log warns of it.
constexpr absl::Duration kCertificatesEvery = absl::Hours(1);
constexpr absl::Duration kCertificateWarning = absl::Hours(24 * 14);
constexpr int kMaxMessageBytes = 4 << 20;
constexpr int kMinPingMs = 10000;
// Buffers of all calls together, before they are messages.
constexpr size_t kMaxBuffered = size_t{512} << 20;
// Calls of one connection: a daemon has one under way for each of its devices, and some more.
constexpr int kMaxStreams = 100;
// A peer that is silent for so long is asked, and given up when it does not answer either.
constexpr int kKeepaliveMs = 60000, kKeepaliveTimeoutMs = 20000;
// New calls take a new connection then, so that callers spread over what has changed meanwhile.
constexpr int kConnectionAgeMs = 3600 * 1000;
// Connections that carry no call are closed, and who makes one proves soon that it speaks HTTP/2,
// so that those that somebody only holds open come to an end.
constexpr int kConnectionIdleMs = 600 * 1000, kHandshakeMs = 10 * 1000;

bool IsLoopback(const std::string& address) {
  for (const char* prefix : {"localhost:", "127.", "[::1]:"}) {
    if (absl::StartsWith(address, prefix)) return true;
  }
  return false;
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> CredentialsOf(
    const ServerOptions& options) {
  if (options.tls_cert.empty() && options.tls_key.empty() && options.client_ca.empty()) {
    return grpc::InsecureServerCredentials();
  }
  if (options.tls_cert.empty() || options.tls_key.empty()) {
    return absl::InvalidArgumentError("TLS needs both --tls-cert and --tls-key");
  }
  for (const std::string& file : {options.tls_cert, options.tls_key, options.client_ca}) {
    if (!file.empty() && access(file.c_str(), R_OK) != 0) {
      return absl::InvalidArgumentError(absl::StrCat(file, ": cannot be read"));
    }
  }
  using grpc::experimental::FileWatcherCertificateProvider;
  auto provider = std::make_shared<FileWatcherCertificateProvider>(
      options.tls_key, options.tls_cert, options.client_ca, kCertificateSeconds);
  grpc::experimental::TlsServerCredentialsOptions tls(provider);
  tls.watch_identity_key_cert_pairs();
  if (!options.client_ca.empty()) {
    tls.watch_root_certs();
    tls.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(tls);
}

// Says when they end, and warns of those that soon do.
void WatchCertificates(const std::map<std::string, std::string>& files,
                       prometheus::Registry& registry) {
  for (const auto& [name, file] : files) {
    if (file.empty()) continue;
    const absl::StatusOr<absl::Time> expiry = CertificateExpiry(file);
    if (!expiry.ok()) {
      LogEvent(Severity::kWarning, "certificate_unreadable",
               {{"certificate", name}, {"error", std::string(expiry.status().message())}});
      continue;
    }
    SetCertificateExpiry(registry, name, *expiry);
    // People read it, hence by the system's clock.
    const absl::Duration left = *expiry - absl::Now();
    if (left > kCertificateWarning) continue;
    LogEvent(Severity::kWarning, "certificate_expires",
             {{"certificate", name},
              {"file", file},
              {"expires", absl::FormatTime(*expiry, absl::UTCTimeZone())},
              {"days", absl::ToInt64Hours(left) / 24}});
  }
}

absl::Status CheckAddresses(const ServerOptions& options) {
  if (options.listen.empty()) return absl::InvalidArgumentError("no address to listen on");
  for (const std::string& address : options.listen) {
    if (IsUnix(address) || IsLoopback(address)) continue;
    if (options.insecure_loopback) {
      return absl::InvalidArgumentError(
          absl::StrCat(address,
                       " can be reached from other machines: --insecure-loopback is for ports on "
                       "127.0.0.1 only"));
    }
    if (options.tls_cert.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          address,
          ": others could read and change what is sent; give --tls-cert and --tls-key, or "
          "listen on a Unix socket or on 127.0.0.1"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(ServerOptions options) {
  HEDDLE_RETURN_IF_ERROR(CheckAddresses(options));
  const std::string path = options.db.empty() ? tuner::Records::DefaultPath() : options.db;
  auto server = std::unique_ptr<Server>(new Server());
  Metrics& metrics = server->metrics_;
  options.store.on_commit = [s = server.get()](double seconds, const absl::Status& status) {
    s->metrics_.commit_seconds.Observe(seconds);
    if (!status.ok()) s->metrics_.commit_failures.Increment();
    s->failed_commits_ = status.ok() ? 0 : s->failed_commits_ + 1;
  };
  if (options.db.empty()) {
    // Creates the folder too.
    HEDDLE_RETURN_IF_ERROR(tuner::Records::Open(""));
  }
  if (!options.replica_of.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(replica, Replica::Make(options.replica_of, path));
    server->replica_ = std::make_unique<Replica>(std::move(replica));
  }
  HEDDLE_ASSIGN_OR_RETURN(store, Store::Open(path, options.store));
  // While its server runs, nobody else may hold its database.
  if (options.replica_of.empty() && IsReplica(path)) {
    HEDDLE_RETURN_IF_ERROR(ForgetReplica(path));
    LogEvent(Severity::kWarning, "replica_promoted", {{"database", path}});
  }
  server->store_ = std::move(store);
  server->engine_ = std::make_unique<Engine>(*server->store_, metrics, options.engine);
  HEDDLE_RETURN_IF_ERROR(server->replica_ ? server->StartReplica(options)
                                          : server->engine_->Recover());
  server->spaces_ = std::make_unique<Spaces>(options.spaces);
  server->light_ = std::make_unique<Pool>(kLightThreads);
  server->heavy_ = std::make_unique<Pool>(kHeavyThreads);
  server->gateway_ = std::make_unique<Gateway>(Gateway{
      *server->store_, *server->engine_, metrics, *server->spaces_, *server->light_,
      *server->heavy_, server->backlog_, server->timers_,
      /*tokens_required=*/!options.insecure_loopback, options.look_again, server->replica_.get()});
  HEDDLE_RETURN_IF_ERROR(server->Listen(options));
  if (!options.metrics.empty()) {
    HEDDLE_RETURN_IF_ERROR(CheckPort(options.metrics, "--metrics"));
    HEDDLE_RETURN_IF_ERROR(metrics.Listen(options.metrics));
  }
  if (server->replica_) {
    server->replicator_ =
        std::thread([s = server.get(), every = options.replica_every] { s->RefreshEvery(every); });
  }
  SetBuildInfo(metrics.registry(), options.build, measure::kGeneratorVersion);
  const std::map<std::string, std::string> certificates = {{"server", options.tls_cert},
                                                           {"client_ca", options.client_ca}};
  server->ticker_ = std::thread([s = server.get(), certificates] { s->TickOn(certificates); });
  LogEvent(Severity::kInfo, "serving",
           {{"addresses", server->addresses_},
            {"database", path},
            {"epoch", server->engine_->epoch()},
            {"tls", !options.tls_cert.empty()},
            {"tokens", server->gateway_->tokens_required}});
  return server;
}

// The last copy is served where the primary is away.
absl::Status Server::StartReplica(const ServerOptions& options) {
  const absl::Status copied = RefreshReplica();
  if (copied.ok()) return copied;
  if (replica_->as_of() == absl::InfinitePast()) return copied;
  LogEvent(Severity::kError, "replica_not_refreshed",
           {{"primary", options.replica_of}, {"error", std::string(copied.message())}});
  SetReplicaAsOf(metrics_.registry(), replica_->as_of());
  return engine_->LoadFleet();
}

absl::Status Server::RefreshReplica() {
  HEDDLE_ASSIGN_OR_RETURN(changed, replica_->Refresh());
  SetReplicaAsOf(metrics_.registry(), replica_->as_of());
  return changed ? engine_->LoadFleet() : absl::OkStatus();
}

void Server::RefreshEvery(absl::Duration every) {
  absl::Status last;
  while (!stopping_.Wait(every)) {
    absl::Status status = RefreshReplica();
    // Once, however long it lasts.
    if (status != last && !status.ok()) {
      LogEvent(Severity::kError, "replica_not_refreshed",
               {{"error", std::string(status.message())}});
    }
    last = std::move(status);
  }
}

void Server::TickOn(const std::map<std::string, std::string>& certificates) {
  SteadyTime looked = SteadyTime::InfinitePast();
  do {
    Tick();
    if (SteadyNow() - looked < kCertificatesEvery) continue;
    looked = SteadyNow();
    WatchCertificates(certificates, metrics_.registry());
  } while (!stopping_.Wait(kTick));
}

absl::Status Server::Listen(const ServerOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(credentials, CredentialsOf(options));
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  services_.push_back(
      MakeTuningService(*gateway_, options.build, options.engine.open_jobs_per_tenant));
  services_.push_back(MakeRecordsService(*gateway_));
  services_.push_back(MakeFleetService(*gateway_));
  grpc::ServerBuilder builder;
  for (const auto& service : services_) builder.RegisterService(service.get());
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, kConnectionAgeMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kConnectionIdleMs);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  grpc::ResourceQuota quota("heddle");
  builder.SetResourceQuota(quota.Resize(kMaxBuffered));
  std::vector<std::shared_ptr<ConnectionAcceptor>> acceptors;
  for (const std::string& address : options.listen) {
    HEDDLE_ASSIGN_OR_RETURN(listener, Listener::Open(address, "--listen"));
    addresses_.push_back(listener->address());
    listeners_.push_back(std::move(listener));
    // A Unix socket is guarded by its permissions, and no certificate names it.
    acceptors.emplace_back(builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        IsUnix(address) ? grpc::InsecureServerCredentials() : credentials));
  }
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return absl::InternalError("gRPC starts no server");
  for (size_t i = 0; i < listeners_.size(); ++i) listeners_[i]->Start(acceptors[i]);
  return absl::OkStatus();
}

// A server that cannot write is of no use to those that choose one by its health.
void Server::Tick() {
  if (!replica_) engine_->Tick();
  timers_.Run(SteadyNow());
  metrics_.SetCallsWaiting("light", static_cast<double>(light_->waiting()));
  metrics_.SetCallsWaiting("heavy", static_cast<double>(heavy_->waiting()));
  ++ticks_;
  // Nobody may write any more, who could show that it works again.
  if (!healthy_ && SteadyNow() >= next_probe_) {
    next_probe_ = SteadyNow() + kProbeEvery;
    store_->Write(
        [](tuner::Records& records) {
          return records.database().Run("UPDATE server SET epoch = epoch");
        },
        nullptr);
  }
  const bool healthy = failed_commits_ < kMaxFailedCommits;
  if (std::exchange(healthy_, healthy) == healthy || draining_) return;
  LogEvent(healthy ? Severity::kInfo : Severity::kError, healthy ? "healthy" : "unhealthy",
           {{"failed_commits", failed_commits_.load()}});
  if (auto* health = server_->GetHealthCheckService()) health->SetServingStatus(healthy);
}

void Server::Drain(absl::Duration grace) {
  if (draining_.exchange(true)) return;
  listeners_.clear();
  if (server_ != nullptr) {
    if (auto* health = server_->GetHealthCheckService()) health->SetServingStatus(false);
  }
  if (engine_ != nullptr) engine_->Drain();
  if (server_ != nullptr) {
    server_->Shutdown(
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                     gpr_time_from_millis(absl::ToInt64Milliseconds(grace), GPR_TIMESPAN)));
    server_->Wait();
  }
}

Server::~Server() {
  Drain(absl::Seconds(1));
  stopping_.Set();
  if (ticker_.joinable()) ticker_.join();
  if (replicator_.joinable()) replicator_.join();
  light_.reset();
  heavy_.reset();
  engine_.reset();
  // Calls end when their writes are done.
  store_.reset();
  server_.reset();
}

}  // namespace heddle::server
