#include "cli/slurm.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <limits>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status.h"

namespace heddle::cli {
namespace {

constexpr int kCommandSeconds = 60;      // a command that takes longer is given up
constexpr int64_t kMessageTimeout = 10;  // seconds: Slurm's own default

struct Ran {
  bool ok = false;
  std::vector<std::string> lines;  // of standard output
};

// Standard error is the user's to read, unless it is asked for.
Ran RunCommand(std::vector<std::string> arguments, bool with_errors = false) {
  arguments.insert(arguments.begin(), {"timeout", absl::StrCat(kCommandSeconds)});
  Ran ran;
  const std::string command =
      absl::StrCat("exec ", ShellWords(arguments), with_errors ? " 2>&1" : "");
  FILE* out = popen(command.c_str(), "re");
  if (out == nullptr) return ran;
  std::string text;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, out)) > 0;) text.append(buffer, n);
  const int status = pclose(out);
  ran.ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  ran.lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  return ran;
}

// What sbatch has said of why it failed, as a job's error has it.
std::string WordsOf(const std::vector<std::string>& lines) {
  constexpr size_t kMostOfIt = 400;
  std::vector<std::string> words;
  for (absl::string_view line : lines) {
    for (const char* usual :
         {"sbatch: ", "error: ", "Batch job submission failed: ", "allocation failure: "}) {
      absl::ConsumePrefix(&line, usual);
    }
    words.emplace_back(line);
  }
  std::string text = absl::StrJoin(words, "; ").substr(0, kMostOfIt);
  // Messages of the API have it, which are UTF-8.
  for (char& c : text) c = absl::ascii_isprint(static_cast<unsigned char>(c)) ? c : '?';
  return text;
}

// Whether the controller may have done what it was asked for all the same. Words that are missing
// here cost a twin at worst.
bool MayBeLost(const std::string& words) {
  constexpr const char* kOfReplies[] = {"slurm controller", "timed out", "onnection",
                                        "ommunication",     "essage",    "Zero Bytes"};
  return words.empty() ||
         std::any_of(std::begin(kOfReplies), std::end(kOfReplies),
                     [&](const char* each) { return absl::StrContains(words, each); });
}

// The id that sbatch prints with --parsable, else 0. Unavailable: the reply may be lost; Internal:
// Slurm refuses. Either has sbatch's words.
absl::StatusOr<int64_t> Sbatch(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "sbatch");
  const Ran ran = RunCommand(std::move(arguments), /*with_errors=*/true);
  int64_t id = 0;
  std::vector<std::string> others;
  for (const std::string& line : ran.lines) {
    int64_t number = 0;
    const std::string first = line.substr(0, line.find(';'));  // "12" or "12;cluster"
    if (absl::SimpleAtoi(first, &number)) {
      id = number;
    } else {
      others.push_back(line);
    }
  }
  if (ran.ok) {
    // With --test-only it tells when the job would begin.
    for (const std::string& warning : others) {
      if (id != 0) std::cerr << warning << "\n";
    }
    return id;
  }
  const std::string words = WordsOf(others);
  return MayBeLost(words) ? absl::UnavailableError(words) : absl::InternalError(words);
}

// Whether the partition of these arguments of sbatch has nodes, none of which could begin a job now
// or behind others.
bool AllNodesAreAway(const std::vector<std::string>& arguments) {
  // The last one counts.
  const auto partition = std::find_if(
      arguments.rbegin(), arguments.rend(),
      [](const std::string& argument) { return absl::StartsWith(argument, "--partition="); });
  if (partition == arguments.rend()) return false;
  const std::vector<std::string> states = RunCommand({"sinfo", "-h", "-o", "%T", *partition}).lines;
  return !states.empty() && std::none_of(states.begin(), states.end(), [](absl::string_view state) {
    // Nodes that are powered up when they are needed, and the like, have a sign behind their
    // state. That of one that does not answer is a star.
    while (!state.empty() && absl::StrContains("~#!%$@^+-", state.back())) {
      state.remove_suffix(1);
    }
    return state == "idle" || state == "mixed" || state == "allocated" || state == "completing" ||
           state == "planned" || state == "reserved";
  });
}

bool Waits(const SlurmJob& job) { return job.state == "PENDING"; }

