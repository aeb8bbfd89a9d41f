#include "cli/remote.h"

#include <utility>

#include "absl/time/clock.h"
#include "base/status.h"
#include "cli/interrupt.h"

namespace heddle::cli {

void ServerFlags::Add(CLI::App& app, bool required) {
  auto* server = app.add_option("--server", options.server,
                                required ? "the server [$HEDDLE_SERVER, else the socket beside the "
                                           "database, where `heddle serve` listens]"
                                         : "ask this server")
                     ->type_name("unix:PATH|HOST:PORT");
  if (required) server->envname("HEDDLE_SERVER");
  auto file = [&](const char* name, std::string& value, const char* variable, const char* help) {
    app.add_option(name, value, help)->type_name("FILE")->envname(variable);
  };
  file("--tls-ca", options.ca_file, "HEDDLE_TLS_CA",
       "use TLS: the authority that signed for the server (PEM) [$HEDDLE_TLS_CA]");
  file("--tls-cert", options.cert_file, "HEDDLE_TLS_CERT",
       "own certificate, for servers that ask for one [$HEDDLE_TLS_CERT]");
  file("--tls-key", options.key_file, "HEDDLE_TLS_KEY", "its key [$HEDDLE_TLS_KEY]");
  file("--token-file", options.token_file, "HEDDLE_TOKEN_FILE",
       "holds the bearer token [$HEDDLE_TOKEN_FILE]");
  app.add_option("--tls-name", options.tls_name,
                 "the name in the server's certificate where it is not the host's")
      ->type_name("NAME");
  app.add_flag("--tls", options.tls, "use TLS with the system's authorities");
}

client::ConnectOptions ServerFlags::Get() const {
  client::ConnectOptions chosen = options;
  if (chosen.server.empty()) chosen.server = DefaultSocket("");
  return chosen;
}

absl::StatusOr<std::unique_ptr<RemoteServer>> RemoteServer::Connect(
    const client::ConnectOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(client, client::Client::Connect(options));
  CatchInterrupts();
  return std::unique_ptr<RemoteServer>(new RemoteServer(std::move(client)));
}

RemoteServer::RemoteServer(std::unique_ptr<client::Client> client)
    : client_(std::move(client)), interrupter_([this](const std::stop_token& stop) {
        while (!stop.stop_requested() && !Interrupted()) absl::SleepFor(absl::Milliseconds(20));
        if (Interrupted()) client_->Cancel();
      }) {}

absl::StatusOr<std::vector<v1::FleetDevice>> AllDevices(client::Client& client) {
  std::vector<v1::FleetDevice> all;
  v1::ListDevicesRequest request;
  do {
    HEDDLE_ASSIGN_OR_RETURN(page, client.ListDevices(request));
    all.insert(all.end(), page.devices().begin(), page.devices().end());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return all;
}

Action WithServer(const ServerFlags& flags, const std::function<Result(client::Client&)>& run) {
  return [flags, run]() -> Result {
    HEDDLE_ASSIGN_OR_RETURN(server, RemoteServer::Connect(flags.Get()));
    return run(**server);
  };
}

}  // namespace heddle::cli
