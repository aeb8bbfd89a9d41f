// The one executable: heddle SUBCOMMAND ...
#include <algorithm>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest_name.h"
#include "cli/cluster.h"
#include "cli/command.h"
#include "cli/local_daemon.h"
#include "measure/run/worker_main.h"
#include "server/engine/searcher.h"

namespace heddle::cli {
namespace {

// What is wrong where the first argument is neither a command nor a flag of all of them: CLI11's
// own message does not say what would be right.
std::optional<std::string> NoCommandFirst(const CLI::App& app,
                                          const std::vector<std::string>& words) {
  if (words.empty()) return std::nullopt;
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands({})) names.push_back(sub->get_name());
  const auto command = std::find_first_of(words.begin(), words.end(), names.begin(), names.end());
  if (command == words.begin() || app.get_option_no_throw(words[0]) != nullptr) return std::nullopt;
  if (words[0][0] != '-') {
    return absl::StrCat("unknown command '", words[0], "'", Suggest(words[0], names));
  }
  // The first of the words that name a command is it: before it there are flags and their values.
  std::vector<std::string> right(command, words.end());
  if (right.empty()) right.push_back("COMMAND");
  right.insert(right.end(), words.begin(), command);
  return absl::StrCat("flags follow the command: heddle ", absl::StrJoin(right, " "));
}

// What stands behind the program's name; "help COMMAND" is another way to say "COMMAND --help".
std::vector<std::string> WordsOf(int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (words.empty() || words[0] != "help") return words;
  words.erase(words.begin());
  words.emplace_back("--help");
  return words;
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
  for (auto* add :
       {AddTune, AddShow, AddExplain, AddQuery, AddExport, AddTime, AddSpace, AddOps, AddDevices,
        AddRecords, AddRetract, AddMeasured, AddServe, AddToken, AddJobs, AddCluster, AddManual}) {
    add(app, selected);
  }
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return absl::StrCat("heddle: ", error.what(), "\nRun with --help for more information.\n");
  });
  const std::vector<std::string> words = WordsOf(argc, argv);
  if (auto wrong = NoCommandFirst(app, words)) {
    return Fail(absl::InvalidArgumentError(*wrong));
  }
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // the last one first
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