// Of lines "ID TASK STATE NAME REASON".
absl::StatusOr<std::map<std::string, std::vector<SlurmJob>>> Squeue(
    const std::vector<std::string>& which) {
  std::vector<std::string> command{"squeue", "-h",   "-r", "-t",
                                   "all",    "--me", "-o", "%F %K %T %j %r"};
  command.insert(command.end(), which.begin(), which.end());
  const Ran ran = RunCommand(command);
  if (!ran.ok) {
    return absl::UnavailableError("Slurm does not answer (squeue); the same command goes on later");
  }
  std::map<std::string, std::vector<SlurmJob>> jobs;
  for (const std::string& line : ran.lines) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(' ', 4));
    SlurmJob job;
    if (fields.size() < 5 || !absl::SimpleAtoi(fields[0], &job.id)) continue;
    job.task = fields[1];
    job.state = fields[2];
    job.reason = fields[4];
    jobs[fields[3]].push_back(job);
  }
  return jobs;
}

absl::Status NotCancelled(const std::string& name) {
  return absl::UnavailableError(
      absl::StrCat("jobs of ", name, " could not all be cancelled; try again"));
}

// What accounting, where there is one, remembers of jobs that squeue has forgotten.
std::vector<SlurmJob> FindInAccounts(const std::string& name) {
  constexpr char kSacct[] =
      "exec sacct -X -n -P --starttime=now-30days --name=\"$1\" -o JobID,State 2>/dev/null";
  std::vector<SlurmJob> jobs;
  for (const std::string& line : RunCommand({"sh", "-c", kSacct, "sh", name}).lines) {
    const std::vector<std::string> fields = absl::StrSplit(line, '|');
    const std::vector<std::string> id = absl::StrSplit(fields[0], '_');
    SlurmJob job;
    if (fields.size() < 2 || !absl::SimpleAtoi(id[0], &job.id)) continue;
    if (id.size() > 1) job.task = id[1];
    job.state = fields[1].substr(0, fields[1].find(' '));  // "CANCELLED by 1000"
    jobs.push_back(job);
  }
  return jobs;
}

}  // namespace

std::string ShellWords(const std::vector<std::string>& arguments) {
  return absl::StrJoin(arguments, " ", [](std::string* out, const std::string& word) {
    const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
      return absl::ascii_isalnum(c) || absl::StrContains("-_=+./:,%@", std::string(1, c));
    });
    absl::StrAppend(
        out, plain ? word : absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'"));
  });
}

absl::StatusOr<std::vector<SlurmJob>> FindSlurmJobs(const std::string& name) {
  HEDDLE_ASSIGN_OR_RETURN(jobs, Squeue({"-n", name}));
  return jobs.empty() ? FindInAccounts(name) : jobs.begin()->second;
}

absl::StatusOr<std::map<std::string, std::vector<SlurmJob>>> AllSlurmJobs() { return Squeue({}); }

bool HasEnded(const SlurmJob& job) {
  // Not PREEMPTED: most such jobs wait again a moment later, and squeue soon forgets the others.
  static const auto& ended =
      *new std::set<std::string>{"COMPLETED", "FAILED",        "CANCELLED", "TIMEOUT", "NODE_FAIL",
                                 "BOOT_FAIL", "OUT_OF_MEMORY", "DEADLINE",  "REVOKED"};
  return ended.contains(job.state);
}

bool IsHeld(const SlurmJob& job) {
  // So Slurm keeps a task whose node's daemon ended as it was to begin, until somebody releases it.
  return Waits(job) && (job.reason == "JobHeldUser" || job.reason == kSlurmLaunchFailed);
}

