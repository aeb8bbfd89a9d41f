// The one executable: heddle SUBCOMMAND ...
#include <iostream>

#include "absl/strings/str_cat.h"
#include "measure/worker_main.h"
#include "search_space/nearest_name.h"
#include "server/searcher.h"
#include "tuner/cli/command.h"
#include "tuner/cli/local_daemon.h"

namespace heddle::cli {
namespace {

// The first argument that is no flag, when it names no subcommand: CLI11's own message does not say
// what would be right.
std::optional<std::string> UnknownCommand(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return std::nullopt;
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands({})) names.push_back(sub->get_name());
  for (const std::string& name : names) {
    if (name == argv[1]) return std::nullopt;
  }
  return absl::StrCat("unknown command '", argv[1], "'", search_space::Suggest(argv[1], names));
}

int Fail(const absl::Status& status) {
  std::cout.flush();
  Say(absl::StrCat("heddle: ", status.message()));
  return ExitCodeOf(status);
}

int Main(int argc, char** argv) {
  CLI::App app(
      "Heddle finds fast GPU kernels for tensor operators: it tunes, checks, times and "
      "keeps them.");
  app.name("heddle");
  app.set_version_flag("--version", "heddle " HEDDLE_VERSION);
  app.footer(
      "Exit codes: 0 done, 1 failed, 2 bad arguments, 3 no valid schedule, 4 server or device\n"
      "unavailable, 5 deadline, 130 interrupted. `heddle SUBCOMMAND --help` tells more.");
  app.require_subcommand(1);
  auto selected = std::make_shared<Action>();
  for (auto* add : {AddTune, AddShow, AddExplain, AddQuery, AddExport, AddTime, AddSpace, AddOps,
                    AddDevices, AddRecords, AddMeasured, AddServe, AddToken, AddJobs}) {
    add(app, selected);
  }
  if (auto unknown = UnknownCommand(app, argc, argv)) {
    return Fail(absl::InvalidArgumentError(*unknown));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help and version are "errors" with exit code 0.
    return app.exit(error) == 0 ? kDone : kBadArguments;
  }
  Result result = (*selected)();
  if (!result.ok()) return Fail(result.status());
  std::cout.flush();
  if (!std::cout) return Fail(absl::InternalError("standard output could not be written"));
  return *result;
}

}  // namespace
}  // namespace heddle::cli

int main(int argc, char** argv) {
  if (auto code = heddle::measure::RunHiddenCommand(argc, argv)) return *code;
  if (auto code = heddle::server::RunSearcherCommand(argc, argv)) return *code;
  if (auto code = heddle::cli::RunLocalCommand(argc, argv)) return *code;
  return heddle::cli::Main(argc, argv);
}
