#include "tuner/cli/remote.h"

namespace heddle::cli {

void ServerFlags::Add(CLI::App& app, bool required) {
  auto* server = app.add_option("--server", options.server, "the server [$HEDDLE_SERVER]")
                     ->type_name("unix:PATH|HOST:PORT");
  if (required) server->envname("HEDDLE_SERVER")->required();
  auto file = [&](const char* name, std::string& value, const char* variable, const char* help) {
    auto* option = app.add_option(name, value, help)->type_name("FILE")->envname(variable);
    if (!required) option->needs(server);
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

}  // namespace heddle::cli