absl::StatusOr<int64_t> SubmitOnce(const std::string& name,
                                   const std::vector<std::string>& arguments, bool must_fit) {
  auto jobs = FindSlurmJobs(name);
  HEDDLE_RETURN_IF_ERROR(jobs);
  if (jobs->empty()) {
    if (must_fit) HEDDLE_RETURN_IF_ERROR(CheckFits(name, arguments));
    std::vector<std::string> more{"--parsable", "--job-name=" + name};
    more.insert(more.end(), arguments.begin(), arguments.end());
    const auto id = Sbatch(std::move(more));
    if (id.ok() && *id != 0) return id;
    const absl::Status refused = absl::InternalError(
        absl::StrCat("sbatch did not submit ", name, ": ", id.status().message()));
    if (absl::IsInternal(id.status())) return refused;
    // The controller may still be at it: what it has not told of by then it never heard of.
    const SteadyTime end =
        SteadyNow() + 2 * absl::Seconds(SlurmSetting("MessageTimeout", kMessageTimeout));
    do {
      jobs = FindSlurmJobs(name);
      if (jobs.ok() && !jobs->empty()) break;
      absl::SleepFor(absl::Seconds(1));
    } while (SteadyNow() < end);
    HEDDLE_RETURN_IF_ERROR(jobs);
    if (jobs->empty()) return refused;
  }
  const int64_t first = FirstOf(*jobs);
  CancelTwins(*jobs, first);
  return first;
}

absl::Status CheckFits(const std::string& name, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "--test-only");
  const absl::Status status = Sbatch(arguments).status();
  if (absl::IsInternal(status)) {
    // Which says nothing of what will be, as when the controller has just begun to look for them.
    if (AllNodesAreAway(arguments)) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(
        name, " cannot be run as the cluster stands (sbatch --test-only): ", status.message()));
  }
  if (absl::IsUnavailable(status)) {
    return absl::UnavailableError("Slurm does not answer (sbatch); the same command goes on later");
  }
  return status;
}

int64_t FirstOf(const std::vector<SlurmJob>& jobs) {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const SlurmJob& job : jobs) first = std::min(first, job.id);
  return first;
}

void CancelTwins(const std::vector<SlurmJob>& jobs, int64_t id) {
  for (const SlurmJob& job : jobs) {
    if (job.id != id && Waits(job)) RunCommand({"scancel", absl::StrCat(job.id)});
  }
}

absl::Status ReleaseSlurmJob(const std::string& name, int64_t id) {
  HEDDLE_ASSIGN_OR_RETURN(jobs, FindSlurmJobs(name));
  const bool held = std::any_of(jobs.begin(), jobs.end(),
                                [&](const SlurmJob& job) { return job.id == id && IsHeld(job); });
  if (!held || RunCommand({"scontrol", "release", absl::StrCat(id)}).ok) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("job ", id, " could not be released; the same command tries again"));
}

absl::Status CancelSlurmJobs(const std::string& name) {
  // To the batch shell alone, which is the tuner: Slurm would signal compilers too.
  const bool waiting = RunCommand({"scancel", "--me", "--name=" + name, "--state=PENDING"}).ok;
  const bool running = RunCommand({"scancel", "--me", "--name=" + name, "--state=RUNNING",
                                   "--batch", "--signal=TERM"})
                           .ok;
  if (waiting && running) return absl::OkStatus();
  return NotCancelled(name);
}

absl::Status KillSlurmJobs(const std::string& name) {
  return RunCommand({"scancel", "--me", "--name=" + name}).ok ? absl::OkStatus()
                                                              : NotCancelled(name);
}

int64_t SlurmSetting(const std::string& key, int64_t otherwise) {
  for (const std::string& line : RunCommand({"scontrol", "show", "config"}).lines) {
    const std::vector<std::string> fields =
        absl::StrSplit(line, absl::ByAnyChar(" ="), absl::SkipEmpty());
    int64_t value = 0;
    if (fields.size() >= 2 && fields[0] == key && absl::SimpleAtoi(fields[1], &value)) return value;
  }
  return otherwise;
}

absl::StatusOr<std::set<std::string>> SlurmNodes() {
  const Ran ran = RunCommand({"sinfo", "-h", "-N", "-o", "%N"});
  if (ran.ok) return std::set<std::string>(ran.lines.begin(), ran.lines.end());
  return absl::UnavailableError("Slurm does not answer (sinfo); the same command goes on later");
}

int64_t SlurmCores(const std::string& partition) {
  int64_t fewest = 0;
  for (const std::string& line : RunCommand({"sinfo", "-h", "-p", partition, "-o", "%c"}).lines) {
    int64_t cores = 0;
    const std::string digits = line.substr(0, line.find('+'));  // "64+": at least
    if (absl::SimpleAtoi(digits, &cores)) fewest = fewest == 0 ? cores : std::min(fewest, cores);
  }
  return fewest;
}

}  // namespace heddle::cli
