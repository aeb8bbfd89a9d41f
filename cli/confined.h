// --unconfined, of every command that measures.
#ifndef HEDDLE_CLI_CONFINED_H_
#define HEDDLE_CLI_CONFINED_H_

#include <CLI/CLI.hpp>

#include "measure/run/processes/confine.h"

namespace heddle::cli {

inline void AddUnconfined(CLI::App& app) {
  app.add_flag_callback(
      "--unconfined", [] { measure::SetConfined(false); },
      "let compilers and candidates open files and sockets as this user may");
}

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_CONFINED_H_
