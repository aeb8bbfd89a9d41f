// What the subcommands that talk to a server share.
#ifndef HEDDLE_TUNER_CLI_REMOTE_H_
#define HEDDLE_TUNER_CLI_REMOTE_H_

#include <CLI/CLI.hpp>

#include "client/options.h"

namespace heddle::cli {

struct ServerFlags {
  client::ConnectOptions options;
  // `required`: the command works with a server only, and $HEDDLE_SERVER names it too.
  void Add(CLI::App& app, bool required);
};

}  // namespace heddle::cli

#endif  // HEDDLE_TUNER_CLI_REMOTE_H_
